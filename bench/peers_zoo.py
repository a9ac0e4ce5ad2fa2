#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/zoo: bench_zoo's work from the same numbers, with the same lines.

usage: peers_zoo.py NET train|train_bf16|infer BATCH SIZE eager|channels_last|compile
"""
import contextlib
import json
import os
import sys
import time

from peer_common import resident_mb
from peers_torch import Bert, F, Gpt, nn, np, torch, words  # noqa: I001 (finds tests/golden/philox.py)
import torchvision


def uniform(seed, shape, bound=1.0):
    n = int(np.prod(shape))
    u = (words(seed, min(n, 65521)) >> 8).astype(np.float32) * np.float32(2.0**-24)
    u = np.resize(np.float32(bound) * (np.float32(2) * u - np.float32(1)), n)
    return torch.from_numpy(u).reshape(shape)


def integers(seed, shape, below):
    return torch.from_numpy((words(seed, int(np.prod(shape))) % below).astype(np.int64)).reshape(shape)


class Recurrent(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.rnn = cell(64, 128, num_layers=2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(256, 10)

    def forward(self, x):
        return self.fc(self.rnn(x)[0].mean(1))


class Tables(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 16) for _ in range(26))
        self.fc1, self.fc2, self.fc3 = nn.Linear(26 * 16, 256), nn.Linear(256, 128), nn.Linear(128, 2)

    def forward(self, x):
        x = torch.cat([t(x[:, i]) for i, t in enumerate(self.tables)], 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Volume(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2, self.conv3 = (nn.Conv3d(i, o, 3, padding=1) for i, o in ((1, 16), (16, 32), (32, 64)))
        self.bn1, self.bn2, self.bn3 = nn.BatchNorm3d(16), nn.BatchNorm3d(32), nn.BatchNorm3d(64)
        self.fc = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool3d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool3d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(F.relu(self.bn3(self.conv3(x))).mean((2, 3, 4)))


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.mean, self.up1 = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(20, 400)
        self.up2, self.fc = nn.Linear(400, 784), nn.Linear(784, 10)

    def forward(self, x):
        return self.fc(torch.sigmoid(self.up2(F.silu(self.up1(torch.tanh(self.mean(F.silu(self.down1(x)))))))))


class GraphNet(nn.Module):
    def __init__(self, start, to):
        super().__init__()
        self.start, self.to_ = start, to
        self.fc1, self.fc2 = nn.Linear(64, 64), nn.Linear(64, 10)

    def gather(self, x):
        return torch.zeros_like(x).index_add(0, self.to_, x[self.start])

    def forward(self, x):
        return self.fc2(self.gather(F.relu(self.fc1(self.gather(x)))))


def pair(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))


class Up(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(i, i // 2, 2, stride=2), pair(i, o)

    def forward(self, x, beside):
        return self.conv(torch.cat([beside, self.up(x)], 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        w = [64, 128, 256, 512, 1024]
        self.inc = pair(3, 64)
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), pair(i, o)) for i, o in zip(w, w[1:]))
        self.up = nn.ModuleList(Up(i, o) for i, o in zip(w[::-1], w[::-1][1:]))
        self.outc = nn.Conv2d(64, 2, 1)

    def forward(self, x):
        levels = [self.inc(x)]
        for d in self.down:
            levels.append(d(levels[-1]))
        x = levels.pop()
        for u in self.up:
            x = u(x, levels.pop())
        return self.outc(x)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def own(name, n, size):
    """Net, input and labels of what torchvision does not have, or None."""
    ten = integers(2, (n,), 10)
    makers = {
        "gpt": lambda: (Gpt(), integers(1, (n, 64), 65), integers(2, (n * 64,), 65)),
        "bert": lambda: (Bert(), integers(1, (n, 128), 30522), integers(2, (n,), 2)),
        "lstm_bi": lambda: (Recurrent(nn.LSTM), uniform(1, (n, 50, 64)), ten),
        "gru_bi": lambda: (Recurrent(nn.GRU), uniform(1, (n, 50, 64)), ten),
        "tables": lambda: (Tables(), integers(1, (n * 16, 26), 1000), integers(2, (n * 16,), 2)),
        "volume": lambda: (Volume(), uniform(1, (n, 1, 16, 32, 32)), ten),
        "auto_encoder": lambda: (AutoEncoder(), uniform(1, (n * 16, 784)), integers(2, (n * 16,), 10)),
        "graph": lambda: (GraphNet(integers(3, (100000,), 10000), integers(4, (100000,), 10000)),
                          uniform(1, (10000, 64)), integers(2, (10000,), 10)),
        "lenet": lambda: (LeNet(), uniform(1, (n, 1, 28, 28)), ten),
        "unet": lambda: (UNet(), uniform(1, (n, 3, size, size)), integers(2, (n, size, size), 2)),
    }
    return makers[name]() if name in makers else None


def make(name, n, size):
    found = own(name, n, size)
    if found:
        return found
    options = {"image_size": size} if name.startswith("vit") else {}
    net = torchvision.models.get_model(name, weights=None, **options)
    return net, uniform(1, (n, 3, size, size)), integers(2, (n,), 1000)


def set_weights(net):
    with torch.no_grad():
        for seed, (name, p) in enumerate(net.named_parameters(), 1001):
            if p.dim() == 1:
                p.fill_(1.0 if name.endswith("weight") else 0.0)
            else:
                p.copy_(uniform(seed, tuple(p.shape), 1.5 / (p.numel() / p.shape[0]) ** 0.5))


def loss_of(net, x, y):
    logits = net(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]) if logits.dim() == 3 else logits, y)


def calls(net, x, y, mode, variant):
    """The function that is measured."""
    if variant == "channels_last" and x.dim() in (4, 5) and x.is_floating_point():
        layout = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        net, x = net.to(memory_format=layout), x.to(memory_format=layout)
    forward = torch.compile(net) if variant == "compile" else net
    if mode == "infer":
        net.eval()

        def infer():
            with torch.inference_mode():
                forward(x)

        return infer
    net.train()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True)
    low = torch.autocast("cpu", torch.bfloat16) if mode == "train_bf16" else contextlib.nullcontext()

    def step():
        opt.zero_grad()
        with low:
            loss = loss_of(forward, x, y)
        loss.backward()
        opt.step()
        return loss.item()

    return step


def median_ms(call, seconds):
    took, begin = [], time.perf_counter()
    while len(took) < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        took.append(1e3 * (time.perf_counter() - start))
    return sorted(took)[len(took) // 2]


def main():
    name, mode, batch, size, variant = sys.argv[1:]
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "0")) or torch.get_num_threads())
    idle = resident_mb("RssAnon:")
    net, x, y = make(name, int(batch), int(size))
    set_weights(net)
    net.eval()
    with torch.no_grad():
        loss = loss_of(net, x, y).item()
    call = calls(net, x, y, mode, variant)
    # Parameters and, in training, gradients and two moments.
    state = sum(p.numel() for p in net.parameters()) * 4 / 2**20 * (1 if mode == "infer" else 4)
    start = time.perf_counter()
    call()
    first = 1e3 * (time.perf_counter() - start)
    call()
    print(json.dumps({"version": torch.__version__, "loss": loss, "first_ms": first}), flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        ms, peak = median_ms(call, float(line)), resident_mb("VmHWM:")
        print(json.dumps({"ms": ms, "peak_mb": peak,
                          "beyond_mb": peak - resident_mb("RssFile:") - idle - state}), flush=True)


if __name__ == "__main__":
    main()
