"""A picture of what reinforcement learning added to fine-tuning, from the files of one run.

    plot_vla.py RUN PICTURE.svg      RUN: the folder of scripts/demo_vla.sh

Lines: success of sampled actions in training, a window each, of each task (rl/metrics.jsonl). Bars at both
ends: success of the means in evaluation before and after with the 95 % interval (eval-sft/summary.json,
eval-rl/summary.json), of each task of the latter and of all these in black.
"""

import json
import pathlib
import sys

WIDTH, LEFT, RIGHT, TOP = 720, 50, 20, 16
PLOT = 288  # its height
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]  # told apart by all eyes


def wilson(successes, episodes):
    """A rate and its 95 % interval."""
    z, rate = 1.959963984540054, successes / episodes
    middle = (rate + z * z / (2 * episodes)) / (1 + z * z / episodes)
    half = z / (1 + z * z / episodes) * (rate * (1 - rate) / episodes + (z / (2 * episodes)) ** 2) ** 0.5
    return rate, middle - half, middle + half


def evaluated(folder):
    """{task: (instruction, successes, episodes)} of an evaluation."""
    summary = json.loads((folder / "summary.json").read_text())
    return {
        t["task"]: (t["instruction"], t["success"]["count"], t["episodes"]["done"]) for t in summary["per_task"]
    }


def with_all(tasks):
    """The same and the sum of all tasks under ''."""
    return {**tasks, "": ("all", *(sum(task[k] for task in tasks.values()) for k in (1, 2)))}


def draw(run):
    """The picture as text."""
    windows = [json.loads(line) for line in (run / "rl" / "metrics.jsonl").read_text().splitlines()]
    before, after = evaluated(run / "eval-sft"), evaluated(run / "eval-rl")
    if not after.keys() <= before.keys():
        raise SystemExit(f"{run}: eval-rl has tasks that eval-sft has not")
    before, after = with_all({name: before[name] for name in after}), with_all(after)
    names = sorted(name for name in before if name)
    colour = dict(zip(names, COLOURS * len(names)), **{"": "black"})
    plot = WIDTH - LEFT - RIGHT
    height = TOP + PLOT + 52 + 14 * len(after)
    n, ends = len(windows), 0.11 * plot

    def x_of(window):
        return LEFT + ends + (plot - 2 * ends) * (window - 0.5) / n

    def y_of(rate):
        return TOP + PLOT * (1 - rate)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for percent in range(0, 101, 20):
        y = y_of(percent / 100)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    for window in range(1, n + 1):
        if n <= 20 or window % 10 == 0:
            out.append(f'<text x="{x_of(window):.1f}" y="{y_of(0) + 16:.1f}" text-anchor="middle">{window}</text>')
    played = sum(line["train/window_played"] for line in windows)
    middle = LEFT + plot / 2
    out.append(
        f'<text x="{middle}" y="{y_of(0) + 32:.1f}" text-anchor="middle">window of training '
        f"({played:.0f} episodes in all)</text>"
    )
    for k, name in enumerate([*names, ""]):
        key = f"task/{name}/success" if name and len(names) > 1 else "train/success"
        points = [(x_of(i + 1), y_of(line[key])) for i, line in enumerate(windows) if key in line]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        width = 1.5 if name else 2.5
        out.append(f'<path d="M{path}" fill="none" stroke="{colour[name]}" stroke-width="{width}"/>')
        shift = (k - len(names) / 2) * ends * 0.8 / (len(names) + 1)
        for x, evaluation in ((LEFT + ends / 2, before), (WIDTH - RIGHT - ends / 2, after)):
            rate, low, high = (y_of(rate) for rate in wilson(*evaluation[name][1:]))
            out.append(
                f'<path d="M{x + shift:.1f} {low:.1f}V{high:.1f}" stroke="{colour[name]}" '
                f'stroke-width="{width}"/><circle cx="{x + shift:.1f}" cy="{rate:.1f}" '
                f'r="{2.5 + width / 2}" fill="{colour[name]}"/>'
            )
        out.append(
            f'<text x="{LEFT}" y="{y_of(0) + 48 + 14 * k:.1f}" fill="{colour[name]}">{before[name][0]}: '
            f"{before[name][1]} of {before[name][2]} before, {after[name][1]} of {after[name][2]} after</text>"
        )
    for x, text in ((LEFT + ends / 2, "fine-tuned"), (WIDTH - RIGHT - ends / 2, "evaluated")):
        out.append(f'<text x="{x:.1f}" y="{y_of(0) + 16:.1f}" text-anchor="middle">{text}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    pathlib.Path(sys.argv[2]).write_text(draw(pathlib.Path(sys.argv[1])))


if __name__ == "__main__":
    main()
