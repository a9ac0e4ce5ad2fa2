# SPDX-License-Identifier: Apache-2.0
"""Golden cases of linear algebra and of linear_scan. Called by make_golden.py.

Vectors of svd and eigh are known up to a sign: `*_rebuilt` are functions of a decomposition that do
not depend on it.
"""
import torch
import torch.linalg as la

from golden_lib import INF, Family, f32, f64



def regular(r, *shape, dtype=f64):
    return r.normal(*shape, dtype=dtype, scale=0.3) + 2 * torch.eye(*shape[-2:], dtype=dtype)


def positive(r, *shape, dtype=f64):
    a = r.normal(*shape, dtype=dtype)
    return 0.3 * a @ a.mT + torch.eye(shape[-1], dtype=dtype)


def scan(a, b, dim, reverse=False):
    order = range(a.shape[dim] - 1, -1, -1) if reverse else range(a.shape[dim])
    s, out = 0, {}
    for i in order:
        s = out[i] = a.select(dim, i) * s + b.select(dim, i)
    return torch.stack([out[i] for i in range(a.shape[dim])], dim)


def order(p):
    return {"inf": INF, "-inf": -INF}.get(p, p)


def svd_rebuilt(x):
    u, s, vh = la.svd(x, full_matrices=False)
    return u * u, s, vh * vh, (u * s.exp().unsqueeze(-2)) @ vh


def eigh_rebuilt(x, UPLO="L"):
    w, v = la.eigh(x, UPLO)
    return w, v * v, (v * w.exp().unsqueeze(-2)) @ v.mT


def make():
    f = Family("linalg", prefer=la)
    # Float32 results of these depend on the library: float64 only, but for a few.
    loose = {"rtol": 1e-9, "atol": 1e-11}
    r = f.rng("x")
    add = f.add
    spd = positive(r, 2, 4, 4)
    sq = regular(r, 2, 4, 4)
    b, v = r.normal(2, 4, 3, dtype=f64), r.normal(4, dtype=f64)
    for a in ({}, {"upper": True}):
        add("cholesky", [spd], a, **loose)
    add("cholesky", [spd.float()], wide=False, rtol=1e-4, atol=1e-5)
    L = la.cholesky(spd)
    # PyTorch gives gradients to the triangle that it does not read.
    add("cholesky_solve", [b, L], fn=lambda b, L: torch.cholesky_solve(b, L.tril()), **loose)
    add("cholesky_solve", [b, L.mT], {"upper": True},
        fn=lambda b, L, upper: torch.cholesky_solve(b, L.triu(), upper), **loose)
    add("cholesky_inverse", [L[0]], fn=lambda L: torch.cholesky_inverse(L.tril()), **loose)
    add("solve", [sq, b], **loose)
    add("solve", [sq, b[0]], **loose)
    add("solve", [sq[0], v], **loose)
    add("solve", [sq, b.mT.contiguous()], {"left": False}, **loose)
    add("solve", [sq.float(), b.float()], wide=False, rtol=1e-4, atol=1e-5)
    for a in ({"upper": False}, {"upper": True}, {"upper": True, "unitriangular": True}):
        add("solve_triangular", [sq, b], a, **loose)
    add("solve_triangular", [sq, b.mT.contiguous()], {"upper": False, "left": False}, **loose)
    for x in (sq, r.normal(5, 5, dtype=f64)):
        add("lu_factor", [x], **loose)
        add("lu", [x], **loose)
        add("inv", [x], **loose)
        add("det", [x], **loose)
        add("slogdet", [x], **loose)
    lu, piv = la.lu_factor(sq)
    add("lu_solve", [lu, piv, b], **loose)
    add("logdet", [sq], fn=torch.logdet, **loose)
    add("det", [torch.tensor([[1., 2, 3], [2, 4, 6], [0, 1, 5]], dtype=f64)], name="det_singular",
        **loose)
    tall, flat = r.normal(2, 5, 3, dtype=f64), r.normal(2, 3, 5, dtype=f64)
    for x in (tall, flat, sq):
        add("qr", [x], **loose)
        add("svdvals", [x], **loose)
        add("svd_rebuilt", [x], fn=svd_rebuilt, **loose)
        add("pinv", [x], **loose)
        add("matrix_rank", [x], grad=False)
    add("qr", [flat], {"mode": "complete"}, **loose)
    add("qr", [tall], {"mode": "complete"}, grad=False, **loose)
    add("qr", [tall.float()], wide=False, rtol=1e-4, atol=1e-5)
    low = tall @ flat
    add("matrix_rank", [low], grad=False)
    add("pinv", [low], {"relative": 1e-8}, fn=lambda x, relative: la.pinv(x, rtol=relative),
        grad=False, rtol=1e-8, atol=1e-9)
    for u in ("L", "U"):
        add("eigvalsh", [sq], {"UPLO": u}, **loose)
        add("eigh_rebuilt", [sq], {"UPLO": u}, fn=eigh_rebuilt, **loose)
    add("lstsq", [tall, r.normal(2, 5, 2, dtype=f64)], fn=lambda a, b: la.lstsq(a, b)[0],
        **loose)
    add("lstsq", [flat, r.normal(2, 3, 2, dtype=f64)], fn=lambda a, b: la.lstsq(a, b)[0],
        **loose)
    for n in (0, 1, 3):
        add("matrix_power", [sq], {"n": n}, grad=n > 0, **loose)
    add("matrix_power", [sq], {"n": -2}, fn=lambda x, n: la.inv(x) @ la.inv(x), **loose)
    add("matrix_exp", [sq], **loose)
    add("matrix_exp", [10 * r.normal(3, 3, dtype=f64)], rtol=1e-8, atol=1e-8)
    for p in ("fro", "nuc", 1, -1, 2, -2, "inf", "-inf"):
        add("matrix_norm", [tall], {"ord": p}, fn=lambda x, ord: la.matrix_norm(x, order(ord)),
            **loose)
    add("matrix_norm", [tall], {"ord": 1, "dim": [0, 2], "keepdim": True}, **loose)
    for p in (2, 3, 0.5, "inf"):
        add("vector_norm", [tall], {"ord": p, "dim": [1]},
            fn=lambda x, ord, dim: la.vector_norm(x, order(ord), dim), **loose)
    add("linalg_norm", [tall], fn=la.norm, **loose)
    add("linalg_norm", [tall[0]], {"ord": 1}, fn=la.norm, **loose)
    add("linalg_norm", [v], {"ord": 3}, fn=la.norm, **loose)
    add("cond", [sq], **loose)
    for p in (1, "fro"):
        add("cond", [sq], {"p": p}, **loose,
            fn=lambda x, p: la.matrix_norm(x, p) * la.matrix_norm(la.inv(x), p))
    add("multi_dot", [r.normal(3, dtype=f64), r.normal(3, 7, dtype=f64), r.normal(7, 2, dtype=f64)],
        fn=lambda *x: la.multi_dot(x), **loose)
    add("multi_dot", [tall[0], flat[0], tall[1]], fn=lambda *x: la.multi_dot(x), **loose)
    add("vecdot", [tall, tall.flip(0)], {"dim": 1}, **loose)
    a = r.normal(3, 5, 2)
    a[:, 2] = 0
    for d, back in ((1, False), (1, True), (0, False)):
        add("linear_scan", [a, r.normal(3, 5, 2)], {"dim": d, "reverse": back}, fn=scan)
    holes = r.normal(2, 6, dtype=f64)
    holes[0, 1] = holes[0, 4] = holes[1, 0] = 0
    add("cumprod", [holes], {"dim": 1}, fn=torch.cumprod, name="cumprod_zeros")
    for x in (tall, flat):
        add("lu_factor", [x], **loose)
        add("lu", [x], **loose)
    b5, b3 = f.rng("b5").normal(2, 5, 2, dtype=f64), f.rng("b3").normal(2, 3, 2, dtype=f64)
    for driver in ("gels", "gelsy", "gelsd"):
        for a, b in ((tall, b5), (flat, b3)):
            add("lstsq_all", [a, b], {"driver": driver}, grad=False,
                fn=lambda a, b, driver: la.lstsq(a, b, driver=driver), **loose)
    f.save()
