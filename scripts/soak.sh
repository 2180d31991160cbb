#!/usr/bin/env bash
# soak.sh [SECONDS] - an env server under clients that are killed at random moments; prints one JSON
# line and fails if memory grew by more than 2 %, or if descriptors or threads did not come back to
# where they were once all clients are gone.
set -euo pipefail
seconds=${1:-1800}
here=$(cd "$(dirname "$0")/.." && pwd)
simstream=${SIMSTREAM:-$here/build/simstream}
dir=$(mktemp -d)
url=ipc://$dir/soak.sock
server=
clients=()

finish() {
    for pid in "${clients[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    if [ -n "$server" ]; then kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; fi
    rm -rf "$dir"
}
trap finish EXIT

"$simstream" serve --task Hopper-v5 --num-envs 32 --threads 2 --listen "$url" >"$dir/out" 2>"$dir/err" &
server=$!
until grep -q serving "$dir/out"; do sleep 0.1; done

start_client() { # one of three kinds: many envs, few envs, a chatty one
    "$simstream" eval --env "$url" --task Hopper-v5 --policy random --episodes 1000000 \
        --num-envs $((1 + RANDOM % 8)) --out "$(mktemp -d "$dir/evalXXXXXX")" >/dev/null 2>>"$dir/clients" &
    clients+=($!)
}
kill_all() {
    for pid in "${clients[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    wait "${clients[@]}" 2>/dev/null || true
    clients=()
    rm -rf "$dir"/eval*
}
rss() { awk '/VmRSS/ {print $2}' "/proc/$server/status"; }
fds() { ls "/proc/$server/fd" | wc -l; }
threads() { awk '/Threads/ {print $2}' "/proc/$server/status"; }
quiet() { kill_all; sleep 2; } # the server notices and joins within this time

kills=0 rss0= fds0= threads0=
end=$((SECONDS + seconds))
while [ $SECONDS -lt $end ]; do
    round_end=$((SECONDS + 20))
    while [ $SECONDS -lt $round_end ] && [ $SECONDS -lt $end ]; do
        while [ ${#clients[@]} -lt 3 ]; do start_client; done
        sleep 0.$((2 + RANDOM % 8))
        i=$((RANDOM % ${#clients[@]}))
        kill -9 "${clients[i]}" 2>/dev/null || true
        wait "${clients[i]}" 2>/dev/null || true
        unset "clients[i]"
        clients=("${clients[@]}")
        kills=$((kills + 1))
    done
    quiet
    if [ -z "$rss0" ] && [ $((end - SECONDS)) -lt $((seconds * 5 / 6)) ]; then
        rss0=$(rss) fds0=$(fds) threads0=$(threads) # warm: a sixth of the time has passed
    fi
    [ -t 2 ] && printf '\r%d s left, %d kills, rss %s kB ' $((end - SECONDS)) "$kills" "$(rss)" >&2
done
[ -n "$rss0" ] || { echo "soak: $seconds seconds are too short" >&2; exit 2; }
rss1=$(rss) fds1=$(fds) threads1=$(threads)
kill -TERM "$server"
wait "$server" || { echo "soak: the server did not end cleanly" >&2; exit 1; }
server=
printf '{"bench": "soak", "seconds": %d, "client_kills": %d, "rss_kb": [%d, %d], "rss_ratio": %s, "fds": [%d, %d], "threads": [%d, %d]}\n' \
    "$seconds" "$kills" "$rss0" "$rss1" "$(awk "BEGIN {printf \"%.4f\", $rss1 / $rss0}")" \
    "$fds0" "$fds1" "$threads0" "$threads1"
awk "BEGIN {exit !($rss1 <= 1.02 * $rss0)}" && [ "$fds0" = "$fds1" ] && [ "$threads0" = "$threads1" ]
