"""What the Python packages of policy servers make of pictures and arrays, for C to be compared with.

    policy_golden.py >tests/golden/policy.txt

Needs numpy, Pillow, msgpack-numpy, and openpi-client and vla-eval (scripts/policy_oracle.sh has them).
Lines: `resize HOW IN_W IN_H OUT_W OUT_H CRC32C` of a picture of noise, `array STYLE TYPE SHAPE BYTES`
of numbers that follow from their index; tests/test_resize.c and test_pack.c make the same input.
"""

import io

import msgpack
import msgpack_numpy
import numpy as np
from openpi_client import image_tools, msgpack_numpy as openpi_numpy
from PIL import Image
from vla_eval.protocol import numpy_codec

SIZES = [(1000, 10, 224, 224), (256, 256, 224, 224), (128, 128, 224, 224), (640, 480, 224, 224), (480, 640, 224, 224),
         (256, 256, 256, 256), (300, 200, 100, 300), (91, 37, 48, 64), (1, 1, 5, 3), (5, 3, 1, 1),
         (64, 64, 63, 65), (224, 256, 224, 224), (200, 300, 200, 300)]
VANISH = [(5, 3, 1, 1)]  # openpi-client raises
TYPES = ["|b1", "|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"]
SHAPES = [(), (3,), (2, 3), (1, 1, 2, 2, 3), (0, 7)]


CRC = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    CRC.append(n)


def crc32c(data):
    c = 0xffffffff
    for b in data:
        c = c >> 8 ^ CRC[(c ^ b) & 255]
    return "%08x" % (c ^ 0xffffffff)


def noise(w, h):
    x = np.empty(w * h * 3, np.uint8)
    state = w * 1000 + h
    for i in range(x.size):
        state = (state * 1664525 + 1013904223) & 0xffffffff
        x[i] = state >> 24
    return x.reshape(h, w, 3)


def numbers(dtype, shape):
    i = np.arange(int(np.prod(shape)))
    if dtype == "|b1":
        return (i % 2 == 1).reshape(shape)
    if dtype[1] == "f":
        return (i * 0.25 - 1).astype(dtype).reshape(shape)
    return ((i * 7 + 3) % 100).astype(dtype).reshape(shape)


def npy(array):
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return msgpack.packb({"__ndarray_class__": True, "as_npy": out.getvalue()})


numpy_codec.set_image_format("raw")
STYLES = {
    "openpi": openpi_numpy.packb,
    "str": lambda a: msgpack.packb(a, default=numpy_codec.encode_ndarray),
    "npy": npy,
    "nd": lambda a: msgpack.packb(a, default=msgpack_numpy.encode),
}

for iw, ih, ow, oh in SIZES:
    image = noise(iw, ih)
    plain = np.asarray(Image.fromarray(image).resize((ow, oh), Image.BILINEAR))
    print("resize plain", iw, ih, ow, oh, crc32c(plain.tobytes()))
    if (iw, ih, ow, oh) not in VANISH:
        padded = image_tools.resize_with_pad(image, oh, ow)
        print("resize pad", iw, ih, ow, oh, crc32c(padded.tobytes()))
for style, pack in STYLES.items():
    for dtype in TYPES:
        for shape in SHAPES:
            array = numbers(dtype, shape)
            if shape == ():
                array = np.array(array)
            print("array", style, dtype, "x".join(map(str, shape)) or "-", pack(array).hex())
