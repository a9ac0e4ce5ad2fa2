# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the same work as bench/gpu: launch costs, matmuls, and training steps of the same nets.

Usage: python3 bench/gpu_peer.py launch | matmul | bandwidth | attention | net NAME [compile] [BATCH]
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


def seconds(f, n):
    for _ in range(3):
        f()
    best = 1e30
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(n):
            f()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / n)
    return best


def host_seconds(f):
    """Of one call, without waiting for the device: the best of short windows, as in seconds.h."""
    best = 1e30
    for _ in range(20):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(200):
            f()
        best = min(best, (time.perf_counter() - begin) / 200)
    return best


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(w, 2)
        q, k, v = (s.view(n, t, self.heads, -1).transpose(1, 2) for s in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, w))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(50304, 768), nn.Embedding(1024, 768)
        self.h = nn.ModuleList(Block(768, 12) for _ in range(12))
        self.ln_f = nn.LayerNorm(768)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for b in self.h:
            x = b(x)
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(30522, 768), nn.Embedding(512, 768)
        self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 2)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, 0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        return self.head(self.layers(self.norm(x))[:, 0])


def attention():
    for b, h, t, e, causal in ((16, 12, 1024, 64, True), (64, 12, 128, 64, False),
                               (32, 12, 512, 64, False), (4, 16, 4096, 64, True),
                               (4, 16, 4096, 128, True), (4, 16, 4096, 128, False)):
        all_three = torch.randn(b, t, 3, h, e, device="cuda", dtype=torch.bfloat16)
        q, k, v = (all_three[:, :, i].transpose(1, 2).requires_grad_() for i in range(3))
        gy = torch.randn(b, h, t, e, device="cuda", dtype=torch.bfloat16)

        def run():
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        def both():
            torch.autograd.grad(run(), (q, k, v), gy)

        forward = seconds(run, 20)
        flops = 4 * b * h * t * t * e * (0.5 if causal else 1)
        print(f"torch {b:>5}{h:>5}{t:>6}{e:>5} {causal!s:>5}{1e-12 * flops / forward:12.1f}"
              f"{2.5e-12 * flops / (seconds(both, 20) - forward):12.1f}   TFLOP/s")


def bandwidth():
    def show(name, nbytes, s):
        print(f"torch {name:<44}{s * 1e3:10.3f} ms{nbytes * 1e-9 / s:9.0f} GB/s")

    def forward(name, nbytes, f):
        with torch.no_grad():
            show(name, nbytes, seconds(f, 20))

    def layer(name, forward_bytes, backward_bytes, leaves, f):
        gy = torch.ones_like(f())
        s = seconds(f, 20)
        both = seconds(lambda: torch.autograd.grad(f(), leaves, gy), 20)
        show(name, forward_bytes, s)
        show(name + ", backward", backward_bytes, both - s)

    def size(t):
        return t.numel() * t.element_size()

    bf16, dev = torch.bfloat16, "cuda"
    x = torch.ones(1 << 29, device=dev)
    forward("copy, f32", 2 * size(x), x.clone)
    forward("x + 1, f32", 2 * size(x), lambda: x + 1.0)
    forward("to bf16", 1.5 * size(x), lambda: x.to(bf16))
    forward("sum, f32", size(x), x.sum)
    x = torch.randn(16384, 3072, device=dev, dtype=bf16)
    y, bias = x + 1.0, torch.randn(3072, device=dev, dtype=bf16)
    forward("x + y, bf16", 3 * size(x), lambda: x + y)
    forward("x + bias, bf16", 2 * size(x), lambda: x + bias)
    forward("gelu, bf16", 2 * size(x), lambda: F.gelu(x))
    forward("sum of columns, bf16", size(x), lambda: x.sum(0))
    forward("sum of rows, bf16", size(x), lambda: x.sum(1))
    for t, name in ((torch.float32, "f32"), (bf16, "bf16")):
        square = torch.randn(8192, 8192, device=dev, dtype=t)
        forward(f"transposed copy, {name}", 2 * size(square), lambda: square.t().contiguous())
    for t, name in ((bf16, "bf16"), (torch.float32, "f32")):
        x = torch.randn(16384, 1024, device=dev, dtype=t, requires_grad=True)
        w = torch.ones(1024, device=dev, dtype=t, requires_grad=True)
        b = torch.zeros(1024, device=dev, dtype=t, requires_grad=True)
        n = size(x)
        layer(f"softmax of 1024, {name}", 2 * n, 3 * n, (x,), lambda: torch.softmax(x, 1))
        layer(f"layer_norm of 1024, {name}", 2 * n, 3 * n, (x, w, b),
              lambda: F.layer_norm(x, (1024,), w, b))
        layer(f"rms_norm of 1024, {name}", 2 * n, 3 * n, (x, w), lambda: F.rms_norm(x, (1024,), w))
    logits = torch.randn(8192, 50304, device=dev, dtype=bf16, requires_grad=True)
    labels = torch.randint(0, 50304, (8192,), device=dev)
    layer("cross_entropy of 50304, bf16", size(logits), 2 * size(logits), (logits,),
          lambda: F.cross_entropy(logits, labels))
    table = torch.randn(50304, 768, device=dev, requires_grad=True)
    ids = torch.randint(0, 50304, (16384,), device=dev)
    read = ids.numel() * 768 * 4
    layer("embedding of 768, f32", 2 * read, size(table) + 2 * read, (table,),
          lambda: F.embedding(ids, table))
    for memory, name in ((torch.channels_last, "channels-last"), (torch.contiguous_format, "row-major")):
        x, large = (torch.randn(128, 64, s, s, device=dev, dtype=bf16).contiguous(memory_format=memory)
                    .requires_grad_() for s in (56, 112))
        w, b = (torch.ones(64, device=dev, requires_grad=True) for _ in range(2))
        layer(f"batch_norm, bf16, {name}", 3 * size(x), 5 * size(x), (x, w, b),
              lambda: F.batch_norm(x, None, None, w, b, True))
        layer(f"max_pool of 3 by 2, bf16, {name}", 1.75 * size(large), 1.75 * size(large), (large,),
              lambda: F.max_pool2d(large, 3, 2, 1))


def task(name, batch):
    if name == "gpt2":
        batch = batch or 16
        x = torch.randint(0, 50304, (batch, 1024), device="cuda")
        y = torch.randint(0, 50304, (batch * 1024,), device="cuda")
        return GPT(), x, y, batch * 1024, "tokens"
    if name == "bert":
        batch = batch or 64
        x = torch.randint(0, 30522, (batch, 128), device="cuda")
        return Encoder(), x, torch.randint(0, 2, (batch,), device="cuda"), batch, "sequences"
    import torchvision

    batch = batch or 128
    net = torchvision.models.resnet50().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    return net, x, torch.randint(0, 1000, (batch,), device="cuda"), batch, "images"


def run_net(name, compiled, batch):
    torch.manual_seed(1)
    net, x, y, items, unit = task(name, batch)
    net = net.cuda().train()
    opt = torch.optim.AdamW(net.parameters(), 1e-4, fused=True)
    forward = torch.compile(net) if compiled else net

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(forward(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss

    begin = time.perf_counter()
    first = step().item()
    compile_seconds = time.perf_counter() - begin
    s = seconds(step, 10)
    last = step().item()
    way = "torch.compile" if compiled else "torch eager"
    print(f"{name} {way} bf16: {items / s:.1f} {unit}/s, {s * 1e3:.2f} ms a step")
    print(f"first step {compile_seconds:.1f} s, loss {first:.4f} -> {last:.4f}, "
          f"{torch.cuda.max_memory_allocated() * 1e-9:.2f} GB at most")


def main():
    part = sys.argv[1]
    torch.set_num_threads(4)
    if part == "net":
        words = sys.argv[3:]
        numbers = [int(w) for w in words if w.isdigit()]
        return run_net(sys.argv[2], "compile" in words, numbers[0] if numbers else 0)
    if part == "launch":
        x, row = torch.ones(64, 64, device="cuda"), torch.ones(64, device="cuda")
        ops = {
            "add": lambda: x + x, "mul by a number": lambda: x * 2.0,
            "relu": lambda: torch.relu(x), "add, broadcast": lambda: x + row,
            "sum over rows": lambda: x.sum(1), "softmax": lambda: torch.softmax(x, 1),
            "matmul": lambda: x @ x,
        }
        with torch.no_grad():
            for name, f in ops.items():
                print(f"torch {name:<22}{host_seconds(f) * 1e6:9.2f} us")
        return None
    if part == "attention":
        return attention()
    if part == "bandwidth":
        return bandwidth()
    for m, k, n in ((8192, 8192, 8192), (16384, 768, 2304), (16384, 768, 3072),
                    (16384, 3072, 768), (16384, 768, 50304), (128, 4096, 4096), (1, 4096, 4096)):
        cells = []
        for kind in ("bf16", "tf32", "f32"):
            torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
            t = torch.bfloat16 if kind == "bf16" else torch.float32
            a, w = torch.randn(m, k, device="cuda", dtype=t), torch.randn(n, k, device="cuda", dtype=t)
            cells.append(2e-12 * m * k * n / seconds(lambda: F.linear(a, w), 10))
        print(f"torch {m:>8}{k:>8}{n:>8}" + "".join(f"{c:12.1f}" for c in cells) + "   TFLOP/s")
    return None


if __name__ == "__main__":
    main()
