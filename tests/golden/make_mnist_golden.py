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

from philox import centred, check_philox

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, BATCH, SEED = 200, 64, 1000


def initial(p, shape, fan_in):
    bound = np.float32(1.0 / np.sqrt(np.float64(fan_in)))
    w = bound * centred(SEED + p, int(np.prod(shape)))
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
