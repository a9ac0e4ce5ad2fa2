# SPDX-License-Identifier: Apache-2.0
# Writes tests/golden/numpy/*.npy and *.npz with NumPy, for tests/io/npy_test.cpp. Element i in
# row-major order is ((7 i) mod 11 - 5) / 2, turned into the element type; bool: i mod 3 == 0.
import os
import sys

import numpy as np

folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "numpy")
os.makedirs(folder, exist_ok=True)


def make(dtype, shape):
    n = int(np.prod(shape))
    i = np.arange(n)
    if np.dtype(dtype) == np.bool_:
        return (i % 3 == 0).reshape(shape)
    v = (7 * i % 11 - 5) / 2
    if np.dtype(dtype).kind == "u":
        v = v + 3
    return v.astype(dtype).reshape(shape)


def write(name, array, version=None):
    with open(os.path.join(folder, name + ".npy"), "wb") as f:
        np.lib.format.write_array(f, array, version=version)


for dtype in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"):
    write("c_" + dtype.replace("?", "b1"), make(dtype, (2, 3)))
for dtype in (">f4", ">i8", ">i2", ">f2"):
    write("big_" + dtype[1:], make(dtype, (3, 2)))
write("fortran", np.asfortranarray(make("f4", (2, 3, 4))))
write("fortran_b1", np.asfortranarray(make("?", (3, 4))))
write("fortran_big", np.asfortranarray(make(">f8", (3, 4))))
write("scalar", make("f4", ()))
write("vector", make("i4", (5,)))
write("empty", make("f4", (0,)))
write("empty_3d", make("i2", (2, 0, 3)))
write("eight_dims", make("u1", (1, 2, 1, 2, 1, 2, 1, 2)))
write("version_2", make("f4", (2, 2)), (2, 0))
write("version_3", make("f4", (2, 2)), (3, 0))
write("refused_u4", np.arange(4, dtype="u4"))
write("refused_c8", np.zeros(2, dtype="c8"))
write("refused_text", np.array(["ab", "c"]))
write("refused_object", np.array([{"a": 1}], dtype=object))
write("refused_record", np.zeros(2, dtype=[("x", "f4"), ("y", "i4")]))
write("refused_nine_dims", np.zeros((1,) * 9, dtype="f4"))
write("refused_date", np.array(["2020-01-01"], dtype="M8[D]"))
arrays = {"w": make("f4", (3, 4)), "layer.bias": make("f8", (3,)), "mask": make("?", (2, 2)),
          "order": np.asfortranarray(make("i4", (3, 4))), "none": make("f2", (0, 2)),
          "zahlen_\u00e4": make("i8", (4,))}
np.savez(os.path.join(folder, "stored.npz"), **arrays)
np.savez_compressed(os.path.join(folder, "deflated.npz"), **arrays)
print(sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)), file=sys.stderr)
