#!/bin/bash
# hostile.sh - what no client should do costs that client its connection and nobody else anything.
set -eu
work=$(mktemp -d)
server='' load=''
cleanup() {
    kill -9 $server $load 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

fail() {
    echo "hostile: $*" >&2
    exit 1
}

exec {out}< <(exec "$SIMSTREAM" serve --task=InvertedPendulum-v5 --num-envs=8 --threads=1 --json \
    --listen=tcp://127.0.0.1:0 --http=127.0.0.1:0 --idle-timeout=1s 2>"$work/serve")
server=$!
read -r -t 60 line <&"$out" || fail "no server: $(cat "$work/serve")"
url=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
http=$(sed 's/.*"http": "\([^"]*\)".*/\1/' <<<"$line")
"$SIMSTREAM" load --env="$url" --num-envs=2 --seconds=0 --json >"$work/load" 2>"$work/load.err" &
load=$!

for kind in nan twice nonsense gap vanish oversized half-open flood no-hello; do
    timeout 40 "$BUILD_DIR/tests/hostile_client" "$url" $kind 15 2>"$work/err" ||
        fail "$kind: $(cat "$work/err" "$work/serve")"
done
status=$("$SIMSTREAM" top "$http" --once --json)
for part in '"idle": 1,' '"protocol": 4,'; do # no-hello, nonsense, gap, oversized
    grep -qF "$part" <<<"$status" || fail "'$part' is not in $status"
done
# strangers who speak no protocol at all
exec {raw}<>"/dev/tcp/127.0.0.1/${url##*:}"
head -c 4096 /dev/urandom >&"$raw"
read -r -t 20 -N 1 <&"$raw" && fail "random bytes were answered"
exec {raw}<&-
kill -TERM $load
wait $load || fail "the honest client suffered: $(cat "$work/load" "$work/load.err")"
grep -qF '"open": 0, "unasked": 0, "wrong_episode": 0' "$work/load" || fail "$(cat "$work/load")"
kill -TERM $server
wait $server || fail "serve: $(cat "$work/serve")"
server='' load=''
echo "hostile: $(sed 's/.*"answered": \([0-9]*\).*/\1/' "$work/load") requests of another client answered meanwhile"
