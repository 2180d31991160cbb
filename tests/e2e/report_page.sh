#!/bin/bash
# report_page.sh - report.html in a browser, opened from disk with the network cut off, in light and dark and as
# wide as a phone: it draws itself, complains of nothing and is no wider than the window.
set -eu
. "$(dirname "$0")/lib.bash"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
[ -n "$browser" ] || { echo "report_page: skipped: no Chromium (Debian: chromium)"; exit 77; }

browse() { # WIDTH THEME OPTION... FILE
    timeout 600 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" \
        --host-resolver-rules='MAP * ~NOTFOUND' --enable-logging=stderr --hide-scrollbars \
        --virtual-time-budget=5000 --window-size="$1,1500" \
        --blink-settings=preferredColorScheme="$2" "${@:3}" 2>"$work/browser.txt"
}
open() { # the same; on a machine that stands still now and then Chromium gives up on its own processes
    browse "$@" >"$work/said" || browse "$@" >"$work/said" ||
        fail "the browser failed: $(tail -n 5 "$work/browser.txt")"
    cat "$work/said"
    ! grep -E 'CONSOLE.*(Error|Uncaught|Refused|Failed)' "$work/browser.txt" || fail "the page complains"
}

"$SIMSTREAM" eval --suite=tabletop --tasks=0,4 --policy=expert --episodes-per-task=2 --video=failures \
    --video-camera=agentview:64x64 --kwargs='{"max_episode_steps": 44}' --out="$work/run" \
    >"$work/run.txt" 2>&1 || fail "$(cat "$work/run.txt")"
page=file://$work/run/report.html
for width in 390 1100; do
    # the width of the content goes into the title, where --dump-dom shows it
    sed 's|</body>|<script>document.title += ` is ${document.documentElement.scrollWidth} wide`</script></body>|' \
        "$work/run/report.html" >"$work/run/wide.html"
    open $width 1 --dump-dom "file://$work/run/wide.html" >"$work/dom.html"
    wide=$(sed -n 's|.*<title>.* is \([0-9]*\) wide</title>.*|\1|p' "$work/dom.html")
    # headless Chromium has windows of 500 pixels at least
    [ -n "$wide" ] && [ "$wide" -le $((width < 500 ? 500 : width)) ] || fail "the page is '$wide' wide in $width"
done
for text in 'expert on tabletop' 'Failures: ' '<video src="videos/tabletop_4/eval_episode_0.mp4"' \
    'tabletop/0/1' 'open the top drawer of the cabinet' 'bddl_sha256' 'simstream.eval/1'; do
    grep -qF "$text" "$work/dom.html" || fail "the page lacks '$text'"
done
for theme in 0 1; do
    open 1100 $theme --screenshot="$work/$theme.png" "$page" >"$work/shot.txt"
    [ "$(stat -c %s "$work/$theme.png")" -gt 20000 ] || fail "theme $theme: an empty picture"
done
! cmp -s "$work/0.png" "$work/1.png" || fail "dark and light look the same"
echo "report_page: fine"
