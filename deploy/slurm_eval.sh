#!/bin/bash
# slurm_eval.sh - an evaluation as a job array, a shard a job, and a job that puts them together:
#   deploy/slurm_eval.sh submit 8 RUN --suite=libero_10 --policy=policy.h5 --episodes-per-task=50
# Results, report.html and junit.xml of the whole are in RUN; the merge job fails if an episode has no
# result, if more than SIMSTREAM_MAX_ERRORS (0) ended by an error, or with SIMSTREAM_FAIL_BELOW=0.9 if
# fewer succeed. Options of sbatch come from
# SBATCH_OPTIONS; the array job's own are below.
# Slurm sends SIGTERM two minutes before the time limit: the shard stops, is queued again and goes on
# with what has no result. So does one whose node failed.
#SBATCH --job-name=simstream-eval
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --time=02:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail
usage="usage: deploy/slurm_eval.sh submit SHARDS RUN EVAL-OPTION..."

if [ "${1:-}" = submit ]; then
    shards=${2:?$usage} run=${3:?$usage}
    shift 3
    mkdir -p "$run"
    run=$(realpath "$run")
    read -ra options <<<"${SBATCH_OPTIONS:-}"
    array=$(sbatch --parsable "${options[@]}" --array="0-$((shards - 1))" \
        --output="$run/array-%a.log" "$0" "$run" "$@")
    merge=$(sbatch --parsable "${options[@]}" --dependency="afterany:$array" \
        --output="$run/merge.log" "$0" merge "$run")
    echo "array $array merge $merge"
elif [ "${1:-}" = merge ]; then
    exec simstream merge --out="$2" "$2"/shard-* --max-errors="${SIMSTREAM_MAX_ERRORS:-0}" \
        ${SIMSTREAM_FAIL_BELOW:+--fail-below="$SIMSTREAM_FAIL_BELOW"}
else
    run=${1:?$usage}
    shift
    again=false
    eval=
    trap 'again=true; kill -TERM $eval' TERM
    simstream eval --shard=auto --resume --out="$run/shard-$SLURM_ARRAY_TASK_ID" "$@" &
    eval=$!
    code=0
    wait $eval || code=$?
    if $again; then
        wait $eval || true # the first one was cut short by the signal
        scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
    fi
    exit $code
fi
