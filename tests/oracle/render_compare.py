"""The ray renderer beside MuJoCo's own (EGL): how far its pictures, depths and segmentation are.

    render_compare.py RENDER_PAIR [--tasks short|all|NAME,...] [--size N] [--samples 1|4] [--fast]
                      [--sheet FOLDER] [--json FILE]

RENDER_PAIR (build/release/tests/render_pair) draws the same views by both: two cameras, three states
a task. Colours: mean absolute difference of 255, structural similarity (Wang et al. 2004: Gaussian
window of 1.5 pixels, mean of the three colours), pixels with a colour off by more than 10. Depth:
median of the absolute difference. Segmentation: pixels with equal object and type. The worst view of
each task is printed, and every view held to the limits below. --fast (rays without mirrors and
shadows beside the full picture) and --samples=1 are only measured. `short` has no tasks of LIBERO
unless their files are there. --sheet writes a PNG for each task: rays | EGL | difference x 10, a row
a view.
Exit code 77: EGL cannot start here.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys

import numpy as np
from PIL import Image

SUITES = ["libero_spatial", "libero_object", "libero_goal", "libero_10", "tabletop"]
GYMNASIUM = [f"{name}-v5" for name in (
    "Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum",
    "InvertedPendulum", "Pusher", "Reacher", "Swimmer", "Walker2d")]
SHORT = ["Ant-v5", "Humanoid-v5", "Pusher-v5", "tabletop/0", "tabletop/4"]
SHORT_LIBERO = ["libero_10/4", "libero_goal/7"]  # the latter has a model with the same faces twice

# mean difference, similarity, share of pixels off by more than 10
LIMITS = {False: (0.3, 0.999, 0.002), True: (0.5, 0.995, 1.0)}  # True: Gymnasium, with shadows
DEPTH_LIMIT = 1e-3  # m
SEGMENT_LIMIT = 0.995

View = collections.namedtuple("View", "task name mean similarity off depth segments")


def smooth(x):
    """Means weighted by a Gaussian, where the window of 11 x 11 fits."""
    k = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    k /= k.sum()
    x = sum(w * x[:, i : x.shape[1] - 10 + i] for i, w in enumerate(k))
    return sum(w * x[i : x.shape[0] - 10 + i] for i, w in enumerate(k))


def similarity(a, b):
    a, b = a.astype(float), b.astype(float)
    mean_a, mean_b = smooth(a), smooth(b)
    var_a, var_b = smooth(a * a) - mean_a**2, smooth(b * b) - mean_b**2
    both = smooth(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return float(((2 * mean_a * mean_b + c1) * (2 * both + c2) /
                  ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean())


def read_planes(stream, side):
    n = side * side
    raw = stream.read(15 * n)
    if len(raw) != 15 * n:
        raise EOFError("a picture ends early")
    return (np.frombuffer(raw, np.uint8, 3 * n).reshape(side, side, 3),
            np.frombuffer(raw[3 * n : 7 * n], np.float32).reshape(side, side),
            np.frombuffer(raw[7 * n :], np.int32).reshape(side, side, 2))


def measure(task, name, rays, egl):
    difference = np.abs(rays[0].astype(int) - egl[0])
    return View(task, name, float(difference.mean()), similarity(rays[0], egl[0]),
                float((difference.max(-1) > 10).mean()),
                float(np.median(np.abs(rays[1].astype(float) - egl[1]))),
                float((rays[2] == egl[2]).all(-1).mean()))


def row(rays, egl):
    difference = np.abs(rays[0].astype(int) - egl[0])
    return np.concatenate([rays[0], egl[0], np.clip(10 * difference, 0, 255).astype(np.uint8)], 1)


def draw(options, task):
    """The views of a task; None if there is no EGL."""
    views, rows = [], []
    command = [options.program, task, str(options.size), str(options.samples), str(int(options.fast))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while line := process.stdout.readline():
            planes = [read_planes(process.stdout, options.size) for _ in range(2)]
            if len(np.unique(planes[1][0].reshape(-1, 3), axis=0)) < 8:
                sys.exit(f"render_compare: {task} {line.decode().strip()}: nothing is to be seen")
            views.append(measure(task, line.decode().strip(), *planes))
            rows.append(row(*planes))
        text = process.stderr.read().decode()
    if process.returncode != 0 and ("libegl" in text or "EGL devices" in text):
        print(f"render_compare: skipped: {text.strip().splitlines()[-1]}")
        sys.exit(77)
    if process.returncode != 0 or not views:
        sys.exit(f"render_compare: {task}: {text}")
    if options.sheet:
        options.sheet.mkdir(parents=True, exist_ok=True)
        path = options.sheet / f"{task.replace('/', '_')}.png"
        Image.fromarray(np.concatenate(rows, 0)).save(path)
    return views


def faults(views):
    """What exceeds the limits in the views of one task."""
    mean, similar, off = LIMITS[views[0].task in GYMNASIUM]
    return [f"{view.name}: {text}: {view}" for view in views for bad, text in (
        (view.mean > mean, f"mean difference above {mean}"),
        (view.similarity < similar, f"similarity below {similar}"),
        (view.off >= off, f"{100 * view.off:.3f} % of pixels off by more than 10"),
        (view.depth > DEPTH_LIMIT, f"depth off by more than {DEPTH_LIMIT} m"),
        (view.segments < SEGMENT_LIMIT, f"segmentation below {SEGMENT_LIMIT}")) if bad]


def summary(name, views):
    print(f"{name:26}{len(views):4} views: mean {max(v.mean for v in views):.3f}, "
          f"SSIM {min(v.similarity for v in views):.5f}, off {100 * max(v.off for v in views):.3f} % "
          f"(mean {100 * np.mean([v.off for v in views]):.3f}), "
          f"depth {1e3 * max(v.depth for v in views):.2g} mm, "
          f"segments {100 * min(v.segments for v in views):.2f} %", flush=True)


def task_names(options):
    root = pathlib.Path(__file__).resolve().parents[2]
    if options.tasks == "all":
        return [f"{s}/{i}" for s in SUITES for i in range(10)] + GYMNASIUM
    if options.tasks == "short":
        return SHORT + (SHORT_LIBERO if (root / "build/deps/libero/assets").exists() else [])
    return options.tasks.split(",")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--tasks", default="short")
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--samples", type=int, default=4, choices=(1, 4))
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--sheet", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    groups, bad = collections.defaultdict(list), 0
    print("the worst view of each:")
    for task in task_names(options):
        views = draw(options, task)
        summary(task, views)
        groups["Gymnasium" if task in GYMNASIUM else task.split("/")[0]] += views
        for text in faults(views) if not options.fast and options.samples == 4 else []:
            print(f"  FAULT {task} {text}")
            bad += 1
    for name, views in groups.items():
        summary(f"all of {name}", views)
    if options.json:
        options.json.write_text(json.dumps([v._asdict() for vs in groups.values() for v in vs]))
    if bad:
        sys.exit(f"render_compare: {bad} faults")


if __name__ == "__main__":
    main()
