#!/bin/bash
# hostile.sh - what no client should do costs that client its connection and nobody else anything.
set -eu
. "$(dirname "$0")/lib.bash"

exec {out}< <(exec "$SIMSTREAM" serve --task=InvertedPendulum-v5 --num-envs=8 --threads=1 --json \
    --listen="tcp://$host:0" --http="$host:0" 2>"$work/serve")
server=$!
pids+=($server)
read -r line <&"$out" || fail "no server: $(cat "$work/serve")"
url=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
http=$(sed 's/.*"http": "\([^"]*\)".*/\1/' <<<"$line")
"$SIMSTREAM" load --env="$url" --num-envs=2 --seconds=0 --json >"$work/load" 2>"$work/load.err" &
load=$!
pids+=($load)

for kind in nan twice nonsense gap again vanish oversized half-open flood slow-reader no-hello; do
    "$BUILD_DIR/tests/hostile_client" "$url" $kind 600 2>"$work/err" ||
        fail "$kind: $(cat "$work/err" "$work/serve")"
done
status() { "$SIMSTREAM" top "$http" --once --json; }
counted() { grep -qF "$1" <<<"$(status)"; }
for part in '"idle": 1,' '"protocol": 5,'; do # no-hello, nonsense, gap, again, oversized
    await $server counted "$part"
done
# strangers who speak no protocol at all
exec {raw}<>"/dev/tcp/$host/${url##*:}"
head -c 4096 /dev/urandom >&"$raw"
read -r -N 1 <&"$raw" && fail "random bytes were answered"
exec {raw}<&-
kill -TERM $load
wait $load || fail "the honest client suffered: $(cat "$work/load" "$work/load.err")"
grep -qF '"open": 0, "unasked": 0, "wrong_episode": 0' "$work/load" || fail "$(cat "$work/load")"
kill -TERM $server
wait $server || fail "serve: $(cat "$work/serve")"
echo "hostile: $(sed 's/.*"answered": \([0-9]*\).*/\1/' "$work/load") requests of another client answered meanwhile"
