#!/bin/bash
# bench_vla.sh - `bench vla` measures every way with more threads than sequences, with ragged ones and
# with checkpoints, and names what it cannot use.
set -eu
. "$(dirname "$0")/lib.bash"

for options in "--seqs=1" "--seqs=3 --images=0,1 --texts=0,4 --checkpoint"; do
    # shellcheck disable=SC2086
    json=$("$SIMSTREAM" bench vla --reps=1 --threads=2 $options)
    for key in train_s train_padded_s train_pruned_s train_packed_over_padded infer_pruned_over_packed \
        infer_cpu_pruned_over_packed; do
        grep -q "\"$key\": {\"min\": [0-9]" <<<"$json" || fail "no $key in $json"
    done
done
for wrong in "--images=2,1:lower end first" "--model=vla-huge:vla-tiny" "--keep=0:keep"; do
    if text=$("$SIMSTREAM" bench vla "${wrong%%:*}" 2>&1); then fail "${wrong%%:*} was taken"; fi
    grep -qF -- "${wrong#*:}" <<<"$text" || fail "'${wrong#*:}' is not in: $text"
done
