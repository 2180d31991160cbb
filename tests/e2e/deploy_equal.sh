#!/bin/bash
# deploy_equal.sh - in synchronous mode a run is a function of its seed, however it is deployed: one
# process, or serve, rollout and learn as processes of their own, with one or two of each, give the
# same losses and returns in every window and policies that act alike to the last digit.
set -eu
. "$(dirname "$0")/lib.bash"

task=Reacher-v5
shared=(--seed=5 --horizon=24)
learner=("${shared[@]}" --num-envs=6 --total-steps=1440 --hidden=16)

# the numbers of a run without those of the clock
numbers() {
    sed -E 's/"(perf|time)\/[a-z_]*": ?[^,}]*,? ?//g; s/"wall[a-z_]*": ?[^,}]*,? ?//g' \
        "$work/$1/metrics.jsonl"
}

# same NAME: the run equals the first one
same() {
    "$SIMSTREAM" eval --task=$task --policy="$work/$1/policy.h5" --episodes=4 --greedy=false \
        --out="$work/eval-$1" >"$work/eval.txt" 2>&1 || fail "eval of $1: $(cat "$work/eval.txt")"
    [ "$1" = one ] && return
    diff <(numbers one) <(numbers "$1") >"$work/diff" ||
        fail "$1 differs: $(head -c 1500 "$work/diff")"
    cmp "$work/eval-one/results.jsonl" "$work/eval-$1/results.jsonl" ||
        fail "the policy of $1 acts differently"
}

# serve N: an env server with N envs; its address is in $url
serve() {
    exec {out}< <(exec "$SIMSTREAM" serve --task=$task --num-envs="$1" --threads=2 \
        --listen="tcp://$host:0" --json)
    pids+=($!)
    read -r line <&"$out" || fail "no server"
    url=$(sed 's/.*"url": *"\([^"]*\)".*/\1/' <<<"$line")
}

# learn NAME OPTION...: a learner in the background; its process is $learn
learn() {
    "$SIMSTREAM" learn "${learner[@]}" --listen="ipc://$work/$1.sock" --out="$work/$1" \
        >"$work/$1.txt" 2>&1 &
    learn=$!
    pids+=("$learn")
}

"$SIMSTREAM" train --task=$task "${learner[@]}" --out="$work/one" >"$work/one.txt" 2>&1 ||
    fail "train: $(cat "$work/one.txt")"
[ "$(wc -l <"$work/one/metrics.jsonl")" = 10 ] || fail "train did not make 10 windows"
same one
"$SIMSTREAM" train --task=$task "${learner[@]}" --rollout-async --threads=1 --batch-max=2 \
    --out="$work/batches" >"$work/batches.txt" 2>&1 || fail "train: $(cat "$work/batches.txt")"
same batches

serve 6
learn three
"$SIMSTREAM" rollout --env="$url" --learner="ipc://$work/three.sock" "${shared[@]}" \
    >"$work/rollout.txt" 2>&1 || fail "rollout: $(cat "$work/rollout.txt")"
wait "$learn" || fail "learn: $(cat "$work/three.txt")"
same three

serve 2
a=$url
serve 4
b=$url
learn many
"$SIMSTREAM" rollout --env="$a,$b" --num-envs=3 --learner="ipc://$work/many.sock" "${shared[@]}" \
    >"$work/rollout-a.txt" 2>&1 &
rollout=$!
pids+=("$rollout")
"$SIMSTREAM" rollout --env="$b" --num-envs=3 --env-offset=3 --learner="ipc://$work/many.sock" \
    "${shared[@]}" >"$work/rollout-b.txt" 2>&1 || fail "rollout: $(cat "$work/rollout-b.txt")"
wait "$rollout" || fail "rollout: $(cat "$work/rollout-a.txt")"
wait "$learn" || fail "learn: $(cat "$work/many.txt")"
same many
echo "deploy_equal: all equal"
