#!/bin/bash
# groups.sh - learning from groups of whole episodes: it learns; a run is the same in one process, in
# several, and when it is broken off, killed and resumed; workers and env servers may die; what does not
# fit is refused with its reason. KILLS=20 for the whole campaign.
set -eu
. "$(dirname "$0")/lib.bash"
kills=${KILLS:-2}

task=(--task=InvertedPendulum-v5 '--kwargs={"max_episode_steps": 200}')
shape=(--algo=rloo --num-envs=8 --group-size=4 --window-episodes=16 --hidden=16 --seed=5
    --lr=0.01 --lr-final=0.01)

train() { # NAME OPTION...
    "$SIMSTREAM" train "${task[@]}" "${shape[@]}" --action-chunk=3 --out="$work/$1" "${@:2}" \
        >"$work/$1.txt" 2>&1 || fail "$1: $(cat "$work/$1.txt")"
}

start() { # NAME COMMAND...: in the background; its process is $pid
    "$SIMSTREAM" "${@:2}" >"$work/$1.txt" 2>&1 &
    pid=$!
    pids+=("$pid")
}

windows() { # PID FOLDER N: wait until that many are done
    await "$1" has_lines "$work/$2/metrics.jsonl" "$3"
}

same() { # NAME: as `whole`
    diff <(window_numbers "$work/whole") <(window_numbers "$work/$1") >"$work/diff" || fail "$1: $(head -c 1500 "$work/diff")"
}

# it learns: from 10 steps of balance to most of the 200, by each baseline and with a critic
for algo in rloo grpo drgrpo chunk-ppo; do
    "$SIMSTREAM" train "${task[@]}" --algo=$algo --action-chunk=2 --num-envs=16 --hidden=32,32 \
        --window-episodes=32 --updates=40 --lr=0.01 --lr-final=0.002 --warmup=0 --out="$work/$algo" --json \
        >"$work/$algo.json" 2>"$work/$algo.txt" || fail "$algo: $(cat "$work/$algo.txt")"
    grep -qE '"mean_return": (1[0-9][0-9]|200|[7-9][0-9])' "$work/$algo.json" ||
        fail "$algo learned nothing: $(cat "$work/$algo.json")"
done

# the evaluator plays its chunks of two actions whole or in part, and balances for most of the 200 steps too
"$SIMSTREAM" eval "${task[@]}" --policy="$work/drgrpo/policy.h5" --episodes=8 --out="$work/eval" \
    >"$work/eval.txt" 2>&1 || fail "eval: $(cat "$work/eval.txt")"
grep -qE '"return": \{"mean": *(1[0-9][0-9]|200|[7-9][0-9])' "$work/eval/summary.json" ||
    fail "the evaluator plays it badly: $(cat "$work/eval/summary.json")"

# with parts it is another policy, which rewards of full precision show at once
short=(--task=HalfCheetah-v5 --kwargs='{"max_episode_steps": 20}')
"$SIMSTREAM" train "${short[@]}" --algo=drgrpo --action-chunk=2 --num-envs=4 --group-size=4 --hidden=8 \
    --window-episodes=8 --updates=1 --out="$work/short" >"$work/short.txt" 2>&1 ||
    fail "short: $(cat "$work/short.txt")"
play() { # EXECUTE
    "$SIMSTREAM" eval "${short[@]}" --policy="$work/short/policy.h5" --episodes=4 --execute=$1 \
        --out="$work/short$1" >"$work/eval.txt" 2>&1
}
play 1 && play 2 || fail "eval of short chunks: $(cat "$work/eval.txt")"
! cmp -s "$work/short1/results.jsonl" "$work/short2/results.jsonl" || fail "--execute changes nothing"
! play 3 || fail "three of two actions were executed"
grep -qF "the policy's have 2" "$work/eval.txt" || fail "no reason: $(cat "$work/eval.txt")"

# one is stopped wherever the signal meets it, in mid-window; the others are as long as it takes to go on
start cut train "${task[@]}" "${shape[@]}" --action-chunk=3 --updates=1000000 --out="$work/cut" \
    --accel-infer=5ms
windows "$pid" cut 3
kill -TERM "$pid"
wait "$pid" || fail "stopped run: $(cat "$work/cut.txt")"
for ((i = 0; i < kills; i++)); do
    killed "$work/killed" "$SIMSTREAM" train "${task[@]}" "${shape[@]}" --action-chunk=3 --accel-infer=5ms
done
most=$(lines "$work/cut/metrics.jsonl")
[ "$(lines "$work/killed/metrics.jsonl")" -le "$most" ] || most=$(lines "$work/killed/metrics.jsonl")
n=$((most + 7))

# in one process, in several, and with a break
train whole --updates=$n
[ "$(lines "$work/whole/metrics.jsonl")" = $n ] || fail "not $n windows"
train cut --updates=$n --resume
same cut
train killed --updates=$n --resume --checkpoint-every=1
same killed
[ "$(lines "$work/killed/metrics.jsonl")" -le $((n + kills)) ] || fail "a kill cost more than a window"
train halves --updates=5
train halves --updates=$n --resume
same halves

learner=ipc://$work/l.sock
start serve serve "${task[@]}" --num-envs=8 --listen="ipc://$work/s.sock"
start learn learn --listen="$learner" "${shape[@]}" --updates=$n --out="$work/apart"
learn=$pid
for i in 4 0; do
    start rollout$i rollout --env="ipc://$work/s.sock" --learner="$learner" --num-envs=4 \
        --env-offset=$i --action-chunk=3 --seed=5
done
wait "$learn" || fail "apart: $(cat "$work/learn.txt")"
same apart

# a changed option is named
code=0
"$SIMSTREAM" train "${task[@]}" "${shape[@]}" --action-chunk=3 --updates=$((n + 1)) --out="$work/cut" \
    --resume --clip-high=0.3 >"$work/changed.txt" 2>&1 || code=$?
[ $code = 2 ] && grep -qF "option 'clip-high' was 0.28" "$work/changed.txt" ||
    fail "changed: $code $(cat "$work/changed.txt")"

# asynchronous, with deaths: the learner goes on with what is there, and takes back what returns
start serve1 serve "${task[@]}" --num-envs=8 --listen="ipc://$work/s1.sock"
start serve2 serve "${task[@]}" --num-envs=4 --listen="ipc://$work/s2.sock"
serve2=$pid
start learn2 learn --listen="ipc://$work/l2.sock" "${shape[@]}" --updates=1000000 \
    --out="$work/async" --train-async --streaming --objective=decoupled --window-max=1 \
    --total-steps=1000000000000 --lr=0 --lr-final=0
learn2=$pid
start lone rollout --env="ipc://$work/s1.sock" --learner="ipc://$work/l2.sock" --num-envs=4 \
    --action-chunk=3 --rollout-async
lone=$pid
start both rollout --env="ipc://$work/s1.sock,ipc://$work/s2.sock" --num-envs=4 --env-offset=4 \
    --learner="ipc://$work/l2.sock" --action-chunk=3 --rollout-async
on() { # N: as many windows more
    windows "$learn2" async $(($(lines "$work/async/metrics.jsonl") + $1))
}
back() { # N: the envs of the second server are there again for the N-th time
    [ "$(grep -cE "envs( back)?, 4 of 4 are there" "$work/learn2.txt")" -ge "$1" ]
}
joined() { # N: the lone worker has come for the N-th time
    [ "$(grep -c "joined with envs 0 to 3" "$work/learn2.txt")" -ge "$1" ]
}
on 5
for ((i = 1; i <= kills; i++)); do
    sleep 0.0$((RANDOM % 10))
    kill -9 "$serve2"
    on 5
    start serve2 serve "${task[@]}" --num-envs=4 --listen="ipc://$work/s2.sock"
    serve2=$pid
    await "$learn2" back $i
    sleep 0.0$((RANDOM % 10))
    kill -9 "$lone"
    on 5
    start lone rollout --env="ipc://$work/s1.sock" --learner="ipc://$work/l2.sock" --num-envs=4 \
        --action-chunk=3 --rollout-async
    lone=$pid
    await "$learn2" joined $((i + 1))
done
on 5
kill -TERM "$learn2"
wait "$learn2" || fail "learn2: $(cat "$work/learn2.txt")"
[ -s "$work/async/policy.h5" ] || fail "no policy"

# what does not fit
refused() { # TEXT OPTION...
    local code=0
    "$SIMSTREAM" train "${task[@]}" --out="$work/bad" "${@:2}" >"$work/bad.txt" 2>&1 ||
        code=$?
    [ $code = 2 ] && grep -qF -- "$1" "$work/bad.txt" || fail "'$1': $code $(cat "$work/bad.txt")"
}
refused "expected --action-chunk" --algo=rloo
refused "learns from steps (--algo=ppo; for chunks: chunk-ppo)" --action-chunk=4
refused "expected envs in whole groups" --algo=rloo --action-chunk=4 --num-envs=12
refused "the initial policy takes 4 observations and the pictures '' and gives 2 numbers" --algo=rloo --action-chunk=4 \
    --init="$work/rloo"
echo "groups: all as expected"
