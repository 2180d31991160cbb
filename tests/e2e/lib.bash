# lib.bash - how the end-to-end scripts begin: a work folder and processes that end with the script.
#
#   set -eu
#   . "$(dirname "$0")/lib.bash"
#
# $work is the folder; what is put into pids is killed at the end. fail TEXT ends the test. $host is a
# loopback address that no other test has: a port of it that becomes free is taken by nobody else.
#
# A machine may stand still for a minute: wait for what must come with `await` or `read`, not for a
# time. What never comes ends with the test's time limit (tests/CMakeLists.txt).
work=$(mktemp -d)
host=127.$((1 + ($$ >> 16))).$(($$ >> 8 & 255)).$(($$ & 255))
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill -9 "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT

fail() {
    echo "$(basename "$0" .sh): $*" >&2
    exit 1
}

# await PID COMMAND...: until COMMAND succeeds; fails once process PID is gone, with what was said last
await() {
    local pid=$1
    shift
    until "$@"; do
        kill -0 "$pid" 2>/dev/null || "$@" || fail "process $pid is gone, and not '$*':" \
            "$(find "$work" -maxdepth 1 -type f -size -1M -exec tail -n 3 {} + 2>/dev/null)"
        sleep 0.05
    done
}

# once_free LOG COMMAND...: COMMAND, whose messages go to LOG; again while a server of its has not
# noticed yet that the client before has left
once_free() {
    local code=0 log=$1
    shift
    "$@" || code=$?
    while [ $code != 0 ] && grep -qE '[0-9]+ of [0-9]+ are free' "$log"; do
        sleep 0.05
        code=0
        "$@" || code=$?
    done
    return $code
}

lines() { # FILE: how many it has; 0 before it is there
    if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi
}
has_lines() { [ "$(lines "$1")" -ge "$2" ]; }

# FOLDER: of each window of a training from groups the numbers that do not depend on the clock. One that
# was made again with the same result, after a kill between its metrics and its checkpoint, counts once.
window_numbers() {
    awk '{
        out = ""
        while (match($0, /"(step|train\/(success|loss|kl|grad_norm|std|log_ratio_max)|groups\/[a-z_]*)": *[^,}]*/)) {
            out = out substr($0, RSTART, RLENGTH) "\n"
            $0 = substr($0, RSTART + RLENGTH)
        }
        if (!seen[out]++) printf "%s", out
    }' "$1/metrics.jsonl"
}

# killed FOLDER COMMAND...: a training into FOLDER that writes a checkpoint every window; it is killed at a
# random moment after its next window, and goes on from its checkpoint in the next call
killed() {
    local dir=$1 resume=() pid
    if [ -e "$dir/checkpoint.h5" ]; then resume=(--resume); fi
    "${@:2}" --checkpoint-every=1 --updates=1000000 --out="$dir" "${resume[@]}" >"$dir.txt" 2>&1 &
    pid=$!
    pids+=("$pid")
    await "$pid" has_lines "$dir/metrics.jsonl" $(($(lines "$dir/metrics.jsonl") + 1))
    await "$pid" [ -e "$dir/checkpoint.h5" ]
    sleep 0.0$((RANDOM % 10))
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
}
