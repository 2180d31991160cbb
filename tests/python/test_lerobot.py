"""simstream.lerobot: recordings become a LeRobot dataset v3.0, row for row, picture for picture."""

import json
import os
import subprocess
import tempfile
import unittest
import unittest.mock

import numpy as np

from helpers import PROGRAM, needs_program
from simstream import errors, lerobot

try:
    import h5py
    import pyarrow.parquet as pq
except ImportError as missing:
    raise unittest.SkipTest(str(missing)) from None

WIDTH, HEIGHT = 80, 64
CAMERAS = f"agentview:{WIDTH}x{HEIGHT},robot0_eye_in_hand:{WIDTH}x{HEIGHT}"
KEYS = {"observation.images.image": "agentview_rgb",
        "observation.images.image2": "eye_in_hand_rgb"}
STATS = ["min", "max", "mean", "std", "count", "q01", "q10", "q50", "q90", "q99"]


def record(folder, task, policy, *options, **kwargs):
    done = subprocess.run(
        [PROGRAM, "eval", "--suite=tabletop", f"--tasks={task}", f"--policy={policy}",
         "--episodes-per-task=2", "--record=hdf5", "--record-failures", f"--out={folder}",
         "--kwargs=" + json.dumps(kwargs), *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return os.path.join(folder, f"tabletop_{task}", "demos.hdf5")


def pictures(path):
    """All pictures of a film, (n, height, width, 3)."""
    raw = subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24",
                          "pipe:1"], stdout=subprocess.PIPE, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, HEIGHT, WIDTH, 3)


def table(path):
    return pq.read_table(path)


@needs_program
class Lerobot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.recording = os.path.join(cls.folder.name, "recording")
        cls.sources = [
            record(f"{cls.recording}/10", 0, "expert", cameras=CAMERAS),
            record(f"{cls.recording}/9", 4, "zero", cameras=CAMERAS, max_episode_steps=30)][::-1]
        cls.demos = []  # as they have to come
        for source in cls.sources:
            with h5py.File(source) as file:
                text = json.loads(file["data"].attrs["problem_info"])["language_instruction"]
                for name in "demo_0", "demo_1":
                    demo = file["data"][name]
                    cls.demos.append({"task": text, "actions": demo["actions"][()],
                                      "rewards": demo["rewards"][()],
                                      **{k: v[()] for k, v in demo["obs"].items()}})
        # so small that everything needs several files
        cls.out = os.path.join(cls.folder.name, "dataset")
        with unittest.mock.patch("simstream.lerobot.os.path.getsize", lambda _: lerobot.MIB):
            cls.counts = lerobot.convert(cls.out, [cls.recording], codec="h264", data_mib=0.005,
                                         video_mib=1, chunk_size=2)
        with open(f"{cls.out}/meta/info.json", encoding="utf8") as file:
            cls.info = json.load(file)
        cls.episodes = [row for file in cls.files("meta/episodes") for row in table(file).to_pylist()]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def files(cls, part):
        return sorted(os.path.join(folder, name) for folder, _, names in
                      os.walk(os.path.join(cls.out, part)) for name in names)

    def test_info(self):
        info, n = self.info, sum(len(d["actions"]) for d in self.demos)
        self.assertEqual(self.counts, (4, n))
        self.assertEqual((info["codebase_version"], info["fps"], info["robot_type"]),
                         ("v3.0", 20, "panda"))
        self.assertEqual((info["total_episodes"], info["total_frames"], info["total_tasks"]), (4, n, 2))
        self.assertEqual(info["splits"], {"train": "0:4"})
        self.assertEqual((info["chunks_size"], info["data_files_size_in_mb"],
                          info["video_files_size_in_mb"]), (2, 0.005, 1))
        kinds = {key: (f["dtype"], f["shape"]) for key, f in info["features"].items()}
        film = ("video", [HEIGHT, WIDTH, 3])
        self.assertEqual(kinds, {
            "observation.state": ("float32", [8]), "action": ("float32", [7]),
            "next.reward": ("float32", [1]), "next.success": ("bool", [1]), "next.done": ("bool", [1]),
            "observation.images.image": film, "observation.images.image2": film,
            "timestamp": ("float32", [1]), "frame_index": ("int64", [1]),
            "episode_index": ("int64", [1]), "index": ("int64", [1]), "task_index": ("int64", [1])})
        about = info["features"]["observation.images.image"]["info"]
        self.assertEqual((about["video.codec"], about["video.fps"], about["video.width"]),
                         ("h264", 20, WIDTH))
        self.assertFalse(os.path.exists(self.out + ".tmp"))

    def test_rows(self):
        self.assertGreater(len(self.files("data")), 2)
        self.assertGreater(len(os.listdir(f"{self.out}/data")), 1)  # chunks of two files
        index = 0
        for i, (demo, episode) in enumerate(zip(self.demos, self.episodes, strict=True)):
            path = f"{self.out}/" + self.info["data_path"].format(
                chunk_index=episode["data/chunk_index"], file_index=episode["data/file_index"])
            rows, n = table(path), len(demo["actions"])
            rows = rows.filter(np.asarray(rows["episode_index"]) == i)
            self.assertEqual(rows.num_rows, n)

            def column(name, rows=rows):
                return np.array(rows[name].to_pylist())

            state = np.hstack([demo["ee_pos"], demo["ee_ori"], demo["gripper_states"]])
            np.testing.assert_array_equal(column("observation.state"), state.astype(np.float32))
            np.testing.assert_array_equal(column("action"), demo["actions"].astype(np.float32))
            np.testing.assert_array_equal(column("next.reward"), demo["rewards"])
            np.testing.assert_array_equal(column("next.success"), demo["rewards"] > 0)
            np.testing.assert_array_equal(column("next.done"), np.arange(n) == n - 1)
            np.testing.assert_array_equal(column("frame_index"), np.arange(n))
            np.testing.assert_array_equal(column("index"), np.arange(index, index + n))
            np.testing.assert_array_equal(column("timestamp"),
                                          (np.arange(n) / 20).astype(np.float32))
            self.assertEqual(set(column("task_index")), {i // 2})
            self.assertEqual(str(rows.schema.field("action").type).replace("element", "item"),
                             "fixed_size_list<item: float>[7]")
            self.assertEqual((episode["episode_index"], episode["length"], episode["tasks"]),
                             (i, n, [demo["task"]]))
            self.assertEqual((episode["dataset_from_index"], episode["dataset_to_index"]),
                             (index, index + n))
            index += n
        self.assertTrue(any(d["rewards"].any() for d in self.demos))
        self.assertFalse(all(d["rewards"].any() for d in self.demos))

    def test_tasks(self):
        tasks = table(f"{self.out}/meta/tasks.parquet")
        self.assertEqual(tasks.to_pydict(), {"task_index": [0, 1], "task": list(
            dict.fromkeys(d["task"] for d in self.demos))})
        self.assertEqual(json.loads(tasks.schema.metadata[b"pandas"])["index_columns"], ["task"])

    def test_films(self):
        """The picture at a row's time is that row's, turned by 180 degrees."""
        for key, name in KEYS.items():
            self.assertEqual(len(self.files(f"videos/{key}")), 4)  # see setUpClass
            for demo, episode in zip(self.demos, self.episodes, strict=True):
                path = f"{self.out}/" + self.info["video_path"].format(
                    video_key=key, chunk_index=episode[f"videos/{key}/chunk_index"],
                    file_index=episode[f"videos/{key}/file_index"])
                begin, end = (round(20 * episode[f"videos/{key}/{t}_timestamp"])
                              for t in ("from", "to"))
                film, wanted = pictures(path)[begin:end], demo[name][:, ::-1, ::-1].astype(int)
                self.assertEqual(len(film), len(wanted))
                for i in 0, len(wanted) // 2, len(wanted) - 1:
                    self.assertLess(np.abs(film[i] - wanted[i]).mean(), 4)
                    self.assertGreater(np.abs(film[i] - wanted[i][::-1, ::-1]).mean(), 8)

    def test_statistics(self):
        with open(f"{self.out}/meta/stats.json", encoding="utf8") as file:
            stats = json.load(file)
        self.assertEqual(set(stats), set(self.info["features"]))
        actions = np.concatenate([d["actions"] for d in self.demos]).astype(np.float32)
        self.check_numbers(stats["action"], actions)
        frames = np.concatenate([d["agentview_rgb"] for d in self.demos])
        self.check_picture(stats["observation.images.image"], frames)
        for demo, episode in zip(self.demos, self.episodes):
            own = {s: episode[f"stats/action/{s}"] for s in STATS}
            self.check_numbers(own, demo["actions"].astype(np.float32))
            own = {s: episode[f"stats/observation.images.image/{s}"] for s in STATS}
            self.check_picture(own, demo["agentview_rgb"])
            self.assertEqual(len(episode["stats/index/mean"]), 1)

    def check_numbers(self, stats, rows):
        rows = rows.astype(np.float64)
        self.assertEqual(list(stats), STATS)
        self.assertEqual(stats["count"], [len(rows)])
        for name, wanted in ("min", rows.min(0)), ("max", rows.max(0)), ("mean", rows.mean(0)), \
                ("std", rows.std(0)), ("q50", np.median(rows, 0)), ("q90", np.quantile(rows, 0.9, 0)):
            np.testing.assert_allclose(stats[name], wanted, atol=1e-9)

    def check_picture(self, stats, frames):
        pixels = frames.reshape(-1, 3) / 255
        self.assertEqual(stats["count"], [len(frames)])
        self.assertEqual(np.shape(stats["mean"]), (3, 1, 1))
        for name, wanted in ("min", pixels.min(0)), ("max", pixels.max(0)), \
                ("mean", pixels.mean(0)), ("std", pixels.std(0)):
            np.testing.assert_allclose(np.ravel(stats[name]), wanted, atol=1e-9)
        lower = np.quantile(pixels, 0.5, axis=0, method="lower")
        np.testing.assert_allclose(np.ravel(stats["q50"]), lower, atol=1e-9)

    def test_choice_and_default_codec(self):
        out = os.path.join(self.folder.name, "successes")
        wanted = [d for d in self.demos if d["rewards"].any()]
        code = lerobot.main([out, self.sources[0], "--demos=success", "--orientation=opengl",
                             "--quiet", self.sources[1]])
        self.assertEqual(code, 0)
        with open(f"{out}/meta/info.json", encoding="utf8") as file:
            self.assertEqual(json.load(file)["total_episodes"], len(wanted))
        film = pictures(f"{out}/videos/observation.images.image/chunk-000/file-000.mp4")
        for shown, frame in (film[0], wanted[0]["agentview_rgb"][0]), \
                (film[-1], wanted[-1]["agentview_rgb"][-1]):
            self.assertLess(np.abs(shown.astype(int) - frame).mean(), 6)

    def test_refusals(self):
        other = os.path.join(self.folder.name, "other")
        record(other, 0, "zero", "--libero-alignment=post", max_episode_steps=5)
        blank = os.path.join(self.folder.name, "blank.hdf5")
        with open(blank, "wb") as file:
            file.write(b"nothing")
        mixed = os.path.join(self.folder.name, "mixed")
        record(mixed, 0, "zero", max_episode_steps=5)
        out = os.path.join(self.folder.name, "no")
        for sources, options, text in (
                ([other], {}, "obs are those after the action"),
                ([blank], {}, "blank.hdf5' is no recording"),
                ([self.recording, mixed], {}, "observation.images.image is None, in the demos before"),
                ([os.path.join(self.folder.name, "nothing")], {}, "there is no recording"),
                ([self.recording], {"codec": "gif"}, "expected one of av1, h264"),
                ([mixed], {"demos": "success"}, "no demo that is wanted")):
            with self.assertRaisesRegex(errors.SimstreamError, text):
                lerobot.convert(out, sources, **{"codec": "h264", **options})
            self.assertFalse(os.path.exists(out) or os.path.exists(out + ".tmp"), text)
        with self.assertRaisesRegex(errors.InvalidError, "is there already"):
            lerobot.convert(self.out, [self.recording])


if __name__ == "__main__":
    unittest.main()
