#!/bin/bash
# train_kill.sh - signals and deaths: a stop keeps the closed windows and leaves nothing behind; the
# death of one part gives the others a message that names it, and exit code 1 only where work ends.
set -eu
. "$(dirname "$0")/lib.bash"

# start NAME COMMAND...: in the background; its process is $pid
start() {
    "$SIMSTREAM" "${@:2}" >"$work/$1.txt" 2>&1 &
    pid=$!
    pids+=("$pid")
}

# windows FOLDER N: wait until that many are done
windows() { await "${learn:-$pid}" has_lines "$work/$1/metrics.jsonl" "$2"; }

# ends NAME PID CODE TEXT: by itself, however long it takes
ends() {
    local code=0
    wait "$2" || code=$?
    [ "$code" = "$3" ] || fail "$1 ended with $code, expected $3: $(cat "$work/$1.txt")"
    grep -qF -- "$4" "$work/$1.txt" || fail "$1 does not say '$4': $(cat "$work/$1.txt")"
}

task=InvertedPendulum-v5
endless=(--total-steps=1000000000 --hidden=8 --horizon=16)

# one process
start train train --task=$task --num-envs=4 "${endless[@]}" --out="$work/t" --train-async \
    --rollout-async --streaming
windows t 20
kill -TERM "$pid"
ends train "$pid" 0 "policy: $work/t/policy.h5"
[ -z "$(find "$work/t" -name '*.tmp')" ] || fail "a half-written file is left"
"$SIMSTREAM" eval --task=$task --policy="$work/t/policy.h5" --episodes=1 --out="$work/e" \
    >"$work/eval.txt" 2>&1 || fail "the policy cannot be used: $(cat "$work/eval.txt")"

# apart: two servers, two workers, one learner
learner=ipc://$work/l.sock
for i in 1 2; do
    start serve$i serve --task=$task --num-envs=4 --listen="ipc://$work/s$i.sock"
    eval "serve$i=$pid"
done
start learn learn --listen="$learner" --num-envs=8 "${endless[@]}" --out="$work/l"
learn=$pid
start rollout1 rollout --env="ipc://$work/s1.sock" --num-envs=2 --learner="$learner" --horizon=16
rollout1=$pid
start rollout2 rollout --env="ipc://$work/s1.sock,ipc://$work/s2.sock" --num-envs=4 \
    --env-offset=2 --learner="$learner" --horizon=16
rollout2=$pid
start rollout3 rollout --env="ipc://$work/s2.sock" --num-envs=2 --env-offset=6 \
    --learner="$learner" --horizon=16
rollout3=$pid
windows l 10

# shellcheck disable=SC2154 # set by eval above
kill -9 "$serve2"
ends rollout3 "$rollout3" 1 "env server ipc://$work/s2.sock is gone"
n=$(wc -l <"$work/l/metrics.jsonl")
windows l $((n + 10))
grep -qF "2 of 4 envs are left" "$work/rollout2.txt" || fail "rollout2: $(cat "$work/rollout2.txt")"

kill -9 "$rollout1"
n=$(wc -l <"$work/l/metrics.jsonl")
windows l $((n + 10))
grep -qF "is gone" "$work/learn.txt" || fail "learn: $(cat "$work/learn.txt")"

# a worker that does not fit is told why, and nobody else notices
start rollout4 rollout --env="ipc://$work/s1.sock" --num-envs=1 --learner="$learner" --horizon=17
ends rollout4 "$pid" 2 "the worker's horizon is 17, the learner's is 16"

kill -9 "$learn"
ends rollout2 "$rollout2" 1 "the learner at $learner is gone"

# the dead learner's address is taken over; its checkpoint is used
start learn learn --listen="$learner" --num-envs=2 "${endless[@]}" --out="$work/t" --resume
learn=$pid
start rollout5 rollout --env="ipc://$work/s1.sock" --num-envs=2 --learner="$learner" --horizon=16
n=$(wc -l <"$work/t/metrics.jsonl")
windows t $((n + 5))
kill -STOP "$pid" # a worker that hangs does not keep the learner
kill -TERM "$learn"
ends learn "$learn" 0 "policy: $work/t/policy.h5"
kill -CONT "$pid"
code=0
wait "$pid" || code=$?
kill -TERM "$serve1"
ends serve1 "$serve1" 0 "steps"
[ ! -e "$work/l.sock" ] && [ ! -e "$work/s1.sock" ] || fail "a socket file is left"
echo "train_kill: all as expected"
