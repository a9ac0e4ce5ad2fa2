# SPDX-License-Identifier: Apache-2.0
"""promotion.json: PyTorch's result types over all pairs of dtypes. Called by make_golden.py."""
import json
import os

import torch

from golden_lib import DTYPES, HERE, NAMES

BINARY = {
    "add": lambda a, b: a + b, "div": lambda a, b: a / b, "floor_divide": lambda a, b: a // b,
    "pow": lambda a, b: a ** b, "bitwise_and": lambda a, b: a & b, "eq": lambda a, b: a == b,
    "sub": lambda a, b: a - b, "atan2": lambda a, b: torch.atan2(tensor(a), tensor(b)),
    "maximum": lambda a, b: torch.maximum(tensor(a), tensor(b)),
}
UNARY = {
    "exp": torch.exp, "neg": lambda x: -x, "abs": torch.abs, "relu": torch.relu,
    "floor": torch.floor, "round": torch.round, "sigmoid": torch.sigmoid, "sign": torch.sign,
    "logical_not": torch.logical_not, "bitwise_not": torch.bitwise_not, "isnan": torch.isnan,
    "square": torch.square, "reciprocal": torch.reciprocal, "sum": torch.sum, "mean": torch.mean,
    "prod": torch.prod, "amax": torch.amax, "var": torch.var, "any": torch.any, "all": torch.all,
    "argmax": torch.argmax, "logsumexp": lambda x: torch.logsumexp(x, 0),
    "cumsum": lambda x: torch.cumsum(x, 0), "cumprod": lambda x: torch.cumprod(x, 0),
    "softmax": lambda x: torch.softmax(x, 0), "norm": lambda x: torch.linalg.vector_norm(x),
    "clamp_int": lambda x: torch.clamp(x, 0, 1), "clamp_float": lambda x: torch.clamp(x, 0.5, 1.5),
}
SCALARS = {"bool": True, "int": 1, "float": 1.5}


def tensor(x):
    if not torch.is_tensor(x):
        raise TypeError("expected tensors")
    return x


def result(fn, *args):
    """The name of the result's dtype, or "error"."""
    try:
        return NAMES[fn(*args).dtype]
    except (RuntimeError, TypeError, NotImplementedError):
        return "error"


def make():
    names = list(DTYPES)
    vec = {n: torch.ones(2, dtype=DTYPES[n]) for n in names}
    dot = {n: torch.ones((), dtype=DTYPES[n]) for n in names}
    pairs = {"tensor_tensor": (vec, vec), "tensor_zero_dim": (vec, dot),
             "zero_dim_tensor": (dot, vec), "zero_dim_zero_dim": (dot, dot)}
    table = {}
    for op, fn in BINARY.items():
        rows = {k: [[result(fn, a[p], b[q]) for q in names] for p in names]
                for k, (a, b) in pairs.items()}
        if op not in ("atan2", "maximum"):
            for kind, a in (("tensor_scalar", vec), ("zero_dim_scalar", dot)):
                rows[kind] = [[result(fn, a[p], s) for s in SCALARS.values()] for p in names]
            rows["scalar_tensor"] = [[result(fn, s, vec[p]) for s in SCALARS.values()]
                                     for p in names]
        table[op] = rows
    cond = torch.tensor([True, False])
    fns = {"where": lambda a, b: torch.where(cond, a, b), "cat": lambda a, b: torch.cat([a, b])}
    for op, fn in fns.items():
        table[op] = {"tensor_tensor": [[result(fn, vec[p], vec[q]) for q in names]
                                       for p in names]}
    unary = {op: [result(fn, vec[n]) for n in names] for op, fn in UNARY.items()}
    doc = ("Result dtypes of PyTorch " + torch.__version__.split("+")[0] + ". binary[op][kinds][i]"
           "[j]: row i is the first operand's dtype, column j the second's (of a scalar operand, "
           "the column is its kind out of `scalars`); tensor = 1-d, zero_dim = 0-d. unary[op][i]. "
           "\"error\": PyTorch refuses.")
    path = os.path.join(HERE, "promotion.json")
    with open(path, "w", encoding="utf-8") as out:
        out.write(dump({"doc": doc, "dtypes": names, "scalars": list(SCALARS), "unary": unary,
                        "binary": table}))
    print(f"promotion: {len(table)} binary, {len(unary)} unary, {os.path.getsize(path)} bytes")


def dump(v, depth=0):
    """JSON with one line per innermost list, so that changes can be read."""
    if isinstance(v, dict):
        pad = " " * (depth + 1)
        body = ",\n".join(f"{pad}{json.dumps(k)}: {dump(x, depth + 1)}" for k, x in v.items())
        return "{\n" + body + "\n" + " " * depth + "}" + ("" if depth else "\n")
    if isinstance(v, list) and v and isinstance(v[0], list):
        return "[\n" + ",\n".join(" " * (depth + 1) + json.dumps(x) for x in v) + "]"
    return json.dumps(v)
