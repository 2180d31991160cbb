#!/bin/bash
# chaos.sh - a short run of scripts/stress.sh: four servers that are killed, stopped and asked to end,
# among clients that misbehave; no request is lost or answered twice. Then 100 visits, and 8 servers
# as one.
set -eu
for part in "chaos 6" "connects 100" "many 8 32 1"; do
    # shellcheck disable=SC2086
    bash "$SOURCE_DIR/scripts/stress.sh" $part
done
