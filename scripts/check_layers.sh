#!/bin/sh
# check_layers.sh ROOT - the architecture, as far as a script can see it:
#   includes point only to modules above in scripts/modules.txt, and every module is in that list;
#   the walls between folders; each outside library has one home; file names are unique;
#   banned functions (the heap has one door, strings have snprintf, chance has rng).
# Prints FILE:LINE: WHY for each fault and fails if there is one.
set -eu
cd "$1"

sources() { # FIND-EXPRESSION...
    find . \( -path ./build -o -path ./.git \) -prune -o -type f \( "$@" \) -print | sed 's|^\./||' | sort
}

failed=0
sources -name '*.c' -o -name '*.h' |
awk -F/ 'seen[$NF]++ { print $0 ": file name is not unique"; err = 1 } END { exit err }' || failed=1

sources -name '*.c' -o -name '*.h' | xargs awk '
function bad(why) { print FILENAME ":" FNR ": " why; err = 1 }
# path without extension; STEM_priv.h, shared by two sources, and the parts of a module that is
# compiled twice (STEM_impl.h, STEM_f32.c, STEM_f64.c) belong to module STEM; a line "folder/*" of
# the list stands for all modules of that folder which have no line of their own
function module(path, all) {
    sub(/\.[ch]$/, "", path)
    sub(/_(priv|impl|f32|f64)$/, "", path)
    all = path
    sub(/[^\/]*$/, "*", all)
    if (!(path in rank) && all in rank)
        rank[path] = rank[all]
    return path
}
function folder(path) { sub(/\/.*/, "", path); return path }
BEGIN {
    while ((getline line < "scripts/modules.txt") > 0)
        if (line ~ /^[a-z]/)
            rank[line] = ++n
    # library header -> the files that may include it
    home["nng/"] = "^(common/wire/(link|http)|evaluation/(nng_wait|ws|policy_act)|tests/)"
    home["mbedtls/"] = "^common/(wire/auth|base/sha256)\\.c$"
    home["cjson/"] = "^(common/base/config|evaluation/(pack|policy_act|policy_check)|nn/(safetensors|published_load)|learner/demos)\\.c$"
    home["msgpack"] = "^evaluation/pack\\.h$"
    home["zmq.h"] = "^evaluation/policy_gr00t\\.c$"
    home["hdf5"] = "^nn/h5file\\.c$"
    home["zlib"] = "^scenes/libero/init_states\\.c$"
    home["expat"] = "^scenes/libero/xml\\.c$"
    home["cblas"] = "^nn/gemm\\.c$"
    home["png.h"] = home["turbojpeg"] = "^common/media/picture\\.c$"
    home["libav"] = home["libsws"] = "^common/media/video\\.c$"
    home["mujoco/"] = "^((scenes|envserver)/|bench/bench_env\\.c$)"
    home["embree3/"] = "^envserver/rays_(mesh|trace)"
    home["cmocka"] = "^tests/"
    # folder -> folders that it must not see, whatever the order says
    wall["nn"] = "scenes envserver"
    wall["scenes"] = wall["envserver"] = "nn"
    wall["rollout"] = "scenes envserver"
    wall["learner"] = "scenes envserver evaluation"
    wall["evaluation"] = "scenes envserver learner"
    banned = "(^|[^A-Za-z0-9_.>])(malloc|calloc|realloc|free|strdup|strcpy|strcat|sprintf|vsprintf|" \
             "strtok|rand|srand)[ \t]*\\("
}
FNR == 1 {
    me = module(FILENAME)
    mine = folder(me)
    test = mine == "tests"
    if (!test && !(me in rank))
        bad("module " me " is not in scripts/modules.txt")
}
/^[ \t]*#[ \t]*include[ \t]*"/ && !test {
    split($0, part, "\"")
    dep = module(part[2])
    if (dep == me)
        next
    if (!(dep in rank))
        bad("unknown module " dep)
    else if (me in rank && rank[dep] >= rank[me])
        bad("includes " dep ", which is not below it")
    if (index(" " wall[mine] " ", " " folder(dep) " "))
        bad(mine "/ may not include " folder(dep) "/")
    next
}
/^[ \t]*#[ \t]*include[ \t]*</ && !test {
    for (lib in home)
        if (index($0, "<" lib) && FILENAME !~ home[lib])
            bad("library header outside its home: " $0)
    next
}
FILENAME != "common/base/mem.c" {
    text = $0
    gsub(/\\./, "", text)
    gsub(/"[^"]*"/, "\"\"", text)
    sub(/\/\/.*/, "", text)
    if (match(text, banned)) {
        name = substr(text, RSTART, RLENGTH)
        gsub(/[^a-z]/, "", name)
        if (!(test && name == "free"))
            bad("banned function " name)
    }
}
END { exit err }' || failed=1
exit $failed
