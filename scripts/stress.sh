#!/usr/bin/env bash
# stress.sh connects [N]                  N clients that come and go (1000)
# stress.sh many [SERVERS [ENVS [SECONDS]]] that many servers on loopback as one (64, 64, 20)
# stress.sh wide [ENVS [SECONDS]]         one server with that many envs (4096, 20)
# stress.sh resets [N [ENVS]]             N resets of each of so many envs (2000, 8)
# stress.sh chaos [SECONDS]               four servers that are killed, stopped and slowed down, whose
#                                         workers are killed and stopped, among clients that send NaN,
#                                         nonsense, too much, the wrong number or nothing (60)
# Prints one JSON line; fails if a request was lost or answered twice by a server that lived, if a
# fault was not met as documented, if descriptors, threads or shared memory of a server or a client did
# not come back, if a process is left, or (chaos of ten minutes and more) if memory grew. TASK and
# KWARGS are the servers' task and its keyword arguments; SIMSTREAM and BUILD_DIR name another build.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
simstream=${SIMSTREAM:-$here/build/simstream}
hostile=${BUILD_DIR:-$here/build/release}/tests/hostile_client
task=${TASK:-InvertedPendulum-v5}
kwargs=(${KWARGS:+"--kwargs=$KWARGS"})
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
        --listen="tcp://$host:$3" --preflight=false --log-level=error "${kwargs[@]}" "${@:4}" 2>>"$dir/serve$i")
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
shared() { awk '/^Size/ {n = $2} /^VmFlags/ && / sh/ {all += n} END {print all + 0}' "/proc/$1/smaps"; }
await_counts() { # PID FDS THREADS: until it has no more; what comes late is closed late
    while [ "$(fds "$1")" -gt "$2" ] || [ "$(threads "$1")" -gt "$3" ]; do
        kill -0 "$1" 2>/dev/null || fail "the server is gone: $(cat "$dir"/serve*)"
        sleep 0.1
    done
}
books() { # LOAD: its figures are in order
    for name in open unasked wrong_episode; do
        grep -q "\"$name\": 0[,}]" "$dir/$1" || fail "$name is not 0: $(cat "$dir/$1")"
    done
}
steady() { # BEFORE AFTER WHAT: kB
    [ "$2" -le $(($1 + $1 / 20 + 512)) ] || fail "$3 grew from $1 kB to $2 kB"
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
    books load
    [ "$(field servers)" = "$n" ] && [ "$(field envs)" = $((n * envs)) ] || fail "$(cat "$dir/load")"
    for ((i = 0; i < n; i++)); do kill -TERM "${servers[i]}"; done
    for ((i = 0; i < n; i++)); do wait "${servers[i]}" || fail "server $i: $(cat "$dir/serve$i")"; done
    servers=()
    printf '{"stress": "many", "servers": %d, "envs": %d, "seconds": %s, "answered": %s, "steps_per_s": %s, "latency_p50_s": %s, "latency_p99_s": %s}\n' \
        "$n" $((n * envs)) "$(field seconds)" "$(field answered)" "$(field steps_per_s)" \
        "$(field latency_p50_s)" "$(field latency_p99_s)"
}

wide() { # one server with so many light envs
    local envs=${1:-4096} seconds=${2:-20} pid
    serve 0 "$envs" 0
    pid=${servers[0]}
    "$simstream" load --env="${url[0]}" --seconds="$seconds" --json >"$dir/load" 2>"$dir/load.err" ||
        fail "$(cat "$dir/load" "$dir/load.err")"
    books load
    [ "$(field envs)" = "$envs" ] || fail "$(cat "$dir/load")"
    printf '{"stress": "wide", "envs": %d, "seconds": %s, "answered": %s, "steps_per_s": %s, "latency_p50_s": %s, "latency_p99_s": %s, "server_rss_kb": %d}\n' \
        "$envs" "$(field seconds)" "$(field answered)" "$(field steps_per_s)" \
        "$(field latency_p50_s)" "$(field latency_p99_s)" "$(rss "$pid")"
}

resets() { # so many episodes begun in each env, none of them played
    local n=${1:-2000} envs=${2:-8} pid rss0 fds0 threads0
    serve 0 "$envs" 0
    pid=${servers[0]}
    "$simstream" load --env="${url[0]}" --resets=$((n / 4)) >/dev/null 2>&1 # warm
    rss0=$(rss "$pid") fds0=$(fds "$pid") threads0=$(threads "$pid")
    "$simstream" load --env="${url[0]}" --resets="$n" --json >"$dir/load" 2>"$dir/load.err" ||
        fail "$(cat "$dir/load" "$dir/load.err")"
    books load
    [ "$(field answered)" = $((n * envs)) ] || fail "$(cat "$dir/load")"
    await_counts "$pid" "$fds0" "$threads0"
    steady "$rss0" "$(rss "$pid")" "the server's memory"
    printf '{"stress": "resets", "envs": %d, "resets": %s, "seconds": %s, "rss_kb": [%d, %d], "fds": %d, "threads": %d}\n' \
        "$envs" "$(field answered)" "$(field seconds)" "$rss0" "$(rss "$pid")" "$fds0" "$threads0"
}

worker_of() { # I: a worker process of server I
    local warden
    warden=$(cat "/proc/${servers[$1]}"/task/*/children 2>/dev/null)
    cat "/proc/${warden%% *}"/task/*/children 2>/dev/null | cut -d' ' -f1
}
gone() { ! kill -0 "$1" 2>/dev/null; }
all_there() { # the client has all its envs
    ! grep ' of 32 envs ' "$dir/load.err" | tail -1 | grep -qv ': 32 of 32\|; 32 of 32'
}
await() { # COMMAND...: while the client lives
    until "$@"; do
        kill -0 "$load" 2>/dev/null || fail "the client ended: $(cat "$dir/load" "$dir/load.err")"
        sleep 0.1
    done
}
at_rest() { # what server 0 and the client hold: rss fds threads shared, of each
    local pid
    for pid in "${servers[0]}" "$load"; do
        echo "$(rss "$pid") $(fds "$pid") $(threads "$pid") $(shared "$pid")"
    done
}
leftovers() { # processes of servers; the children of one that was killed end with it
    pgrep -cf -- "--listen=tcp://$host:" || true
}

faults() { # as the inside of a JSON object
    local kind sep=''
    for kind in "${!faults[@]}"; do
        printf '%s"%s": %d' "$sep" "$kind" "${faults[$kind]}"
        sep=', '
    done
}

chaos() {
    local seconds=${1:-60} i load slow end warm tell=$SECONDS kind pid before= after
    declare -A faults=([kill]=0 [stop]=0 [drain]=0 [worker-kill]=0 [worker-stop]=0 [slow]=1)
    local kinds=(nan oversized half-open no-hello nonsense gap again twice vanish flood slow-reader)
    local opts=(--idle-timeout=2s --step-timeout=2s)
    for i in 0 1 2 3; do serve $i 16 0 "${opts[@]}"; done
    local list=${url[0]},${url[1]},${url[2]},${url[3]}
    "$simstream" load --env="$list" --num-envs=32 --seconds=0 --json >"$dir/load" 2>"$dir/load.err" &
    load=$!
    others+=("$load")
    # a client that thinks for long holds up its own envs only
    "$simstream" load --env="$list" --num-envs=4 --think=100ms --seconds=0 --json >"$dir/slow" 2>"$dir/slow.err" &
    slow=$!
    others+=("$slow")
    end=$((SECONDS + seconds)) warm=$((SECONDS + seconds / 6))
    while [ $SECONDS -lt $end ]; do
        if [ -z "$before" ] && [ $SECONDS -ge $warm ]; then
            await all_there
            before=$(at_rest | tr '\n' ' ')
        fi
        if [ $SECONDS -ge $tell ]; then
            echo "chaos: $((end - SECONDS)) s are left; faults so far: $(faults)" >&2
            tell=$((SECONDS + 300))
        fi
        i=$((RANDOM % 4))
        kind=$((RANDOM % 7))
        [ $i$kind != 00 ] && [ $i$kind != 02 ] || i=1 # server 0 lives through all of it
        case $kind in
        0) # the process dies, a new one takes its address
            kill -9 "${servers[i]}"
            wait "${servers[i]}" 2>/dev/null || true
            faults[kill]=$((faults[kill] + 1))
            serve $i 16 "${url[i]##*:}" "${opts[@]}"
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
            serve $i 16 "${url[i]##*:}" "${opts[@]}"
            ;;
        3) # its worker dies
            pid=$(worker_of $i)
            [ -n "$pid" ] || continue
            kill -9 "$pid" 2>/dev/null || continue
            await gone "$pid"
            faults[worker-kill]=$((faults[worker-kill] + 1))
            ;;
        4) # its worker hangs, and is replaced
            pid=$(worker_of $i)
            [ -n "$pid" ] || continue
            kill -STOP "$pid" 2>/dev/null || continue
            await gone "$pid"
            faults[worker-stop]=$((faults[worker-stop] + 1))
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
    await all_there
    read -r -a before <<<"${before:-$(at_rest | tr '\n' ' ')}"
    await_counts "${servers[0]}" "${before[1]}" "${before[2]}"
    await_counts "$load" "${before[5]}" "${before[6]}"
    read -r -a after <<<"$(at_rest | tr '\n' ' ')"
    kill -TERM "$load" "$slow"
    wait "$slow" || fail "the slow client: $(cat "$dir/slow" "$dir/slow.err")"
    wait "$load" || fail "the client: $(cat "$dir/load" "$dir/load.err")"
    others=()
    books slow
    books load
    [ "$(field servers_back)" = "$(field servers_lost)" ] || fail "not all came back: $(cat "$dir/load")"
    for i in 0 1 2 3; do kill -TERM "${servers[i]}"; done
    for i in 0 1 2 3; do wait "${servers[i]}" || fail "server $i: $(cat "$dir/serve$i")"; done
    servers=()
    for ((i = 0; i < 600 && $(leftovers) > 0; i++)); do sleep 0.1; done # they are told by a signal
    [ "$(leftovers)" = 0 ] || fail "processes are left: $(pgrep -af -- "--listen=tcp://$host:")"
    if [ "$seconds" -ge 600 ]; then
        steady "${before[0]}" "${after[0]}" "the memory of the server that lived"
        steady "${before[4]}" "${after[4]}" "the client's memory"
    fi
    [ "${before[3]}" = "${after[3]}" ] || fail "shared memory: ${before[3]} kB, then ${after[3]} kB"
    local n=0
    for i in "${faults[@]}"; do n=$((n + i)); done
    printf '{"stress": "chaos", "seconds": %d, "faults": {%s}, "faults_in_all": %d, "answered": %s, "answered_by_error": %s, "lost_with_server": %s, "servers_lost": %s, "servers_back": %s, "open": 0, "answered_twice": 0, ' \
        "$seconds" "$(faults)" "$n" "$(field answered)" "$(field errors)" "$(field lost_with_server)" \
        "$(field servers_lost)" "$(field servers_back)"
    printf '"server_rss_kb": [%d, %d], "server_fds": [%d, %d], "server_threads": [%d, %d], "server_shared_kb": [%d, %d], ' \
        "${before[0]}" "${after[0]}" "${before[1]}" "${after[1]}" "${before[2]}" "${after[2]}" \
        "${before[3]}" "${after[3]}"
    printf '"client_rss_kb": [%d, %d], "client_fds": [%d, %d], "client_threads": [%d, %d], "processes_left": 0}\n' \
        "${before[4]}" "${after[4]}" "${before[5]}" "${after[5]}" "${before[6]}" "${after[6]}"
}

case ${1:-} in
connects | many | wide | resets | chaos) "$@" ;;
*)
    sed -n 's/^# \{0,1\}//p' "$0" | sed 1d >&2
    exit 2
    ;;
esac
