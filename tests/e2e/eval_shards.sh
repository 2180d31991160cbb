#!/bin/bash
# eval_shards.sh - an evaluation whole, in four shards that are merged, and broken off by kill -9 and
# resumed has the same results; compare pairs two of them; thresholds and the watchdog end by their
# exit codes.
set -eu
. "$(dirname "$0")/lib.bash"
options=(--suite=tabletop --tasks=0,4,6 --policy=expert --episodes-per-task=4)

evaluate() { # NAME OPTION...
    "$SIMSTREAM" eval "${options[@]}" --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>&1 ||
        fail "$1: $(cat "$work/$1.txt")"
}

same() { # NAME
    local file
    for file in settings.json tasks.jsonl inputs.jsonl results.jsonl; do
        cmp "$work/whole/$file" "$work/$1/$file" || fail "$file of $1 differs"
    done
    grep -q '"complete": true' "$work/$1/summary.json" || fail "$1 is not complete"
}

evaluate whole
[ "$(wc -l <"$work/whole/results.jsonl")" = 12 ] || fail "expected 12 lines"
mkdir "$work/parts"
for i in 0 1 3; do evaluate "parts/$i" --shard=$i/4; done
code=0
"$SIMSTREAM" merge --out="$work/parts" "$work"/parts/? >"$work/merge.txt" 2>&1 || code=$?
[ $code = 1 ] && grep -q "9 of 12 episodes" "$work/merge.txt" || fail "merge: $(cat "$work/merge.txt")"
SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=5 SLURM_ARRAY_TASK_COUNT=4 evaluate parts/2 --shard=auto
"$SIMSTREAM" merge --out="$work/parts" "$work"/parts/? >"$work/merge.txt" || fail "merge failed"
same parts
# a part twice changes nothing, one of another evaluation is refused
"$SIMSTREAM" merge --out="$work/parts" "$work/parts/1" >/dev/null || fail "merge again failed"
same parts
# not while somebody else writes there
code=0
flock "$work/parts" "$SIMSTREAM" merge --out="$work/parts" 2>"$work/merge.txt" || code=$?
[ $code = 2 ] && grep -q "in use by another evaluation or merge" "$work/merge.txt" || fail "merged in use"
options+=(--seed=1)
evaluate other
code=0
"$SIMSTREAM" merge --out="$work/parts" "$work/other" 2>"$work/merge.txt" || code=$?
[ $code = 2 ] && grep -q "is of another evaluation" "$work/merge.txt" || fail "merged a stranger"
options=("${options[@]::${#options[@]}-1}")

# kill -9 as soon as there are results, three times; one that is over before its first kill begins anew
results=$work/cut/results.jsonl
mkdir "$work/cut"
for ((kills = 0; kills < 3; )); do
    had=$(lines "$results")
    "$SIMSTREAM" eval "${options[@]}" --out="$work/cut" --resume --max-envs=1 --max-models=1 \
        >"$work/cut.txt" 2>&1 &
    pid=$!
    pids=($pid)
    while ! has_lines "$results" $((had + 2)) && kill -0 $pid 2>/dev/null; do sleep 0.01; done
    kill -9 $pid 2>/dev/null || true
    code=0
    wait $pid 2>/dev/null || code=$?
    if [ $code = 137 ]; then
        kills=$((kills + 1))
        continue
    fi
    [ $code = 0 ] || fail "resume: $(cat "$work/cut.txt")"
    [ $kills = 0 ] || break
    rm -r "$work/cut"
    mkdir "$work/cut"
done
evaluate cut --resume
same cut
# a line that was cut off is played again
head -c -5 "$work/cut/results.jsonl" >"$work/torn"
cp "$work/torn" "$work/cut/results.jsonl"
evaluate cut --resume
same cut
# a line that is no result is named
sed -i '3s/success/splendid/' "$work/cut/results.jsonl"
code=0
"$SIMSTREAM" eval "${options[@]}" --out="$work/cut" --resume 2>"$work/bad.txt" || code=$?
[ $code = 2 ] && grep -q "results.jsonl, line 3: .*splendid" "$work/bad.txt" ||
    fail "bad line: $(cat "$work/bad.txt")"

# paired comparison, threshold, watchdog
"$SIMSTREAM" compare "$work/whole" "$work/parts" >"$work/same.txt" || fail "compare failed"
grep -q "settings are the same" "$work/same.txt" && grep -q "^all  *12 .* p 1$" "$work/same.txt" ||
    fail "compare: $(cat "$work/same.txt")"
options=(--suite=tabletop --tasks=0,4,6 --policy=zero --episodes-per-task=4)
code=0
"$SIMSTREAM" eval "${options[@]}" --out="$work/zero" --fail-below=0.9 >"$work/zero.txt" 2>&1 || code=$?
[ $code = 1 ] && grep -q "0 of 12 episodes succeeded, --fail-below is 0.9" "$work/zero.txt" ||
    fail "threshold: exit $code: $(cat "$work/zero.txt")"
grep -q '<failure message="0 of 12 succeeded' "$work/zero/junit.xml" || fail "junit.xml has no failure"
"$SIMSTREAM" compare "$work/whole" "$work/zero" --json >"$work/less.json" || fail "compare failed"
grep -q '"pairs": 12, "both": 0, "only_a": 12, "only_b": 0, "neither": 0, "mcnemar_p": 0.000488281' \
    "$work/less.json" || fail "compare: $(cat "$work/less.json")"

exec {out}< <(exec "$SIMSTREAM" serve --task=Hopper-v5 --num-envs=2 --listen="tcp://$host:0" --json)
pids=($!)
read -r line <&"$out" || fail "no server"
url=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
"$SIMSTREAM" eval --policy=random --episodes=1000000 --env="$url" --out="$work/still" --watchdog=1s \
    >"$work/still.txt" 2>&1 &
pid=$!
while [ ! -s "$work/still/results.jsonl" ] && kill -0 $pid 2>/dev/null; do sleep 0.02; done
kill -STOP ${pids[0]}
code=0
wait $pid || code=$?
[ $code = 124 ] && grep -q "nothing has gone on" "$work/still.txt" ||
    fail "watchdog: exit $code: $(cat "$work/still.txt")"
echo "eval_shards: all equal"
