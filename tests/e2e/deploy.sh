#!/bin/bash
# deploy.sh - the files of deploy/ do what they say, as far as one machine can tell: the unit is
# valid, its configuration starts a server, the Slurm script trains through a fleet, and a second
# night is compared with the first.
set -eu
. "$(dirname "$0")/lib.bash"
deploy=$SOURCE_DIR/deploy

# the unit, with a program that is here
if command -v systemd-analyze >/dev/null; then
    sed "s|/usr/local/bin/simstream|$SIMSTREAM|; /^Documentation/d" "$deploy/simstream.service" \
        >"$work/simstream.service"
    systemd-analyze verify "$work/simstream.service" >"$work/verify" 2>&1 ||
        grep -q "Failed to \(connect\|create\|setup\|initialize\)" "$work/verify" || fail "unit: $(cat "$work/verify")"
    ! grep -i "unknown\|invalid\|ignoring" "$work/verify" || fail "unit: $(cat "$work/verify")"
fi

# the container: its second stage has a package for each library that the program was linked with
if command -v dpkg >/dev/null && command -v readelf >/dev/null; then
    ldd "$SIMSTREAM" >"$work/ldd"
    ours=$(awk '/libsimstream/ { print $3 }' "$work/ldd")
    sed '1,/^FROM debian:12-slim/d' "$deploy/Containerfile" >"$work/stage2"
    # shellcheck disable=SC2086
    for lib in $(readelf -d "$SIMSTREAM" $ours | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | sort -u); do
        case $lib in
        libc.so* | libm.so* | ld-* | libgcc_s.so* | libz.so* | libsimstream* | libmujoco*) continue ;;
        esac
        path=$(readlink -f "$(awk -v lib="$lib" '$1 == lib { print $3 }' "$work/ldd")")
        package=$(dpkg -S "*/${path##*/}" | sed 's/:.*//; q')
        grep -qw -- "$package" "$work/stage2" ||
            fail "Containerfile: $lib is not in the image, expected package $package"
    done
fi

# its configuration, with another address and key
head -c 32 /dev/urandom >"$work/key"
chmod 600 "$work/key"
exec {out}< <(exec "$SIMSTREAM" serve --config="$deploy/serve.json" --listen="tcp://$host:0" \
    --http="$host:0" --key-file="$work/key" --num-envs=3 --json 2>"$work/err")
pids+=($!)
read -r line <&"$out" || fail "serve.json: $(cat "$work/err")"
grep -q '"task": "Ant-v5"' <<<"$line" || fail "serve.json: $line"
kill "${pids[0]}" && wait "${pids[0]}"

# two nights
for unit in service timer; do
    sed "s|/usr/local/bin/simstream-nightly|/bin/true|; /^Documentation/d" \
        "$deploy/simstream-nightly.$unit" >"$work/simstream-nightly.$unit"
done
if command -v systemd-analyze >/dev/null; then
    systemd-analyze verify "$work/simstream-nightly.timer" "$work/simstream-nightly.service" \
        >"$work/verify" 2>&1 || true
    ! grep -i "unknown\|invalid\|ignoring" "$work/verify" || fail "nightly: $(cat "$work/verify")"
fi
mkdir "$work/night"
ln -s "$SIMSTREAM" "$work/night/simstream"
night() { # DATE POLICY
    PATH=$work/night:$PATH SIMSTREAM_NIGHT=$1 bash "$deploy/nightly.sh" "$work/nights" \
        --suite=tabletop --tasks=0 --episodes-per-task=3 --policy="$2" --fail-below=0.9 \
        >"$work/night.txt" 2>&1
}
night 2026-11-29 expert || fail "first night: $(cat "$work/night.txt")"
code=0
night 2026-11-30 zero || code=$?
[ $code = 1 ] || fail "second night: exit $code, expected 1: $(cat "$work/night.txt")"
grep -q "^all  *3  100.0 %    0.0 %" "$work/nights/2026-11-30/compare.txt" ||
    fail "comparison: $(cat "$work/nights/2026-11-30/compare.txt")"

# Slurm's part is played by two scripts: srun starts one server a node
mkdir "$work/bin"
cat >"$work/bin/srun" <<'SRUN'
#!/bin/bash
while [ "${1#--}" != "$1" ]; do shift; done
pids=()
for node in a b; do
    listen=ipc://$FAKE/$node.sock
    args=()
    for arg in "$@"; do
        case $arg in --listen=*) args+=("--listen=$listen") ;; *) args+=("$arg") ;; esac
    done
    "${args[@]}" &
    pids+=($!)
done
trap 'kill -TERM "${pids[@]}"' TERM
wait
wait
SRUN
printf '#!/bin/bash\necho "$@" >>"$FAKE/scontrol"\n' >"$work/bin/scontrol"
ln -s "$SIMSTREAM" "$work/bin/simstream"
chmod +x "$work/bin/srun" "$work/bin/scontrol"
export FAKE=$work PATH=$work/bin:$PATH SLURM_JOB_ID=$$ SLURM_JOB_NUM_NODES=2 \
    SLURM_JOB_NODELIST='node[01-02]' SIMSTREAM_RUN=$work/run SIMSTREAM_ENVS=4 \
    SIMSTREAM_SERVERS="ipc://$work/a.sock,ipc://$work/b.sock"
bash "$deploy/slurm.sh" InvertedPendulum-v5 --total-steps=2048 --hidden=8 >"$work/slurm" 2>&1 ||
    fail "slurm.sh: $(cat "$work/slurm")"
[ "$(wc -l <"$work/run/metrics.jsonl")" = 8 ] || fail "not 8 windows: $(cat "$work/slurm")"
[ ! -e "$work/scontrol" ] || fail "a finished job was queued again"

# the time limit comes: it is queued again and goes on from its checkpoint
bash "$deploy/slurm.sh" InvertedPendulum-v5 --total-steps=100000000 --hidden=8 >"$work/slurm" 2>&1 &
pid=$!
pids+=("$pid")
await "$pid" has_lines "$work/run/metrics.jsonl" 30
kill -TERM "$pid"
wait "$pid" || fail "slurm.sh after SIGTERM: $(cat "$work/slurm")"
grep -qx "requeue $$" "$work/scontrol" || fail "the job was not queued again: $(cat "$work/slurm")"
grep -q '"step": 2048' "$work/run/metrics.jsonl" || fail "$(head -9 "$work/run/metrics.jsonl")"
[ -s "$work/run/checkpoint.h5" ] || fail "no checkpoint"
echo "deploy: units, configuration and scripts work"
