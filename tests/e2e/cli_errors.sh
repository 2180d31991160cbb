#!/bin/bash
# cli_errors.sh - what people get wrong ends with the documented exit code and a message that names
# it: 2 for bad usage or configuration, 1 for a failure at run time; results stay off stderr.
set -u
work=$(mktemp -d)
pids=()
cleanup() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap cleanup EXIT
faults=0

# expect CODE TEXT COMMAND...: simstream COMMAND ends with CODE and its stderr contains TEXT
expect() {
    local code=$1 text=$2 got
    shift 2
    "$SIMSTREAM" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    if [ "$got" != "$code" ] || ! grep -qF -- "$text" "$work/err"; then
        echo "cli_errors: simstream $*: exit $got, expected $code and '$text' in: $(cat "$work/err")"
        faults=$((faults + 1))
    fi
}

eval_zero=(eval --policy=zero --episodes=1 --out="$work/eval")

# usage
expect 2 "usage: simstream COMMAND"
expect 2 "unknown command 'evaluate'" evaluate
expect 2 "num-env" "${eval_zero[@]}" --task=Ant-v5 --num-env=3
expect 2 "unexpected word 'Ant-v5'" "${eval_zero[@]}" Ant-v5
expect 2 "policy" eval --task=Ant-v5
expect 2 "num-envs" "${eval_zero[@]}" --task=Ant-v5 --num-envs=0
expect 2 "episodes" "${eval_zero[@]}" --task=Ant-v5 --episodes=many
expect 2 "task" serve
expect 2 "no-such.json" "${eval_zero[@]}" --config="$work/no-such.json"

# tasks and their keyword arguments
expect 2 "unknown task 'HalfCheeta-v5'; the nearest is 'HalfCheetah-v5'" "${eval_zero[@]}" \
    --task=HalfCheeta-v5
expect 2 "unknown task 'Nothing'" tasks Nothing
expect 2 "unknown task 'Ant-v6'" serve --task=Ant-v6
expect 2 "reset_noise" "${eval_zero[@]}" --task=Ant-v5 --kwargs='{"reset_noise": 1}'
expect 2 "frame_skip" serve --task=Ant-v5 --kwargs='{"frame_skip": 0}'
expect 2 "kwargs" "${eval_zero[@]}" --task=Ant-v5 --kwargs='{'
expect 2 "--task is needed" "${eval_zero[@]}"
expect 2 "--kwargs with --env" "${eval_zero[@]}" --env=tcp://127.0.0.1:1 --kwargs='{"frame_skip": 5}'

# files
expect 1 "$work/none.h5" eval --task=Ant-v5 --policy="$work/none.h5"
echo "this is no policy" >"$work/text.h5"
expect 2 "$work/text.h5" eval --task=Ant-v5 --policy="$work/text.h5"
expect 1 "/dev/null" "${eval_zero[@]}" --task=Reacher-v5 --out=/dev/null/x
mkdir "$work/full"
ln -s /dev/full "$work/full/settings.json.tmp"
expect 1 "$work/full/settings.json" "${eval_zero[@]}" --task=Reacher-v5 --out="$work/full"
expect 1 "/no/such.xml" "${eval_zero[@]}" --task=Ant-v5 --kwargs='{"xml_file": "/no/such.xml"}'

# a policy for another task
if "$SIMSTREAM" train --task=InvertedPendulum-v5 --num-envs=2 --horizon=16 --total-steps=32 \
    --hidden=8 --out="$work/train" >"$work/train.txt" 2>&1; then
    expect 2 "was trained on InvertedPendulum-v5 (4 observations, 1 actions)" \
        eval --policy="$work/train/policy.h5" --task=Ant-v5 --out="$work/eval"
    expect 2 "has Ant-v5 (105 observations, 8 actions)" \
        eval --policy="$work/train/policy.h5" --task=Ant-v5 --out="$work/eval"
else
    echo "cli_errors: train failed: $(cat "$work/train.txt")"
    faults=$((faults + 1))
fi

# addresses
exec 3< <(exec "$SIMSTREAM" serve --task=Reacher-v5 --num-envs=2 --listen=tcp://127.0.0.1:0 --json)
pids+=($!)
read -r line <&3 || line=
url=$(sed 's/.*"url": "\([^"]*\)".*/\1/' <<<"$line")
expect 1 "$url" serve --task=Reacher-v5 --listen="$url"
expect 2 "task Ant-v5 is wanted, env server $url has Reacher-v5" "${eval_zero[@]}" --task=Ant-v5 \
    --env="$url"
expect 1 "tcp://127.0.0.1:1" "${eval_zero[@]}" --env=tcp://127.0.0.1:1 --connect-wait=0s
expect 2 "']' is missing" "${eval_zero[@]}" --env="nonsense[" --connect-wait=0s
expect 2 "empty address" "${eval_zero[@]}" --env="$url,"

# the same server still works after all that
if ! "$SIMSTREAM" "${eval_zero[@]}" --env="$url" --json >"$work/out" 2>"$work/err" ||
    ! grep -q '"complete": true' "$work/out"; then
    echo "cli_errors: a good evaluation failed: $(cat "$work/out" "$work/err")"
    faults=$((faults + 1))
fi
[ "$faults" = 0 ] && echo "cli_errors: all as documented"
exit $((faults > 0))
