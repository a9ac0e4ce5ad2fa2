# SPDX-License-Identifier: Apache-2.0
"""Golden cases of the special functions (torch.special and relatives). Called by make_golden.py."""
import torch

from golden_lib import INF, NAN, Family, Scalar, f32, f64, i64

# op: (low, high) of its smooth domain
UNARY = {
    "i0": (-12, 12), "i0e": (-12, 12), "i1": (-12, 12), "i1e": (-12, 12), "ndtr": (-4, 4),
    "log_ndtr": (-30, 4), "ndtri": (.001, .999), "entr": (.05, 3), "erfcx": (-3, 40),
}
POINTS = {  # what is asked at the edges
    "i0": [0.0, -0.0, 50.0, -50.0, INF, -INF, NAN], "i1": [0.0, 50.0, -50.0, NAN],
    "i0e": [0.0, 8.0, -8.0, 1e4, 1e30, NAN], "i1e": [0.0, 8.0, -8.0, 1e4, 1e30, NAN],
    "ndtr": [0.0, -2.0, 12.0, INF, -INF, NAN], "log_ndtr": [0.0, -1.0, -100.0, 12.0, INF, NAN],
    "ndtri": [0.0, 1.0, 0.5, 1e-30, -0.1, 1.1, NAN], "entr": [0.0, 1.0, -1.0, INF, NAN],
    "erfcx": [0.0, -0.0, -30.0, 28.0, 1e10, INF, -INF, NAN],
}


def pairs(f):
    r = f.rng("pairs")
    s, q = r.uniform(1.2, 9, 3, 4, dtype=f64), r.uniform(.2, 12, 3, 4, dtype=f64)
    for dt, n in ((f32, "f32"), (f64, "f64")):
        f.add("zeta", [s.to(dt), q.to(dt)], name="zeta_" + n, no_grad_inputs=(0,))
    f.add("zeta", [Scalar(3.0), q.float()], name="zeta_number")
    whole = torch.tensor([1.0, 0.5, 2.0, 3.0, 2.0, 3.0, 2.5, 4.0], dtype=f64)
    at = torch.tensor([2.0, 2.0, 0.0, -1.0, -0.5, -2.25, -0.5, -6.75], dtype=f64)
    f.add("zeta", [whole, at], name="zeta_edges", grad=False)
    a = torch.tensor([.03, .4, 1, 2.5, 9, 30, 90, 150, 4000], dtype=f64)[:, None]
    ratio = torch.tensor([1e-3, .3, .9, 1.0, 1.1, 2.0], dtype=f64)
    for op in ("gammainc", "gammaincc"):
        f.add(op, [a.expand(9, 6).contiguous(), a * ratio], name=op + "_f64", no_grad_inputs=(0,),
              rtol=2e-9, atol=1e-200)
        f.add(op, [a[:6].float(), (a[:6] * ratio).float()], name=op + "_f32", no_grad_inputs=(0,))
        edge = torch.tensor([0.0, 0.0, 1.0, 1.0, INF, INF, -1.0, 1.0, NAN], dtype=f64)
        x = torch.tensor([0.0, 1.0, 0.0, INF, INF, 1.0, 1.0, -1.0, 1.0], dtype=f64)
        f.add(op, [edge, x], name=op + "_edges", grad=False)
    u, v = r.uniform(-2, 2, 3, 4, dtype=f64), r.uniform(-.9, 3, 4, dtype=f64)
    zero = torch.tensor([0.0, 0.0, 0.0, 2.0, -1.5], dtype=f64)
    log_at = torch.tensor([2.0, 0.5, 3.0, 0.25, 1.0], dtype=f64)
    for op, shift in (("xlogy", 1.0), ("xlog1py", 0.0)):
        for dt, n in ((f32, "f32"), (f64, "f64")):
            f.add(op, [u.to(dt), (v + shift).to(dt)], name=f"{op}_{n}")
        f.add(op, [zero, log_at], name=op + "_zero")
        f.add(op, [Scalar(2.0), (v + shift).float()], name=op + "_number")
        f.add(op, [torch.tensor([0.0, 0.0, 1.0, NAN]), torch.tensor([-2.0, NAN, INF, 1.0])],
              name=op + "_edges", grad=False, wide=False)


def orders(f):
    x = f.rng("polygamma").uniform(.1, 9, 3, 5, dtype=f64)
    for n in range(5):
        f.add("polygamma", [x], {"n": n}, name=f"polygamma{n}_f64", rtol=1e-9,
              fn=lambda x, n: torch.polygamma(n, x))
        f.add("polygamma", [x.float() - 3.3], {"n": n}, name=f"polygamma{n}_f32", grad=False,
              fn=lambda x, n: torch.polygamma(n, x), rtol=1e-4)
    f.add("polygamma", [torch.tensor([1, 2, 7])], {"n": 2}, name="polygamma_i64", grad=False,
          fn=lambda x, n: torch.polygamma(n, x))
    for p in (1, 2, 5):
        for dt, n in ((f32, "f32"), (f64, "f64")):
            f.add("mvlgamma", [(x + 2.1).to(dt)], {"p": p}, name=f"mvlgamma{p}_{n}",
                  fn=lambda x, p: torch.special.multigammaln(x, p))
    for dt, n in ((f32, "f32"), (f64, "f64")):
        f.add("betaln", [x.to(dt), x[0].to(dt)], name="betaln_" + n,
              fn=lambda a, b: torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b))
        f.add("betaln", [x[:, :2].to(dt), x[:, 3:].to(dt)], name="betaln_same_" + n,
              fn=lambda a, b: torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b))


def rest(f):
    """Rows that the other files ask less than three times."""
    r = f.rng("rest")
    x = r.uniform(-4, 4, 3, 5)
    v = torch.tensor([0.0, -0.0, 1.0, -2.5, INF, -INF, NAN])
    for n, t in (("f32", x), ("f64", x.double()), ("small", x * 0.1)):
        for op in ("frac", "sinc", "deg2rad", "rad2deg"):
            f.add(op, [t], name=f"{op}_{n}")
        f.add("celu", [t], {"alpha": 0.5}, name="celu_" + n)
        f.add("round", [t], {"decimals": 1}, name="round_decimals_" + n, wide=False, grad=False)
    for n, t in (("f32", v), ("f64", v.double()), ("f16", v.half())):
        for op in ("isinf", "isfinite", "isposinf", "isneginf", "signbit", "isnan"):
            f.add(op, [t], name=f"{op}_{n}", grad=False, wide=False)
        f.add("nan_to_num", [t], {"nan": 0.5, "posinf": 9.0, "neginf": -9.0}, name="to_num_" + n,
              grad=False, wide=False)
        f.add("logical_xor", [t, t.flip(0)], name="logical_xor_" + n, grad=False, wide=False)
        f.add("isclose", [t, t + 1e-3], {"rtol": 1e-2, "atol": 1e-4}, name="isclose_" + n,
              grad=False, wide=False)
    for n, dt in (("f32", f32), ("f64", f64)):
        a, b = x.to(dt), r.uniform(-2, 2, 5, dtype=f64).to(dt)
        f.add("logaddexp2", [a, b], name="logaddexp2_" + n)
        f.add("heaviside", [a.round(), b], name="heaviside_" + n, grad=False, wide=False)
    ids = torch.tensor([1, 3, 3, 0, 7])
    for k in (0, 4, 12):
        f.add("bincount", [ids], {"minlength": k}, grad=False)
    f.add("matrix_exp", [r.normal(2, 4, 4, dtype=f64)], fn=torch.linalg.matrix_exp, rtol=1e-9)
    f.add("matrix_exp", [torch.zeros(3, 3, dtype=f64)], fn=torch.linalg.matrix_exp)
    image, stats = r.normal(2, 3, 4, dtype=f64), [r.normal(3, dtype=f64), r.uniform(.5, 2, 3, dtype=f64)]
    affine = [r.normal(3, dtype=f64), r.normal(3, dtype=f64)]
    for n, dt in (("f32", f32), ("f64", f64)):
        for inputs in ([image, *stats, *affine], [image, *stats, None, None]):
            f.add("batch_norm", [None if t is None else t.to(dt) for t in inputs], grad=False,
                  fn=lambda x, m, v, w, b: torch.nn.functional.batch_norm(x, m, v, w, b),
                  name="batch_norm_infer_" + n)
    a = torch.tensor([0.5, 3.0, 20.0], dtype=f64)
    for k in (0.7, 1.6):
        f.add("sample_gamma_backward", [a, a * k], grad=False, rtol=2e-3, name="gamma_backward",
              fn=lambda a, z: torch._standard_gamma_grad(a, z))


def make():
    f = Family("special", torch.special)
    for op, (lo, hi) in UNARY.items():
        for dt in (f32, f64):
            x = f.rng(f"{lo},{hi}").uniform(lo, hi, 3, 5, dtype=dt)
            f.add(op, [x], name=f"{op}_{'f32' if dt == f32 else 'f64'}", seed="go35")
        f.add(op, [torch.tensor(POINTS[op], dtype=f64)], name=op + "_edges", grad=False,
              rtol=1e-10, atol=1e-300)
        f.add(op, [torch.tensor([0, 1], dtype=i64)], name=op + "_i64", wide=False, grad=False)
    pairs(f)
    orders(f)
    rest(f)
    f.save()
