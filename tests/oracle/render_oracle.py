"""Compare the EGL renderer with MuJoCo's Python bindings on the same driver: every pixel is equal.

    render_oracle.py RENDER_DRIVER

The bindings draw with the options of robosuite (groups 1 and 2 or all of 0..2, four samples, a
buffer of 640 x 480) and of Gymnasium. Models are Gymnasium's and one with everything that has a
special path: a mirror, transparency, a shadow, textures, a mesh, sites. Exit code 77: no EGL here.

    render_oracle.py RENDER_DRIVER --pictures FOLDER

compares with pictures that another program made: FOLDER/NAME.mjb and FOLDER/NAME.pkl, a list of
dicts with cam, w, h, arrays (the fields of FIELDS), site_rgba, gg, sg (groups) and img.
"""

import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile

os.environ["MUJOCO_GL"] = "egl"
import numpy as np

FIELDS = """xpos xquat xmat xipos ximat geom_xpos geom_xmat site_xpos site_xmat cam_xpos cam_xmat
light_xpos light_xdir""".split()
OPENGL, UPRIGHT, ROT180 = range(3)
COLOUR, DEPTH, SEGMENTATION = 1, 2, 4

SPECIAL = """
<mujoco>
  <visual><global offwidth="640" offheight="480"/></visual>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2="0 0 0" width="64" height="384"/>
    <texture name="grid" type="2d" builtin="checker" rgb1=".2 .3 .4" rgb2=".8 .7 .6" width="100" height="100"/>
    <texture name="cube" type="cube" builtin="flat" mark="cross" rgb1=".8 .6 .4" markrgb="1 1 1" width="32" height="192"/>
    <material name="floor" texture="grid" texrepeat="5 5" reflectance=".4"/>
    <material name="cube" texture="cube" texuniform="true"/>
    <mesh name="tetra" vertex="0 0 0  .3 0 0  0 .3 0  0 0 .3"/>
  </asset>
  <worldbody>
    <light name="casts" pos="1 1 3" dir="-.3 -.3 -1" directional="true" castshadow="true"/>
    <light name="spot" pos="-1 -1 2" dir=".4 .4 -1" castshadow="false"/>
    <camera name="fixed" pos="2 -1.5 1.4" xyaxes=".6 .8 0 -.4 .3 .9"/>
    <geom type="plane" size="0 0 1" material="floor"/>
    <body pos="0 0 .3"><freejoint/><geom type="box" size=".2 .2 .2" material="cube"/></body>
    <body pos=".5 .3 .4"><freejoint/><geom type="sphere" size=".2" rgba=".2 .8 .3 .5"/></body>
    <body pos="-.4 .5 .3"><freejoint/><geom type="capsule" size=".1 .2" rgba=".9 .2 .2 1"/></body>
    <body pos=".4 -.5 .1"><freejoint/><geom type="mesh" mesh="tetra"/></body>
    <body pos="-.6 -.4 .2"><freejoint/><geom type="cylinder" size=".1 .2" group="3"/></body>
    <site name="mark" pos=".1 .7 .5" size=".08" rgba="1 1 0 1"/>
    <site name="hidden" pos="0 -.7 .5" size=".1" rgba="1 0 1 -1"/>
  </worldbody>
</mujoco>
"""


def request(cam, w, h, orient, planes, gg, sg, arrays, site_rgba):
    head = struct.pack("8i", cam, w, h, orient, planes, gg, sg, 0)
    body = b"".join(np.ascontiguousarray(arrays[f], np.float64).tobytes() for f in FIELDS)
    return head + body + np.ascontiguousarray(site_rgba, np.float32).tobytes()


def draw(driver, model_path, requests):
    p = subprocess.run([driver, str(model_path), "egl"], input=b"".join(requests), stdout=subprocess.PIPE)
    if p.returncode != 0:
        sys.exit(f"render_oracle: the driver failed ({p.returncode})")
    return p.stdout


def bits(groups):
    return sum(1 << g for g, on in enumerate(groups) if on)


class Reference:
    """MuJoCo's own bindings, set up as robosuite does it."""

    def __init__(self, model, groups):
        import mujoco

        self.mj, self.model = mujoco, model
        self.scene = mujoco.MjvScene(model, maxgeom=1000)
        self.option = mujoco.MjvOption()
        self.option.geomgroup[:] = groups
        self.context = None
        self.upload()

    def upload(self, size=None):
        """Make the context, with a larger buffer if `size` is given, as robosuite does."""
        if self.context:
            self.context.free()
            self.model.vis.global_.offwidth, self.model.vis.global_.offheight = size
        self.context = self.mj.MjrContext(self.model, self.mj.mjtFontScale.mjFONTSCALE_150)
        self.mj.mjr_setBuffer(self.mj.mjtFramebuffer.mjFB_OFFSCREEN, self.context)

    def draw(self, data, cam, w, h):
        mj, camera = self.mj, self.mj.MjvCamera()
        if cam < 0:
            mj.mjv_defaultFreeCamera(self.model, camera)
        else:
            camera.type, camera.fixedcamid = mj.mjtCamera.mjCAMERA_FIXED, cam
        # twice: an endless plane is centred at the camera of the update before
        for _ in range(2):
            mj.mjv_updateScene(self.model, data, self.option, mj.MjvPerturb(), camera,
                               mj.mjtCatBit.mjCAT_ALL, self.scene)
        rect, rgb = mj.MjrRect(0, 0, w, h), np.empty((h, w, 3), np.uint8)
        mj.mjr_render(rect, self.scene, self.context)
        mj.mjr_readPixels(rgb, None, rect, self.context)
        colours, depth = np.empty((h, w, 3), np.uint8), np.empty((h, w), np.float32)
        flags = mj.mjtRndFlag.mjRND_SEGMENT, mj.mjtRndFlag.mjRND_IDCOLOR
        for f in flags:
            self.scene.flags[f] = 1
        mj.mjr_render(rect, self.scene, self.context)
        mj.mjr_readPixels(colours, depth, rect, self.context)
        for f in flags:
            self.scene.flags[f] = 0
        near = self.model.vis.map.znear * self.model.stat.extent
        far = self.model.vis.map.zfar * self.model.stat.extent
        metres = near / (1 - depth.astype(np.float64) * (1 - near / far))
        index = colours.astype(np.int64) @ [1, 256, 65536]
        ids = np.full((self.scene.ngeom + 1, 2), -1, np.int32)
        for g in self.scene.geoms[: self.scene.ngeom]:
            if g.segid >= 0:
                ids[g.segid + 1] = g.objid, g.objtype
        return rgb, metres, ids[index]

    def close(self):
        self.context.free()


def turned(image, orient):
    return {OPENGL: image, UPRIGHT: image[::-1], ROT180: image[::-1, ::-1]}[orient]


def check_model(driver, mj, name, model, groups, folder):
    """Pictures of several sizes, orientations and poses; returns the number of faults."""
    data, rng = mj.MjData(model), np.random.default_rng(7)
    path = folder / "model.mjb"
    near = model.vis.map.znear * model.stat.extent
    mj.mj_saveModel(model, str(path), None)
    # larger last: the framebuffer grows. The last one is larger than 640 x 480.
    views = [(-1, 96, 64, OPENGL), (0, 128, 128, ROT180), (-1, 65, 67, UPRIGHT), (0, 700, 500, OPENGL)]
    views = [v for v in views if v[0] < model.ncam]
    reference, requests, wanted = Reference(model, groups), [], []
    for i, (cam, w, h, orient) in enumerate(views):
        mj.mj_resetData(model, data)
        data.qpos[:] += rng.uniform(-0.1, 0.1, model.nq)
        mj.mj_forward(model, data)
        if w > 640:
            reference.upload((w, h))
        arrays = {f: np.array(getattr(data, f)) for f in FIELDS}
        requests.append(request(cam, w, h, orient, COLOUR | DEPTH | SEGMENTATION, bits(groups), 7, arrays, model.site_rgba))
        wanted.append((w, h, [turned(x, orient) for x in reference.draw(data, cam, w, h)]))
    reference.close()
    raw, at, faults = draw(driver, path, requests), 0, 0
    for w, h, (rgb, metres, ids) in wanted:
        n = w * h
        got_rgb = np.frombuffer(raw, np.uint8, 3 * n, at).reshape(h, w, 3)
        got_depth = np.frombuffer(raw[at + 3 * n : at + 7 * n], np.float32).reshape(h, w)
        got_ids = np.frombuffer(raw[at + 7 * n : at + 15 * n], np.int32).reshape(h, w, 2)
        at += 15 * n
        pixels = int((got_rgb != rgb).any(axis=2).sum())
        segments = int((got_ids != ids).any(axis=2).sum())
        # the bindings give 1 - near/z, about, as a float between 0 and 1: half a unit is 3e-8
        error = float(np.max(np.abs(1 / got_depth.astype(np.float64) - 1 / metres))) * near
        bad = pixels > 0 or segments > 0 or error > 1e-7
        faults += bad
        print(f"{name} {w}x{h}: {pixels} pixels and {segments} segments differ, depth {error:.1e}, "
              f"{len(np.unique(rgb.reshape(-1, 3), axis=0))} colours{' <- FAULT' if bad else ''}")
    faults += at != len(raw)
    return faults


def check_pictures(driver, folder):
    faults = 0
    for file in sorted(folder.glob("*.pkl")):
        frames = pickle.loads(file.read_bytes())
        requests = [request(f["cam"], f["w"], f["h"], OPENGL, COLOUR, bits(f["gg"]), bits(f["sg"]), f["arrays"], f["site_rgba"])
                    for f in frames]
        raw, at, worst, total = draw(driver, file.with_suffix(".mjb"), requests), 0, 0, 0
        for f in frames:
            n = f["w"] * f["h"] * 3
            got = np.frombuffer(raw, np.uint8, n, at).reshape(f["h"], f["w"], 3)
            at += n
            pixels = int((got != f["img"]).any(axis=2).sum())
            total += pixels
            worst = max(worst, pixels)
        print(f"{file.stem}: {len(frames)} pictures, {total} pixels differ (worst picture {worst})")
        faults += total > 0 or at != len(raw)
    return faults


def egl_context():
    """A current context of MuJoCo's bindings; ends the program where there is none."""
    try:
        from mujoco.egl import GLContext

        context = GLContext(640, 480)
        context.make_current()
        return context
    except Exception as e:  # no EGL, or bindings without it
        print(f"{os.path.basename(sys.argv[0])}: skipped, the bindings cannot render: {e}")
        sys.exit(77)


def main():
    driver = sys.argv[1]
    if len(sys.argv) > 3 and sys.argv[2] == "--pictures":
        sys.exit(min(1, check_pictures(driver, pathlib.Path(sys.argv[3]))))
    context = egl_context()
    import mujoco
    import gymnasium

    assets = pathlib.Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    faults = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name in ("half_cheetah", "ant", "humanoid", "reacher"):
            model = mujoco.MjModel.from_xml_path(str(assets / f"{name}.xml"))
            faults += check_model(driver, mujoco, name, model, [1, 1, 1, 0, 0, 0], folder)
        model = mujoco.MjModel.from_xml_string(SPECIAL)
        faults += check_model(driver, mujoco, "special", model, [1, 1, 1, 0, 0, 0], folder)
        faults += check_model(driver, mujoco, "group3", model, [0, 0, 0, 1, 0, 0], folder)
    context.free()
    if faults:
        sys.exit(f"render_oracle: {faults} faults")


if __name__ == "__main__":
    main()
