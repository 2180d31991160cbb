#!/bin/bash
# wheel.sh [PYTHON] - build the wheel, install it into a fresh environment, and step from another
# folder with nothing of the tree in reach. Needs a network for pip.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/venv"
pip() { "$work/venv/bin/python" -m pip -q --disable-pip-version-check "$@"; }
pip wheel --no-deps -w "$work" ./python
pip install "$work"/simstream-*.whl
cp tests/python/smoke.py "$work"
cd "$work"
# no compiler and no library of this machine's build packages: an empty PATH, and the loader's log
# must name nothing outside the environment but the C library's own
env -i PATH=/nonexistent LD_DEBUG=files LD_DEBUG_OUTPUT="$work/loader" \
    "$work/venv/bin/python" smoke.py
if cat "$work"/loader.* | sed -n 's/.*calling init: //p' |
    grep -E '/lib(nng|cjson|mbed|mujoco|openblas|hdf5)' | grep -v "^$work/"; then
    echo "wheel: the libraries above come from outside of the wheel"
    exit 1
fi
ls -l "$work"/simstream-*.whl | awk '{ print "wheel: " $NF ", " $5 " bytes" }'
