#!/bin/bash
# tasks_doctor.sh - `tasks` lists what can be served and explains one task; `doctor` finds what the
# program runs with and shows the limits that hold.
set -eu
. "$(dirname "$0")/lib.bash"

has() { # TEXT PART: fails if PART is not in TEXT
    grep -qF -- "$2" <<<"$1" || fail "'$2' is not in: $1"
}

list=$("$SIMSTREAM" tasks)
names=$(awk '/-v5 /{print $1}' <<<"$list")
[ "$(wc -l <<<"$names")" = 11 ] || fail "not 11 tasks: $names"
LC_ALL=C sort -c <<<"$names" || fail "the tasks are not in order"
has "$(grep HalfCheetah <<<"$list" | tr -s ' ')" "HalfCheetah-v5 17 6 1000 "
has "$(grep Reacher <<<"$list" | tr -s ' ')" "Reacher-v5 10 2 50 "
json=$("$SIMSTREAM" tasks --json)
[ "$(grep -o '"name"' <<<"$json" | wc -l)" = 11 ] || fail "not 11 names: $json"
has "$json" '{"name": "HalfCheetah-v5", "observations": 17, "actions": 6, "max_episode_steps": 1000,'

# every keyword that is shown is accepted with the default that is shown
for name in $names; do
    one=$("$SIMSTREAM" tasks "$name" --json)
    has "$one" "\"name\": \"$name\""
    pairs=$(grep -o '{"name": "[a-z_]*", "type": "[a-z]*", "default": "[^"]*"' <<<"$one" |
        sed -e 's/{"name": \("[a-z_]*"\), "type": "text", "default": \(".*"\)/\1: \2/' \
            -e 's/{"name": \("[a-z_]*"\), "type": "enum", "default": \(".*"\)/\1: \2/' \
            -e 's/{"name": \("[a-z_]*"\), "type": "range", "default": "\(.*\)"/\1: [\2]/' \
            -e 's/{"name": \("[a-z_]*"\), "type": "[a-z]*", "default": "\(.*\)"/\1: \2/' \
            -e 's/-\?inf/"&"/g' | paste -sd, -)
    has "$pairs" '"frame_skip": '
    "$SIMSTREAM" eval --policy=zero --task="$name" --episodes=1 --out="$work/$name" \
        --kwargs="{$pairs}" >/dev/null 2>"$work/err" ||
        fail "$name with $pairs: $(cat "$work/err")"
done
has "$("$SIMSTREAM" tasks Ant-v5)" "ctrl_cost_weight"

text=$("$SIMSTREAM" doctor) || fail "doctor is not content: $text"
for part in MuJoCo nng HDF5 OpenBLAS cJSON Gymnasium EGL GPU CPUs memory /dev/shm Humanoid-v5; do
    has "$text" "$part"
done
has "$text" "all that is needed is there"
json=$(ulimit -n 200 && "$SIMSTREAM" doctor --json)
has "$json" '{"ok": true, "checks": [{"name": "MuJoCo", "required": true, "found": true, '
has "$json" '"open_files": 200,'
version=$(sed 's/.*"name": "MuJoCo"[^}]*"detail": "\([0-9.]*\),.*/\1/' <<<"$json")
summary=$("$SIMSTREAM" eval --policy=zero --task=Reacher-v5 --episodes=1 --out="$work/eval" --json)
has "$summary" "\"engine\": \"MuJoCo $version\""
echo "tasks_doctor: fine"
