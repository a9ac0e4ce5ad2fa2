# SPDX-License-Identifier: Apache-2.0
"""Philox4x32-10 in numpy: numbers that Python and C++ can both make exactly, so that a comparison
starts from the same weights and data without a file. Used by make_mnist_golden.py and bench/."""
import numpy as np

MASK = np.uint64(0xFFFFFFFF)


def philox4x32_10(counter, key):
    """Salmon et al. 2011. counter: 4 arrays of uint32, key: 2 numbers. Returns 4 uint32 arrays."""
    c = [np.asarray(v, np.uint64) for v in counter]
    k = [int(key[0]), int(key[1])]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        hi0, lo0 = p0 >> np.uint64(32), p0 & MASK
        hi1, lo1 = p1 >> np.uint64(32), p1 & MASK
        c = [hi1 ^ c[1] ^ np.uint64(k[0]), lo1, hi0 ^ c[3] ^ np.uint64(k[1]), lo0]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return [v.astype(np.uint32) for v in c]


def check_philox():
    """The known answers of the authors' Random123 library (kat_vectors)."""
    ones = 0xFFFFFFFF
    for counter, key, want in (
            ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
            ([ones] * 4, (ones, ones), [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
            ([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], (0xA4093822, 0x299F31D0),
             [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1])):
        got = [int(v[0]) for v in philox4x32_10([[v] for v in counter], key)]
        assert got == want, (counter, got)


def words(seed, n):
    """word(i), i < n: the first output word for key {seed, 0}, counter {0, 0, i low, i high}."""
    i = np.arange(n, dtype=np.uint64)
    zero = np.zeros(n, np.uint64)
    return philox4x32_10([zero, zero, i & MASK, i >> np.uint64(32)], (seed, 0))[0]


def centred(seed, n):
    """2 u - 1 in float32, exact, with u = (word(i) >> 8) * 2^-24 in [0, 1)."""
    u = (words(seed, n) >> np.uint32(8)).astype(np.float32) * np.float32(2.0 ** -24)
    return np.float32(2) * u - np.float32(1)
