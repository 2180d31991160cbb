#!/bin/bash
# slurm.sh - deploy/slurm_eval.sh on a cluster of one node that is made for it: the shards of a job
# array, one of them cancelled and queued again, and the merge job give the results of one command.
# Skipped where Debian's slurm-wlm and munge are not installed, or their daemons do not run.
set -eu
. "$(dirname "$0")/lib.bash"
skip() { echo "slurm: skipped: $*"; exit 77; }
for program in munged mungekey slurmctld slurmd sbatch; do
    PATH=$PATH:/usr/sbin command -v $program >/dev/null || skip "no $program (Debian: slurm-wlm munge)"
done
[ "$(id -u)" = 0 ] || skip "slurmd needs root"
PATH=/usr/sbin:$PATH
chmod 755 "$work"

mkdir -m 755 "$work/munge" "$work/state" "$work/spool" "$work/bin"
mungekey --create --keyfile="$work/munge/key" || skip "no munge key can be made"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" --num-threads=1 \
    --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" \
    >"$work/munge/out" 2>&1 &
pids+=($!)
node=$(hostname -s)
port=$((10000 + 2 * ($$ % 5000))) # Slurm takes no address of its own
cat >"$work/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
CryptoType=crypto/munge
SlurmUser=root
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,sched_min_interval=100000
KillWait=5
MessageTimeout=100
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
NodeName=$node NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=all Nodes=$node Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
export SLURM_CONF=$work/slurm.conf
while [ ! -S "$work/munge/socket" ]; do
    kill -0 "${pids[0]}" || skip "munged does not run: $(cat "$work"/munge/{out,log})"
    sleep 0.1
done
slurmctld -D >"$work/ctld.out" 2>&1 &
pids+=($!)
slurmd -D -N "$node" >"$work/slurmd.out" 2>&1 &
pids+=($!)
up() { [ "$(sinfo -h -o %t 2>/dev/null)" = idle ]; }
for ((i = 0; i < 1500; i++)); do
    up && break
    kill -0 "${pids[1]}" 2>/dev/null && kill -0 "${pids[2]}" 2>/dev/null || break
    sleep 0.2
done
up || skip "no cluster here: $(tail -n 3 "$work"/*.out "$work"/*.log 2>/dev/null | tr '\n' ' ')"

# shard 2 does not come far the first time
cat >"$work/bin/simstream" <<END
#!/bin/bash
if [ "\${SLURM_ARRAY_TASK_ID:-}" = 2 ] && [ ! -e "$work/stopped" ]; then
    echo >"$work/stopped"
    exec sleep infinity
fi
exec "$SIMSTREAM" "\$@"
END
chmod +x "$work/bin/simstream"
export PATH=$work/bin:$PATH SBATCH_OPTIONS="--cpus-per-task=1 --chdir=$work"
options=(--suite=tabletop --tasks=0,4,6 --policy=expert --episodes-per-task=4)
simstream eval "${options[@]}" --out="$work/whole" >"$work/whole.txt" 2>&1 || fail "$(cat "$work/whole.txt")"
said=$(bash "$SOURCE_DIR/deploy/slurm_eval.sh" submit 4 "$work/run" "${options[@]}")
read -r _ array _ _ <<<"$said"
# what a time limit does: the job is told to stop and queues itself again
await "${pids[1]}" [ -e "$work/stopped" ]
await "${pids[1]}" scancel --signal=TERM --batch "${array}_2"
waits_again() { squeue -h -r -t PD -o %i 2>/dev/null | grep -qx "${array}_2"; }
await "${pids[1]}" waits_again
sleep 2 # in the second of its end Slurm does not start a job again, but ends it for good
over() {
    local left
    scontrol update JobId="${array}_2" StartTime=now 2>/dev/null || true # Slurm would wait two minutes
    left=$(squeue -h 2>/dev/null) && [ -z "$left" ]
}
await "${pids[1]}" over
for file in settings.json tasks.jsonl inputs.jsonl results.jsonl; do
    cmp "$work/whole/$file" "$work/run/$file" || fail "$file differs: $(cat "$work"/run/*.log)"
done
grep -q '"complete": true' "$work/run/summary.json" || fail "not complete"
grep -q "12 of 12 done" "$work/run/merge.log" || fail "merge: $(cat "$work/run/merge.log")"
echo "slurm: four shards and the merge equal one command"
