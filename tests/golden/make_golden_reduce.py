# SPDX-License-Identifier: Apache-2.0
"""Golden cases of reductions and scans. Called by make_golden.py."""
import torch

from golden_lib import INF, NAN, Family, bf16, f16, f32, f64, i8, i32, i64, u8

SHAPES = [((2, 3, 4), [None, 1, -1, [0, 2]]), ((7,), [0]), ((), [None])]


def norm(x, p=2, dim=None, keepdim=False):
    return torch.linalg.vector_norm(x, p, dim, keepdim)


def norm_any(x, p, dim=None, keepdim=False):
    return norm(x, {"inf": INF, "-inf": -INF}.get(p, p), dim, keepdim)


def all_dims(x):
    return list(range(x.dim()))


def logsumexp(x, dim=None, keepdim=False):
    return torch.logsumexp(x, all_dims(x) if dim is None else dim, keepdim)


def amin_amax(op):
    fn = getattr(torch, op)
    return lambda x, dim=None, keepdim=False: fn(x, () if dim is None else dim, keepdim)


def prod(x, dim=None, keepdim=False):
    """torch.prod takes one dim; several dims are taken one after the other."""
    if dim is None or isinstance(dim, int):
        return torch.prod(x) if dim is None else torch.prod(x, dim, keepdim)
    for d in sorted((k % x.dim() for k in dim), reverse=True):
        x = torch.prod(x, d, keepdim)
    return x


def floats(f):
    table = [("sum", None, {}), ("mean", None, {}), ("prod", prod, {}),
             ("amax", amin_amax("amax"), {}), ("amin", amin_amax("amin"), {}),
             ("var", None, {}), ("var", None, {"correction": 0}), ("std", None, {}),
             ("std", None, {"correction": 0}), ("logsumexp", logsumexp, {}),
             ("norm", norm_any, {"p": 1}), ("norm", norm_any, {"p": 2}),
             ("norm", norm_any, {"p": 3}), ("norm", norm_any, {"p": "inf"}),
             ("norm", norm_any, {"p": "-inf"}), ("norm", norm_any, {"p": 0}),
             ("nansum", None, {}), ("var_mean", None, {})]
    for shape, dims in SHAPES:
        for dt, n in ((f32, "f32"), (f64, "f64")):
            if dt == f64 and shape != (2, 3, 4):
                continue
            x = f.rng(str(shape)).normal(*shape, dtype=dt)
            for op, fn, extra in table:
                if shape == () and op in ("var", "std", "var_mean"):
                    continue
                for i, dim in enumerate(dims):
                    if dt == f64 and dim not in (None, [0, 2]):
                        continue
                    a = dict(extra, **({} if dim is None else {"dim": dim}))
                    f.add(op, [x], a, fn=fn, name=f"{op}_{n}", seed="go" + str(shape) + str(i))
                    if dim in (1, [0, 2]) and dt == f32:
                        f.add(op, [x], dict(a, keepdim=True), fn=fn, name=f"{op}_keepdim",
                              seed="gok" + str(shape) + str(i))
    long = f.rng("long").normal(3, 1001)
    for op, fn in (("sum", None), ("mean", None), ("var", None), ("logsumexp", logsumexp),
                   ("norm", norm), ("amax", amin_amax("amax")), ("argmax", None)):
        f.add(op, [long], {"dim": 1}, fn=fn, name=op + "_long", grad=False, rtol=2e-6, atol=1e-5)
    f.add("sum", [long.abs()], {}, name="sum_long_all", grad=False, rtol=2e-6)
    f.add("var", [long + 1000], {"dim": 1}, name="var_shifted", grad=False, rtol=2e-6)
    f.add("sum", [torch.full((2, 3000), 0.1, dtype=f16)], {"dim": 1}, name="sum_f16", grad=False)
    for dt, n in ((f16, "f16"), (bf16, "bf16")):
        x = f.rng("half").normal(3, 5, dtype=dt)
        for op, fn in (("sum", None), ("mean", None), ("amax", amin_amax("amax")),
                       ("logsumexp", logsumexp), ("prod", prod), ("var", None), ("norm", norm)):
            f.add(op, [x], {"dim": 1}, fn=fn, name=f"{op}_{n}")


def picks(f):
    """Ops whose result depends on which element wins: ties, NaN, infinities."""
    tie = torch.tensor([[1.0, 3, 3, 2], [NAN, 1, NAN, 0], [-INF, INF, INF, 0], [0.0, -0.0, 0, 0]])
    tie2 = torch.tensor([[1.0, 3, 3, 2], [2.0, 2, 2, 2], [-1, -5, -5, 7]])
    for op in ("amax", "amin"):
        f.add(op, [tie], {"dim": 1}, fn=amin_amax(op), name=op + "_special", grad=False)
        f.add(op, [tie2], {"dim": 1}, fn=amin_amax(op), name=op + "_ties")
        f.add(op, [tie2], {}, fn=amin_amax(op), name=op + "_ties_all")
    for op in ("max", "min"):
        for x, n in ((tie, "special"), (tie2, "ties")):
            f.add(op, [x], {"dim": 1}, name=f"{op}_dim_{n}", wide=False)
            f.add(op, [x], {"dim": 0, "keepdim": True}, name=f"{op}_dim0_{n}", wide=False)
        f.add(op, [tie2], {}, name=op + "_all_ties")
        f.add(op, [tie], {}, name=op + "_all_special", grad=False)
    for op in ("argmax", "argmin"):
        for x, n in ((tie, "special"), (tie2, "ties"), (tie2.to(i64), "i64"),
                     (tie2.to(bf16), "bf16")):
            f.add(op, [x], {"dim": 1}, name=f"{op}_{n}")
            f.add(op, [x], {"dim": 0, "keepdim": True}, name=f"{op}_keep_{n}")
            f.add(op, [x], {}, name=f"{op}_all_{n}")
        f.add(op, [f.rng("arg3").normal(2, 3, 4)], {"dim": -2}, name=op + "_mid")
    for op in ("sum", "mean", "prod", "logsumexp", "norm", "nansum"):
        fn = {"prod": prod, "logsumexp": logsumexp, "norm": norm}.get(op)
        f.add(op, [tie], {"dim": 1}, fn=fn, name=op + "_special", grad=False)
    f.add("logsumexp", [torch.tensor([[-INF, -INF], [INF, 0.0], [1000.0, 1000.0]])], {"dim": 1},
          fn=logsumexp, name="logsumexp_extreme", grad=False)
    zero = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    for p in (1, 2, 3):
        f.add("norm", [zero], {"p": p, "dim": 1}, fn=norm_any, name="norm_at_zero")
    f.add("prod", [torch.tensor([[0.0, 2, 3], [0, 0, 3], [1, 2, 3]])], {"dim": 1}, fn=prod,
          name="prod_zeros")


def integers(f):
    for dt, n in ((i64, "i64"), (i32, "i32"), (i8, "i8"), (u8, "u8"), (torch.bool, "bool")):
        x = f.rng("ints").ints(0, 4, 2, 3, 4).to(dt)
        for dim in (None, [0, 2]):
            a = {} if dim is None else {"dim": dim}
            f.add("sum", [x], a, name="sum_" + n)
            f.add("any", [x], a, name="any_" + n)
            f.add("all", [x], a, name="all_" + n)
            f.add("count_nonzero", [x], a, name="count_nonzero_" + n)
            f.add("amax", [x], a, fn=amin_amax("amax"), name="amax_" + n)
            f.add("amin", [x], a, fn=amin_amax("amin"), name="amin_" + n)
        f.add("prod", [x], {"dim": 1}, fn=prod, name="prod_" + n)
        f.add("cumsum", [x], {"dim": 1}, name="cumsum_" + n)
    f.add("sum", [torch.tensor([100, 100, 100], dtype=i8)], {"dtype": i8}, name="sum_wraps")
    f.add("sum", [torch.tensor([1, 2, 3])], {"dtype": f32}, name="sum_to_f32")
    f.add("mean", [torch.tensor([1, 2, 4])], {"dtype": f64}, name="mean_to_f64")
    f.add("sum", [torch.tensor([1.5, 2.5], dtype=f32)], {"dtype": f64}, name="sum_f32_to_f64")
    f.add("any", [torch.tensor([0.0, NAN])], {}, name="any_nan")
    f.add("all", [torch.tensor([0.5, NAN])], {}, name="all_nan")


def empties(f):
    e = torch.zeros(2, 0, 3)
    for op, fn in (("sum", None), ("prod", prod), ("mean", None), ("any", None), ("all", None),
                   ("logsumexp", logsumexp), ("norm", norm)):
        f.add(op, [e], {"dim": 1}, fn=fn, name=op + "_empty", grad=False)
        if op not in ("logsumexp", "norm"):
            f.add(op, [e], {}, fn=fn, name=op + "_empty_all", grad=False)
    f.add("sum", [e], {"dim": 0}, name="sum_empty_kept", grad=False)
    f.add("amax", [e], {"dim": 0}, fn=amin_amax("amax"), name="amax_empty_kept", grad=False)
    f.add("cumsum", [e], {"dim": 1}, name="cumsum_empty", grad=False)
    one = f.rng("one").normal(1, 1)
    for op, fn in (("sum", None), ("mean", None), ("prod", prod), ("argmax", None),
                   ("logsumexp", logsumexp)):
        f.add(op, [one], {"dim": 1}, fn=fn, name=op + "_size1")
    f.add("var", [one], {"dim": 1, "correction": 0}, name="var_size1")


def scans(f):
    for shape in ((6,), (2, 3, 4)):
        x = f.rng("scan").normal(*shape)
        for dim in range(-1, len(shape) - 1 if len(shape) > 1 else 0):
            for op in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"):
                f.add(op, [x], {"dim": dim}, wide=op not in ("cummax", "cummin"))
                if op in ("cumsum", "cumprod"):
                    f.add(op, [x.double()], {"dim": dim}, name=op + "_f64")
    f.add("cumprod", [torch.tensor([2.0, 0.0, 3.0, 0.0, 4.0])], {"dim": 0}, name="cumprod_zeros")
    s = torch.tensor([1.0, 3.0, 3.0, NAN, 2.0])
    for op in ("cummax", "cummin", "cumsum", "logcumsumexp"):
        f.add(op, [s], {"dim": 0}, name=op + "_special", grad=False)
    f.add("cumsum", [f.rng("b").normal(9, dtype=bf16)], {"dim": 0}, name="cumsum_bf16")
    f.add("diff", [f.rng("d").normal(3, 5)], {"dim": 1})


def make():
    f = Family("reduce")
    floats(f)
    picks(f)
    integers(f)
    empties(f)
    scans(f)
    f.save()
