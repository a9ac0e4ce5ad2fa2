# SPDX-License-Identifier: Apache-2.0
"""Golden cases of functions that are composed of others under PyTorch's names. Called by make_golden.py.

`linalg.`, `special.`, `fft.` and `F.` before a name say which of PyTorch's modules it is from; without one it is
torch's. A `method.` is called on the first input.
"""
import torch
import torch.nn.functional as F

from golden_lib import Family, INF, NAN, Scalar, f16, f32, f64, i32, i64, u8

L = torch.linalg


class Names:
    def __init__(self):
        self.f = Family("names")
        self.r = self.f.rng("x")

    def real(self, *s, dtype=f64):
        return self.r.normal(*s, dtype=dtype)

    def add(self, op, inputs, attrs=None, fn=None, **kw):
        room, _, name = op.rpartition(".")
        module = {"": torch, "linalg": L, "special": torch.special, "fft": torch.fft, "F": F}.get(room)
        if fn is None and room == "method":
            fn = lambda x, *a, **k: getattr(x, name)(*a, **k)
        self.f.add(op, inputs, attrs, fn=fn or getattr(module, name), **kw)

    def many(self, op, inputs, attrs=None, **kw):
        """A function of a list of tensors."""
        self.add(op, inputs, attrs, fn=lambda *xs, **k: getattr(torch, op)(list(xs), **k), **kw)


def shapes(c):
    v, m, t, s = c.real(4), c.real(4, 6), c.real(2, 6, 4), c.real()
    for op in ("atleast_1d", "atleast_2d", "atleast_3d"):
        for x in (s, v, m, t):
            c.add(op, [x])
        c.many(op, [s, v])
    for op in ("hstack", "vstack", "dstack", "column_stack", "row_stack"):
        c.many(op, [v, c.real(4)])
        c.many(op, [m, c.real(4, 6)])
    c.many("column_stack", [v, m, s.expand(4)])
    c.many("concatenate", [m, c.real(4, 2)], {"dim": 1})
    for sections in (1, 3, 4, 6):
        c.add("tensor_split", [m], {"indices_or_sections": sections, "dim": 1},
              fn=lambda x, indices_or_sections, dim: torch.tensor_split(x, indices_or_sections, dim))
    c.add("tensor_split", [m], {"indices_or_sections": [1, 4, 9], "dim": 1},
          fn=lambda x, indices_or_sections, dim: torch.tensor_split(x, tuple(indices_or_sections), dim))
    for op, x in (("hsplit", v), ("hsplit", m), ("vsplit", m), ("dsplit", t)):
        c.add(op, [x], {"indices_or_sections": 2}, fn=lambda x, indices_or_sections, op=op: getattr(torch, op)(x, 2))
        c.add(op, [x], {"indices_or_sections": [1, 3]}, fn=lambda x, indices_or_sections, op=op: getattr(torch, op)(x, (1, 3)))
    for op in ("ravel", "fliplr", "flipud", "adjoint"):
        c.add(op, [t])
    c.add("moveaxis", [t], {"source": [0], "destination": [2]})
    for op in ("swapaxes", "swapdims"):
        c.add(op, [t], {"dim0": 0, "dim1": 2}, fn=lambda x, dim0, dim1: torch.transpose(x, dim0, dim1))
    c.add("narrow_copy", [t], {"dim": 1, "start": 2, "length": 3})
    c.add("method.reshape_as", [m, c.real(8, 3)], no_grad_inputs=(1,))
    c.add("method.sum_to_size", [t], {"size": [6, 1]}, fn=lambda x, size: x.sum_to_size(size))
    c.add("as_strided", [m], {"size": [3, 2, 2], "stride": [6, 1, 2], "storage_offset": 3})
    c.add("as_strided", [m], {"size": [2, 3], "stride": [0, 1], "storage_offset": 0})
    c.add("as_strided_scatter", [m, c.real(2, 3)], {"size": [2, 3], "stride": [7, 2], "storage_offset": 1}, no_grad_inputs=(0,))
    for start, end, step in ((None, None, 1), (1, 3, 1), (-3, None, 2)):
        k = len(range(*slice(start, end, step).indices(4)))
        c.add("slice_scatter", [m, c.real(k, 6)], {"dim": 0, "start": start, "end": end, "step": step})
    c.add("select_scatter", [t, c.real(2, 4)], {"dim": 1, "index": -2})
    c.add("diagonal_scatter", [m, c.real(4)], {"offset": 1})
    c.add("diagonal_scatter", [t, c.real(6, 2)], {"dim1": 0, "dim2": 2})
    holes = m * (m > 0)
    c.add("argwhere", [holes], grad=False)
    c.add("nonzero_static", [holes], {"size": 30}, grad=False)
    c.add("nonzero_static", [holes], {"size": 3, "fill_value": -7}, grad=False)
    c.add("unravel_index", [torch.tensor([[0, 7], [23, 11]])], {"shape": [2, 3, 4]}, grad=False)


def elements(c):
    a = torch.tensor([[0, 12, -18, 7], [-(2 ** 62), 35, 1, 100]], dtype=i64)
    b = torch.tensor([0, 18, 24, -49], dtype=i64)
    for dtype in (i64, i32, u8):
        clamp = lambda x: x.clamp(0, 120).to(dtype) if dtype == u8 else x.clamp(-(2 ** 30), 2 ** 30).to(dtype)
        x, y = (a, b) if dtype == i64 else (clamp(a), clamp(b))
        c.add("gcd", [x, y], grad=False)
        c.add("lcm", [x.clamp(-1000, 1000), y], grad=False)
    c.add("gcd", [a, Scalar(6)], grad=False, fn=lambda x, y: torch.gcd(x, torch.tensor(y)))
    edges = [0.0, -0.0, 1.0, -1.0, 2.0, INF, -INF, NAN, 1e-310, -5e-324]
    for dtype in (f64, f32):
        x = torch.tensor(edges, dtype=dtype)
        for y in (torch.zeros_like(x), torch.full_like(x, INF), x.flip(0).contiguous()):
            c.add("nextafter", [x, y], grad=False, wide=False, rtol=0.0, atol=0.0)
    big = torch.tensor([0.0, 1.0, -1.0, 0.5, 0.75, 1023.0, 1e300, -2.5e-300, 5e-324, 2.0 ** 1023, -(2.0 ** -1074)], dtype=f64)
    c.add("frexp", [big], grad=False, rtol=0.0, atol=0.0)
    c.add("frexp", [torch.tensor([3e38, 1e-45, 1.1754944e-38, -0.1, 4.0])], grad=False, wide=False, rtol=0.0, atol=0.0)
    c.add("frexp", [torch.tensor([65504.0, 6e-8, -0.3], dtype=f16)], grad=False, wide=False, rtol=0.0, atol=0.0)
    c.add("frexp", [c.real(3, 4)], no_grad_inputs=())
    c.add("ldexp", [c.real(3), torch.tensor([3, -2, 0])])
    c.add("ldexp", [c.real(3, dtype=f32), Scalar(4)], fn=lambda x, y: torch.ldexp(x, torch.tensor(y)))
    c.add("float_power", [c.real(3).abs().float(), c.real(3).float()], wide=False, rtol=1e-6)
    c.add("float_power", [torch.tensor([1, 2, 3]), Scalar(-2)], grad=False)
    for x in (c.real(5), c.real(5, dtype=f32), torch.tensor([-3, 0, 4]), torch.tensor([NAN, INF, -INF, -0.0])):
        c.add("angle", [x], grad=False)
        c.add("isreal", [x], grad=False)
        c.add("sgn", [x], grad=False)
    c.add("positive", [c.real(3)])
    x, y = c.real(3, 4), c.real(3, 4)
    for p in (0.0, 1.0, 2.0, 3.5, INF):
        c.add("dist", [x, y], {"p": p}, grad=p > 0)
    for op in ("absolute", "arcsinh", "arctan", "fix", "negative"):
        c.add(op, [x])
    for op in ("arccos", "arcsin", "arctanh"):
        c.add(op, [torch.tanh(x)])
    c.add("arccosh", [x.abs() + 1.5])
    for op in ("arctan2", "divide", "multiply", "subtract", "greater", "greater_equal", "less", "less_equal", "not_equal"):
        c.add(op, [x, y], grad=op in ("arctan2", "divide", "multiply", "subtract"))
    c.add("clip", [x], {"min": -0.5, "max": 0.25}, grad=False)
    c.add("ger", [x[0].contiguous(), y[1].contiguous()])


def sums(c):
    y, x = c.real(3, 5), c.r.uniform(.1, 1, 5, dtype=f64).cumsum(0)
    for op in ("trapezoid", "cumulative_trapezoid", "trapz"):
        c.add(op, [y])
        c.add(op, [y], {"dx": 0.5, "dim": 0})
        c.add(op, [y, x])
        c.add(op, [y, x[:3].contiguous()], {"dim": 0})
        c.add(op, [y, c.real(3, 5)], {"dim": 1})
    c.add("trapezoid", [torch.tensor([1, 5, 10])], grad=False)
    for order in (1, 2):
        c.add("gradient", [y], {"spacing": 0.5, "edge_order": order})
        c.add("gradient", [y], {"spacing": 2.0, "dim": 1, "edge_order": order},
              fn=lambda x, spacing, dim, edge_order: torch.gradient(x, spacing=spacing, dim=dim, edge_order=edge_order))
        c.add("gradient_at", [y, x[:3].contiguous(), x], {"edge_order": order}, no_grad_inputs=(1, 2),
              fn=lambda y, a, b, edge_order: torch.gradient(y, spacing=(a, b), edge_order=edge_order))
    p = c.real(40, 2)
    flat = lambda r: [r[0], *r[1]]
    c.add("histogramdd", [p], {"bins": [4, 3]}, fn=lambda x, bins: flat(torch.histogramdd(x, bins)), grad=False)
    c.add("histogramdd", [p], {"bins": [5], "range": [-1.0, 1.0, -2.0, 0.5], "density": True}, grad=False,
          fn=lambda x, bins, range, density: flat(torch.histogramdd(x, bins[0], range=range, density=density)))
    c.add("histogramdd", [p, p[:, 0].abs().contiguous()], {"bins": [2, 2]}, grad=False,
          fn=lambda x, w, bins: flat(torch.histogramdd(x, bins, weight=w)))


def algebra(c):
    a, b = c.real(2, 4, 4), c.real(2, 4, 3)
    spd = a @ a.mT + torch.eye(4, dtype=f64)
    bad = spd.clone()
    bad[1, 2, 2] = -5.0
    singular = a.clone()
    singular[0, 3] = 0.0
    loose = dict(rtol=1e-9, atol=1e-10)
    c.add("linalg.cholesky_ex", [spd], **loose)
    c.add("linalg.cholesky_ex", [spd], {"upper": True}, **loose)
    c.add("cholesky_info", [bad], fn=lambda A: L.cholesky_ex(A).info, grad=False)
    c.add("linalg.inv_ex", [a], **loose)
    c.add("inv_info", [singular], fn=lambda A: L.inv_ex(A).info, grad=False)
    c.add("linalg.solve_ex", [a, b], **loose)
    c.add("linalg.lu_factor_ex", [a], grad=False, **loose)
    c.add("lu_info", [singular], fn=lambda A: L.lu_factor_ex(A).info, grad=False)
    mixed = [a + a.mT, torch.diag(torch.tensor([0.0, 0, 1, 2], dtype=f64)) + torch.diag(torch.tensor([3.0, 4, 5], dtype=f64), -1),
             c.real(3, 7, 7), c.real(5, 5, dtype=f32), c.real(1, 1)]
    for x in mixed:
        c.add("linalg.ldl_factor", [x.tril() + x.tril(-1).mT], grad=False, wide=False,
              **(dict(rtol=1e-8, atol=1e-10) if x.dtype == f64 else dict(rtol=1e-3, atol=1e-4)))
    for x in mixed[:3]:
        x = x.tril() + x.tril(-1).mT
        rhs = c.real(*x.shape[:-1], 2)
        c.add("ldl_solve_of", [x, rhs], fn=lambda A, B: L.ldl_solve(*L.ldl_factor(A), B), grad=False, **loose)
        c.add("ldl_solve", [*L.ldl_factor(x), rhs], fn=L.ldl_solve, grad=False, **loose)
    c.add("ldl_info", [torch.zeros(2, 3, 3, dtype=f64)], fn=lambda A: L.ldl_factor_ex(A).info, grad=False)
    tall = c.real(2, 5, 3)
    h, tau = torch.geqrf(tall)
    c.add("geqrf", [tall], grad=False, **loose)
    c.add("geqrf", [c.real(3, 5)], grad=False, **loose)
    c.add("linalg.householder_product", [h, tau], **loose)
    c.add("orgqr", [h, tau], **loose)
    for left in (True, False):
        for transpose in (True, False):
            c.add("ormqr", [h, tau, c.real(2, 5, 2) if left else c.real(2, 2, 5)], {"left": left, "transpose": transpose},
                  grad=False, **loose)
    c.add("linalg.matrix_sqrth", [spd], **loose, grad=False)
    c.add("linalg.polar", [tall], **loose, grad=False)
    c.add("linalg.tensorinv", [c.real(4, 6, 8, 3)], {"ind": 2}, grad=False, **loose)
    c.add("linalg.tensorsolve", [c.real(2, 3, 6), c.real(2, 3)], **loose)
    c.add("linalg.tensorsolve", [c.real(3, 2, 4, 6), c.real(3, 4)], {"dims": [1]}, grad=False, **loose,
          fn=lambda A, B, dims: L.tensorsolve(A.reshape(3, 2, 4, 6), B, dims=tuple(dims)))
    c.add("linalg.cross", [c.real(2, 3), c.real(1, 3)])
    c.add("linalg.cross", [c.real(3, 2), c.real(3, 2)], {"dim": 0})
    c.add("linalg.diagonal", [a], {"offset": 1})
    c.add("linalg.vander", [b[0]])
    c.add("linalg.vander", [torch.tensor([1, 2, 5])], {"N": 4}, grad=False)
    c.add("linalg.vecdot", [b, b.flip(0)])
    lu, pivots = L.lu_factor(a)
    c.add("lu_unpack", [lu, pivots], grad=False)
    c.add("lu_solve_of", [b, lu, pivots], fn=torch.lu_solve, grad=False, **loose)
    c.add("inverse", [a], **loose)
    c.add("pinverse", [tall], **loose, grad=False)
    for upper in (True, False):
        for transpose in (True, False):
            c.add("triangular_solve", [b, a + 3 * torch.eye(4, dtype=f64)], {"upper": upper, "transpose": transpose}, grad=False, **loose)
    c.add("eigh_top", [spd], {"k": 2, "largest": True}, fn=lambda A, k, largest: L.eigvalsh(A)[..., -k:].flip(-1), grad=False)
    c.add("eigh_top", [spd], {"k": 1, "largest": False}, fn=lambda A, k, largest: L.eigvalsh(A)[..., :k], grad=False)
    c.add("chain_matmul", [tall[0], c.real(3, 4), c.real(4, 2)], fn=lambda *xs: L.multi_dot(xs))
    half, ccs = c.real(3, 5, 2), c.real(3, 8)
    comp = torch.view_as_complex
    out = lambda y: torch.view_as_real(y.resolve_conj()) if y.is_complex() else y
    for norm in ("backward", "ortho", "forward"):
        c.add("fft.hfft", [half], {"norm": norm}, fn=lambda x, norm: torch.fft.hfft(comp(x), norm=norm))
        c.add("fft.ihfft", [ccs], {"norm": norm}, fn=lambda x, norm: out(torch.fft.ihfft(x, norm=norm)))
    c.add("fft.hfft", [half], {"n": 7, "dim": 0}, fn=lambda x, n, dim: torch.fft.hfft(comp(x), n, dim))
    c.add("fft.hfft2", [half], fn=lambda x: torch.fft.hfft2(comp(x)))
    c.add("fft.ihfft2", [ccs], fn=lambda x: out(torch.fft.ihfft2(x)))
    c.add("fft.hfftn", [c.real(2, 3, 4, 2)], {"norm": "ortho"}, fn=lambda x, norm: torch.fft.hfftn(comp(x), norm=norm))
    c.add("fft.ihfftn", [c.real(2, 3, 4)], {"norm": "ortho"}, fn=lambda x, norm: out(torch.fft.ihfftn(x, norm=norm)))


def functional(c):
    ids = torch.tensor([[1, 0, 4], [2, 2, 1]])
    flat, offsets = torch.tensor([1, 0, 4, 2, 2, 1, 3]), torch.tensor([0, 2, 2, 5])
    w = c.real(5, 3)
    for mode in ("sum", "mean", "max"):
        c.add("F.embedding_bag", [ids, w], {"mode": mode})
        c.add("F.embedding_bag", [flat, w, offsets], {"mode": mode})
        c.add("F.embedding_bag", [flat, w, offsets], {"mode": mode, "padding_idx": -4})
    c.add("F.embedding_bag", [flat, w, torch.tensor([0, 2, 7])], {"mode": "sum", "include_last_offset": True})
    c.add("F.embedding_bag_weighted", [ids, w, c.real(2, 3)], {"mode": "sum"},
          fn=lambda i, w, s, mode: F.embedding_bag(i, w, mode=mode, per_sample_weights=s))
    x, lw, t = c.real(4, 6), c.real(5, 6), torch.tensor([0, 4, 2, 1])
    for attrs in ({}, {"reduction": "sum", "label_smoothing": 0.1}, {"reduction": "none", "ignore_index": 2}):
        c.add("F.linear_cross_entropy", [x, lw, t], attrs)
    c.add("F.linear_cross_entropy", [x, lw, t, c.real(5)], fn=lambda x, w, t, b: F.linear_cross_entropy(x, w, t, linear_bias=b))
    c.add("F.linear_cross_entropy", [x, c.real(5, 2, 6), torch.tensor([[0, 4], [2, 1], [3, 3], [1, 0]])])
    c.add("F.conv_tbc", [c.real(6, 2, 3), c.real(3, 3, 4), c.real(4)], {"pad": 1})
    image = c.real(2, 3, 4, 5)
    c.add("F.unfold", [image], {"kernel_size": [2, 3], "stride": [1, 2], "padding": [1, 0]})
    c.add("F.upsample_bilinear", [image], {"scale_factor": 2}, fn=lambda x, scale_factor: F.interpolate(x, None, 2, "bilinear", align_corners=True))
    c.add("F.upsample_nearest", [image], {"size": [7, 6]}, fn=lambda x, size: F.interpolate(x, tuple(size)))
    volume, u = c.real(2, 3, 6, 7, 5), c.r.uniform(0, 1, 2, 3, 3, dtype=f64)
    c.add("F.fractional_max_pool3d", [volume, u], {"kernel_size": [2, 3, 2], "output_size": [3, 2, 3]}, no_grad_inputs=(1,),
          fn=lambda x, u, kernel_size, output_size: F.fractional_max_pool3d(x, kernel_size, output_size, return_indices=True, _random_samples=u))
    for op in ("rrelu", "alpha_dropout", "dropout2d"):
        c.add("F." + op, [image], {"training": False}, fn=lambda x, training, op=op: getattr(F, op)(x, training=False))


def special(c):
    positive = torch.tensor([0.0, 1e-6, .3, 1.0, 1.99, 2.0, 2.01, 3.7, 7.99, 8.0, 8.5, 20.0, 97.3], dtype=f64)
    both = torch.cat([-positive.flip(0), positive])
    loose = dict(rtol=1e-7, atol=5e-9, grad=False)  # PyTorch's are right to 5e-9 next to 8
    for op in ("bessel_j0", "bessel_j1", "spherical_bessel_j0"):
        c.add("special." + op, [both], **loose)
        c.add("special." + op, [both.float()], rtol=1e-4, atol=2e-6, grad=False, wide=False)
    c.add("special.airy_ai", [both[4:-1].contiguous()], rtol=1e-7, atol=1e-12, grad=False)
    for op in ("bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
               "scaled_modified_bessel_k1"):
        c.add("special." + op, [torch.cat([positive, torch.tensor([-1.0, NAN], dtype=f64)])], **loose)
    for op in ("expit", "gammaln", "psi", "modified_bessel_i0", "modified_bessel_i1"):
        c.add("special." + op, [c.real(3, 4).abs() + .2], rtol=1e-9)
    x = torch.cat([c.r.uniform(-.99, .99, 6, dtype=f64), torch.tensor([-1.0, 0, 1, 1.5, -2.25], dtype=f64)])
    for op in ("chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
               "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
               "shifted_chebyshev_polynomial_w", "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
               "legendre_polynomial_p"):
        at = x[:-2].contiguous() if "legendre" in op else x
        for n in (-1, 0, 1, 2, 5, 9):
            c.add("special." + op, [at], {"n": n}, rtol=1e-8, atol=1e-9, grad=False,
                  fn=lambda x, n, op=op: getattr(torch.special, op)(x, n))
        c.add("special." + op, [at, torch.arange(at.numel()) % 7], rtol=1e-8, atol=1e-9, grad=False)


def make():
    c = Names()
    for part in (shapes, elements, sums, algebra, functional, special):
        part(c)
    c.f.save()
