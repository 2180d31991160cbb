#!/bin/sh
# build.sh PRESET - set up, configure and build one preset; prints the build folder on success.
#
# The folder is build/PRESET, build/PRESET-4.0.0 with MUJOCO_VERSION=4.0.0 and build/PRESET-own with
# MUJOCO_DIR. JOBS is the number of compilers at once (default: all processors).
set -eu
cd "$(dirname "$0")/.."
preset=$1
dir=build/$preset
set --
if [ -n "${MUJOCO_DIR:-}" ]; then
    dir=$dir-own
    set -- -DMUJOCO_DIR="$(realpath "$MUJOCO_DIR")" -DSIMSTREAM_VENV=/nonexistent
elif [ -n "${MUJOCO_VERSION:-}" ] &&
    [ "$MUJOCO_VERSION" != "$(awk '/^sdk +mujoco/ { print $3; exit }' deps.txt)" ]; then
    dir=$dir-$MUJOCO_VERSION
    set -- -DMUJOCO_DIR="$PWD/build/deps/mujoco-$MUJOCO_VERSION/mujoco" \
        -DSIMSTREAM_VENV="$PWD/build/venv-$MUJOCO_VERSION"
fi
scripts/setup.sh build
log=$dir.log
cmake --preset "$preset" -B "$dir" "$@" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
cmake --build "$dir" -j "${JOBS:-$(nproc)}" >&2
echo "$dir"
