#!/bin/bash
# slurm.sh - one env server a node and one learner with its rollout worker on the first node. Submit
# it with
#   sbatch --nodes=4 deploy/slurm.sh Ant-v5 --total-steps=10000000
# The servers of all nodes are one fleet: the node list goes to the clients as Slurm writes it.
# Slurm sends SIGTERM two minutes before the time limit: the servers finish what is in flight, the
# learner writes its checkpoint; the job is queued again and goes on from there.
#SBATCH --job-name=simstream
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
task=${1:?usage: sbatch deploy/slurm.sh TASK [LEARNER OPTION...]}
shift
envs=${SIMSTREAM_ENVS:-256} # of a node
listen=${SIMSTREAM_LISTEN:-tcp://0.0.0.0:7447}
servers_list=${SIMSTREAM_SERVERS:-$SLURM_JOB_NODELIST} # node[01-04], port 7447
learner_url=ipc:///tmp/simstream-$SLURM_JOB_ID.sock
run=${SIMSTREAM_RUN:-$PWD/run/${SLURM_JOB_NAME:-simstream}}
export SIMSTREAM_KEY_FILE=$run/key # clients take it from here
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

mkdir -p "$run"
if [ ! -s "$SIMSTREAM_KEY_FILE" ]; then
    (umask 077 && head -c 32 /dev/urandom | base64 >"$SIMSTREAM_KEY_FILE")
fi
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --kill-on-bad-exit=0 \
    simstream serve --task="$task" --num-envs="$envs" --listen="$listen" \
    --key-file="$SIMSTREAM_KEY_FILE" --affinity=auto --log=json 2>>"$run/serve.log" >/dev/null &
servers=$!

resume=()
[ ! -e "$run/checkpoint.h5" ] || resume=(--resume)
simstream learn --task="$task" --num-envs=$((envs * SLURM_JOB_NUM_NODES)) \
    --listen="$learner_url" --out="$run" "${resume[@]}" "$@" &
learner=$!
simstream rollout --env="$servers_list" --learner="$learner_url" \
    --num-envs=$((envs * SLURM_JOB_NUM_NODES)) --connect-timeout=120s &
rollout=$!

again=false
stop() {
    again=true
    kill -TERM "$learner" "$rollout" "$servers" 2>/dev/null || true
}
trap stop TERM
wait "$learner" || true
wait "$learner" 2>/dev/null || true # the first one may have been cut short by the signal
kill -TERM "$servers" 2>/dev/null || true
wait
if $again; then scontrol requeue "$SLURM_JOB_ID"; fi
