#!/bin/bash
# pixels.sh - a policy that sees one camera: InvertedPendulum is learned from its pictures alone, a
# broken-off training goes on exactly, separate processes learn what one process learns, and whoever
# asks for pictures that are not there is told so.
set -eu
. "$(dirname "$0")/lib.bash"

task=InvertedPendulum-v5
cameras() { # SIZE
    echo "{\"cameras\": \"track:$1\", \"renderer\": \"rays\", \"render_samples\": 1}"
}
small=(--pixels --seed=3 --num-envs=4 --horizon=16 --epochs=3 --minibatches=2 --conv=8x6/4,8x3/2
    --hidden=16 --lr-final=0.0003)

train() { # NAME OPTION...
    "$SIMSTREAM" train --task=$task --out="$work/$1" "${@:2}" >"$work/$1.txt" 2>&1 ||
        fail "$1: $(cat "$work/$1.txt")"
}

# the losses of each window
windows() {
    grep -oE '"(step|train/(policy_loss|value_loss|grad_norm|entropy))": *[^,}]*' \
        "$work/$1/metrics.jsonl"
}

evaluate() { # NAME OPTION...: into $work/eval-NAME
    "$SIMSTREAM" eval --policy="$work/$1/policy.h5" --out="$work/eval-$1" "${@:2}" \
        >"$work/eval.txt" 2>&1 || fail "eval of $1: $(cat "$work/eval.txt")"
}

# same NAME: windows and policy are those of the unbroken run in one process
same() {
    diff <(windows whole) <(windows "$1") >"$work/diff" || fail "$1: $(head -c 1500 "$work/diff")"
    evaluate "$1" --episodes=3 --greedy=false --kwargs="$(cameras 32x32)"
    cmp "$work/eval-whole/results.jsonl" "$work/eval-$1/results.jsonl" ||
        fail "the policy of $1 acts differently"
}

train whole "${small[@]}" --kwargs="$(cameras 32x32)" --total-steps=640
[ "$(wc -l <"$work/whole/metrics.jsonl")" = 10 ] || fail "not 10 windows"
grep -q "MiB of them" "$work/whole.txt" || fail "no word of the pictures' memory"
same whole
train halves "${small[@]}" --kwargs="$(cameras 32x32)" --total-steps=320
train halves "${small[@]}" --kwargs="$(cameras 32x32)" --total-steps=640 --resume
same halves

# env server, worker and learner as processes of their own
exec {out}< <(exec "$SIMSTREAM" serve --task=$task --kwargs="$(cameras 32x32)" --num-envs=4 \
    --threads=2 --listen="tcp://$host:0" --json)
pids+=($!)
read -r line <&"$out" || fail "no server"
url=$(sed 's/.*"url": *"\([^"]*\)".*/\1/' <<<"$line")
learn=()
for o in "${small[@]}"; do [ "$o" = --pixels ] || learn+=("$o"); done
"$SIMSTREAM" learn "${learn[@]}" --total-steps=640 --listen="ipc://$work/learner" \
    --out="$work/apart" >"$work/apart.txt" 2>&1 &
pids+=($!)
"$SIMSTREAM" rollout --env="$url" --learner="ipc://$work/learner" --pixels \
    --picture=track_image --seed=3 --horizon=16 >"$work/rollout.txt" 2>&1 ||
    fail "rollout: $(cat "$work/rollout.txt")"
wait "${pids[-1]}" || fail "learn: $(cat "$work/apart.txt")"
same apart

# the other ways to run: everything at once and streamed, with the observation beside the pictures
train streamed "${small[@]}" --kwargs="$(cameras 32x32)" --total-steps=640 --epochs=1 \
    --pixels-state --train-async --rollout-async --streaming --learner-threads=2
[ "$(wc -l <"$work/streamed/metrics.jsonl")" = 10 ] || fail "not 10 streamed windows"
evaluate streamed --episodes=3 --kwargs="$(cameras 32x32)"

# what does not fit is named
refused() { # TEXT COMMAND...
    "$SIMSTREAM" "$2" --out="$work/refused" "${@:3}" >"$work/refused.txt" 2>&1 &&
        fail "not refused: ${*:2}"
    grep -qF -- "$1" "$work/refused.txt" || fail "no '$1' in: $(cat "$work/refused.txt")"
}
refused "has the pictures: none" train --task=$task --pixels
refused "picture 'front_image' is wanted; this server renders track_image 32x32" train --task=$task --pixels \
    --picture=front_image --kwargs="$(cameras 32x32)"
refused "without --pixels" train --task=$task --picture=track_image
refused "convolution 1 has a kernel of 3" train --task=$task --pixels --conv=8x32/4,8x3/1 --kwargs="$(cameras 32x32)"
refused "such as 16x8/4,32x4/2" train --task=$task --pixels --conv=8 --kwargs="$(cameras 32x32)"
refused "the policy sees track_image in 32 by 32" eval --policy="$work/whole/policy.h5" \
    --kwargs="$(cameras 64x64)"
refused "has the pictures: none" eval --policy="$work/whole/policy.h5"
refused "the model sees 3 pictures of 32 by 32 through 8x6/4,8x3/2, expected 2 pictures" \
    train --task=$task "${small[@]}" --kwargs="$(cameras 32x32)" --frame-stack=2 --resume \
    --total-steps=1280 --out="$work/halves"

# from pixels alone: an untrained policy keeps the pole up for about 7 steps; how far a short
# training gets depends on the last bit of its pictures, so it has steps to spare
train learned --pixels --kwargs="$(cameras 64x64)" --frame-stack=2 --seed=1 --num-envs=8 \
    --horizon=64 --total-steps=20480 --epochs=4 --minibatches=4 --lr=0.001 --lr-final=0.001
evaluate learned --episodes=20 --seed=1 --kwargs="$(cameras 64x64)"
return=$(sed -n 's/.*"return": {"mean": *\([0-9.]*\).*/\1/p' "$work/eval-learned/summary.json")
echo "pixels: mean return of 20 episodes $return"
awk -v r="$return" 'BEGIN { exit !(r >= 50) }' || fail "it learned too little"
