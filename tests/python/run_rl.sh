#!/bin/bash
# run_rl.sh PYTHON - the PPO of Stable-Baselines3 and one in CleanRL's manner learn with simstream
# environments. PYTHON has simstream (pip install ./python), torch, stable-baselines3, and gymnasium
# with mujoco. Not part of the tests, since torch is large.
set -euo pipefail
cd "$(dirname "$0")/rl"
python=${1:?usage: run_rl.sh PYTHON}
"$python" ppo_sb3.py
"$python" ppo_cleanrl.py InvertedPendulum-v5
"$python" ppo_cleanrl.py simstream/InvertedPendulum-v5
