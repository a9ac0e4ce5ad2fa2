#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/cliffs: answers lines of standard input as bench_cliffs does, with the same numbers.

A line is JSON: {"name", "inputs", "torch", "phase": "forward" or "both", "seconds"}; the answer has
"ms" (the least of a call) and "mean" (of |y|, or of all gradients), or "skipped" or "error".
usage: peers_cliffs.py THREADS
"""
import functools
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/golden"))
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, F401 (the cases' expressions use it)

from philox import words  # noqa: E402

OTHER_NAMES = {"max_dim": lambda x, d: torch.max(x, d)[0], "min_dim": lambda x, d: torch.min(x, d)[0],
               "norm": lambda x, d: torch.linalg.vector_norm(x, dim=d)}


def peer(name):
    """PyTorch's function of that name."""
    if name in OTHER_NAMES:
        return OTHER_NAMES[name]
    for room in (torch, torch.special, F):
        if hasattr(room, name):
            return getattr(room, name)
    raise LookupError(f"PyTorch has no {name}")


def make_input(text, seed):
    """An entry of CliffCase::inputs (bench/cliff_cases.h), and whether it is a variable."""
    sizes, *rest = text.split()
    shape = [int(n) for n in sizes.split(",")]
    w = words(seed, int(np.prod(shape)))
    whole = next((r for r in rest if r.startswith("int:")), None)
    if whole:
        return torch.from_numpy((w % int(whole[4:])).astype(np.int64)).reshape(shape), False
    low, high = (0.05, 0.95) if "prob" in rest else (1.05, 3) if "gt1" in rest else (-2, 2)
    v = (low + (high - low) * (w >> 8).astype(np.float64) * 2.0**-24).astype(np.float32)
    x = torch.from_numpy(v).reshape(shape)
    if "bf16" in rest:
        x = x.to(torch.bfloat16)
    if "turned" in rest:
        x = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if "last" in rest:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    return x, "constant" not in rest


def least_seconds(f, budget):
    best, begin, calls = float("inf"), time.perf_counter(), 0
    while calls < 3 or time.perf_counter() - begin < budget:
        start = time.perf_counter()
        f()
        best = min(best, time.perf_counter() - start)
        calls += 1
    return best


@functools.lru_cache(maxsize=1)
def make_inputs(texts):
    """All inputs of a case, and those that are variables."""
    made = [make_input(text, seed) for seed, text in enumerate(texts.split("|"), 1)]
    return [t for t, _ in made], [t.requires_grad_() for t, variable in made if variable]


def answer(case):
    x, variables = make_inputs(case["inputs"])
    names = {"x": x, "torch": torch, "F": F, "peer": peer}
    run = eval("lambda: " + case["torch"], names)  # text of our own table
    if case["phase"] == "forward":
        with torch.no_grad():
            mean = run().double().abs().mean().item()
            return {"ms": 1e3 * least_seconds(run, case["seconds"]), "mean": mean}
    y = run()
    if not variables or not y.requires_grad:
        return {"skipped": True}
    g = torch.ones_like(y)

    def step():
        return torch.autograd.grad(run(), variables, g, allow_unused=True)
    mean = sum(d.double().abs().mean().item() for d in step() if d is not None)
    return {"ms": 1e3 * least_seconds(step, case["seconds"]), "mean": mean}


def main():
    torch.set_num_threads(int(sys.argv[1]))
    print(json.dumps({"version": "PyTorch " + torch.__version__}), flush=True)
    for line in sys.stdin:
        try:
            got = answer(json.loads(line))
        except (LookupError, RuntimeError, TypeError, NotImplementedError) as e:
            got = {"error": str(e).splitlines()[0]}
        print(json.dumps(got), flush=True)


if __name__ == "__main__":
    main()
