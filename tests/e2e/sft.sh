#!/bin/bash
# sft.sh - demonstrations of the expert, a small vision-language-action policy that learns from them,
# and its evaluation: a run that is interrupted and goes on ends in the same policy, the evaluation
# finds the pictures by itself, and what does not fit is named.
set -eu
. "$(dirname "$0")/lib.bash"

cat >"$work/small.json" <<'JSON'
{"image": 16, "patch": 8, "chunk": 8, "vision_width": 32, "vision_layers": 1, "vision_heads": 2,
 "vision_mlp": 64, "width": 64, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 32, "mlp": 128,
 "expert_width": 64, "expert_mlp": 128}
JSON

"$SIMSTREAM" eval --task=tabletop/0 --policy=expert --episodes=4 --record=hdf5 --out="$work/demos" \
    --kwargs='{"cameras": "agentview:16x16:upright,robot0_eye_in_hand:16x16:upright",
               "render_samples": 1}' >"$work/demos.txt" 2>&1 || fail "$(cat "$work/demos.txt")"

options=(--data="$work/demos/demos.hdf5" --model="$work/small.json" --shift=0 --steps=400 --batch=16
    --warmup=20 --lr=0.003)
sft() { # NAME OPTION...
    "$SIMSTREAM" sft "${options[@]}" --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>&1
}

sft whole --threads=1 --json || fail "whole: $(cat "$work/whole.txt")"
grep -q '"steps": 400' "$work/whole.txt" || fail "no 400 steps: $(cat "$work/whole.txt")"

# a run that is interrupted once it has begun, and goes on with another number of threads
"$SIMSTREAM" sft "${options[@]}" --out="$work/parts" --threads=2 >"$work/parts.txt" 2>&1 &
pid=$!
pids+=($pid)
until [ -s "$work/parts/metrics.jsonl" ] || ! kill -0 $pid 2>/dev/null; do sleep 0.05; done
kill -INT $pid 2>/dev/null || true
wait $pid || fail "interrupted: $(cat "$work/parts.txt")"
sft parts --threads=2 --resume || fail "resumed: $(cat "$work/parts.txt")"
cmp "$work/whole/policy.h5" "$work/parts/policy.h5" || fail "the policy is another after a break"

# the task, its pictures and the instruction come from the policy and the task
"$SIMSTREAM" eval --policy="$work/whole/policy.h5" --episodes=4 --out="$work/eval" --json \
    >"$work/eval.txt" 2>"$work/eval.err" || fail "eval: $(cat "$work/eval.err")"
grep -q 'agentview:16x16:upright' "$work/eval/settings.json" || fail "its cameras are not in use"
successes=$(grep -c '"outcome": *"success"' "$work/eval/results.jsonl" || true)
[ "$successes" -ge 2 ] || fail "$successes of 4 demonstrations are done again"

# half of its picture tokens pass: it acts otherwise, and the settings say why
"$SIMSTREAM" eval --policy="$work/whole/policy.h5" --episodes=1 --keep=50 --out="$work/pruned" \
    >"$work/pruned.txt" 2>&1 || fail "pruned: $(cat "$work/pruned.txt")"
grep -q '"keep": *50' "$work/pruned/settings.json" || fail "the settings do not say what is pruned"
! grep -q '"keep"' "$work/eval/settings.json" || fail "the settings say that something is pruned"
"$SIMSTREAM" eval --policy=expert --task=tabletop/0 --episodes=1 --keep=50 --out="$work/bad" \
    >"$work/bad.txt" 2>&1 && fail "an expert without half of its pictures"
grep -q "not for 'expert'" "$work/bad.txt" || fail "$(cat "$work/bad.txt")"

if "$SIMSTREAM" eval --policy="$work/whole/policy.h5" --episodes=1 --out="$work/bad" \
    --kwargs='{"cameras": "agentview:16x16"}' >"$work/bad.txt" 2>&1; then
    fail "a policy played without one of its pictures"
fi
grep -q "the policy sees 'robot0_eye_in_hand_image'" "$work/bad.txt" || fail "$(cat "$work/bad.txt")"
if sft parts --resume --lr=0.1; then fail "went on with another learning rate"; fi
grep -q "option 'lr' was" "$work/parts.txt" || fail "$(cat "$work/parts.txt")"
