#!/bin/bash
# render.sh - `render` makes pictures and films of episodes; a film plays up to where the program was
# killed; what people get wrong is named; `doctor` shows what OpenGL renders with.
set -eu
. "$(dirname "$0")/lib.bash"

task=tabletop/4
render=("$SIMSTREAM" render --task=$task)

# pictures: the type, the size, the orientation, the same again
"${render[@]}" --camera=agentview:96x64:upright --out="$work/a.png" >"$work/a.json" 2>"$work/err" ||
    fail "a picture: $(cat "$work/err")"
grep -qF '"backend": "rays", "width": 96, "height": 64, "orientation": "upright"' "$work/a.json" ||
    fail "the result: $(cat "$work/a.json")"
"${render[@]}" --camera=agentview:96x64:upright --out="$work/b.png" >/dev/null
cmp -s "$work/a.png" "$work/b.png" || fail "the same picture is not the same twice"
"${render[@]}" --camera=agentview:96x64:opengl --out="$work/c.png" >/dev/null
"${render[@]}" --camera=agentview:96x64 --init-state=3 --out="$work/d.jpg" >/dev/null
[ "$(head -c 4 "$work/a.png" | od -An -tx1)" = " 89 50 4e 47" ] || fail "a.png is no PNG"
[ "$(head -c 3 "$work/d.jpg" | od -An -tx1)" = " ff d8 ff" ] || fail "d.jpg is no JPEG"

wrong() { # TEXT OPTION...
    local text=$1
    shift
    if "$SIMSTREAM" render --out="$work/x.png" "$@" >/dev/null 2>"$work/err"; then
        fail "$* is accepted"
    fi
    grep -qF -- "$text" "$work/err" || fail "$*: '$text' is not in: $(cat "$work/err")"
}
wrong "no camera 'behind'" --task=$task --camera=behind
wrong "picture size '0x9'" --task=$task --camera=agentview:0x9
wrong "agentview" --task=$task --camera=nowhere # it lists those there are
wrong "/no/such" --task=$task --camera=agentview:16x16 --out=/no/such/folder/a.png
wrong "--init-state" --task=Ant-v5 --init-state=1
if "$SIMSTREAM" render --task=Ant-v5 --camera=free:64x64 --backend=egl --out="$work/e.png" \
    >"$work/e.json" 2>"$work/err"; then
    grep -qF '"backend": "egl"' "$work/e.json" || fail "egl drew with $(cat "$work/e.json")"
    wrong "no EGL device 99" --task=Ant-v5 --backend=egl --egl-device=99
    grep -qF "EGL devices: 0: " "$work/err" || fail "the devices are not listed: $(cat "$work/err")"
    "$SIMSTREAM" render --task=Ant-v5 --camera=free:64x64 --backend=egl --egl-device=99 \
        --fallback=rays --out="$work/e.png" 2>"$work/err" | grep -qF '"backend": "rays"' ||
        fail "no fallback: $(cat "$work/err")"
    renderer=$("$SIMSTREAM" render --task=Ant-v5 --camera=free:8x8 --backend=egl \
        --out="$work/e.png" 2>&1 >/dev/null | sed -n 's/.*egl: device [0-9]*: \([^(]*\).*/\1/p')
    [ -n "$renderer" ] && "$SIMSTREAM" doctor | grep -qF "$renderer" ||
        fail "doctor does not name the renderer '$renderer'"
else
    grep -qE "libegl|EGL devices" "$work/err" || fail "egl: $(cat "$work/err")"
    wrong "libegl" --task=Ant-v5 --backend=egl
fi

if ! command -v ffmpeg >/dev/null; then
    echo "render: films are not checked: no ffmpeg and ffprobe"
    exit 0
fi
ffmpeg -v error -i "$work/c.png" -vf vflip -f rawvideo -pix_fmt rgb24 "$work/c.raw"
ffmpeg -v error -i "$work/a.png" -f rawvideo -pix_fmt rgb24 "$work/a.raw"
cmp -s "$work/a.raw" "$work/c.raw" || fail "opengl is not upright turned over"

frames() { # FILE: pictures that can be decoded
    ffprobe -v error -count_frames -select_streams v:0 -show_entries stream=nb_read_frames \
        -of csv=p=0 "$1"
}
film=(--camera=agentview:64x64:upright --out="$work/end.png")
"${render[@]}" "${film[@]}" --steps=30 --video="$work/a.mp4" >/dev/null
[ "$(frames "$work/a.mp4")" = 31 ] || fail "31 pictures became $(frames "$work/a.mp4")"

# killed in the middle of a long film
"${render[@]}" "${film[@]}" --steps=1000000 --video="$work/k.mp4" >/dev/null 2>&1 &
pids+=($!)
size() { stat -c %s "$work/k.mp4" 2>/dev/null || echo 0; }
long_enough() { [ "$(size)" -ge 60000 ]; }
await "${pids[0]}" long_enough
kill -9 "${pids[0]}"
wait "${pids[0]}" 2>/dev/null || true
n=$(frames "$work/k.mp4")
[ "$n" -ge 10 ] || fail "a film of a killed program has ${n:-no} pictures"
echo "render: fine ($n pictures after the kill)"
