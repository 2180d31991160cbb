#!/bin/bash
# eval_films.sh - films show the episodes that were asked for, whole, and change no result; with a
# recording, a resumed evaluation plays a task whose recording is not complete again.
set -eu
. "$(dirname "$0")/lib.bash"
options=(--suite=tabletop --tasks=0,4 --episodes-per-task=2 --kwargs='{"max_episode_steps": 44}')

evaluate() { # NAME OPTION...
    "$SIMSTREAM" eval "${options[@]}" --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>&1 ||
        fail "$1: $(cat "$work/$1.txt")"
}

films() { (cd "$work/$1" && find . -name '*.mp4' | sort | tr '\n' ' '); }

frames() {
    ffprobe -v error -count_frames -show_entries stream=nb_read_frames -of csv=p=0 "$1"
}

# within 44 steps the expert lifts the block from one of the two places and opens no drawer
evaluate plain --policy=expert
evaluate some --policy=expert --video=failures --video-camera=agentview:64x64 --max-envs=1
cmp "$work/plain/results.jsonl" "$work/some/results.jsonl" || fail "films change the results"
cmp "$work/plain/settings.json" "$work/some/settings.json" || fail "films change the settings"
! grep -q "came out differently" "$work/some.txt" || fail "$(cat "$work/some.txt")"
want=
for item in $(sed -n 's|.*"item": "tabletop/\([^"]*\)".*"outcome": "failure".*|\1|p' "$work/plain/results.jsonl"); do
    want+="./videos/tabletop_${item%/*}/eval_episode_${item#*/}.mp4 "
    if command -v ffprobe >/dev/null; then
        n=$(frames "$work/some/videos/tabletop_${item%/*}/eval_episode_${item#*/}.mp4")
        [ "$n" = 45 ] || fail "the film of $item has $n pictures, not 45"
    fi
done
[ -n "$want" ] || fail "nothing failed: $(cat "$work/plain/results.jsonl")"
[ "$(films some)" = "$want" ] || fail "films: $(films some), not $want"
grep -q '"video_paths": \["videos/tabletop_4/eval_episode_0.mp4"' "$work/some/summary.json" ||
    fail "summary.json has no films"
python3 - "$work/some/summary.json" <<'E' || fail "the films of the suite and of all are not the tasks'"
import json, sys
s = json.load(open(sys.argv[1]))
films = [film for task in s["per_task"] for film in task["metrics"]["video_paths"]]
sys.exit(not films or s["per_group"]["tabletop"]["video_paths"] != films or
         s["overall"]["video_paths"] != films)
E
evaluate all --policy=zero --video=all --video-camera=agentview:32x32
[ "$(films all | wc -w)" = 4 ] || fail "not all films: $(films all)"

evaluate rec --policy=expert --record=hdf5 --record-failures
cp "$work/rec/tabletop_0/demos.hdf5" "$work/first.hdf5"
rm "$work/rec/tabletop_0/demos.hdf5"
evaluate rec --policy=expert --record=hdf5 --record-failures --resume
cmp "$work/first.hdf5" "$work/rec/tabletop_0/demos.hdf5" || fail "the recording is another one"
cmp "$work/plain/results.jsonl" "$work/rec/results.jsonl" || fail "recording changes the results"
echo "eval_films: fine"
