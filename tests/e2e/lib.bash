# lib.bash - how the end-to-end scripts begin: a work folder and processes that end with the script.
#
#   set -eu
#   . "$(dirname "$0")/lib.bash"
#
# $work is the folder; what is put into pids is killed at the end. fail TEXT ends the test.
work=$(mktemp -d)
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
