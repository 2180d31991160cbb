#!/bin/sh
# test_install.sh - install the build in $BUILD_DIR, move the result, and build and run a program
# against it from outside the tree: through the CMake package, through pkg-config, and through the
# installed program. Nothing may reach back into the source or build tree.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
work=$source/build/install-test
rm -rf "$work"
mkdir -p "$work"
cmake --install "$BUILD_DIR" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
cp -r "$source/tests/install" "$work/consumer"
cd "$work"

for file in bin/simstream lib/libsimstream.so include/simstream/envserver/pool.h \
    share/simstream/gym/ant.xml share/simstream/gym/LICENSE share/simstream/licences/LICENSE \
    share/simstream/licences/mujoco/LICENSE
do
    case "$BUILD_DIR/$file" in *-own/*/mujoco/*) continue ;; esac # an own copy may have none
    [ -e "prefix/$file" ] || { echo "the installation lacks $file"; exit 1; }
done

echo "--- CMake package"
cmake -S consumer -B cmake-build -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release \
    >cmake.log 2>&1 || { cat cmake.log; exit 1; }
cmake --build cmake-build
cmake-build/step_envs HalfCheetah-v5 4 100

echo "--- pkg-config"
export PKG_CONFIG_PATH="$work/prefix/lib/pkgconfig"
# word splitting is meant
cc -Wall -Wextra -Werror -o step_envs consumer/step_envs.c $(pkg-config --cflags --libs simstream)
./step_envs Ant-v5 4 100

echo "--- the installed program and libraries"
for library in libmujoco libsimstream; do
    ldd ./step_envs | grep "$library" | grep -q "$work/prefix/lib/" ||
        { echo "$library does not come from the installation:"; ldd ./step_envs; exit 1; }
done
mv prefix/share/simstream/gym/ant.xml ant.xml
! ./step_envs Ant-v5 4 100 2>error.txt || { echo "the models come from outside the prefix"; exit 1; }
grep -q "ant.xml" error.txt || { cat error.txt; exit 1; }
mv ant.xml prefix/share/simstream/gym/
prefix/bin/simstream tasks >tasks.txt
grep -q HalfCheetah-v5 tasks.txt
