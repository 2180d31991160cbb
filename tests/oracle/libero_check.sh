#!/bin/sh
# libero_check.sh SCRIPT ARGUMENT... - run a comparison with Python LIBERO where LIBERO's files are
# there (make libero-data) and with the default MuJoCo; 77 = skipped.
set -eu
cd "$(dirname "$0")/../.."
default=$(awk '$1 == "sdk" && $2 ~ /^mujoco/ { print $3; exit }' deps.txt)
if [ -n "${MUJOCO_DIR:-}" ] || [ "${MUJOCO_VERSION:-$default}" != "$default" ]; then
    echo "skipped: Python LIBERO is compared on MuJoCo $default; scripts/libero_oracle.sh does others"
    exit 77
fi
if [ "$(cut -c1-5 build/deps/libero/.made 2>/dev/null)" != "full " ]; then
    echo "skipped: LIBERO's files are not in build/deps/libero (make libero-data)"
    exit 77
fi
exec scripts/libero_oracle.sh "$@"
