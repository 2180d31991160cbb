#!/bin/sh
# lint.sh [fix] - source layout, architecture and shell syntax; `fix` puts the layout right instead.
set -eu
cd "$(dirname "$0")/.."
sources() { find . \( -path ./build -o -path ./.git \) -prune -o -type f -name "$1" -print; }

if [ "${1:-}" = fix ]; then
    sources '*.[ch]' | xargs clang-format-14 -i
    exit
fi
failed=0
for source in $(sources '*.[ch]'); do
    clang-format-14 "$source" | cmp -s - "$source" ||
        { echo "$source: layout is not clang-format 14's; 'make format' puts it right"; failed=1; }
done
scripts/check_layers.sh . || failed=1
for script in $(sources '*.sh') .ci/run; do
    bash -n "$script" || failed=1
done
[ $failed = 0 ] && echo "lint: clean"
exit $failed
