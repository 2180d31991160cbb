#!/bin/bash
# test.sh - all that `make test` checks, and one line at the end that says how it went:
#   lint; every test of the release build with the default MuJoCo; unit, oracle and end-to-end tests
#   with each other MuJoCo of deps.txt; unit and fuzz tests under ASan+UBSan and under TSan.
# A failing stage does not stop the next. With MUJOCO_VERSION or MUJOCO_DIR only that MuJoCo is used.
set -u
cd "$(dirname "$0")/.." || exit 1
results=build/test-results
rm -rf $results
mkdir -p $results
broken=()

stage() { # NAME COMMAND...
    local name=$1 start=$SECONDS
    shift
    echo "=== $name"
    "$@" || broken+=("$name")
    echo "=== $name: $((SECONDS - start)) s"
}

check() { # MUJOCO PRESET CTEST-OPTION...: build and test; "" = the MuJoCo of the environment
    local dir run=()
    [ -z "$1" ] || export MUJOCO_VERSION=$1
    # the sanitizers of these compilers dislike the address layout of newer kernels
    [ "$2" = release ] || ! setarch -R true 2>/dev/null || run=(setarch -R)
    scripts/setup.sh test && dir=$(scripts/build.sh "$2") || return 1
    "${run[@]}" ctest --test-dir "$dir" -j "${JOBS:-$(nproc)}" --output-on-failure \
        --no-tests=error --output-junit "$PWD/$results/$(basename "$dir").xml" "${@:3}"
}

count() { # ATTRIBUTE: summed over the result files
    cat $results/*.xml 2>/dev/null | grep -oE "^[[:space:]]+$1=\"[0-9]+\"" |
        tr -dc '0-9\n' | awk '{ n += $1 } END { print n + 0 }'
}

if [ -n "${MUJOCO_VERSION:-}${MUJOCO_DIR:-}" ]; then
    versions=("")
else
    mapfile -t versions < <(awk '/^sdk +mujoco/ { print $3 }' deps.txt)
fi
scripts/setup.sh test || exit 1
# what Python LIBERO is compared on; without it that test is skipped
scripts/libero_data.sh || echo "test: no LIBERO files, so oracle.libero is skipped" >&2
stage lint scripts/lint.sh
stage "release ${versions[0]}" check "${versions[0]}" release -LE bench
for version in "${versions[@]:1}"; do
    stage "release $version" check "$version" release -L 'unit|oracle|e2e'
done
stage asan check "${versions[0]}" asan -L 'unit|fuzz'
stage tsan check "${versions[0]}" tsan -L unit

tests=$(count tests) failed=$(count failures) skipped=$(count skipped)
echo "total time: $SECONDS s"
[ ${#broken[@]} -eq 0 ] || printf 'failed stage: %s\n' "${broken[@]}"
passed=$((tests - failed - skipped))
[ "$failed" -gt 0 ] || failed=${#broken[@]}
echo "simstream: $passed passed, $failed failed, $skipped skipped"
[ ${#broken[@]} -eq 0 ]
