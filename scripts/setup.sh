#!/bin/sh
# setup.sh build|test - bring what deps.txt lists: Debian packages, wheels, the oracle's environment.
#
# Everything but the Debian packages goes under build/. What is there already is left alone, so a
# second run is quick and downloads nothing. MUJOCO_VERSION chooses the MuJoCo row of deps.txt
# (default: the first); MUJOCO_DIR names an own copy instead, and then there is no oracle.
set -eu
cd "$(dirname "$0")/.."
goal=${1:-build}
deps=build/deps
own=${MUJOCO_DIR:-}
default=$(awk '$1 == "sdk" && $2 ~ /^mujoco/ { print $3; exit }' deps.txt)
version=${MUJOCO_VERSION:-$default}

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

# rows KINDS: the wheel rows of these kinds that go with the chosen MuJoCo
rows() {
    awk -v kinds=" $1 " -v version="$version" -v own="$own" '
        index(kinds, " " $1 " ") && ($4 == version || $4 == "any") && !(own != "" && $2 ~ /^mujoco/)
    ' deps.txt
}

# --- Debian packages -----------------------------------------------------------------------------
missing_packages() {
    awk -v goal="$goal" '$1 == "debian" && ($4 == "build" || $4 == goal) { print $2, $3 }' deps.txt |
    while read -r name min; do
        have=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$name" 2>/dev/null || true)
        case $have in
        "installed "*) dpkg --compare-versions "${have#installed }" ge "$min" || echo "$name" ;;
        *) echo "$name" ;;
        esac
    done
}

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        say "not a Debian system: the 'debian' rows of deps.txt must be there already"
        return
    fi
    missing=$(missing_packages | xargs)
    [ -n "$missing" ] || return 0
    [ "$(id -u)" = 0 ] || die "missing Debian packages, install them as root: apt-get install $missing"
    say "installing $missing"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # word splitting is meant
    apt-get install -y -qq --no-install-recommends $missing </dev/null >build/apt.log 2>&1 ||
        { tail -n 20 build/apt.log >&2; die "apt-get install failed"; }
}

# --- wheels --------------------------------------------------------------------------------------
fetch() { # KINDS: download the wheels that are not in build/deps/wheels, by name and hash
    mkdir -p $deps/wheels
    rows "$1" | while read -r _ name ver _ _ sha file _; do
        [ -f "$deps/wheels/$file" ] || echo "$name==$ver --hash=sha256:$sha"
    done >$deps/fetch.txt
    [ ! -s $deps/fetch.txt ] || {
        say "fetching $(cut -d' ' -f1 $deps/fetch.txt | xargs)"
        python3 -m pip --disable-pip-version-check download -q --no-deps --require-hashes \
            --only-binary=:all: --implementation cp --python-version 3.11 \
            --platform manylinux_2_28_x86_64 -d $deps/wheels -r $deps/fetch.txt ||
            die "cannot fetch the wheels"
    }
    rows "$1" | while read -r _ _ _ _ _ sha file _; do
        echo "$sha  $deps/wheels/$file"
    done | sha256sum -c --quiet - || die "a wheel differs from its hash in deps.txt"
}

unpack_sdks() { # build/deps/NAME-VERSION, all MuJoCo wheels as `mujoco-VERSION`
    rows sdk | while read -r _ name ver _ _ sha file _; do
        dir=$deps/${name%_core}-$ver
        [ "$(cat "$dir/.sha256" 2>/dev/null)" != "$sha" ] || continue
        fetch sdk
        rm -rf "$dir" "$dir.tmp"
        python3 -m zipfile -e "$deps/wheels/$file" "$dir.tmp"
        echo "$sha" >"$dir.tmp/.sha256"
        mv "$dir.tmp" "$dir"
        say "unpacked $dir"
    done
}

make_venv() {
    venv=build/venv-$version
    rows "sdk wheel" | awk '{ print $2 "==" $3 " --hash=sha256:" $6 }' >$deps/oracle.txt
    ! cmp -s $deps/oracle.txt "$venv/installed.txt" || return 0
    python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
        die "the Gymnasium oracle needs Python 3.11, python3 is $(python3 -V)"
    fetch "sdk wheel"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check install -q --no-deps --no-index \
        --require-hashes --find-links $deps/wheels -r $deps/oracle.txt
    cp $deps/oracle.txt "$venv/installed.txt"
    say "made $venv"
}

case $goal in build | test) ;; *) die "usage: setup.sh build|test" ;; esac
[ -n "$own" ] || awk -v v="$version" '$1 == "sdk" && $2 ~ /^mujoco/ && $3 == v { ok = 1 }
    END { exit !ok }' deps.txt || die "deps.txt has no MuJoCo '$version'"
mkdir -p $deps
exec 9>build/.setup.lock
flock 9
install_packages
unpack_sdks
if [ "$goal" = test ] && [ -z "$own" ]; then
    make_venv
fi
