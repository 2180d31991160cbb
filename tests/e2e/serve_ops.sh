#!/bin/bash
# serve_ops.sh - an env server as an operator meets it: status over HTTP and in the terminal, keys,
# TLS, preflight, logs, and the end by SIGTERM.
set -eu
. "$(dirname "$0")/lib.bash"

has() { # TEXT PART
    grep -qF -- "$2" <<<"$1" || fail "'$2' is not in: $1"
}

# serve OPTION...: its process is $server, its address $url, that of its pages $http
serve() {
    : >"$work/err"
    exec {out}< <(exec "$SIMSTREAM" serve --task=Hopper-v5 --num-envs=4 --threads=1 --json \
        --listen="tcp://$host:0" "$@" 2>>"$work/err")
    server=$!
    pids+=("$server")
    read -r line <&"$out" || fail "no server: $(cat "$work/err")"
    url=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
    http=$(sed -n 's/.*"http": "\([^"]*\)".*/\1/p' <<<"$line")
}

shows() { # TEXT OPTION...: `top` does
    local text
    text=$("$SIMSTREAM" top "$http" --once "${@:2}" 2>&1) && grep -qF -- "$1" <<<"$text"
}
stop() { # the server, in good order
    kill -TERM "$server"
    wait "$server" || fail "serve: $(cat "$work/err")"
}

refused() { # PART OPTION...: serve does not start and says why
    local part=$1 code=0
    shift
    "$SIMSTREAM" serve --task=Hopper-v5 --num-envs=4 --listen="tcp://$host:0" "$@" \
        >"$work/refused" 2>&1 || code=$?
    [ "$code" = 2 ] || fail "serve $*: code $code, expected 2: $(cat "$work/refused")"
    has "$(cat "$work/refused")" "$part"
}

# what cannot work is refused at the start
refused "--key-file" --listen=tcp://0.0.0.0:0
refused "--batch-min=9 can never be reached by 4 envs" --batch-min=9
refused "--batch-min=4 is more than --batch-max=2" --batch-min=4 --batch-max=2
refused "batch-timeout" --batch-timeout=-1ms
refused "--log-level=loud" --log-level=loud
refused "mjModel has no field 'colour'" '--randomize=[{"field": "colour"}]'
echo '[{"field": "gravity"' >"$work/plan"
refused "entry 0 does not end" --randomize="$work/plan"
code=0
"$SIMSTREAM" serve --task=Hopper-v5 --randomize="$work/none" >"$work/out" 2>&1 || code=$?
[ "$code" != 0 ] || fail "a plan that is not there: code $code"
has "$(cat "$work/out")" "--randomize: cannot read '$work/none'"
refused "needs a certificate" --listen="tls+tcp://$host:0"
code=0
(ulimit -n 30 && "$SIMSTREAM" serve --task=Hopper-v5 --listen="tcp://$host:0") >"$work/out" 2>&1 || code=$?
[ "$code" = 2 ] || fail "30 open files: code $code"
has "$(cat "$work/out")" "raise the limit"

# models that differ
echo '[{"field": "gravity", "component": 2, "range": [0.9, 1.1]}]' >"$work/plan"
serve --randomize="$work/plan"
has "$line" '"randomize_plan": [{"field": "gravity"'
# an evaluation at the server keeps its plan, and goes on at servers with the same plan only
there() {
    "$SIMSTREAM" eval --policy=zero --episodes=3 --out="$work/there" "$@" >"$work/out" 2>&1
}
play() { # CODE URL OPTION...
    local want=$1 code=0
    once_free "$work/out" there --env="$2" "${@:3}" || code=$?
    [ "$code" = "$want" ] || fail "eval --env: code $code, expected $want: $(cat "$work/out")"
}
play 0 "$url"
grep -q '"randomize": *"\[{\\"field\\": \\"gravity\\"' "$work/there/summary.json" ||
    fail "the server's plan is not in summary.json"
varied=$server varied_url=$url
serve
sed -i '$d' "$work/there/results.jsonl" # as if it had been killed
play 2 "$url" --resume
has "$(cat "$work/out")" "plan of --randomize of Hopper-v5 are not those of the results so far"
rm -r "$work/there"
play 2 "$varied_url,$url"
has "$(cat "$work/out")" "differ in the plan of --randomize of Hopper-v5"
stop
server=$varied
stop
"$SIMSTREAM" eval --policy=zero --task=Hopper-v5 --episodes=3 --out="$work/eval" \
    --randomize="$work/plan" >"$work/out" 2>&1 || fail "eval: $(cat "$work/out")"
grep -q '"randomize_plan": *\[{"field": "gravity"' "$work/eval/summary.json" ||
    fail "the plan is not in summary.json"

# a worker that is killed is replaced; nobody else notices
serve --http="$host:0"
children() { cat "/proc/$1/task/$1/children"; }
"$SIMSTREAM" load --env="$url" --seconds=0 --json >"$work/load" 2>&1 &
load=$!
pids+=("$load")
await "$load" shows '"client_sessions": 1' --json
warden=$(children "$server")
kill -9 "$(children "${warden%% *}" | cut -d' ' -f1)"
await "$load" shows '"worker_restarts": 1' --json
kill -TERM "$load"
wait "$load" || fail "load: $(cat "$work/load")"
has "$(cat "$work/load")" '"open": 0, "unasked": 0'
stop

# pages, terminal, logs
serve --http="$host:0" --log=json --log-level=debug --batch-min=2
"$SIMSTREAM" load --env="$url" --seconds=0 --json >"$work/load" 2>&1 &
load=$!
pids+=("$load")
await "$load" shows '"client_sessions": 1' --json
await "$load" shows '"envs": {"total": 4, "idle": 0' --json
for part in "Hopper-v5" "4          [" "enough"; do await "$load" shows "$part"; done
kill -TERM "$load"
wait "$load" || fail "load: $(cat "$work/load")"
steps=$(sed -n 's/.*"steps": \([0-9]*\).*/\1/p' "$work/load")
await "$server" shows '"client_sessions": 0' --json # it is noticed a little later
if command -v curl >/dev/null; then
    [ "$(curl -s "http://$http/healthz")" = ok ] || fail "healthz"
    metrics=$(curl -s "http://$http/metrics")
    has "$metrics" "simstream_steps_total{suite=\"Hopper-v5\"} $steps"
    has "$metrics" 'simstream_envs{state="idle"} 4'
    has "$metrics" 'simstream_batch_rows_bucket{le="+Inf"}'
    has "$(curl -s "http://$http/")" "<title>simstream env server</title>"
fi
await "$server" grep -qF '"module": "server", "text": "client 1 left: closed"' "$work/err"
grep -v '^{"time": ".*"}$' "$work/err" | grep . && fail "a log line is not JSON: $(cat "$work/err")"

# the end: a client with requests in flight gets all answers, then the reason
"$SIMSTREAM" load --env="$url" --seconds=0 --rejoin=false --json >"$work/load" 2>"$work/load.err" &
load=$!
pids+=("$load")
await "$load" shows '"client_sessions": 1' --json
stop
wait "$load" && fail "the load did not notice the end"
has "$(cat "$work/load.err")" "ends: the server is stopped"
has "$(cat "$work/load")" '"open": 0, "unasked": 0'
grep -q '"lost_with_server": [0-4],' "$work/load" || fail "$(cat "$work/load")"

# keys
head -c 32 /dev/urandom >"$work/key"
head -c 32 /dev/urandom >"$work/wrong"
chmod 600 "$work/key" "$work/wrong"
serve --key-file="$work/key"
run() { "$SIMSTREAM" load --env="$url" --seconds=0.2 --json "$@" 2>&1; }
out=$(run --key-file="$work/key") || fail "the right key: $out"
has "$out" '"open": 0'
out=$(SIMSTREAM_KEY_FILE="$work/key" run) || fail "the right key by environment: $out"
out=$(run --key-file="$work/wrong") && fail "the wrong key was served"
has "$out" "the client has another key"
out=$(run) && fail "no key was served"
has "$out" "asks for a key"
chmod 644 "$work/key"
out=$(run --key-file="$work/key") && fail "a key that all can read was used"
has "$out" "others may use it"
stop

# TLS
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/k.pem" -out "$work/c.pem" -days 2 \
        -subj /CN=simstream.test -addext subjectAltName=DNS:simstream.test >/dev/null 2>&1
    cat "$work/c.pem" "$work/k.pem" >"$work/both.pem"
    serve --listen="tls+tcp://$host:0" --tls-cert="$work/both.pem"
    out=$(run --tls-ca="$work/c.pem" --tls-name=simstream.test) || fail "TLS: $out"
    has "$out" '"open": 0'
    out=$(run --tls-ca="$work/c.pem" --tls-name=other.test --connect-timeout=1s) &&
        fail "another name was trusted"
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/k2.pem" -out "$work/c2.pem" -days 2 \
        -subj /CN=simstream.test >/dev/null 2>&1
    out=$(run --tls-ca="$work/c2.pem" --tls-name=simstream.test --connect-timeout=1s) &&
        fail "another authority was trusted"
    url=${url/tls+tcp/tcp}
    out=$(run --connect-timeout=1s) && fail "plain text was served"
    stop
fi
echo "serve_ops: all as documented"
