#!/usr/bin/env python3
"""safetensors_golden.py [OUT] - tests/golden/package.safetensors, made by the format's own package.

    pip install safetensors==0.8.0 ml_dtypes numpy
    python3 tests/oracle/safetensors_golden.py tests/golden/package.safetensors

With --check FILE: read a file of ours with the package and print name, type, shape and sum.
"""
import sys

import ml_dtypes
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file


def numbers(*shape):
    return (np.arange(int(np.prod(shape)), dtype=np.float64) * 0.375 - 2).reshape(shape)


def main():
    if sys.argv[1] == "--check":
        with safe_open(sys.argv[2], "np") as f:
            print(f.metadata())
            for name in f.keys():
                a = f.get_tensor(name)
                print(name, a.dtype, a.shape, float(a.astype(np.float64).sum()))
        return
    save_file(
        {
            "block.0.weight": numbers(3, 4).astype(np.float32),
            "brain": numbers(5).astype(ml_dtypes.bfloat16),
            "half": numbers(2, 1, 3).astype(np.float16),
            "single": numbers().astype(np.float32),
            "empty": numbers(0, 3).astype(np.float32),
            "wide": numbers(3),
            "flags": np.array([True, False, True]),
        },
        sys.argv[1],
        metadata={"format": "pt"},
    )


main()
