#!/bin/bash
# resume.sh - in synchronous mode, training that is broken off and resumed is training without the
# break: 10 + 10 windows equal 20, and so do those of a run that a signal stops in mid-window.
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

train whole --total-steps=1280
[ "$(wc -l <"$work/whole/metrics.jsonl")" = 20 ] || fail "not 20 windows"
same whole
train halves --total-steps=640
train halves --total-steps=1280 --resume
same halves

# the modelled accelerator makes windows long enough to be interrupted
"$SIMSTREAM" train "${options[@]}" --total-steps=1280 --out="$work/cut" --accel-infer=5ms \
    >"$work/cut.txt" 2>&1 &
pid=$!
for ((i = 0; i < 600; i++)); do
    [ "$(wc -l 2>/dev/null <"$work/cut/metrics.jsonl" || echo 0)" -ge 5 ] && break
    sleep 0.05
done
kill -TERM "$pid"
wait "$pid" || fail "stopped run: $(cat "$work/cut.txt")"
[ "$(wc -l <"$work/cut/metrics.jsonl")" -lt 20 ] || fail "the run was over before the signal"
train cut --total-steps=1280 --resume
same cut
echo "resume: all equal"
