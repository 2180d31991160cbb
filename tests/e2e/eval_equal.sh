#!/bin/bash
# eval_equal.sh - the results of an evaluation do not depend on the number of envs, threads or
# servers: results.jsonl has the same bytes, for the random policy and for a trained network.
set -eu
. "$(dirname "$0")/lib.bash"

# serve TASK ENVS THREADS: a server at a free port; its address is in $url
serve() {
    exec {out}< <(exec "$SIMSTREAM" serve --task="$1" --num-envs="$2" --threads="$3" \
        --listen="tcp://$host:0" --json)
    pids+=($!)
    read -r line <&"$out" || fail "no server of $1"
    url=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
}

# eval NAME OPTION...: an evaluation whose results must equal those of the first one
first=
run() { "$SIMSTREAM" eval --seed=11 --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>&1; }
evaluate() {
    local name=$1
    shift
    rm -rf "${work:?}/$name"
    once_free "$work/$name.txt" run "$name" "$@" ||
        fail "$name failed: $(cat "$work/$name.txt")"
    if [ -z "$first" ]; then
        first=$work/$name/results.jsonl
        [ "$(wc -l <"$first")" = "$episodes" ] || fail "$name has $(wc -l <"$first") lines"
    fi
    cmp "$first" "$work/$name/results.jsonl" || fail "$name differs"
    grep -q '"complete": true' "$work/$name/summary.json" || fail "$name is not complete"
}

# all_ways TASK POLICY: inside with 1, 3 and 8 envs on 1 and 2 threads; 1 and 2 servers
all_ways() {
    local task=$1 options=(--policy="$2" --episodes="$episodes" "${@:3}") one
    first=
    evaluate "$task-1" "${options[@]}" --task="$task" --num-envs=1 --threads=1
    evaluate "$task-3" "${options[@]}" --task="$task" --num-envs=3 --threads=2
    evaluate "$task-8" "${options[@]}" --task="$task" --num-envs=8 --threads=1
    serve "$task" 5 2
    one=$url
    evaluate "$task-s1" "${options[@]}" --env="$one"
    serve "$task" 2 1
    evaluate "$task-s2" "${options[@]}" --env="$one,$url" --task="$task"
}

episodes=23
all_ways Reacher-v5 random
episodes=10
all_ways Hopper-v5 random

"$SIMSTREAM" train --task=InvertedPendulum-v5 --num-envs=4 --horizon=32 --total-steps=1024 \
    --hidden=16 --seed=3 --out="$work/train" >"$work/train.txt" 2>&1 ||
    fail "train failed: $(cat "$work/train.txt")"
episodes=20
all_ways InvertedPendulum-v5 "$work/train/policy.h5"
rm -rf "$work"/InvertedPendulum-v5-*
all_ways InvertedPendulum-v5 "$work/train/policy.h5" --greedy=false

# another seed is another evaluation
"$SIMSTREAM" eval --policy=random --task=Reacher-v5 --episodes=23 --seed=12 --out="$work/other" \
    >/dev/null 2>&1
! cmp -s "$work/other/results.jsonl" "$work/Reacher-v5-1/results.jsonl" ||
    fail "the seed makes no difference"
echo "eval_equal: all equal"
