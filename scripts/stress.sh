#!/usr/bin/env bash
# stress.sh connects [N]                  N clients that come and go (1000)
# stress.sh many [SERVERS [ENVS [SECONDS]]] that many servers on loopback as one (64, 64, 20)
# stress.sh chaos [SECONDS]               four servers that are killed, stopped and slowed down, among
#                                         clients that send NaN, nonsense, too much or nothing (60)
# Prints one JSON line; fails if a request was lost or answered twice by a server that lived, if a
# fault was not met as documented, or if descriptors or threads of a server did not come back.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
simstream=${SIMSTREAM:-$here/build/simstream}
hostile=${BUILD_DIR:-$here/build/release}/tests/hostile_client
task=${TASK:-InvertedPendulum-v5}
dir=$(mktemp -d)
host=127.$((1 + ($$ >> 16))).$(($$ >> 8 & 255)).$(($$ & 255)) # ports of it are nobody else's
servers=()
url=()
others=()

finish() {
    for pid in "${servers[@]}" "${others[@]}"; do
        kill -CONT "$pid" 2>/dev/null || true
        kill -9 "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT

fail() {
    echo "stress: $*" >&2
    exit 1
}

serve() { # I ENVS PORT [OPTION...]: server I, its address in url[I]
    local i=$1 out line
    exec {out}< <(exec "$simstream" serve --task="$task" --num-envs="$2" --threads=1 --json \
        --listen="tcp://$host:$3" --preflight=false --log-level=error "${@:4}" 2>>"$dir/serve$i")
    servers[i]=$!
    read -r line <&"$out" || fail "no server $i: $(cat "$dir/serve$i")"
    exec {out}<&-
    url[i]=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
}
field() { # NAME: of the load's figures
    sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" "$dir/load"
}
fds() { ls "/proc/$1/fd" | wc -l; }
threads() { awk '/Threads/ {print $2}' "/proc/$1/status"; }
rss() { awk '/VmRSS/ {print $2}' "/proc/$1/status"; }
await_counts() { # PID FDS THREADS: until it has no more; what comes late is closed late
    while [ "$(fds "$1")" -gt "$2" ] || [ "$(threads "$1")" -gt "$3" ]; do
        kill -0 "$1" 2>/dev/null || fail "the server is gone: $(cat "$dir"/serve*)"
        sleep 0.1
    done
}
books() { # the load's figures are in order
    for name in open unasked wrong_episode; do
        [ "$(field $name)" = 0 ] || fail "$name is not 0: $(cat "$dir/load")"
    done
}

connects() {
    local n=${1:-1000} pid fds0 threads0 rss0
    serve 0 8 0
    pid=${servers[0]}
    fds0=$(fds "$pid") threads0=$(threads "$pid")
    "$simstream" load --env="${url[0]}" --connects=50 >/dev/null # warm
    await_counts "$pid" "$fds0" "$threads0"
    rss0=$(rss "$pid")
    "$simstream" load --env="${url[0]}" --connects="$n" --json >"$dir/load"
    await_counts "$pid" "$fds0" "$threads0"
    printf '{"stress": "connects", "connections": %s, "seconds": %s, "rss_kb": [%d, %d], "fds": %d, "threads": %d}\n' \
        "$(field connections)" "$(field seconds)" "$rss0" "$(rss "$pid")" "$fds0" "$threads0"
}

many() {
    local n=${1:-64} envs=${2:-64} seconds=${3:-20} i list
    for ((i = 0; i < n; i++)); do serve "$i" "$envs" 0; done
    list=$(IFS=,; echo "${url[*]}")
    "$simstream" load --env="$host:[$(sed 's/[^,]*://g' <<<"$list")]" --seconds="$seconds" \
        --json >"$dir/load" 2>"$dir/load.err" || fail "$(cat "$dir/load" "$dir/load.err")"
    books
    [ "$(field servers)" = "$n" ] && [ "$(field envs)" = $((n * envs)) ] || fail "$(cat "$dir/load")"
    for ((i = 0; i < n; i++)); do kill -TERM "${servers[i]}"; done
    for ((i = 0; i < n; i++)); do wait "${servers[i]}" || fail "server $i: $(cat "$dir/serve$i")"; done
    servers=()
    printf '{"stress": "many", "servers": %d, "envs": %d, "seconds": %s, "answered": %s, "steps_per_s": %s, "latency_p50_s": %s, "latency_p99_s": %s}\n' \
        "$n" $((n * envs)) "$(field seconds)" "$(field answered)" "$(field steps_per_s)" \
        "$(field latency_p50_s)" "$(field latency_p99_s)"
}

chaos() {
    local seconds=${1:-60} i load slow end kind
    declare -A faults=([kill]=0 [stop]=0 [drain]=0 [slow]=1)
    local kinds=(nan oversized half-open nonsense gap twice vanish flood)
    for i in 0 1 2 3; do serve $i 16 0 --idle-timeout=2s; done
    local list=${url[0]},${url[1]},${url[2]},${url[3]}
    "$simstream" load --env="$list" --num-envs=32 --seconds=0 --json >"$dir/load" 2>"$dir/load.err" &
    load=$!
    others+=("$load")
    # a client that thinks for long holds up its own envs only
    "$simstream" load --env="$list" --num-envs=4 --think=100ms --seconds=0 --json >"$dir/slow" 2>"$dir/slow.err" &
    slow=$!
    others+=("$slow")
    end=$((SECONDS + seconds))
    while [ $SECONDS -lt $end ]; do
        i=$((RANDOM % 4))
        case $((RANDOM % 5)) in
        0) # the process dies, a new one takes its address
            kill -9 "${servers[i]}"
            wait "${servers[i]}" 2>/dev/null || true
            faults[kill]=$((faults[kill] + 1))
            serve $i 16 "${url[i]##*:}" --idle-timeout=2s
            ;;
        1) # it hangs for longer than the idle time
            kill -STOP "${servers[i]}"
            sleep 3
            kill -CONT "${servers[i]}"
            faults[stop]=$((faults[stop] + 1))
            ;;
        2) # it is asked to end
            kill -TERM "${servers[i]}"
            wait "${servers[i]}" || fail "server $i does not end well: $(cat "$dir/serve$i")"
            faults[drain]=$((faults[drain] + 1))
            serve $i 16 "${url[i]##*:}" --idle-timeout=2s
            ;;
        *)
            kind=${kinds[RANDOM % ${#kinds[@]}]}
            "$hostile" "${url[i]}" "$kind" 600 2>"$dir/hostile" ||
                fail "$kind: $(cat "$dir/hostile" "$dir/serve$i")"
            faults[$kind]=$((${faults[$kind]:-0} + 1))
            ;;
        esac
        kill -0 "$load" 2>/dev/null || fail "the client ended: $(cat "$dir/load" "$dir/load.err")"
        sleep 0.$((RANDOM % 10))
    done
    sleep 4 # the last loss is noticed
    while grep ' of 32 envs ' "$dir/load.err" | tail -1 | grep -qv ': 32 of 32\|; 32 of 32'; do
        kill -0 "$load" 2>/dev/null || fail "the client ended: $(cat "$dir/load" "$dir/load.err")"
        sleep 0.1
    done
    kill -TERM "$load" "$slow"
    wait "$slow" || fail "the slow client: $(cat "$dir/slow" "$dir/slow.err")"
    wait "$load" || fail "the client: $(cat "$dir/load" "$dir/load.err")"
    others=()
    books
    [ "$(field servers_back)" = "$(field servers_lost)" ] || fail "not all came back: $(cat "$dir/load")"
    printf '{"stress": "chaos", "seconds": %d, "faults": {' "$seconds"
    local sep=''
    for kind in "${!faults[@]}"; do printf '%s"%s": %d' "$sep" "$kind" "${faults[$kind]}"; sep=', '; done
    printf '}, "answered": %s, "lost_with_server": %s, "servers_lost": %s, "servers_back": %s, "open": 0, "answered_twice": 0}\n' \
        "$(field answered)" "$(field lost_with_server)" "$(field servers_lost)" "$(field servers_back)"
}

case ${1:-} in
connects | many | chaos) "$@" ;;
*)
    sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2
    exit 2
    ;;
esac
