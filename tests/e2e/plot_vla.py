"""bench/plot_vla.py draws what the files of a run say: rates and intervals at their heights, every task's
line, and nothing of a run whose two evaluations are of other tasks."""

import json
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "plot_vla.py"
TOP, HEIGHT = 16, 288  # of the plot: 100 % and down to 0 %


def write_evaluation(folder, tasks):
    folder.mkdir(parents=True)
    summary = {
        "per_task": [
            {"task": name, "instruction": "do " + name, "success": {"count": count}, "episodes": {"done": 10}}
            for name, count in tasks.items()
        ]
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def draw(run):
    return subprocess.run([sys.executable, SCRIPT, run, run / "out.svg"], capture_output=True, text=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder)
        write_evaluation(run / "eval-sft", {"a/0": 1, "a/1": 3, "a/7": 0})  # which was not gone on with
        write_evaluation(run / "eval-rl", {"a/0": 5, "a/1": 7})
        (run / "rl").mkdir()
        lines = [
            {"train/success": rate, "train/window_played": 16, "task/a/0/success": rate, "task/a/1/success": rate}
            for rate in (0.25, 0.5)
        ]
        (run / "rl" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = draw(run)
        assert done.returncode == 0, done.stderr
        text = (run / "out.svg").read_text()
        root = xml.fromstring(text)
        circles = [float(c.get("cy")) for c in root.iter("{http://www.w3.org/2000/svg}circle")]
        rates = [1 - (y - TOP) / HEIGHT for y in circles]
        wanted = [0.1, 0.5, 0.3, 0.7, 0.2, 0.6]  # before, after: each task, then all
        assert all(abs(a - b) < 0.001 for a, b in zip(rates, wanted, strict=True)), rates
        low, high = (TOP + HEIGHT * (1 - rate) for rate in (0.386582, 0.781193))
        bar = f"{low:.1f}V{high:.1f}"  # of all after: 12 of 20
        assert text.count(bar) == 1, bar
        ends = f"{TOP + HEIGHT * 0.75:.1f}L", f" {TOP + HEIGHT * 0.5:.1f}\""
        assert all(text.count(end) >= 3 for end in ends), "not three lines"
        assert "(32 episodes in all)" in text and "do a/1: 3 of 10 before, 7 of 10 after" in text

        (run / "eval-rl" / "summary.json").unlink()
        (run / "eval-rl").rmdir()
        write_evaluation(run / "eval-rl", {"a/0": 5, "a/2": 7})
        done = draw(run)
        assert done.returncode != 0 and "tasks that eval-sft has not" in done.stderr, done.stderr
    print("plot_vla: all as expected")


if __name__ == "__main__":
    main()
