#!/bin/bash
# nightly.sh - tonight's evaluation and what changed since the last one:
#   deploy/nightly.sh FOLDER --suite=libero_10 --policy=/srv/policy.h5 --fail-below=0.9
# FOLDER/2026-11-30 gets report.html, junit.xml and compare.txt; started again on the same day, it goes
# on where it was broken off. The exit code is that of `simstream eval`: 0 well, 1 below the threshold
# or broken off, 2 wrong options, 124 nothing went on.
set -euo pipefail
runs=${1:?usage: nightly.sh FOLDER EVAL-OPTION...}
shift
mkdir -p "$runs"
tonight=$runs/${SIMSTREAM_NIGHT:-$(date +%F)}
before=
for run in "$runs"/*/; do # dates sort as text
    run=${run%/}
    [[ $run < $tonight ]] && [ -e "$run/summary.json" ] && before=$run
done
code=0
simstream eval --resume --out="$tonight" "$@" || code=$?
[ -z "$before" ] || [ ! -e "$tonight/summary.json" ] ||
    simstream compare "$before" "$tonight" >"$tonight/compare.txt" || echo "nightly: no comparison" >&2
exit $code
