#!/bin/bash
# A suite's evaluation: the expert solves tabletop, results do not depend on how the work was spread,
# and what is wrong with a suite, a task or a preset is said.
set -eu
. "$(dirname "$0")/lib.bash"

run() { # OUT OPTION...
    "$SIMSTREAM" eval --suite=tabletop --tasks=0,4,6-7 --policy=expert --episodes-per-task=3 \
        --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>"$work/$1.err" || fail "$1: $(cat "$work/$1.err")"
}

refused() { # TEXT OPTION...: exit 2 and the text on stderr
    local code=0
    "$SIMSTREAM" eval --out="$work/no" "${@:2}" >/dev/null 2>"$work/no.err" || code=$?
    [ $code = 2 ] && grep -q -- "$1" "$work/no.err" || fail "$*: exit $code: $(cat "$work/no.err")"
}

run one --max-envs=1 --max-models=1
run many --max-envs=6 --max-models=3 --threads=2
cmp "$work/one/results.jsonl" "$work/many/results.jsonl" || fail "results depend on the bounds"
run narrow --max-envs=6 --max-models=3 --max-memory=1
cmp "$work/one/results.jsonl" "$work/narrow/results.jsonl" || fail "results depend on the memory"
[ "$(wc -l <"$work/one/results.jsonl")" = 12 ] || fail "expected 12 lines"
[ "$(grep -c '"outcome": "success"' "$work/one/results.jsonl")" -ge 11 ] ||
    fail "the expert failed: $(cat "$work/one.txt")"
grep -q '"preset": "none"' "$work/one/summary.json" || fail "the settings are not in summary.json"

[ "$("$SIMSTREAM" tasks --suite=libero_90 | wc -l)" = 90 ] || fail "libero_90 has 90 tasks"
refused "holds an evaluation: --resume" --suite=tabletop --policy=zero --out="$work/one"
refused "is of another evaluation" --suite=tabletop --policy=zero --out="$work/one" --resume
refused "with I from 0 to N - 1" --suite=tabletop --policy=zero --shard=4/4
refused "no task of a Slurm job array" --suite=tabletop --policy=zero --shard=auto
refused "no suite 'tabletp'" --suite=tabletp --policy=zero
refused "tasks 0 to 9, not 12" --suite=tabletop --tasks=12 --policy=zero
refused "names a task twice" --suite=tabletop --tasks=1-3,0-9 --policy=zero
refused "no preset 'best'" --suite=tabletop --preset=best --policy=zero
refused "give one of them" --suite=tabletop --task=Hopper-v5 --policy=zero
refused "has 3 addresses for 2 tasks" --suite=tabletop --tasks=1,2 --env=a,b,c --policy=zero
refused "--kwargs with --env" --suite=tabletop --env=ipc:///none --policy=zero --kwargs='{"expert": true}'
refused "Hopper-v5 has no expert" --task=Hopper-v5 --policy=expert

# by servers elsewhere: two of task 0, two of task 4
urls=()
for task in 0 4 0 4; do
    exec {out}< <(exec "$SIMSTREAM" serve --task=tabletop/$task --num-envs=2 --kwargs='{"expert": true}' \
        --listen="tcp://$host:0" --json 2>/dev/null)
    pids+=($!)
    read -r line <&"$out" || fail "no server"
    urls+=("$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")")
done
evaluate() { # OUT OPTION...
    "$SIMSTREAM" eval --suite=tabletop --tasks=0,4 --policy=expert --episodes-per-task=3 --json \
        --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>"$work/$1.err"
}
evaluate inside || fail "inside: $(cat "$work/inside.err")"
all=$(IFS=,; echo "${urls[*]}")
once_free "$work/elsewhere.err" evaluate elsewhere --env="$all" || fail "elsewhere: $(cat "$work/elsewhere.err")"
cmp "$work/inside/results.jsonl" "$work/elsewhere/results.jsonl" || fail "results depend on the servers"
code=0
once_free "$work/crossed.err" evaluate crossed --env="${urls[1]},${urls[0]}" || code=$?
[ $code = 2 ] && grep -q "task tabletop/[04] is wanted, env server .* has tabletop/[04]" "$work/crossed.err" ||
    fail "crossed: exit $code: $(cat "$work/crossed.err")"
echo "suite: fine"
