"""Pictures in observations, and the one that `render` shows."""

import numpy as np
from gymnasium.spaces import Box, Dict

from . import errors

_PIXELS = {"rgb": (0, 255, np.uint8, 3), "depth": (0, np.inf, np.float32, None),
           "seg": (-1, 2**31 - 1, np.int32, 2)}


def check_render_mode(render_mode):
    """RenderModeError for any mode but None and "rgb_array"."""
    if render_mode not in (None, "rgb_array"):
        raise errors.RenderModeError(
            f"render_mode is {render_mode!r}, expected None or 'rgb_array'")


def ask_for_pictures(task, address, render_mode, kwargs):
    """Completes the task's keyword arguments. True if pictures are drawn for `render` alone."""
    cameras = kwargs.get("cameras")
    if cameras is not None and not isinstance(cameras, str):
        if not isinstance(cameras, (list, tuple)) or not all(isinstance(c, str) for c in cameras):
            raise errors.InvalidError(
                f"cameras is {cameras!r}, expected a str or a list of them")
        cameras = kwargs["cameras"] = ",".join(cameras)
    if render_mode is None or address is not None or cameras:
        return False
    if task is not None and "/" in task:
        kwargs["cameras"] = "agentview:upright"
        kwargs.setdefault("image_size", "256x256")
    else:
        kwargs["cameras"] = "default"
    return True


class Pictures:
    """Which parts of a row an observation has.

    hidden: none of the pictures; they are there for `render`. Without pictures observations are
    float64 (n_obs,), with pictures dicts of "state", the same numbers, and each picture by its name.
    """

    def __init__(self, spec, render_mode, hidden):
        self.names = [] if hidden else [p["name"] for p in spec["pictures"]]
        rgb = [p["name"] for p in spec["pictures"] if p["plane"] == "rgb"]
        self.shown = rgb[0] if rgb else None
        if render_mode is not None and self.shown is None:
            raise errors.RenderModeError(
                f"render_mode is {render_mode!r}, but the observations have no rgb picture")

    def space(self, spec):
        """The observation space of one env."""
        state = Box(-np.inf, np.inf, (spec["n_obs"],), np.float64)
        if not self.names:
            return state
        spaces = {"state": state}
        for p in spec["pictures"]:
            low, high, dtype, numbers = _PIXELS[p["plane"]]
            shape = (p["height"], p["width"]) + (() if numbers is None else (numbers,))
            spaces[p["name"]] = Box(low, high, shape, dtype)
        return Dict(spaces)

    def of(self, rows, prefix="", copy=False):
        """The observations of rows, or of one row: views, or new arrays with `copy`. prefix:
        "final_" = those of the ended episodes."""
        take = np.array if copy else (lambda array: array)
        if not self.names:
            return take(rows[prefix + "obs"])
        return {"state": take(rows[prefix + "obs"]),
                **{name: take(rows[f"{prefix}picture.{name}"]) for name in self.names}}

    def frames(self, rows):
        """The picture for `render` of rows or of one row: new array uint8 (..., height, width, 3)."""
        return np.array(rows["picture." + self.shown])
