#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/compare_training: a recipe of recipes/ as a PyTorch user writes it.

usage: train_torch.py shakespeare-cpu|mnist-convnet --data DIR --steps N [--threads 2] [--compile]
The same nets, batches, optimizer, schedule and clipping as the recipes of these names; the data are
held as tensors and indexed batch by batch, which is quicker than a DataLoader at these sizes. Like
`tandem train` it evaluates the held-out data twice (as validation and as test) and saves the weights.
Prints a JSON line: {"loss": ..., "accuracy": ..., "steps": ..., "version": ...}.
"""
import argparse
import gzip
import json
import math
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width, bias=False)
        self.ln_2 = nn.LayerNorm(width, bias=False)
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.mlp_proj = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(w, dim=2)
        q, k, v = (y.view(n, t, self.heads, w // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, w))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary, context=64, layers=4, heads=4, width=128):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith("proj.weight")
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if deep else 0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


def shakespeare(a):
    with open(os.path.join(a.data, "text/tinyshakespeare.txt"), "rb") as f:
        text = np.frombuffer(f.read(), dtype=np.uint8)
    symbols, ids = np.unique(text, return_inverse=True)
    ids = torch.from_numpy(ids.astype(np.int64))
    cut, block, batch = int(len(ids) * 0.9), 64, 12
    train, rest = ids[:cut], ids[cut:]
    starts = torch.randint(cut - block, (a.steps, batch))
    windows = torch.arange(block)
    held = [(rest[i:i + block], rest[i + 1:i + block + 1]) for i in range(0, len(rest) - block, block)]
    held = [(torch.stack([x for x, _ in held[i:i + 64]]), torch.stack([y for _, y in held[i:i + 64]]).flatten())
            for i in range(0, len(held), 64)]
    net = GPT(len(symbols))
    groups = [{"params": [p for p in net.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    opt = torch.optim.AdamW(groups, lr=2e-3, betas=(0.9, 0.99))
    warmup, low = 100, 0.1

    def rate(step):
        if step < warmup:
            return (step + 1) / (warmup + 1)
        t = min(1.0, (step - warmup) / max(a.steps - warmup, 1))
        return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * t))

    def batch_of(step):
        at = starts[step][:, None] + windows
        return train[at], train[at + 1].flatten()

    return net, opt, rate, batch_of, held, 1.0


def mnist(a):
    def idx(name, head):
        with gzip.open(os.path.join(a.data, "mnist", name), "rb") as f:
            return torch.from_numpy(np.frombuffer(f.read(), dtype=np.uint8, offset=head).copy())

    def part(name):
        x = idx(f"{name}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)
        return x, idx(f"{name}-labels-idx1-ubyte.gz", 8).long()

    (x, y), (tx, ty) = part("train"), part("t10k")
    order = torch.randperm(len(x))
    held, fit = order[:1200], order[1200:]
    size = 128
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
                        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(1600, 10))
    per_epoch = len(fit) // size
    orders = [fit[torch.randperm(len(fit))] for _ in range(-(-a.steps // per_epoch))]

    def batch_of(step):
        rows = orders[step // per_epoch][step % per_epoch * size:][:size]
        return x[rows].float() / 255, y[rows]

    evaluated = [(tx[i:i + 256].float() / 255, ty[i:i + 256]) for i in range(0, len(tx), 256)]
    val = [(x[held[i:i + 256]].float() / 255, y[held[i:i + 256]]) for i in range(0, len(held), 256)]
    return net, torch.optim.Adam(net.parameters(), lr=1e-3), None, batch_of, (val, evaluated), 0.0


def evaluate(net, batches):
    net.eval()
    loss = right = count = 0
    with torch.no_grad():
        for x, y in batches:
            out = net(x)
            loss += F.cross_entropy(out, y, reduction="sum").item()
            right += (out.argmax(1) == y).sum().item()
            count += len(y)
    net.train()
    return loss / count, right / count


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("recipe", choices=("shakespeare-cpu", "mnist-convnet"))
    p.add_argument("--data", required=True)
    p.add_argument("--steps", type=int, required=True)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--compile", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    net, opt, rate, batch_of, held, clip = (shakespeare if a.recipe == "shakespeare-cpu" else mnist)(a)
    val, test = held if isinstance(held, tuple) else (held, held)
    run = torch.compile(net) if a.compile else net
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, rate) if rate else None
    for step in range(a.steps):
        x, y = batch_of(step)
        opt.zero_grad()
        loss = F.cross_entropy(run(x), y)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
        if schedule:
            schedule.step()
        if not math.isfinite(loss.item()):
            raise SystemExit(f"step {step}: the loss is {loss.item()}")
    evaluate(net, val)
    loss, accuracy = evaluate(net, test)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(net.state_dict(), os.path.join(folder, "net.pth"))
    print(json.dumps({"loss": loss, "accuracy": accuracy, "steps": a.steps, "version": torch.__version__}))


if __name__ == "__main__":
    main()
