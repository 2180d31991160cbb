"""Recordings (demos.hdf5 of `simstream eval --record=hdf5`) as a LeRobot dataset v3.0.

    python -m simstream.lerobot OUT RECORDING...        # --help explains the options
    simstream.lerobot.convert("out", ["runs/x"])

A RECORDING is a demos.hdf5 or a folder that has some below it. Each demo becomes an episode, in the
order of the arguments, then of the demos. Needs h5py and pyarrow; pictures need the program ffmpeg.

    column                    type, shape          from
    observation.state         float32 (8,)         obs/ee_pos, obs/ee_ori (axis-angle), obs/gripper_states
    action                    float32 (n,)         actions
    next.reward, .success, .done                   rewards, rewards > 0, dones
    observation.images.image  film                 obs/agentview_rgb, turned to --orientation
    observation.images.image2 film                 obs/eye_in_hand_rgb
    timestamp, frame_index, episode_index, index, task_index

Other pictures keep their names. Row t has the observation before action t, so recordings with
--libero-alignment=post are refused. Where a row comes from is in meta/simstream.json. OUT is whole
or not there: it is written as OUT.tmp and renamed.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np

from .errors import InvalidError, MissingError, SimstreamError, SystemIOError

VERSION = "v3.0"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
QUANTILES = (0.01, 0.10, 0.50, 0.90, 0.99)
STATE = (("ee_pos", ("x", "y", "z")), ("ee_ori", ("axis_angle1", "axis_angle2", "axis_angle3")),
         ("gripper_states", ("gripper1", "gripper2")))
ACTION_NAMES = ["x", "y", "z", "axis_angle1", "axis_angle2", "axis_angle3", "gripper"]
PICTURES = {"agentview_rgb": "observation.images.image",
            "eye_in_hand_rgb": "observation.images.image2"}
ORIENTATIONS = ("opengl", "upright", "rot180")
CODECS = {"av1": ["-c:v", "libsvtav1", "-preset", "10", "-crf", "30", "-g", "2"],
          "h264": ["-c:v", "libx264", "-preset", "fast", "-crf", "18", "-g", "2", "-bf", "0"]}
MIB = 1 << 20
COUNTERS = ("timestamp", "frame_index", "episode_index", "index", "task_index")


def _import(name, package):
    try:
        return __import__(name, fromlist=["_"])
    except ImportError as error:
        raise MissingError(f"{error}: the converter needs it, `pip install {package}`") from None


# --- recordings ----------------------------------------------------------------------------------
def _natural(path):
    """Sorts libero_10_2 before libero_10_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path)]


def find_recordings(paths):
    """The files that the paths name; a folder names all demos.hdf5 below it."""
    files = []
    for path in map(os.fspath, paths):
        if os.path.isdir(path):
            below = [os.path.join(folder, name) for folder, _, names in os.walk(path)
                     for name in names if name == "demos.hdf5"]
            if not below:
                raise MissingError(f"'{path}' has no demos.hdf5 below it: was --record=hdf5 given?")
            files += sorted(below, key=_natural)
        elif os.path.exists(path):
            files.append(path)
        else:
            raise MissingError(f"there is no recording '{path}'")
    return files


class _Recording:
    """One file, checked as far as the converter depends on it."""

    def __init__(self, h5py, path):
        self.path = path
        try:
            self.file = h5py.File(path, "r")
        except OSError as error:
            raise InvalidError(f"'{path}' is no recording: {error}") from None
        data = self._need(self.file, "data")
        self.about = {key: self._text(data, key) for key in
                      ("task", "policy", "kwargs", "engine", "simstream") if key in data.attrs}
        self.about["seed"] = int(data.attrs.get("seed", -1))
        self.orientation = self._text(data, "image_orientation", "opengl")
        if self.orientation not in ORIENTATIONS:
            raise InvalidError(f"'{path}': image_orientation is '{self.orientation}', expected one of "
                               + ", ".join(ORIENTATIONS))
        try:
            self.instruction = json.loads(self._text(data, "problem_info"))["language_instruction"]
        except (ValueError, KeyError, TypeError):
            raise InvalidError(f"'{path}': problem_info has no language_instruction") from None
        if isinstance(self.instruction, list):
            self.instruction = "".join(self.instruction)
        self.instruction = self.instruction.strip('"')
        self.demos = [data[key] for key in sorted(data, key=_natural)]

    def _need(self, group, name):
        if name not in group:
            raise InvalidError(f"'{self.path}': no '{name}' in {group.name}")
        return group[name]

    def _text(self, group, key, default=None):
        value = group.attrs.get(key, default)
        if value is None:
            raise InvalidError(f"'{self.path}': {group.name} has no attribute '{key}'")
        return value.decode() if isinstance(value, bytes) else str(value)

    def pictures(self, demo):
        return sorted(name for name in self._need(demo, "obs") if name.endswith("_rgb"))

    def rate(self, demo):
        """Rows a second, from the simulator's time; 0 = one row tells nothing."""
        times = self._need(demo, "states")[:, 0]
        if len(times) < 2:
            return 0
        fps = 1 / np.mean(np.diff(times))
        if not np.isfinite(fps) or abs(fps - round(fps)) > 1e-3:
            raise InvalidError(f"'{self.path}', {demo.name}: {fps:.6g} rows a second, expected a whole "
                               "number")
        return round(fps)

    def read(self, demo):
        """The numbers of an episode, by column."""
        n = self._need(demo, "actions").shape[0]
        if self._text(demo, "obs_alignment", "pre") != "pre":
            raise InvalidError(f"'{self.path}', {demo.name}: obs are those after the action "
                               "(--libero-alignment=post); a dataset needs those before it")
        obs = self._need(demo, "obs")
        state = np.hstack([self._need(obs, name)[()] for name, _ in STATE])
        rows = {"observation.state": state.astype(np.float32),
                "action": demo["actions"][()].astype(np.float32),
                "next.reward": self._need(demo, "rewards")[()].astype(np.float32),
                "next.success": demo["rewards"][()] > 0,
                "next.done": self._need(demo, "dones")[()].astype(bool)}
        for name, column in rows.items():
            if len(column) != n or n == 0:
                raise InvalidError(f"'{self.path}', {demo.name}: {len(column)} rows of {name}, {n} "
                                   "actions")
            if not np.all(np.isfinite(column)):
                raise InvalidError(f"'{self.path}', {demo.name}: {name} is not finite")
        return rows


def _turn(frames, have, want):
    """Pictures (n, height, width, 3) that lie as `have`, as `want`."""
    flips = {"opengl": (False, False), "upright": (True, False), "rot180": (True, True)}
    rows, columns = (a != b for a, b in zip(flips[have], flips[want]))
    return np.ascontiguousarray(frames[:, ::-1 if rows else 1, ::-1 if columns else 1])


# --- statistics ----------------------------------------------------------------------------------
def _names():
    return ["min", "max", "mean", "std", "count"] + [f"q{round(100 * q):02d}" for q in QUANTILES]


def number_stats(values):
    """Of the rows of an array, per column; a LeRobot quantile is NumPy's."""
    x = np.asarray(values, np.float64).reshape(len(values), -1)
    stats = {"min": x.min(0), "max": x.max(0), "mean": x.mean(0), "std": x.std(0),
             "count": np.array([len(x)])}
    for q, row in zip(QUANTILES, np.quantile(x, QUANTILES, axis=0)):
        stats[f"q{round(100 * q):02d}"] = row
    return stats


class PictureStats:
    """Of all pixels, per channel and scaled to 0..1: exact, from a count of each value."""

    def __init__(self):
        self.n, self.counts = 0, np.zeros((3, 256), np.int64)

    def add(self, frames):
        self.n += len(frames)
        for channel in range(3):
            self.counts[channel] += np.bincount(frames[..., channel].ravel(), minlength=256)

    def merge(self, other):
        self.n += other.n
        self.counts += other.counts

    def result(self):
        values = np.arange(256) / 255
        total = self.counts.sum(1)
        mean = self.counts @ values / total
        square = self.counts @ values**2 / total
        below = np.cumsum(self.counts, axis=1)
        stats = {"min": [values[c > 0][0] for c in self.counts],
                 "max": [values[c > 0][-1] for c in self.counts],
                 "mean": mean, "std": np.sqrt(np.maximum(square - mean**2, 0))}
        for q in QUANTILES:
            stats[f"q{round(100 * q):02d}"] = [
                values[np.searchsorted(b, q * (t - 1), side="right")] for b, t in zip(below, total)]
        stats = {key: np.reshape(value, (3, 1, 1)) for key, value in stats.items()}
        return {**stats, "count": np.array([self.n])}


def _plain(stats):
    """As lists, in LeRobot's order."""
    return {name: stats[name].tolist() for name in _names()}


# --- files ---------------------------------------------------------------------------------------
class _Place:
    """Chunk and file of what is written next; a new file is begun before the limit is passed."""

    def __init__(self, limit_bytes, chunk_size):
        self.limit, self.chunk_size = limit_bytes, chunk_size
        self.chunk = self.file = 0
        self.rows = 0  # of the file so far

    def full(self, size, rows):
        return self.rows > 0 and size * (1 + rows / self.rows) >= self.limit

    def next(self):
        self.rows, self.file = 0, self.file + 1
        if self.file == self.chunk_size:
            self.chunk, self.file = self.chunk + 1, 0


class _Parquet:
    """Tables one after the other, each a row group, in as many files as the limit asks for."""

    def __init__(self, root, template, limit_bytes, chunk_size):
        self.root, self.template = root, template
        self.place = _Place(limit_bytes, chunk_size)
        self.sink = self.writer = None

    def begin(self, rows):
        """Where the next `rows` rows will be: chunk and file."""
        if self.sink and self.place.full(self.sink.tell(), rows):
            self.close()
            self.place.next()
        return self.place.chunk, self.place.file

    def write(self, table):
        import pyarrow.parquet as pq

        if not self.writer:
            path = os.path.join(self.root, self.template.format(chunk_index=self.place.chunk,
                                                                file_index=self.place.file))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self.sink = open(path, "wb")
            self.writer = pq.ParquetWriter(self.sink, table.schema, compression="snappy")
        self.writer.write_table(table)
        self.place.rows += table.num_rows

    def close(self):
        if self.writer:
            self.writer.close()
            self.sink.close()
        self.sink = self.writer = None

    def abandon(self):
        self.close()  # a writer that was not closed tries to when it is forgotten


class _Films:
    """The pictures of one camera, episode after episode, in films of a constant rate."""

    def __init__(self, root, key, size, fps, codec, limit_bytes, chunk_size):
        self.root, self.key, self.size, self.fps, self.codec = root, key, size, fps, codec
        self.place = _Place(limit_bytes, chunk_size)
        self.process = self.path = None

    def append(self, frames):
        """Chunk, file, first and last time of an episode."""
        written = os.path.getsize(self.path) if self.path and os.path.exists(self.path) else 0
        if self.process and self.place.full(written, len(frames)):
            self.close()
            self.place.next()
        if not self.process:
            self._open()
        try:
            self.process.stdin.write(memoryview(frames))
        except BrokenPipeError:
            self.close()
            raise SystemIOError(f"ffmpeg ended while it wrote '{self.path}'") from None
        start = self.place.rows
        self.place.rows += len(frames)
        return {"chunk_index": self.place.chunk, "file_index": self.place.file,
                "from_timestamp": start / self.fps, "to_timestamp": self.place.rows / self.fps}

    def _open(self):
        height, width = self.size
        self.path = os.path.join(self.root, VIDEO.format(
            video_key=self.key, chunk_index=self.place.chunk, file_index=self.place.file))
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        command = ["ffmpeg", "-v", "error", "-nostdin", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s",
                   f"{width}x{height}", "-r", str(self.fps), "-i", "pipe:0", *CODECS[self.codec],
                   "-pix_fmt", "yuv420p", "-y", self.path]
        quiet = dict(os.environ, SVT_LOG="1")  # errors alone
        with open(self.path + ".log", "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log,
                                            env=quiet)

    def close(self):
        if not self.process:
            return
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # its exit status says more
        code, self.process = self.process.wait(), None
        with open(self.path + ".log", encoding="utf8", errors="replace") as log:
            text = log.read()
        if code:
            raise SystemIOError(f"ffmpeg failed with {code} on '{self.path}': {text[-500:].strip()}")
        os.remove(self.path + ".log")

    def abandon(self):
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.process = None


# --- the dataset ---------------------------------------------------------------------------------
class _Dataset:
    """A dataset that grows by episodes in the folder `root`."""

    def __init__(self, root, options):
        self.pa = _import("pyarrow", "pyarrow")
        self.root, self.options = root, options
        self.features = self.fps = None
        self.data = _Parquet(root, DATA, options["data_mib"] * MIB, options["chunk_size"])
        self.episodes = _Parquet(root, EPISODES, options["data_mib"] * MIB, options["chunk_size"])
        self.films, self.film_stats, self.tasks = {}, {}, {}
        self.n_episode = self.n_frame = 0
        self.numbers, self.sources = {}, []

    def _film_feature(self, shape):
        info = {"video.height": shape[0], "video.width": shape[1], "video.codec": self.options["codec"],
                "video.pix_fmt": "yuv420p", "video.fps": self.fps, "video.channels": 3,
                "has_audio": False, "is_depth_map": False}
        return {"dtype": "video", "shape": list(shape), "names": ["height", "width", "channels"],
                "info": info}

    def _describe(self, recording, demo, rows, frames):
        """The features, from an episode."""
        def numbers(dtype, n, names=None):
            return {"dtype": dtype, "shape": [n], "names": names}

        n_act = rows["action"].shape[1]
        features = {"observation.state": numbers("float32", 8, [n for _, part in STATE for n in part]),
                    "action": numbers("float32", n_act, ACTION_NAMES if n_act == 7 else
                                      [f"action{i}" for i in range(n_act)]),
                    "next.reward": numbers("float32", 1), "next.success": numbers("bool", 1),
                    "next.done": numbers("bool", 1)}
        for key, film in frames.items():
            if film.shape[1] % 2 or film.shape[2] % 2:
                raise InvalidError(f"'{recording.path}', {demo.name}: pictures of {film.shape[2]}x"
                                   f"{film.shape[1]}, films need even sides")
            features[key] = self._film_feature(film.shape[1:])
        for name in COUNTERS:
            features[name] = numbers("float32" if name == "timestamp" else "int64", 1)
        return features

    def _check_same(self, recording, demo, features, fps):
        if self.features is None:
            self.features, self.fps = features, fps
            return
        if fps not in (0, self.fps):
            raise InvalidError(f"'{recording.path}', {demo.name}: {fps} rows a second, the demos before "
                               f"have {self.fps}")
        for key in sorted(set(features) | set(self.features)):
            a, b = self.features.get(key), features.get(key)
            if a is None or b is None or a["shape"] != b["shape"]:
                raise InvalidError(f"'{recording.path}', {demo.name}: {key} is "
                                   f"{b and b['shape']}, in the demos before {a and a['shape']}")

    def add(self, recording, demo):
        rows = recording.read(demo)
        n, fps = len(rows["action"]), recording.rate(demo)
        frames = {PICTURES.get(name, "observation.images." + name[:-4]):
                  _turn(demo["obs"][name][()], recording.orientation, self.options["orientation"])
                  for name in recording.pictures(demo)}
        if self.fps is None and fps == 0:
            raise InvalidError(f"'{recording.path}', {demo.name}: a first demo of one row does not tell "
                               "how many rows there are a second")
        self.fps = self.fps or fps
        self._check_same(recording, demo, self._describe(recording, demo, rows, frames), fps)
        task = self.tasks.setdefault(recording.instruction, len(self.tasks))
        rows.update(timestamp=(np.arange(n) / self.fps).astype(np.float32), frame_index=np.arange(n),
                    episode_index=np.full(n, self.n_episode),
                    index=np.arange(self.n_frame, self.n_frame + n), task_index=np.full(n, task))
        chunk, file = self.data.begin(n)
        self.data.write(self._table(rows))
        episode = {"episode_index": self.n_episode, "tasks": [recording.instruction], "length": n,
                   "data/chunk_index": chunk, "data/file_index": file,
                   "dataset_from_index": self.n_frame, "dataset_to_index": self.n_frame + n}
        stats = self._add_films(episode, frames)
        for key, column in rows.items():
            stats[key] = number_stats(column)
            self.numbers.setdefault(key, []).append(column)
        self._write_episode(episode, stats)
        self.sources.append({"file": recording.path, "demo": demo.name.split("/")[-1],
                             "episode": int(demo.attrs.get("episode", -1)), **recording.about})
        self.n_episode += 1
        self.n_frame += n

    def _table(self, rows):
        pa, columns, fields = self.pa, [], []
        for key, feature in self.features.items():
            if feature["dtype"] == "video":
                continue
            kind = {"float32": pa.float32(), "int64": pa.int64(), "bool": pa.bool_()}[feature["dtype"]]
            column, width = rows[key], feature["shape"][0]
            if width == 1:
                columns.append(pa.array(column, kind))
            else:
                columns.append(pa.FixedSizeListArray.from_arrays(
                    pa.array(np.ascontiguousarray(column).ravel(), kind), width))
            fields.append(pa.field(key, columns[-1].type))
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _add_films(self, episode, frames):
        stats = {}
        for key, film in frames.items():
            if key not in self.films:
                self.films[key] = _Films(self.root, key, film.shape[1:3], self.fps,
                                         self.options["codec"], self.options["video_mib"] * MIB,
                                         self.options["chunk_size"])
                self.film_stats[key] = PictureStats()
            for name, value in self.films[key].append(film).items():
                episode[f"videos/{key}/{name}"] = value
            own = PictureStats()
            own.add(film)
            self.film_stats[key].merge(own)
            stats[key] = own.result()
        return stats

    def _write_episode(self, episode, stats):
        chunk, file = self.episodes.begin(1)
        row = dict(episode)
        for key in self.features:
            for name, value in _plain(stats[key]).items():
                row[f"stats/{key}/{name}"] = value
        row["meta/episodes/chunk_index"], row["meta/episodes/file_index"] = chunk, file
        self.episodes.write(self.pa.table({key: [value] for key, value in row.items()}))

    def finish(self):
        for part in (self.data, self.episodes, *self.films.values()):
            part.close()
        self._write_tasks()
        stats = {key: _plain(number_stats(np.concatenate(columns)))
                 for key, columns in self.numbers.items()}
        stats.update({key: _plain(s.result()) for key, s in self.film_stats.items()})
        self._write_json("stats.json", {key: stats[key] for key in self.features})
        self._write_json("simstream.json", {"schema": "simstream.lerobot/1",
                                            "orientation": self.options["orientation"],
                                            "episodes": self.sources})
        self._write_json("info.json", {
            "codebase_version": VERSION, "robot_type": self.options["robot_type"],
            "total_episodes": self.n_episode, "total_frames": self.n_frame,
            "total_tasks": len(self.tasks), "chunks_size": self.options["chunk_size"],
            "data_files_size_in_mb": self.options["data_mib"],
            "video_files_size_in_mb": self.options["video_mib"], "fps": self.fps,
            "splits": {"train": f"0:{self.n_episode}"}, "data_path": DATA,
            "video_path": VIDEO if self.films else None, "features": self.features})

    def _write_tasks(self):
        """A table that pandas reads with the instruction as its index."""
        import pyarrow.parquet as pq

        def column(name, kind, numpy):
            return {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": numpy,
                    "metadata": None}

        pandas = {"index_columns": ["task"], "column_indexes": [], "pandas_version": "2.0.0",
                  "creator": {"library": "pyarrow", "version": self.pa.__version__},
                  "columns": [column("task_index", "int64", "int64"),
                              column("task", "unicode", "object")]}
        table = self.pa.table({"task_index": list(self.tasks.values()), "task": list(self.tasks)})
        pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}),
                       os.path.join(self.root, "meta/tasks.parquet"))

    def _write_json(self, name, value):
        with open(os.path.join(self.root, "meta", name), "w", encoding="utf8") as file:
            json.dump(value, file, indent=4, ensure_ascii=False)
            file.write("\n")

    def abandon(self):
        for part in (self.data, self.episodes, *self.films.values()):
            part.abandon()
        shutil.rmtree(self.root, ignore_errors=True)


def convert(out, recordings, *, demos="all", orientation="rot180", codec="av1", robot_type="panda",
            data_mib=100, video_mib=200, chunk_size=1000, progress=None):
    """Write the dataset `out`, a folder that must not be there yet; numbers of episodes and frames.
    The options are those of the command line; `progress(episodes)` is called after each one."""
    out = os.path.abspath(os.fspath(out))
    options = {"orientation": orientation, "codec": codec, "robot_type": robot_type,
               "data_mib": data_mib, "video_mib": video_mib, "chunk_size": chunk_size}
    for name, value, choices in (("demos", demos, ("all", "success", "failure")),
                                 ("orientation", orientation, ORIENTATIONS),
                                 ("codec", codec, tuple(CODECS))):
        if value not in choices:
            raise InvalidError(f"{name} is '{value}', expected one of {', '.join(choices)}")
    if os.path.exists(out):
        raise InvalidError(f"'{out}' is there already")
    files = find_recordings(recordings)
    h5py = _import("h5py", "h5py")
    dataset = _Dataset(out + ".tmp", options)
    shutil.rmtree(dataset.root, ignore_errors=True)  # of a run that was killed
    os.makedirs(os.path.join(dataset.root, "meta"))
    try:
        for path in files:
            recording = _Recording(h5py, path)
            with recording.file:
                for demo in recording.demos:
                    if demos != "all" and bool(demo.attrs.get("success")) != (demos == "success"):
                        continue
                    if recording.pictures(demo) and not shutil.which("ffmpeg"):
                        raise MissingError("pictures need the program ffmpeg (Debian: apt install "
                                           "ffmpeg)")
                    dataset.add(recording, demo)
                    if progress:
                        progress(dataset.n_episode)
        if dataset.n_episode == 0:
            raise InvalidError("the recordings have no demo that is wanted")
        dataset.finish()
        os.rename(dataset.root, out)
    except BaseException:
        dataset.abandon()
        raise
    return dataset.n_episode, dataset.n_frame


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m simstream.lerobot",
                                     description="Convert recordings to a LeRobot dataset v3.0.")
    parser.add_argument("out", help="folder of the dataset; it must not be there yet")
    parser.add_argument("recordings", nargs="+", help="demos.hdf5, or folders that have some below")
    parser.add_argument("--demos", default="all", choices=("all", "success", "failure"),
                        help="which demos become episodes (all)")
    parser.add_argument("--orientation", default="rot180", choices=ORIENTATIONS,
                        help="how pictures lie in the dataset: rot180 as LeRobot's LIBERO datasets "
                             "(the default), opengl as LIBERO's own files, upright")
    parser.add_argument("--codec", default="av1", choices=tuple(CODECS), help="of the films (av1)")
    parser.add_argument("--robot-type", default="panda", help="for info.json (panda)")
    parser.add_argument("--data-mib", type=int, default=100, help="of a data file, at most (100)")
    parser.add_argument("--video-mib", type=int, default=200, help="of a film, at most (200)")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    o = parser.parse_intermixed_args(argv)

    def progress(n):
        if not o.quiet and sys.stderr.isatty():
            print(f"\r{n} episodes", end="", file=sys.stderr, flush=True)

    try:
        episodes, frames = convert(o.out, o.recordings, demos=o.demos, orientation=o.orientation,
                                   codec=o.codec, robot_type=o.robot_type, data_mib=o.data_mib,
                                   video_mib=o.video_mib, progress=progress)
    except (SimstreamError, OSError) as error:
        print(f"simstream.lerobot: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidError) else 1
    if not o.quiet:
        print(f"{o.out}: {episodes} episodes, {frames} frames")
    return 0


if __name__ == "__main__":
    sys.exit(main())
