#!/bin/bash
# resume.sh - in synchronous mode, training that is broken off and resumed is training without the
# break: half the windows and the other half equal all of them, and so do those of a run that a
# signal stops in mid-window.
set -eu
. "$(dirname "$0")/lib.bash"

options=(--task=Hopper-v5 --num-envs=4 --horizon=16 --hidden=8 --seed=3 --lr-final=0.0003)
train() { # NAME OPTION...
    "$SIMSTREAM" train "${options[@]}" --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>&1 ||
        fail "$1: $(cat "$work/$1.txt")"
}

# the losses of each window
losses() {
    grep -oE '"(step|train/(policy_loss|value_loss|grad_norm|entropy))": *[^,}]*' \
        "$work/$1/metrics.jsonl"
}

# same NAME: windows and policy equal those of the unbroken run
same() {
    diff <(losses whole) <(losses "$1") >"$work/diff" || fail "$1: $(head -c 1500 "$work/diff")"
    "$SIMSTREAM" eval --task=Hopper-v5 --policy="$work/$1/policy.h5" --episodes=3 --greedy=false \
        --out="$work/eval-$1" >"$work/eval.txt" 2>&1 || fail "eval: $(cat "$work/eval.txt")"
    cmp "$work/eval-whole/results.jsonl" "$work/eval-$1/results.jsonl" ||
        fail "the policy of $1 acts differently"
}

# One is stopped wherever the signal meets it; the modelled accelerator makes its windows long, so
# that this is in mid-window. The others are as long as it takes to go on from there.
"$SIMSTREAM" train "${options[@]}" --total-steps=1000000000 --out="$work/cut" --accel-infer=5ms \
    >"$work/cut.txt" 2>&1 &
pid=$!
pids+=("$pid")
await "$pid" has_lines "$work/cut/metrics.jsonl" 5
kill -TERM "$pid"
wait "$pid" || fail "stopped run: $(cat "$work/cut.txt")"
windows=$(($(lines "$work/cut/metrics.jsonl") / 2 * 2 + 14))
steps=$((windows * 4 * 16))

train whole --total-steps=$steps
[ "$(lines "$work/whole/metrics.jsonl")" = $windows ] || fail "not $windows windows"
same whole
train cut --total-steps=$steps --resume
same cut
train halves --total-steps=$((steps / 2))
train halves --total-steps=$steps --resume
same halves
echo "resume: all equal"
