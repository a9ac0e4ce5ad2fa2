# SPDX-License-Identifier: Apache-2.0
# Writes tests/data/flac/*.flac with libFLAC (PyPI: soundfile) and prints the CRC-32C of their
# samples as little-endian i32, interleaved, in the upper bits: what tests/data/media_test.cpp wants.
import pathlib

import numpy as np
import soundfile


def crc32c(data):
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    v = 0xFFFFFFFF
    for b in data:
        v = v >> 8 ^ table[(v ^ b) & 255]
    return v ^ 0xFFFFFFFF


rng = np.random.default_rng(0)
t = np.arange(3000)
left = (8000 * np.sin(t * 0.05) + rng.integers(-40, 40, 3000)).astype(np.int16)
right = (7600 * np.sin(t * 0.05 + 0.1) + rng.integers(-40, 40, 3000)).astype(np.int16)
right[500:900] = 0
left[500:900] = 0
high = (2000000 * np.sin(t[:700] * 0.011) + rng.integers(-3000, 3000, 700)).astype(np.int32) << 8
noise = rng.integers(-128, 128, 300).astype(np.int16) << 8
folder = pathlib.Path(__file__).parent / "flac"
for name, data, rate, kind in (
    ("s16", np.stack([left, right], 1), 11025, "PCM_16"),
    ("m24", high, 48000, "PCM_24"),
    ("m8", noise, 8000, "PCM_S8"),
):
    path = str(folder / f"{name}.flac")
    soundfile.write(path, data, rate, subtype=kind)
    again, rate = soundfile.read(path, dtype="int32")
    print(name, rate, again.shape, hex(crc32c(again.astype("<i4").tobytes())))
