#!/bin/sh
# demo_vla.sh - vision-language-action policies from end to end, from nothing: the scripted expert writes
# a few demonstrations (DEMOS) of each task of TASKS (libero_object's; needs `make libero-data`), a policy that
# sees two cameras and reads the instruction is fine-tuned on them, reinforcement learning from the
# sparse success goes on from there, and both are evaluated in the 50 initial states of each task:
# report.html of eval-sft and eval-rl, and success.svg.
# About a quarter of an hour on two cores; docs/vla.md has the results.
#
#   TASKS=0,1,5 DEMOS=4 SEED=1 OUT=build/demo-vla
#
# Demonstrations and training begin in random states, which the evaluation does not know. Stages whose
# result is there are not run again.
set -eu
cd "$(dirname "$0")/.."
tasks=${TASKS:-0,1,5} demos=${DEMOS:-4} seed=${SEED:-1} out=${OUT:-build/demo-vla}
program=${SIMSTREAM:-$(scripts/build.sh release)/simstream}
suite=libero_object
pictures=agentview:32x32:upright,robot0_eye_in_hand:32x32:upright
n=$(echo "$tasks" | tr , '\n' | wc -l)

[ -d "${LIBERO_DIR:=build/deps/libero}/bddl_files" ] || scripts/libero_data.sh
export LIBERO_DIR
mkdir -p "$out"
cat >"$out/model.json" <<'JSON'
{"model": "vla-tiny", "image": 32, "width": 96, "layers": 2, "heads": 3, "kv_heads": 1, "mlp": 192,
 "vision_width": 96, "vision_layers": 1, "vision_mlp": 192}
JSON

[ -e "$out/demos/summary.json" ] ||
    "$program" eval --suite=$suite --tasks="$tasks" --policy=expert --episodes-per-task="$demos" \
        --seed=$((100 * seed)) --record=hdf5 --out="$out/demos" \
        --kwargs="{\"init_states\": \"random\", \"cameras\": \"$pictures\"}"
[ -e "$out/sft/policy.h5" ] ||
    "$program" sft --data="$(ls "$out"/demos/*/demos.hdf5 | paste -sd,)" --model="$out/model.json" \
        --steps=$((400 * n)) --batch=32 --lr=0.002 --ema=0.99 --shift=1 --seed="$seed" --out="$out/sft"
[ -e "$out/eval-sft/summary.json" ] ||
    "$program" eval --suite=$suite --tasks="$tasks" --policy="$out/sft/policy.h5" --out="$out/eval-sft"
# 16 environments a task: two groups of eight, twice in a window
[ -e "$out/rl/policy.h5" ] ||
    "$program" train --suite=$suite --tasks="$tasks" --init="$out/sft" --algo=rloo --group-size=8 \
        --num-envs=$((16 * n)) --window-episodes=$((32 * n)) --window-max=2 --updates=12 --epochs=4 \
        --minibatches=4 --lr=0.00015 --lr-final=0.00005 --warmup=8 --max-grad-norm=1 --explore=0.1 \
        --train-std=false --seed="$seed" --checkpoint-every=0 --out="$out/rl" \
        --kwargs='{"init_states": "random", "max_episode_steps": 110}'
[ -e "$out/eval-rl/summary.json" ] ||
    "$program" eval --suite=$suite --tasks="$tasks" --policy="$out/rl/policy.h5" --out="$out/eval-rl"
"$program" compare "$out/eval-sft" "$out/eval-rl"
python3 bench/plot_vla.py "$out" "$out/success.svg"
