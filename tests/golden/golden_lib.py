# SPDX-License-Identifier: Apache-2.0
"""What the golden-data scripts share: a pool of tensors and a list of cases, as safetensors.

Called by make_golden*.py. What always holds: equal tensors are stored once, every case draws its
random inputs from its own name (so adding a case changes no other), and smooth float32 results
are PyTorch's float64 results rounded to float32, checked against its own float32 results.
README.md beside this file describes the format.
"""
import json
import math
import os
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
TOL = {
    torch.float64: (1e-11, 1e-13),
    torch.float32: (1e-5, 1e-6),
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
}
DTYPES = {
    "float64": torch.float64, "float32": torch.float32, "float16": torch.float16,
    "bfloat16": torch.bfloat16, "int64": torch.int64, "int32": torch.int32,
    "int16": torch.int16, "int8": torch.int8, "uint8": torch.uint8, "bool": torch.bool,
}
NAMES = {v: k for k, v in DTYPES.items()}
f64, f32, f16, bf16 = torch.float64, torch.float32, torch.float16, torch.bfloat16
i64, i32, i16, i8, u8 = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8
INF, NAN = math.inf, math.nan


class Scalar:
    """A Python number as an input: keeps its category (bool, int, float) in type promotion."""

    def __init__(self, value):
        self.value = value

    def spec(self):
        return {"scalar": plain(self.value), "kind": type(self.value).__name__}


def plain(v):
    """A value as JSON can hold it: dtypes by name, infinities and NaN as strings."""
    if isinstance(v, torch.dtype):
        return NAMES[v]
    if isinstance(v, float) and not math.isfinite(v):
        return "nan" if v != v else ("inf" if v > 0 else "-inf")
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    return v


def tensors(v):
    return list(v) if isinstance(v, (tuple, list)) else [v]


def widen(x):
    return x.double() if torch.is_tensor(x) and x.dtype == f32 else x


class Rng:
    """Inputs of one case, drawn in float64 from a seed made of the family's and the case's name."""

    def __init__(self, name):
        self.g = np.random.default_rng(zlib.crc32(name.encode()))

    def normal(self, *shape, dtype=f32, scale=1.0):
        v = np.asarray(self.g.standard_normal(shape) * scale)
        return torch.from_numpy(v).to(dtype).reshape(shape)

    def uniform(self, lo, hi, *shape, dtype=f32):
        return torch.from_numpy(np.asarray(self.g.uniform(lo, hi, shape))).to(dtype).reshape(shape)

    def ints(self, lo, hi, *shape, dtype=i64):
        return torch.from_numpy(np.asarray(self.g.integers(lo, hi, shape))).to(dtype)

    def bools(self, *shape):
        return self.ints(0, 2, *shape).bool()

    def perm(self, n):
        return torch.from_numpy(self.g.permutation(n))


class Family:
    """prefer: where an op's name is looked up first (torch or torch.nn.functional)."""

    def __init__(self, name, prefer=torch):
        self.prefer = prefer
        self.name, self.pool, self.cases, self.by_hash, self.seen = name, {}, [], {}, {}

    def put(self, t):
        """Stores a tensor once and returns its key."""
        t = t.detach().contiguous().cpu()
        raw = t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""
        key = (t.dtype, tuple(t.shape), raw)
        if key not in self.by_hash:
            self.by_hash[key] = f"t{len(self.pool)}"
            self.pool[self.by_hash[key]] = t.clone()
        return self.by_hash[key]

    def rng(self, name):
        return Rng(f"{self.name}/{name}")

    def unique(self, name):
        n = self.seen[name] = self.seen.get(name, 0) + 1
        return name if n == 1 else f"{name}.{n}"

    def add(self, op, inputs, attrs=None, fn=None, name=None, grad=True, wide=True, rtol=None,
            atol=None, seed=None, call_attrs=None, no_grad_inputs=()):
        """Runs PyTorch and records one case.

        fn defaults to torch.op or torch.nn.functional.op, called as fn(*inputs, **attrs).
        grad: give gradients of the outputs and record those of all floating inputs (or of the
        listed ones). wide: compute float32 cases in float64 and round.
        """
        attrs = dict(attrs or {})
        rooms = [r for r in (self.prefer, torch, F) if hasattr(r, op)]
        fn = fn or getattr(rooms[0], op)
        name = self.unique(name or op)
        rng = self.rng(seed or ("go/" + name))
        kw = attrs if call_attrs is None else call_attrs
        wide = wide and any(torch.is_tensor(x) and x.dtype == f32 for x in inputs)
        wide = wide and not any(isinstance(v, torch.dtype) for v in attrs.values())
        ins = [x for x in inputs]
        want = [grad and torch.is_tensor(x) and x.is_floating_point() and i not in no_grad_inputs
                for i, x in enumerate(ins)]

        def run(arguments, grad_out):
            live = [a.clone().requires_grad_(w) if torch.is_tensor(a) else
                    (a.value if isinstance(a, Scalar) else a) for a, w in zip(arguments, want)]
            out = tensors(fn(*live, **kw))
            diff = [o for o in out if torch.is_tensor(o) and o.requires_grad]
            if not diff:
                return out, None, None
            if grad_out is None:
                grad_out = [rng.normal(*o.shape, dtype=f64).to(o.dtype) if o.requires_grad else None
                            for o in out]
            gs = [g.to(o.dtype) for g, o in zip(grad_out, out) if g is not None]
            leaves = [a for a, w in zip(live, want) if w]
            got = iter(torch.autograd.grad(diff, leaves, gs, allow_unused=True))
            return out, [next(got) if w else None for w in want], grad_out

        out, grads, grad_out = run(ins, None)
        if wide:
            grad_out32 = grad_out
            out64, grads64, _ = run([widen(x) for x in ins], grad_out)
            self.check(name, out, out64)
            out = [o64.to(o.dtype) for o, o64 in zip(out, out64)]
            if grads is not None:
                self.check(name + " grad", grads, grads64)
                grads = [None if g is None else g64.to(g.dtype) for g, g64 in zip(grads, grads64)]
            grad_out = grad_out32
        dt = [o.dtype for o in out if o.is_floating_point()]
        dt += [x.dtype for x in ins if torch.is_tensor(x) and x.is_floating_point() and dt]
        tol = max((TOL[d] for d in dt), default=(0.0, 0.0))
        case = {"name": name, "op": op, "attrs": plain(attrs),
                "inputs": [None if x is None else x.spec() if isinstance(x, Scalar) else self.put(x)
                           for x in ins],
                "outputs": [self.put(o) for o in out]}
        if grads is not None:
            case["grads"] = [None if g is None else self.put(g) for g in grads]
            case["grad_out"] = [None if g is None else self.put(g) for g in grad_out]
        else:
            case["grads"], case["grad_out"] = [None] * len(ins), [None] * len(out)
        case["rtol"] = tol[0] if rtol is None else rtol
        case["atol"] = tol[1] if atol is None else atol
        self.cases.append(case)
        return out

    def check(self, name, a, b):
        """Float32 and float64 runs must agree, or the case sits on a discontinuity."""
        for x, y in zip(a, b):
            if x is None:
                continue
            if x.is_floating_point():
                ok = torch.allclose(x.double(), y.to(x.dtype).double(), rtol=2e-4, atol=2e-5,
                                    equal_nan=True)
            else:
                ok = torch.equal(x, y)
            if not ok:
                raise SystemExit(f"{self.name}/{name}: float32 {x} but float64 {y}")

    def save(self):
        path = os.path.join(HERE, self.name + ".safetensors")
        text = json.dumps(self.cases, separators=(",", ":"), allow_nan=False)
        save_file(self.pool, path, metadata={"cases": text})
        print(f"{self.name}: {len(self.cases)} cases, {len(self.pool)} tensors, "
              f"{os.path.getsize(path)} bytes")
