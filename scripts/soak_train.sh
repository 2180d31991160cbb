#!/usr/bin/env bash
# soak_train.sh [SECONDS] - a vision-language-action policy trained from groups for two hours: neither
# memory, descriptors and threads nor the processor time of an env step may grow. Prints one JSON line
# and fails if a figure of the last third of the time is not that of the second: the first is for warming up.
#
# The learning rate is 0, so that the same policy plays all the time and the work stays the same; all
# else is as in training: pictures, inference, groups, updates, checkpoints. SIMSTREAM is another program,
# OUT keeps the run and its samples.
set -euo pipefail
seconds=${1:-7200}
here=$(cd "$(dirname "$0")/.." && pwd)
simstream=${SIMSTREAM:-$here/build/simstream}
dir=$(mktemp -d)
out=${OUT:-$dir}
trainer=

finish() {
    if [ -n "$trainer" ]; then kill "$trainer" 2>/dev/null || true; wait "$trainer" || true; fi
    rm -rf "$dir"
}
trap finish EXIT

fail() {
    echo "soak_train: $*" >&2
    exit 1
}

quietly() { # NAME COMMAND...
    "$simstream" "${@:2}" >"$dir/$1.txt" 2>&1 || fail "$1: $(tail -n 20 "$dir/$1.txt")"
}

# a policy that sometimes turns on the stove, so that groups are mixed and the update has work
mkdir -p "$out"
cat >"$dir/small.json" <<'JSON'
{"model": "vla-tiny", "image": 32, "layers": 2, "vision_layers": 1, "width": 96, "heads": 3,
 "kv_heads": 1, "vision_width": 96, "vision_mlp": 192, "mlp": 192}
JSON
quietly demos eval --task=tabletop/5 --policy=expert --episodes=6 --seed=100 --record=hdf5 \
    --out="$dir/demos" --kwargs='{"init_states": "random", "cameras":
        "agentview:32x32:upright,robot0_eye_in_hand:32x32:upright"}'
quietly sft sft --data="$dir/demos/demos.hdf5" --model="$dir/small.json" --steps=250 --batch=16 \
    --lr=0.002 --out="$dir/sft"

"$simstream" train --suite=tabletop --tasks=5 --init="$dir/sft" --algo=rloo --group-size=4 \
    --num-envs=8 --window-episodes=16 --window-max=2 --updates=1000000000 \
    --total-steps=1000000000000 --lr=0 --lr-final=0 --explore=0.3 --checkpoint-every=5 \
    --out="$out/rl" --kwargs='{"init_states": "random", "max_episode_steps": 64}' >"$out/train.txt" 2>&1 &
trainer=$!

cpu() { # seconds of user and system time; the name in parentheses may have spaces
    awk -v hz="$(getconf CLK_TCK)" '{sub(/^.*\) /, ""); print ($12 + $13) / hz}' "/proc/$trainer/stat"
}
status() { awk -v key="$1:" '$1 == key {print $2}' "/proc/$trainer/status"; }

# one sample a closed window, at most one in ten seconds: seconds, windows, env steps, processor time,
# resident kB, descriptors, threads
samples=$out/samples
: >"$samples"
start=$SECONDS
windows=0
while [ $((SECONDS - start)) -lt "$seconds" ]; do
    sleep 10
    kill -0 "$trainer" 2>/dev/null || fail "training ended: $(tail -n 20 "$out/train.txt")"
    [ -s "$out/rl/metrics.jsonl" ] || continue
    n=$(wc -l <"$out/rl/metrics.jsonl")
    [ "$n" -gt "$windows" ] || continue
    windows=$n
    steps=$(tail -n 1 "$out/rl/metrics.jsonl" | sed 's/.*"step": *\([0-9]*\).*/\1/')
    echo "$((SECONDS - start)) $n $steps $(cpu) $(status VmRSS) $(find "/proc/$trainer/fd" -mindepth 1 | wc -l) $(status Threads)" \
        >>"$samples"
done
kill -TERM "$trainer"
wait "$trainer" || fail "training did not end cleanly: $(tail -n 20 "$out/train.txt")"
trainer=

# the second third against the last: processor time a step, the most memory, the least of the others
awk -v seconds="$seconds" '
function least(a, b) { return a == "" || b < a ? b : a } # files are opened and closed all the time
{
    third = int(3 * $1 / seconds)
    if (third > 2) third = 2
    if (!(third in first_steps)) { first_steps[third] = $3; first_cpu[third] = $4 }
    steps[third] = $3 - first_steps[third]; used[third] = $4 - first_cpu[third]
    if ($5 > rss[third]) rss[third] = $5
    fds[third] = least(fds[third], $6)
    threads[third] = least(threads[third], $7)
    windows = $2
}
END {
    if (steps[1] <= 0 || steps[2] <= 0) { print "soak_train: too few windows in the time" >"/dev/stderr"; exit 2 }
    for (i = 1; i <= 2; i++) cost[i] = 1e3 * used[i] / steps[i]
    printf "{\"bench\": \"soak_train\", \"seconds\": %d, \"windows\": %d, \"rss_kb\": [%d, %d], \"rss_ratio\": %.4f, " \
           "\"cpu_ms_per_step\": [%.4f, %.4f], \"cpu_ratio\": %.4f, \"fds\": [%d, %d], \"threads\": [%d, %d]}\n",
           seconds, windows, rss[1], rss[2], rss[2] / rss[1], cost[1], cost[2], cost[2] / cost[1],
           fds[1], fds[2], threads[1], threads[2]
    exit !(rss[2] <= 1.02 * rss[1] && cost[2] <= 1.1 * cost[1] && fds[2] <= fds[1] && threads[2] <= threads[1])
}' "$samples"
