#!/bin/sh
# demo_vla.sh - vision-language-action policies from end to end, from nothing: the scripted expert writes
# demonstrations of tasks of libero_object (needs `make libero-data`), a policy that sees two cameras
# and reads the instruction is fine-tuned on them, reinforcement learning from the sparse success goes on
# from there where fine-tuning succeeds at times, and both are evaluated in the 50 initial states of each
# task: report.html of eval-sft and eval-rl, and success.svg. A quarter of an hour on two cores;
# docs/vla.md has the results.
#
#   TASKS=1,3,5,6,8   to fine-tune on and to evaluate
#   DEMOS=25          of each
#   RL_TASKS=1,5      to go on with; those that never succeed give nothing to learn from
#   SEED=1 OUT=build/demo-vla
#
# Demonstrations and training begin in random states, which the evaluation does not know. Stages whose
# result is there are not run again.
set -eu
cd "$(dirname "$0")/.."
tasks=${TASKS:-1,3,5,6,8} demos=${DEMOS:-25} rl_tasks=${RL_TASKS:-1,5} seed=${SEED:-1}
out=${OUT:-build/demo-vla}
program=${SIMSTREAM:-$(scripts/build.sh release)/simstream}
suite=libero_object
pictures=agentview:32x32:upright,robot0_eye_in_hand:32x32:upright
count() { echo "$1" | tr , '\n' | wc -l; }
n=$(count "$tasks") n_rl=$(count "$rl_tasks")

[ -d "${LIBERO_DIR:=build/deps/libero}/bddl_files" ] || scripts/libero_data.sh
export LIBERO_DIR
mkdir -p "$out"
cat >"$out/model.json" <<'JSON'
{"model": "vla-tiny", "image": 32, "layers": 2, "vision_layers": 1, "width": 96, "heads": 3, "kv_heads": 1,
 "vision_width": 96, "vision_mlp": 192, "mlp": 192}
JSON

[ -e "$out/demos/summary.json" ] ||
    "$program" eval --suite=$suite --tasks="$tasks" --policy=expert --episodes-per-task="$demos" \
        --seed=$((100 * seed)) --record=hdf5 --out="$out/demos" \
        --kwargs="{\"init_states\": \"random\", \"cameras\": \"$pictures\"}"
[ -e "$out/sft/policy.h5" ] ||
    "$program" sft --data="$(ls "$out"/demos/*/demos.hdf5 | paste -sd,)" --model="$out/model.json" \
        --steps=$((500 * n)) --batch=32 --lr=0.002 --ema=0.99 --shift=1 --seed="$seed" --out="$out/sft"
[ -e "$out/eval-sft/summary.json" ] ||
    "$program" eval --suite=$suite --tasks="$tasks" --policy="$out/sft/policy.h5" --out="$out/eval-sft"
# 16 environments a task: two groups of eight, twice in a window
[ -e "$out/rl/policy.h5" ] ||
    "$program" train --suite=$suite --tasks="$rl_tasks" --init="$out/sft" --algo=rloo --group-size=8 \
        --num-envs=$((16 * n_rl)) --window-episodes=$((32 * n_rl)) --window-max=2 --updates=12 \
        --epochs=4 --minibatches=4 --lr=0.00015 --lr-final=0.00013 --warmup=8 --max-grad-norm=1 \
        --explore=0.1 --train-std=false --seed="$seed" --checkpoint-every=0 --out="$out/rl" \
        --kwargs='{"init_states": "random", "max_episode_steps": 140}'
[ -e "$out/eval-rl/summary.json" ] ||
    "$program" eval --suite=$suite --tasks="$rl_tasks" --policy="$out/rl/policy.h5" --out="$out/eval-rl"
"$program" compare "$out/eval-sft" "$out/eval-rl" --flips=0
python3 bench/plot_vla.py "$out" "$out/success.svg"
