#!/bin/sh
# demo.sh - the main job from end to end: train HalfCheetah-v5 from scratch, all three switches on, in
# four minutes at most, then evaluate the policy in closed loop over 20 episodes.
set -eu
cd "$(dirname "$0")/.."
dir=$(scripts/build.sh release)
run=build/demo
rm -rf $run
"$dir/simstream" train --task=HalfCheetah-v5 --train-async --rollout-async --streaming \
    --total-steps=2000000 --max-seconds=230 --out=$run "$@"
"$dir/simstream" eval --task=HalfCheetah-v5 --policy=$run/policy.h5 --episodes=20 --out=$run/eval
