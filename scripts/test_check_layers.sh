#!/bin/sh
# test_check_layers.sh - check_layers.sh accepts a small clean tree and names every planted fault.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

plant() { # FILE TEXT
    mkdir -p "$tree/$(dirname "$1")"
    printf '%s\n' "$2" >>"$tree/$1"
}

clean_tree() {
    rm -rf "$tree"
    for module in common/base/mem common/base/config common/wire/link scenes/scene envserver/sim \
        envserver/pool nn/gemm nn/h5file nn/weights rollout/scheduler learner/update evaluation/report cli/main
    do
        plant scripts/modules.txt $module
        plant $module.c "#include \"$module.h\""
        plant $module.h '#include <stddef.h>'
    done
    plant scripts/modules.txt 'scenes/gym/*'
    plant scenes/gym/ant.c '#include "scenes/scene.h"'
    plant common/base/mem.c 'void *mem_alloc(size_t n) { return malloc(n); }'
    plant common/base/config.c '#include <cjson/cJSON.h>'
    plant common/wire/link.c '#include <nng/nng.h>'
    plant scenes/scene.h '#include <mujoco/mujoco.h>'
    plant envserver/pool.c '#include "envserver/sim.h"'
    plant envserver/pool.c 'mem_free(p); ops->free(p); log("call malloc(1)"); // free(p) is banned'
    plant envserver/pool_priv.h '#include "envserver/pool.h"'
    plant envserver/pool.c '#include "envserver/pool_priv.h"'
    plant nn/gemm.c '#include <cblas.h>'
    plant nn/h5file.c '#include <hdf5.h>'
    plant cli/main.c '#include "envserver/pool.h"'
    plant tests/test_mem.c 'void f(void *p) { free(p); }'
}

expect_clean() {
    "$here/check_layers.sh" "$tree" || { echo "FAILED: the clean tree has faults"; failed=1; }
}

# expect FILE TEXT MESSAGE: with TEXT added to FILE the check fails and says MESSAGE
expect() {
    clean_tree
    plant "$1" "$2"
    if out=$("$here/check_layers.sh" "$tree"); then
        echo "FAILED: accepted '$2' in $1"
        failed=1
    elif ! printf '%s\n' "$out" | grep -qF "$3"; then
        echo "FAILED: '$2' in $1 gave '$out' instead of '$3'"
        failed=1
    fi
}

clean_tree
expect_clean
expect common/base/mem.c '#include "common/wire/link.h"' 'includes common/wire/link, which is not below it'
expect nn/gemm.c '#include "scenes/scene.h"' 'nn/ may not include scenes/'
expect nn/gemm.c '#include <mujoco/mujoco.h>' 'library header outside its home'
expect envserver/pool.c '#include "nn/gemm.h"' 'envserver/ may not include nn/'
expect rollout/scheduler.c '#include "envserver/pool.h"' 'rollout/ may not include envserver/'
expect learner/update.c '#include "scenes/scene.h"' 'learner/ may not include scenes/'
expect learner/update.c '#include "evaluation/report.h"' 'learner/ may not include evaluation/'
expect evaluation/report.c '#include "learner/update.h"' 'evaluation/ may not include learner/'
expect cli/main.c '#include <nng/nng.h>' 'library header outside its home'
expect learner/update.c '#include <hdf5.h>' 'library header outside its home'
expect nn/weights.c '#include <cblas.h>' 'library header outside its home'
expect common/wire/link.c '#include <cjson/cJSON.h>' 'library header outside its home'
expect rollout/scheduler.c '#include <mujoco/mujoco.h>' 'library header outside its home'
expect common/base/extra.c 'int extra;' 'module common/base/extra is not in scripts/modules.txt'
expect scenes/gym/ant.c '#include "scenes/gym/hopper.h"' 'includes scenes/gym/hopper, which is not below'
expect cli/main.c '#include "nn/absent.h"' 'unknown module nn/absent'
expect learner/report.c 'int twin;' 'file name is not unique'
expect nn/gemm.c 'p = malloc (4);' 'banned function malloc'
expect tests/test_mem.c 'strcpy(a, b);' 'banned function strcpy'
[ $failed = 0 ] && echo "check_layers: all planted faults found"
exit $failed
