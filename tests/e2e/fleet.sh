#!/bin/bash
# fleet.sh - four env servers used as one by load, eval and a training: the death of one takes its
# envs away and no others', its return brings them back. Of all requests each is answered once or
# known to be lost; results of an evaluation are those of one server.
set -eu
. "$(dirname "$0")/lib.bash"

field() { # JSON NAME
    sed -n "s/.*\"$2\": \([0-9.]*\).*/\1/p" <<<"$1"
}

# serve I PORT: server I; its process is pids[I], its address url[I]
declare -A url
serve() {
    exec {out}< <(exec "$SIMSTREAM" serve --task=Hopper-v5 --num-envs=$((2 + $1)) --threads=1 \
        --listen="tcp://$host:$2" --json 2>>"$work/serve$1")
    pids[$1]=$!
    read -r line <&"$out" || fail "no server: $(cat "$work/serve$1")"
    url[$1]=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
}
clients() { grep -c "client .* is here" "$work/serve$1" || true; } # I: that it has had
has_clients() { [ "$(clients "$1")" -ge "$2" ]; }
die() { # I: server I
    kill -9 "${pids[$1]}"
    wait "${pids[$1]}" 2>/dev/null || true
}

for i in 0 1 2 3; do serve $i 0; done
list=${url[0]},${url[1]},${url[2]},${url[3]}
"$SIMSTREAM" load --env="$list" --seconds=0 --json >"$work/load" 2>"$work/load.err" &
load=$!
pids+=("$load")

says() { # PID NAME TEXT: wait until the client of that name, process PID, says so
    await "$1" grep -qF "$3" "$work/$2.err"
}

for i in 0 1 2 3; do await "$load" has_clients $i 1; done
die 1
says "$load" load "env server ${url[1]} is gone; 11 of 14 envs are left"
die 3
says "$load" load "env server ${url[3]} is gone; 6 of 14 envs are left"
serve 1 "${url[1]##*:}"
says "$load" load "env server ${url[1]} is back; 9 of 14 envs are there"
serve 3 "${url[3]##*:}"
says "$load" load "env server ${url[3]} is back; 14 of 14 envs are there"
# one that ends in good order says so, and loses nothing
kill -TERM "${pids[0]}"
says "$load" load "env server ${url[0]} ends: the server is stopped; 12 of 14 envs are left"
wait "${pids[0]}" || fail "server 0: $(cat "$work/serve0")"
kill -TERM "$load"
wait "$load" || fail "the load failed: $(cat "$work/load" "$work/load.err")"
figures=$(cat "$work/load")
[ "$(field "$figures" servers_lost)" = 3 ] && [ "$(field "$figures" servers_back)" = 2 ] ||
    fail "expected 3 lost, 2 back: $figures"
for name in open unasked wrong_episode errors; do
    [ "$(field "$figures" $name)" = 0 ] || fail "$name is not 0: $figures"
done
[ "$(field "$figures" lost_with_server)" -le 10 ] || fail "more was lost than two servers had"
[ "$(field "$figures" answered)" -ge 14 ] || fail "hardly anything was done: $figures"

# a host list; another task does not go along
"$SIMSTREAM" load --env="$host:[${url[1]##*:},${url[2]##*:}]" --seconds=0.5 --json \
    >"$work/load" 2>&1 || fail "a host list: $(cat "$work/load")"
[ "$(field "$(grep asked "$work/load")" envs)" = 7 ] || fail "a host list: $(cat "$work/load")"
exec {out}< <(exec "$SIMSTREAM" serve --task=Reacher-v5 --num-envs=1 --listen="tcp://$host:0" --json 2>/dev/null)
pids[4]=$!
read -r line <&"$out"
other=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
code=0
"$SIMSTREAM" load --env="${url[2]},$other" --seconds=1 >"$work/load" 2>&1 || code=$?
[ "$code" = 2 ] && grep -q "different tasks" "$work/load" || fail "two tasks: $(cat "$work/load")"

# an evaluation with a host list, which loses a server and gets it back
serve 0 "${url[0]##*:}"
fleet="$host:[${url[0]##*:},${url[1]##*:},${url[2]##*:},${url[3]##*:}]"
play=("$SIMSTREAM" eval --policy=random --task=Hopper-v5 --seed=3)
"${play[@]}" --episodes=300 --out="$work/one" >/dev/null 2>"$work/one.err" || fail "$(cat "$work/one.err")"
seen=$(clients 2)
"${play[@]}" --episodes=1000000 --env="$fleet" --out="$work/four" >/dev/null 2>"$work/eval.err" &
eval=$!
pids+=("$eval")
await "$eval" has_clients 2 $((seen + 1))
await "$eval" [ -s "$work/four/results.jsonl" ]
die 2
says "$eval" eval "env server ${url[2]} is gone; its episodes go to other servers"
serve 2 "${url[2]##*:}"
says "$eval" eval "env server ${url[2]} is back"
# they end in any order: the first 300 are there when each of them is
first300() {
    [ "$(grep -cE '"episode": ([0-9]|[1-9][0-9]|[12][0-9][0-9]),' "$work/four/results.jsonl")" -ge 300 ]
}
await "$eval" first300
kill -TERM "$eval"
wait "$eval" || true
grep -q "stopped after" "$work/eval.err" || fail "the evaluation failed: $(cat "$work/eval.err")"
head -300 "$work/four/results.jsonl" | cmp - "$work/one/results.jsonl" || fail "results differ"

# a training, synchronous, so that its window waits for every env that is there
"$SIMSTREAM" learn --task=Hopper-v5 --num-envs=14 --horizon=32 --hidden=8 --total-steps=100000000 \
    --listen="ipc://$work/learn.sock" --out="$work/run" >/dev/null 2>"$work/learn.err" &
learn=$!
pids+=("$learn")
"$SIMSTREAM" rollout --env="$fleet" --learner="ipc://$work/learn.sock" --horizon=32 >/dev/null \
    2>"$work/rollout.err" &
rollout=$!
pids+=("$rollout")
windows() { # N: until so many more have closed
    local metrics=$work/run/metrics.jsonl
    await "$learn" has_lines "$metrics" $(($(lines "$metrics") + $1))
}
windows 1
die 1
says "$rollout" rollout "env server ${url[1]} is gone; 11 of 14 envs are left"
windows 3
serve 1 "${url[1]##*:}"
says "$rollout" rollout "env server ${url[1]} is back; 14 of 14 envs are there"
says "$learn" learn "has 3 envs back, 14 of 14 are there"
windows 3
kill -TERM "$learn"
wait "$learn" || fail "the learner failed: $(cat "$work/learn.err")"
wait "$rollout" || fail "the rollout failed: $(cat "$work/rollout.err")"
# each window is that of the envs that were there: 14 or, in between, 11 times the horizon
steps=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$work/run/metrics.jsonl" | awk '{print $1 - last; last = $1}')
[ "$(head -1 <<<"$steps")" = 448 ] && [ "$(tail -1 <<<"$steps")" = 448 ] && grep -qx 352 <<<"$steps" ||
    fail "steps of the windows: $steps"
echo "fleet: $(field "$figures" answered) requests answered once, 3 servers lost, 2 came back; eval and training too"
