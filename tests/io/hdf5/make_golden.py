#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes the HDF5 files of hdf5_test.cpp with h5py: every storage that the reader knows, in the old
# and in the new file format. Values follow from the names, see the test. Run once; h5py 3.14.
import os

import h5py
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))


def fill(f):
    x = np.arange(60, dtype="f4").reshape(5, 12)
    f.create_dataset("plain", data=x)
    f.create_dataset("chunked", data=x, chunks=(2, 5))
    f.create_dataset("packed", data=x, chunks=(5, 6), compression="gzip", shuffle=True, fletcher32=True)
    f.create_dataset("one_chunk", data=x, chunks=(5, 12), compression="gzip")
    f.create_dataset("big_endian", data=x.astype(">f8"))
    f.create_dataset("half", data=x.astype("f2"))
    f.create_dataset("flags", data=(x % 2 == 0))
    f.create_dataset("u2", data=np.array([1, 65535], "u2"))
    f.create_dataset("u4", data=np.array([1, 4294967295], "u4"))
    f.create_dataset("i8", data=np.array([-1, 1 << 40], "i8"))
    f.create_dataset("scalar", data=np.float32(2.5))
    f.create_dataset("nothing", shape=(0, 3), dtype="f4")
    f.create_dataset("unwritten", shape=(2, 3), dtype="f4", fillvalue=7)
    f.create_dataset("text", data="a text")
    many = f.create_group("many")
    for i in range(16):
        many.create_dataset("item_%02d" % i, data=np.int32(i))
    f["deep/er/est"] = np.float64(3)
    f.attrs["fixed"] = np.bytes_("fixed text")
    f.attrs["variable"] = "variable text"
    f.attrs["list"] = ["a", "bcd", ""]
    f.attrs["list_fixed"] = np.array(["x", "yz"], "S")
    f.attrs["number"] = 3
    for i in range(10):
        many.attrs["attribute_%02d" % i] = "value %d" % i


with h5py.File(os.path.join(here, "old.h5"), "w") as f:
    fill(f)
with h5py.File(os.path.join(here, "new.h5"), "w", libver="latest") as f:
    fill(f)
