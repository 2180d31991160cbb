#!/bin/sh
# demo.sh - the main job from end to end: train HalfCheetah-v5 for a short while, then evaluate it.
set -eu
cd "$(dirname "$0")/.."
dir=$(scripts/build.sh release)
run=build/demo
rm -rf $run
"$dir/simstream" train --task=HalfCheetah-v5 --out=$run "$@"
"$dir/simstream" eval --task=HalfCheetah-v5 --weights=$run/weights.h5 --episodes=10
