#!/bin/bash
# eval_kill.sh - kill -9 of the evaluator, and of its env server, at random times: resumed as often as
# it takes, nothing is lost and nothing counted twice. KILLS=20 for the whole campaign. A policy server
# is killed in tests/oracle/policy_servers.py.
set -eu
. "$(dirname "$0")/lib.bash"
kills=${KILLS:-3}
options=(--task=Hopper-v5 --policy=random --episodes=3000)

serve() {
    exec {out}< <(exec "$SIMSTREAM" serve --task=Hopper-v5 --num-envs=8 --listen="tcp://$host:0" --json 2>/dev/null)
    server=$!
    pids+=($server)
    read -r line <&"$out" || fail "no server"
    url=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
}

count() { lines "$work/$1/results.jsonl"; }

# begin NAME OPTION...: start or resume it in the background; returns when it has got on a little
begin() {
    local before
    before=$(count "$1")
    "$SIMSTREAM" eval "${options[@]}" --resume --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>&1 &
    evaluator=$!
    pids+=($evaluator)
    while [ "$(count "$1")" -le $((before + 5)) ] && kill -0 $evaluator 2>/dev/null; do
        sleep 0.01
    done
}

check() { # NAME
    cmp "$work/whole/results.jsonl" "$work/$1/results.jsonl" || fail "$1: the results differ"
    grep -q '"complete": true' "$work/$1/summary.json" || fail "$1 is not complete"
}

"$SIMSTREAM" eval "${options[@]}" --out="$work/whole" >/dev/null 2>&1 || fail "the whole failed"

mkdir "$work/evaluator" "$work/server"
for ((done = n = 0; n < kills; n++)); do
    begin evaluator
    sleep 0.0$((RANDOM % 10))
    kill -9 $evaluator 2>/dev/null && done=$((done + 1)) || true
    wait $evaluator 2>/dev/null || true
done
lines=$(count evaluator)
begin evaluator
wait $evaluator || fail "evaluator: $(cat "$work/evaluator.txt")"
check evaluator
echo "eval_kill: evaluator killed $done times, $lines results at the last kill"

# the whole is of the task by name; a server's settings are its own
options=(--policy=random --episodes=3000)
for ((done = n = 0; n < kills; n++)); do
    serve
    begin server --env="$url" --connect-wait=1s
    sleep 0.0$((RANDOM % 10))
    kill -9 $server && done=$((done + 1))
    code=0
    wait $evaluator || code=$?
    [ $code -le 1 ] || fail "server: exit $code: $(cat "$work/server.txt")"
done
lines=$(count server)
serve
begin server --env="$url"
wait $evaluator || fail "server: $(cat "$work/server.txt")"
check server
echo "eval_kill: env server killed $done times, $lines results at the last kill"
