# SPDX-License-Identifier: Apache-2.0
"""Writes mnist_losses.json: what PyTorch's losses are over 200 steps of the README's net on MNIST.

usage: TANDEM_DATA=DIR make_mnist_golden.py     (DIR/mnist holds the four IDX files)

What both sides do, so that every number is comparable:
- The net: conv1 Conv2d(1, 32, 3), conv2 Conv2d(32, 64, 3), fc1 Linear(9216, 128), fc2 Linear(128,
  10); relu after conv1, conv2, fc1; max_pool2d(2) after the second; flatten(1); cross_entropy.
- Initial weights come from a formula, since 1.2 M numbers are too many to keep: element i (in
  row-major order) of parameter p (0 = conv1.weight, 1 = conv1.bias ... 7 = fc2.bias) is
      w = bound * (2 u - 1),   u = (word >> 8) * 2^-24,
  word = first output word of Philox4x32-10 with key {1000 + p, 0} and counter {0, 0, i low 32 bits,
  i high 32 bits}; bound = float32(1 / sqrt(fan_in)), fan_in of the layer's weight (9, 288, 9216,
  128), the same for its bias. 2 u - 1 is exact in float32; the product is one float32 rounding.
- Data: training images 0 ... 64*200-1 in file order, 64 a batch; x = float32(byte) / 255, in
  float32.
- AdamW with PyTorch's defaults and lr 1e-3: betas .9, .999, eps 1e-8, weight_decay 0.01.
- losses_f32: float32 with 2 threads; losses_f64: the same weights and inputs widened to float64.
"""
import gzip
import json
import os
import struct

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, SEED = 200, 64, 1000


def philox4x32_10(counter, key):
    """Salmon et al. 2011. counter: 4 arrays of uint32, key: 2 numbers. Returns 4 uint32 arrays."""
    mask = np.uint64(0xFFFFFFFF)
    c = [np.asarray(v, np.uint64) for v in counter]
    k = [int(key[0]), int(key[1])]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        hi0, lo0, hi1, lo1 = p0 >> np.uint64(32), p0 & mask, p1 >> np.uint64(32), p1 & mask
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


def initial(p, shape, fan_in):
    n = int(np.prod(shape))
    i = np.arange(n, dtype=np.uint64)
    zero = np.zeros(n, np.uint64)
    word = philox4x32_10([zero, zero, i & np.uint64(0xFFFFFFFF), i >> np.uint64(32)],
                         (SEED + p, 0))[0]
    u = (word >> np.uint32(8)).astype(np.float32) * np.float32(2.0 ** -24)
    bound = np.float32(1.0 / np.sqrt(np.float64(fan_in)))
    w = bound * (np.float32(2) * u - np.float32(1))
    assert w.dtype == np.float32
    return torch.from_numpy(w.reshape(shape))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def read_idx(path):
    with gzip.open(path) as f:
        _, _, kind, dims = struct.unpack(">BBBB", f.read(4))
        assert kind == 8
        shape = struct.unpack(f">{dims}I", f.read(4 * dims))
        return np.frombuffer(f.read(), np.uint8).reshape(shape)


def run(dtype, threads, x, y):
    torch.set_num_threads(threads)
    net = Net()
    fan = {"conv1": 9, "conv2": 288, "fc1": 9216, "fc2": 128}
    with torch.no_grad():
        for p, (name, w) in enumerate(net.named_parameters()):
            w.copy_(initial(p, tuple(w.shape), fan[name.split(".")[0]]))
    check = {k: {"first": [float(v) for v in w.detach().flatten()[:3]],
                 "sum_f64": float(w.detach().double().sum())} for k, w in net.named_parameters()}
    net, x = net.to(dtype), x.to(dtype)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    losses = []
    for s in range(STEPS):
        opt.zero_grad()
        at = slice(s * BATCH, (s + 1) * BATCH)
        loss = F.cross_entropy(net(x[at]), y[at])
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, check


def spread(a, b):
    rel = [abs(p - q) / abs(q) for p, q in zip(a, b)]
    mean = lambda v, lo, hi: sum(v[lo:hi]) / (hi - lo)
    return {"steps_1_40_max_rel": max(rel[:40]), "any_step_max_rel": max(rel),
            "mean_101_150_rel": abs(mean(a, 100, 150) / mean(b, 100, 150) - 1),
            "mean_151_200_rel": abs(mean(a, 150, 200) / mean(b, 150, 200) - 1)}


def main():
    check_philox()
    folder = os.path.join(os.environ["TANDEM_DATA"], "mnist")
    x = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"))[:STEPS * BATCH]
    y = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"))[:STEPS * BATCH]
    x = torch.from_numpy(x.astype(np.float32) / np.float32(255)).reshape(-1, 1, 28, 28)
    y = torch.from_numpy(y.astype(np.int64))
    f32, check = run(torch.float32, 2, x, y)
    one, _ = run(torch.float32, 1, x, y)
    f64, _ = run(torch.float64, 2, x, y)
    seen = {"f32 2 threads against f64": spread(f32, f64),
            "f32 1 thread against f32 2 threads": spread(one, f32)}
    doc = {
        "doc": "Losses of PyTorch " + torch.__version__.split("+")[0] + " over 200 steps; made by "
               "make_mnist_golden.py, whose head says exactly how net, weights, data and optimizer "
               "are made. weights_check: first three values and float64 sum of each parameter.",
        "steps": STEPS, "batch_size": BATCH, "lr": 1e-3, "seed": SEED, "spread": seen,
        "weights_check": check}
    with open(os.path.join(HERE, "mnist_losses.json"), "w", encoding="utf-8") as out:
        body = json.dumps(doc, indent=1)[:-2]
        out.write(body + ',\n "losses_f32": ' + json.dumps([float(np.float32(v)) for v in f32]) +
                  ',\n "losses_f64": ' + json.dumps(f64) + "\n}\n")
    print(json.dumps(seen, indent=1))


if __name__ == "__main__":
    main()
