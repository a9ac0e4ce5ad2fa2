# SPDX-License-Identifier: Apache-2.0
"""Golden gradients where functions have kinks, poles and ties: at 0, at equal values, at infinities
and NaN, of empty tensors. Called by make_golden.py; tests/golden/singular_test.cpp expects a case for
every row of the op table that has a derivative."""
import itertools

import torch
import torch.linalg as la
import torch.nn.functional as F

from golden_lib import INF, NAN, Family, f32, f64
from make_golden_linalg import eigh_rebuilt, scan, svd_rebuilt
from make_golden_norm_loss import batch_norm, layer_norm, rms_norm, weighted
from make_golden_reduce import amin_amax, logsumexp, norm_any, prod

POINTS = [0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 3.0, 6.0, INF, -INF, NAN]
UNARY = [
    "abs", "neg", "sign", "floor", "ceil", "round", "trunc", "frac", "square", "sqrt", "rsqrt",
    "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sinc", "deg2rad",
    "rad2deg", "erf", "erfc", "erfinv", "lgamma", "digamma", "logit", "relu", "relu6", "sigmoid",
    "logsigmoid", "silu", "mish", "selu", "softsign", "tanhshrink", "hardsigmoid", "hardswish",
    "gelu", "nan_to_num"]
SPECIAL = ["erfcx", "ndtr", "log_ndtr", "ndtri", "entr", "i0", "i0e", "i1", "i1e"]
WITH_ATTRS = [
    ("gelu", {"approximate": "tanh"}), ("elu", {}), ("celu", {}), ("leaky_relu", {}),
    ("softplus", {}), ("hardtanh", {}), ("hardshrink", {}), ("softshrink", {}),
    ("threshold", {"threshold": 0.5, "value": 7.0}), ("clamp", {"min": -1.0, "max": 1.0}),
    ("clamp", {"min": 0.0}), ("clamp", {"max": 0.0}), ("round", {"decimals": 1})]
BINARY = ["add", "sub", "mul", "div", "pow", "atan2", "maximum", "minimum", "fmax", "fmin", "hypot",
          "copysign", "remainder", "fmod", "logaddexp", "logaddexp2", "heaviside"]
PAIRS = [0.0, 1.0, -1.0, 0.5, -2.0, INF, -INF, NAN]


class Singular(Family):
    """One seed for all, so that equal shapes share what is multiplied with; f32 as PyTorch has it."""

    def add(self, op, inputs, attrs=None, **how):
        super().add(op, inputs, attrs, seed="go", wide=False, **how)


def pointwise(f):
    for dt, n in ((f64, "f64"), (f32, "f32")):
        x = torch.tensor(POINTS, dtype=dt)
        for op in UNARY + SPECIAL:
            f.add(op, [x], name=f"{op}_{n}",
                  fn=getattr(torch.special, op) if op in SPECIAL else None)
        for op, attrs in WITH_ATTRS:
            f.add(op, [x], attrs, name="_".join([op, *map(str, attrs), n]))
        for k in (0, 1, 2):
            # PyTorch's trigamma is right to 3e-10.
            f.add("polygamma", [x], {"n": k}, name=f"polygamma{k}_{n}",
                  fn=lambda x, n: torch.polygamma(n, x), rtol=1e-9 if dt == f64 else None)
        v = torch.tensor(PAIRS, dtype=dt)
        a, b = v[:, None].expand(8, 8).contiguous(), v[None, :].expand(8, 8).contiguous()
        for op in BINARY + ["xlogy", "xlog1py"]:
            one = op == "heaviside"
            f.add(op, [a, b], name=f"{op}_{n}", no_grad_inputs=(0, 1) if one else (),
                  fn=torch.special.xlog1py if op == "xlog1py" else None)
        s, q = torch.tensor([2.0, 3, 2, 2], dtype=dt), torch.tensor([1.0, 0, INF, NAN], dtype=dt)
        f.add("zeta", [s, q], name="zeta_" + n, fn=torch.special.zeta,
              no_grad_inputs=(0,))
        s, q = torch.tensor([1.0, 2, 0.5, 1, 1], dtype=dt), torch.tensor([0.0, 0, 0, INF, NAN],
                                                                        dtype=dt)
        for op in ("gammainc", "gammaincc"):
            f.add(op, [s, q], name=f"{op}_{n}", fn=getattr(torch.special, op),
                  no_grad_inputs=(0,))
        for mode in ("floor", "trunc"):
            f.add("div", [a, b], {"rounding_mode": mode}, name=f"div_{mode}_{n}")
        f.add("prelu", [x, torch.tensor([0.25], dtype=dt)], name="prelu_" + n)
        c = torch.tensor([True, False]).repeat(32).reshape(8, 8)
        f.add("where", [c, a, b], name="where_" + n)
        zero = torch.zeros(8, 8, dtype=dt)
        f.add("clamp", [a, zero - 1, b], name="clamp_tensor_" + n)
        f.add("lerp", [a, b], {"weight": 0.25}, name="lerp_" + n)
        for op in ("addcmul", "addcdiv"):
            f.add(op, [zero, a, b], name=f"{op}_{n}")
        for op in ("smooth_l1_loss", "huber_loss", "mse_loss", "l1_loss",
                   "binary_cross_entropy_with_logits"):
            f.add(op, [a, b], {"reduction": "none"}, fn=getattr(F, op), name=f"{op}_{n}",
                  no_grad_inputs=(1,))
        p = torch.tensor([0.0, 0, 1, 1, 0.5], dtype=dt)
        # PyTorch's smallest divisor is 1e-12 in f32.
        f.add("binary_cross_entropy", [p, torch.tensor([0.0, 1, 0, 1, 0.5], dtype=dt)],
              {"reduction": "none"}, fn=F.binary_cross_entropy, no_grad_inputs=(1,),
              name="binary_cross_entropy_" + n, rtol=1e-7 if dt == f64 else None)
        f.add("to", [x], {"dtype": f64 if dt == f32 else f32}, name="cast_" + n,
              fn=lambda x, dtype: x.to(dtype))


def reductions(f):
    rows = {"ties": [[1.0, 3, 3], [3, 3, 3]], "zeros": [[0.0, 0, 0], [2, 0, 3]],
            "infinities": [[1.0, INF, INF], [-INF, 0, 1], [-INF, -INF, -INF]],
            "nan": [[NAN, 1, 2], [1, NAN, 3]], "one": [[5.0]]}
    table = [("sum", None, {}), ("mean", None, {}), ("prod", prod, {}), ("nansum", None, {}),
             ("amax", amin_amax("amax"), {}), ("amin", amin_amax("amin"), {}), ("max", None, {}),
             ("min", None, {}), ("logsumexp", logsumexp, {}), ("cumsum", None, {}),
             ("cumprod", None, {}), ("logcumsumexp", None, {}), ("cummax", None, {}),
             ("cummin", None, {}), ("softmax", None, {}), ("log_softmax", None, {}),
             ("var", None, {}), ("std", None, {}), ("var", None, {"correction": 0}),
             ("std", None, {"correction": 0})]
    table += [("norm", norm_any, {"p": p}) for p in (0.5, 1, 1.5, 2, 3, "inf", "-inf", 0)]
    for dt, n in ((f64, "f64"), (f32, "f32")):
        for kind, values in rows.items():
            x = torch.tensor(values, dtype=dt)
            for op, fn, attrs in table:
                if kind == "one" and op in ("var", "std") and not attrs:
                    continue
                kept = "".join(str(v) for v in attrs.values())
                f.add(op, [x], dict(attrs, dim=1), fn=fn, name=f"{op}{kept}_{kind}_{n}")
            if kind != "nan":
                for op in ("sort", "topk"):
                    f.add(op, [x], {"dim": 1} if op == "sort" else {"k": 1, "dim": 1},
                          name=f"{op}_{kind}_{n}",
                          fn=lambda x, op=op, **k: (torch.sort(x, stable=True, **k)
                                                    if op == "sort" else torch.topk(x, **k)))
        empty = torch.zeros(0, dtype=dt)
        for op in ("sum", "mean", "prod", "logsumexp", "norm", "cumsum", "cumprod", "logcumsumexp",
                   "softmax", "log_softmax", "var", "std"):
            fn = {"norm": norm_any, "logsumexp": logsumexp, "prod": prod}.get(op)
            f.add(op, [empty], {"dim": 0, **({"p": 2} if op == "norm" else {})}, fn=fn,
                  name=f"{op}_empty_{n}")
        f.add("atan", [empty], name="atan_empty_" + n)


def ctc_of_paths(logits, target, times, length):
    """As F.ctc_loss, whose gradient is NaN where a class is masked by -infinity."""
    p, total = torch.softmax(logits[:, 0], -1), 0
    for path in itertools.product(range(p.shape[1]), repeat=int(times[0])):
        read = [k for k, _ in itertools.groupby(path) if k != 0]
        if read == target[0].tolist():
            total = total + torch.stack([p[t, k] for t, k in enumerate(path)]).prod()
    return -torch.log(total) / length[0]


def norms_and_losses(f):
    w, b = torch.tensor([1.0, 2, 3], dtype=f64), torch.zeros(3, dtype=f64)
    for kind, values in (("constant", [[2.0, 2, 2], [0, 0, 0]]), ("infinite", [[1.0, INF, 0],
                                                                             [NAN, 1, 2]])):
        x = torch.tensor(values, dtype=f64)
        f.add("layer_norm", [x, w, b], {"normalized_shape": [3]}, fn=layer_norm,
              name="layer_norm_" + kind, rtol=1e-9)
        f.add("rms_norm", [x, w], {"normalized_shape": [3], "eps": 1e-6}, fn=rms_norm,
              name="rms_norm_" + kind, rtol=1e-9)
        f.add("batch_norm", [x, b, w, w, b], {"training": False}, fn=batch_norm,
              no_grad_inputs=(1, 2), name="batch_norm_infer_" + kind, rtol=1e-9)
        f.add("batch_norm", [x, None, None, w, b], {"training": True}, fn=batch_norm,
              name="batch_norm_" + kind, rtol=1e-9)
        f.add("normalize", [x], {"dim": 1}, name="normalize_" + kind)
        target = torch.tensor([1, 0])
        for smoothing in (0.0, 0.1):
            f.add("cross_entropy", [x, target], {"label_smoothing": smoothing}, fn=weighted(
                F.cross_entropy), name=f"cross_entropy_{kind}_{smoothing}")
        f.add("nll_loss", [x, target], fn=weighted(F.nll_loss), name="nll_loss_" + kind)
        f.add("cosine_similarity", [x, x + 1], {"dim": 1}, name="cosine_similarity_" + kind,
              rtol=1e-9)
    x = torch.tensor([[-INF, 0, 0], [0, -INF, 0]], dtype=f64)
    f.add("cross_entropy", [x, torch.tensor([0, 1])], fn=weighted(F.cross_entropy),
          name="cross_entropy_of_minus_infinity")
    q = torch.zeros(1, 2, 3, 4, dtype=f64)
    f.add("scaled_dot_product_attention", [q, q, q + 1], name="attention_of_zeros",
          fn=lambda q, k, v, **kw: F.scaled_dot_product_attention(q, k, v, **kw), rtol=1e-9)
    logits = torch.tensor([[[1.0, 2, 0]], [[0, -INF, 3]], [[2, 0, 1]]], dtype=f64)
    for zero in (False, True):
        f.add("ctc_loss", [logits, torch.tensor([[1, 1, 1]]), torch.tensor([3]), torch.tensor([3])],
              {"zero_infinity": zero}, name=f"ctc_loss_unreachable_{zero}", rtol=1e-9,
              fn=lambda a, *rest, **o: F.ctc_loss(torch.log_softmax(a, -1), *rest, **o))
    f.add("ctc_loss", [logits, torch.tensor([[1, 2]]), torch.tensor([3]), torch.tensor([2])],
          name="ctc_loss_masked", rtol=1e-9, fn=ctc_of_paths)
    x1, x2 = torch.tensor([[1.0, 2], [0, 0]], dtype=f64), torch.tensor([[1.0, 2], [1, 3]], dtype=f64)
    for p in (1.0, 2.0, 3.0, "inf"):
        f.add("cdist", [x1, x2], {"p": p}, name=f"cdist_{p}",
              fn=lambda a, b, p: torch.cdist(a, b, INF if p == "inf" else p))


def matrices(f):
    zero, one = torch.zeros(3, 3, dtype=f64), torch.eye(3, dtype=f64)
    rank1 = torch.tensor([[1.0, 2, 3], [2, 4, 6], [3, 6, 9]], dtype=f64)
    nan = torch.full((3, 3), NAN, dtype=f64)
    rank2 = torch.diag(torch.tensor([0.0, 2, 3], dtype=f64))
    for kind, a in (("zero", zero), ("identity", one), ("rank1", rank1), ("rank2", rank2)):
        f.add("det", [a], name="det_" + kind, fn=la.det, rtol=1e-9)
        f.add("matrix_exp", [a * 0.1], name="matrix_exp_" + kind, fn=la.matrix_exp, rtol=1e-9)
        f.add("pinv", [a], name="pinv_" + kind, fn=lambda x: la.pinv(x), rtol=1e-9)
        for form, fn in (("svdvals", la.svdvals), ("eigvalsh", la.eigvalsh)):
            f.add(form, [a], name=f"{form}_{kind}", fn=fn, rtol=1e-9, grad=kind in ("rank2",))
    for op, fn in (("cholesky", la.cholesky), ("inv", la.inv), ("slogdet", la.slogdet),
                   ("qr", la.qr)):
        f.add(op, [one], name=op + "_identity", fn=fn, rtol=1e-9)
    f.add("solve", [one, zero], name="solve_zero", fn=la.solve)
    f.add("solve_triangular", [one, zero], {"upper": False}, name="solve_triangular_zero",
          fn=la.solve_triangular)
    f.add("linear_scan", [torch.tensor([0.0, 1, INF], dtype=f64), torch.tensor([0.0, 1, 0],
          dtype=f64)], {"dim": 0}, name="linear_scan_infinite", fn=scan)
    lu, pivots = la.lu_factor(rank2 + one)
    f.add("lu_factor", [one], name="lu_factor_identity", fn=la.lu_factor, rtol=1e-9)
    f.add("lu_solve", [lu, pivots, zero], name="lu_solve_zero", fn=la.lu_solve, rtol=1e-9)
    x = torch.tensor([[0.0, INF], [1, 0]], dtype=f64)
    for op in ("matmul", "linear"):
        f.add(op, [x, torch.tensor([[0.0, 1], [NAN, 1]], dtype=f64)], name=op + "_infinite")
    f.add("conv1d", [x[None], torch.tensor([[[0.0, 1], [2, -1]]], dtype=f64)], name="conv_infinite")
    x = torch.tensor([[[0.0, 0, 1, 1], [0, 0, 1, 1]]], dtype=f64).unsqueeze(0)
    for op in ("max_pool2d", "avg_pool2d"):
        f.add(op, [x], {"kernel_size": 2}, name=op + "_ties")
        f.add(op, [x / 0 - 1], {"kernel_size": 2}, name=op + "_nan")
    f.add("max_pool2d", [x], {"kernel_size": 2, "return_indices": True}, fn=F.max_pool2d,
          name="max_pool2d_indices")
    to, index = torch.zeros(2, 2, dtype=f64), torch.tensor([[0, 0, 1, 0], [1, 1, 1, 0]])
    for reduce in ("amax", "amin", "prod", "mean"):
        f.add("scatter_reduce", [to, index, x[0, 0]],
              {"dim": 1, "reduce": reduce, "include_self": True}, name="scatter_" + reduce,
              fn=lambda a, i, s, dim, reduce, include_self: a.scatter_reduce(
                  dim, i, s, reduce, include_self=include_self))
    grid = torch.tensor([[[[-1.0, -1], [0, 0], [1 / 3, 1]], [[1, 1], [2, -2], [-1 / 3, 0]]]],
                        dtype=f64)
    for padding in ("zeros", "border"):
        f.add("grid_sample", [x, grid], {"mode": "bilinear", "padding_mode": padding,
                                         "align_corners": True},
              name="grid_sample_" + padding, rtol=1e-9)


def make():
    f = Singular("singular")
    pointwise(f)
    reductions(f)
    norms_and_losses(f)
    matrices(f)
    f.save()
