#!/bin/bash
# vla_groups.sh - a vision-language-action policy goes from demonstrations through the update from groups
# of episodes, on two tasks at once: fresh data has a ratio of exactly 1, a break changes nothing, processes
# of their own learn what one learns, and the result can be evaluated. Tiny: what it learns is not looked at.
set -eu
. "$(dirname "$0")/lib.bash"

run() { # NAME COMMAND...
    "$SIMSTREAM" "${@:2}" >"$work/$1.txt" 2>&1 || fail "$1: $(tail -n 20 "$work/$1.txt")"
}

cameras='"cameras": "agentview:16x16:upright,robot0_eye_in_hand:16x16:upright", "render_samples": 1'
cat >"$work/small.json" <<'JSON'
{"image": 16, "patch": 8, "chunk": 8, "vision_width": 32, "vision_layers": 1, "vision_heads": 2,
 "vision_mlp": 64, "width": 64, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 32, "mlp": 128,
 "expert_width": 64, "expert_mlp": 128}
JSON
run demos eval --task=tabletop/0 --policy=expert --episodes=4 --record=hdf5 --kwargs="{$cameras}" \
    --out="$work/demos"
run sft sft --data="$work/demos/demos.hdf5" --model="$work/small.json" --shift=0 --steps=300 \
    --batch=16 --warmup=20 --lr=0.003 --threads=1 --out="$work/sft"

# from the states of the demonstrations the policy sometimes succeeds, and with so much noise not always:
# groups are mixed (with four seeds tried, enough of them in each window)
groups=(--algo=grpo --group-size=4 --num-envs=8 --window-episodes=8 --window-max=6 --epochs=1
    --minibatches=1 --lr=0.001 --lr-final=0.001 --seed=3 --explore=0.3 --init="$work/sft")
options=(--suite=tabletop --tasks=0,1 "${groups[@]}" --start-states=4
    --kwargs='{"max_episode_steps": 64}')
run whole train "${options[@]}" --updates=3 --out="$work/whole"
grep -q "of tabletop/0" "$work/whole.txt" && grep -q "of tabletop/1" "$work/whole.txt" ||
    fail "not both tasks: $(cat "$work/whole.txt")"
[ "$(wc -l <"$work/whole/metrics.jsonl")" = 3 ] || fail "not 3 windows"
grep -qE '"train/log_ratio_max": *0[,}]' "$work/whole/metrics.jsonl" || fail "nothing was learned from"
! grep -E '"train/log_ratio_max": *[1-9]|"train/log_ratio_max": *0\.' "$work/whole/metrics.jsonl" ||
    fail "fresh data has a ratio"

run half train "${options[@]}" --updates=1 --out="$work/half"
run rest train "${options[@]}" --updates=3 --out="$work/half" --resume
diff <(window_numbers "$work/whole") <(window_numbers "$work/half") || fail "the break changed the run"

# so does a kill in mid-window: what is lost is no more than that window
killed "$work/killed" "$SIMSTREAM" train "${options[@]}"
run rest train "${options[@]}" --updates=3 --out="$work/killed" --resume --checkpoint-every=1
diff <(window_numbers "$work/whole") <(window_numbers "$work/killed") || fail "the kill changed the run"

# the same with a critic: a value head that nobody has trained
critic=("${options[@]}" --algo=chunk-ppo --value-coef=0.1)
run critic train "${critic[@]}" --updates=2 --out="$work/critic"
run first train "${critic[@]}" --updates=1 --out="$work/first"
run second train "${critic[@]}" --updates=2 --out="$work/first" --resume
grep -q '"train/explained_variance": *[-0-9]' "$work/critic/metrics.jsonl" || fail "there is no critic"
values() {
    grep -oE '"train/(success|loss|value_loss|explained_variance|kl|grad_norm)": *[^,}]*' "$work/$1/metrics.jsonl"
}
diff <(values critic) <(values first) || fail "the break changed the run with a critic"
! grep -E '"train/log_ratio_max": *[1-9]|"train/log_ratio_max": *0\.' "$work/critic/metrics.jsonl" ||
    fail "fresh data has a ratio, with a critic"

for i in 0 1; do
    "$SIMSTREAM" serve --task=tabletop/$i --num-envs=4 --listen="ipc://$work/$i.sock" \
        --kwargs="{\"max_episode_steps\": 64, $cameras}" >"$work/serve$i.txt" 2>&1 &
    pids+=($!)
done
"$SIMSTREAM" learn --listen="ipc://$work/l.sock" "${groups[@]}" --updates=2 --out="$work/apart" \
    >"$work/apart.txt" 2>&1 &
learn=$!
pids+=("$learn")
for i in 0 1; do
    "$SIMSTREAM" rollout --env="ipc://$work/$i.sock" --learner="ipc://$work/l.sock" --pixels --seed=3 \
        --env-offset=$((4 * i)) --action-chunk=8 --start-states=4 >"$work/rollout$i.txt" 2>&1 &
    pids+=($!)
done
wait "$learn" || fail "apart: $(cat "$work"/{apart,rollout0,rollout1,serve0}.txt)"
[ "$(wc -l <"$work/apart/metrics.jsonl")" = 2 ] || fail "apart: not 2 windows"

run eval eval --policy="$work/whole/policy.h5" --suite=tabletop --tasks=1 --episodes-per-task=1 \
    --kwargs='{"max_episode_steps": 16}' --out="$work/eval"
grep -q '"episodes"' "$work/eval/summary.json" || fail "no summary"
echo "vla_groups: all as expected"
