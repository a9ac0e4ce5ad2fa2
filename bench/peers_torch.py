#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/compare: the work of bench_tandem, a JSON line per case and variant.

usage: peers_torch.py [--list] [--threads N] [--rounds N] [--seconds S] [--variant V] CASE ...
variants: default; fused (AdamW(fused=True)); channels_last; channels_last_fused; compile
(torch.compile of the model, fused AdamW); compile_max (the same with mode="max-autotune")
environment: MKL_UNLOCKED=1 preloads two functions that let MKL take its Intel code paths on any
CPU (wants a C compiler). Changes nothing on Intel.
A line: {"case", "variant", "ms" (a training step) or "us_per_op", "threads", "rounds": [...],
"losses": [...], "first_s", "rss_mb", "version", "mkl_unlocked"}. A round is the median over
`seconds`; ms is the median round.

Both sides start from the same numbers, so `losses` (steps 1 to 3) can be compared: with c(s, i) the
`centred` and w(s, i) the `words` of tests/golden/philox.py,
- parameter p in the order of named_parameters(): with two or more dims float32(1 / sqrt(numel /
  shape[0])) * c(1000 + p, i); with one dim 1 where the name ends in "weight", else 0;
- input: c(2000, i), or token ids w(2000, i) % 65; labels: w(2001, i) % classes.
AdamW with lr 1e-3 and PyTorch's defaults; loss = mean cross-entropy. A case that ends in _bf16 is
the same step with model and loss under autocast to bfloat16.
"""
import os
import shutil
import subprocess
import sys
import tempfile

MKL_SOURCE = """
int mkl_serv_intel_cpu_true(void) { return 1; }
int mkl_serv_intel_cpu(void) { return 1; }
"""


def unlock_mkl():
    """Starts this program again with the two functions in front of MKL's own."""
    if "TD_MKL_PRELOADED" in os.environ:
        shutil.rmtree(os.path.dirname(os.environ["TD_MKL_PRELOADED"]), ignore_errors=True)
        return
    if os.environ.get("MKL_UNLOCKED") != "1":
        return
    folder = tempfile.mkdtemp(prefix="mkl_unlock")
    library = os.path.join(folder, "mkl_unlock.so")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o",
                    library], input=MKL_SOURCE.encode(), check=True)
    preload = " ".join(filter(None, [library, os.environ.get("LD_PRELOAD")]))
    env = dict(os.environ, LD_PRELOAD=preload, TD_MKL_PRELOADED=library)
    os.execve(sys.executable, [sys.executable, *sys.argv], env)


unlock_mkl()
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/golden"))
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import peer_common  # noqa: E402
from philox import centred, words  # noqa: E402


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, 128), nn.Linear(128, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


class Conv(nn.Module):
    """The net of the README."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.qkv, self.out = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ln2, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (s.view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for s in self.qkv(self.ln1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary=65, d=128, heads=4, layers=4, context=64):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, d), nn.Embedding(context, d)
        self.blocks = nn.ModuleList(Block(d, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocabulary, bias=False)

    def forward(self, x):
        y = self.tok(x) + self.pos.weight[:x.shape[1]]
        for block in self.blocks:
            y = block(y)
        return self.head(self.ln(y))


class BertLayer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.out, self.ln1 = nn.Linear(d, d), nn.LayerNorm(d)
        self.up, self.down, self.ln2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.LayerNorm(d)
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.heads, d // self.heads).transpose(1, 2)
                   for f in (self.query, self.key, self.value))
        y = F.scaled_dot_product_attention(q, k, v)
        x = self.ln1(x + self.out(y.transpose(1, 2).reshape(b, t, d)))
        return self.ln2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    """BERT-base with two layers, classifying the whole text; no dropout."""

    def __init__(self):
        super().__init__()
        self.word, self.position = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        self.segment, self.ln = nn.Embedding(2, 768), nn.LayerNorm(768)
        self.layers = nn.ModuleList(BertLayer(768, 12) for _ in range(2))
        self.pooler, self.classifier = nn.Linear(768, 768), nn.Linear(768, 2)

    def forward(self, x):
        y = self.ln(self.word(x) + self.position.weight[:x.shape[1]] + self.segment.weight[:1])
        for layer in self.layers:
            y = layer(y)
        return self.classifier(torch.tanh(self.pooler(y[:, 0])))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(64, 256, batch_first=True), nn.Linear(256, 10)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False),
                                            nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    """He et al. 2015, with torchvision's names and order of parameters."""

    def __init__(self, classes=1000):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        for i, (cin, cout) in enumerate(((64, 64), (64, 128), (128, 256), (256, 512)), 1):
            setattr(self, f"layer{i}", nn.Sequential(Residual(cin, cout, 1 if i == 1 else 2),
                                                     Residual(cout, cout, 1)))
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


# case: model, shape of x (tokens: vocabulary), shape of y, classes, variants
IMAGE = ("default", "fused", "channels_last", "channels_last_fused", "compile", "compile_max")
PLAIN = ("default", "fused", "compile", "compile_max")
TRAIN = {
    "mlp": (Mlp, (64, 784), None, (64,), 10, PLAIN),
    "conv": (Conv, (64, 1, 28, 28), None, (64,), 10, IMAGE),
    "gpt": (Gpt, (12, 64), 65, (12, 64), 65, PLAIN),
    "lstm": (Lstm, (32, 50, 64), None, (32,), 10, PLAIN),
    "resnet18": (ResNet18, (8, 3, 128, 128), None, (8,), 1000, IMAGE),
    "bert": (Bert, (8, 128), 30522, (8,), 2, PLAIN),
    "conv_bf16": (Conv, (64, 1, 28, 28), None, (64,), 10, IMAGE),
    "gpt_bf16": (Gpt, (12, 64), 65, (12, 64), 65, PLAIN),
    "resnet18_bf16": (ResNet18, (8, 3, 128, 128), None, (8,), 1000, IMAGE),
    "bert_bf16": (Bert, (8, 128), 30522, (8,), 2, PLAIN),
}
TINY = ("add8_nograd", "add8_fwd_bwd")


def formula_(model):
    with torch.no_grad():
        for p, (name, w) in enumerate(model.named_parameters()):
            if w.dim() == 1:
                w.fill_(1.0 if name.endswith("weight") else 0.0)
                continue
            bound = np.float32(1.0 / np.sqrt(w.numel() / w.shape[0]))
            w.copy_(torch.from_numpy(bound * centred(1000 + p, w.numel())).view_as(w))
    return model


def training_step(case, variant):
    make, xs, vocabulary, ys, classes, _ = TRAIN[case]
    model = formula_(make())
    n = int(np.prod(xs))
    if vocabulary:
        x = torch.from_numpy((words(2000, n) % vocabulary).astype(np.int64)).view(xs)
    else:
        x = torch.from_numpy(centred(2000, n)).view(xs)
    y = torch.from_numpy((words(2001, int(np.prod(ys))) % classes).astype(np.int64))
    if variant.startswith("channels_last"):
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3,
                            **({"fused": True} if variant not in ("default", "channels_last")
                               else {}))
    if variant.startswith("compile"):
        model = torch.compile(model, **({"mode": "max-autotune"} if variant == "compile_max"
                                        else {}))

    def step():
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=case.endswith("_bf16")):
            out = model(x)
            loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), y)
        loss.backward()
        opt.step()
        return loss
    return step


def tiny(case):
    x, y = torch.from_numpy(centred(2000, 8)), torch.from_numpy(centred(2001, 8))

    def no_grad():
        z = x
        with torch.no_grad():
            for _ in range(1000):
                z = z + y
        return z.sum()

    def with_grad():
        leaf = x.detach().requires_grad_()
        z = leaf
        for _ in range(1000):
            z = z + y
        loss = z.sum()
        loss.backward()
        return loss
    return no_grad if case == "add8_nograd" else with_grad


def measure(case, variant, a):
    def make():
        step = tiny(case) if case in TINY else training_step(case, variant)
        return lambda: step().item(), {"version": "PyTorch " + torch.__version__.split("+")[0],
                                       "mkl_unlocked": "TD_MKL_PRELOADED" in os.environ}
    peer_common.measure(case, variant, make, a, "us_per_op" if case in TINY else "ms")


def variants():
    return {**{c: ("default",) for c in TINY}, **{c: v[-1] for c, v in TRAIN.items()}}


if __name__ == "__main__":
    sys.exit(peer_common.run("PyTorch's side of bench/compare", variants, measure,
                             lambda a: torch.set_num_threads(a.threads)))
