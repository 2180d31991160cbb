"""Contact sheet of the ray renderer: ours | MuJoCo on EGL | difference x 10, a row for each view.

    MUJOCO_GL=egl python tests/oracle/render_sheet.py DRIVER OUT.png SIZE MODEL[:CAMERA] ...

DRIVER is build/release/tests/render_driver; a MODEL is any file that MuJoCo loads; CAMERA a camera's
name (default: MuJoCo's free camera). Every row prints the mean absolute difference, the share of
pixels that are off by more than 10 of 255, and the largest difference.
"""
import os
import subprocess
import struct
import sys
import tempfile

import mujoco
import numpy as np
from PIL import Image

FIELDS = ("xpos xquat xmat xipos ximat geom_xpos geom_xmat site_xpos site_xmat cam_xpos cam_xmat "
          "light_xpos light_xdir").split()
UPRIGHT, COLOUR, ALL_GROUPS = 1, 1, 7


def reference(model, data, camera, size):
    model.vis.quality.offsamples = 4
    model.vis.global_.offwidth = model.vis.global_.offheight = max(640, size)
    with mujoco.Renderer(model, size, size) as renderer:
        renderer.update_scene(data, camera)
        return renderer.render().copy()


def ours(driver, model, data, camera, size):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.mjb")
        mujoco.mj_saveModel(model, path, None)
        ask = struct.pack("8i", camera, size, size, UPRIGHT, COLOUR, ALL_GROUPS, ALL_GROUPS, 0)
        for name in FIELDS:
            ask += np.asarray(getattr(data, name), np.float64).tobytes()
        ask += np.asarray(model.site_rgba, np.float32).tobytes()
        done = subprocess.run([driver, path, "rays"], input=ask, stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout[:size * size * 3], np.uint8).reshape(size, size, 3)


def row(driver, what, size):
    path, _, name = what.partition(":")
    load = mujoco.MjModel.from_binary_path if path.endswith(".mjb") else mujoco.MjModel.from_xml_path
    model = load(path)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    camera = model.camera(name).id if name else -1
    a, b = ours(driver, model, data, camera, size), reference(model, data, camera, size)
    diff = np.abs(a.astype(int) - b)
    print(f"{what}: mean {diff.mean():.3f}, {100 * (diff.max(-1) > 10).mean():.3f} % > 10, "
          f"max {diff.max()}")
    return np.concatenate([a, b, np.clip(diff * 10, 0, 255).astype(np.uint8)], 1)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    driver, out, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    Image.fromarray(np.concatenate([row(driver, w, size) for w in sys.argv[4:]], 0)).save(out)


if __name__ == "__main__":
    main()
