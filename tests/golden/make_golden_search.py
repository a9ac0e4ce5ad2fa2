# SPDX-License-Identifier: Apache-2.0
"""Golden cases of searching, order statistics, segments, distances and arrangements of matrices.
Called by make_golden.py."""
import torch

from golden_lib import INF, NAN, Family, f32, f64, i64


def many(op):
    return lambda *xs, **kw: getattr(torch, op)(xs, **kw)


def searching(f):
    r = f.rng("search")
    rows = r.normal(3, 6).sort(-1)[0]
    v = r.normal(3, 4)
    f.add("searchsorted", [rows, v], {"right": True, "out_int32": True}, grad=False)
    f.add("searchsorted", [torch.tensor([1, 3, 3, 9]), torch.tensor([[0, 3], [9, 12]])],
          grad=False)
    f.add("searchsorted", [torch.tensor([0.0, 1, NAN]), torch.tensor([0.5, NAN, 3.0])], grad=False)
    x = torch.tensor([[3.0, 1, 1], [2, 1, 1], [3, 1, 1], [0, 5, 5]])
    both = {"return_inverse": True, "return_counts": True}
    f.add("unique", [x], both, grad=False)
    f.add("unique", [x], dict(both, dim=0), grad=False)
    f.add("unique", [x], dict(both, dim=1), grad=False)
    f.add("unique_consecutive", [x], both, grad=False)
    f.add("unique_consecutive", [x], dict(both, dim=1), grad=False)
    f.add("unique_consecutive", [torch.tensor([1, 1, 2, 2, 1])], both, grad=False)
    f.add("isin", [torch.tensor([[1, 2], [3, 4]]), torch.tensor([2, 4, 7])], grad=False)
    f.add("isin", [x, torch.tensor([1.0, 5.0])], {"invert": True}, grad=False)


def statistics(f):
    r = f.rng("stat")
    x = r.normal(3, 7, 4)
    holes = r.normal(3, 7)
    holes[0, 2] = holes[1, 0] = holes[1, 5] = NAN
    for k, d in ((1, -1), (3, 1), (2, 0)):
        f.add("kthvalue", [x], {"k": k, "dim": d})
    f.add("kthvalue", [x], {"k": 2, "dim": 1, "keepdim": True})
    for op in ("median", "nanmedian"):
        f.add(op, [x])
        for d in (0, 1, -1):
            f.add(op, [x], {"dim": d})
        f.add(op, [holes], {"dim": 1, "keepdim": True}, grad=False, name=op + "_nan")
        f.add(op, [holes], grad=False, name=op + "_nan")
        f.add(op, [(x * 5).to(i64)], grad=False, name=op + "_i64")
        f.add(op, [torch.zeros(0, 3)], name=op + "_empty")
        f.add(op, [torch.tensor([3.0, 2, 1, 2, 2])], name=op + "_ties")
        f.add(op, [torch.tensor([1.0, NAN, 2, NAN])], name=op + "_nan_grad")
    ties = torch.tensor([[1, 2, 2, 3, 3], [5, 5, 1, 4, 4], [1, 2, 3, 4, 0]])
    f.add("mode", [ties], {"dim": 1}, grad=False, fn=lambda x, dim: torch.mode(x, dim)[0])
    f.add("mode", [ties.t().float().contiguous()], {"dim": 0, "keepdim": True}, grad=False,
          fn=lambda x, dim, keepdim: torch.mode(x, dim, keepdim)[0])
    qs = torch.tensor([0.0, 0.3, 0.5, 1.0])
    for how in ("linear", "lower", "higher", "nearest", "midpoint"):
        f.add("quantile", [x, qs], {"dim": 1, "interpolation": how}, no_grad_inputs=(1,),
              fn=lambda x, q, **k: torch.quantile(x, q.to(x.dtype), **k))
    f.add("quantile", [x], {"q": 0.35})
    f.add("quantile", [x], {"q": 0.75, "dim": -1, "keepdim": True})
    f.add("nanquantile", [holes, qs], {"dim": 1}, grad=False)
    f.add("nanquantile", [holes], {"q": 0.4}, grad=False)
    f.add("quantile", [holes], {"q": 0.4, "dim": 1}, grad=False, name="quantile_nan")
    f.add("msort", [x])
    f.add("nanmean", [holes], {"dim": [1]}, grad=False)
    f.add("nanmean", [x])
    f.add("histc", [x], {"bins": 10}, grad=False)
    f.add("histc", [x], {"bins": 5, "min": -1, "max": 1}, grad=False)
    f.add("histogram", [x], {"bins": 6}, grad=False)
    f.add("histogram", [x[0], x[1].abs()], {"bins": 4, "range": [-1, 2], "density": True},
          grad=False, fn=lambda x, w, range, **k: torch.histogram(x, weight=w, range=range, **k))
    y = r.normal(3, 8)
    f.add("cov", [y])
    f.add("cov", [y[0]])
    f.add("cov", [y], {"correction": 0})
    fw, aw = torch.tensor([1, 2, 1, 3, 1, 1, 2, 1]), r.uniform(0.2, 1, 8)
    f.add("cov", [y, fw, aw], fn=lambda x, f, a: torch.cov(x, fweights=f, aweights=a),
          no_grad_inputs=(2,))
    f.add("cov", [y, fw, None], fn=lambda x, f, a: torch.cov(x, fweights=f))
    f.add("corrcoef", [y], rtol=1e-4, atol=1e-5)


def segments(f):
    r = f.rng("segments")
    x, src = r.normal(4, 5), r.normal(4, 7)
    idx = r.ints(0, 5, 4, 7)
    zeros = src.clone()
    zeros[0, :4] = zeros[2, 1] = 0
    for red in ("sum", "prod", "mean", "amax", "amin"):
        for inc in (True, False):
            f.add("scatter_reduce", [x, idx, src], {"dim": 1, "reduce": red, "include_self": inc},
                  fn=lambda a, i, s, dim, reduce, include_self:
                  a.scatter_reduce(dim, i, s, reduce, include_self=include_self))
    f.add("scatter_reduce", [x, idx, zeros], {"dim": 1, "reduce": "prod", "include_self": True},
          fn=lambda a, i, s, dim, reduce, include_self:
          a.scatter_reduce(dim, i, s, reduce, include_self=include_self), name="scatter_prod_zeros")
    k = torch.tensor([0, 2, 0])
    for red in ("prod", "mean", "amax", "amin"):
        f.add("index_reduce", [x, k, r.normal(4, 3)], {"dim": 1, "reduce": red},
              fn=lambda a, i, s, dim, reduce: a.index_reduce(dim, i, s, reduce))
    data = r.normal(7, 3)
    lengths = torch.tensor([2, 0, 4, 1])
    for red in ("sum", "mean", "max", "min", "prod"):
        f.add("segment_reduce", [data, lengths], {"reduce": red}, grad=red != "mean",
              fn=lambda d, n, reduce: torch.segment_reduce(d, reduce, lengths=n))
    f.add("segment_reduce", [data, torch.tensor([0, 3, 7])], {"reduce": "sum", "offsets": True},
          fn=lambda d, n, reduce, offsets: torch.segment_reduce(d, reduce, offsets=n))
    f.add("take", [x, torch.tensor([[0, 19], [-1, 3]])])
    at = torch.tensor([1, -2, 7])

    def put(a, i, s, accumulate=False):  # torch.put, which refuses in deterministic mode
        return a.reshape(-1).index_put((i,), s, accumulate=accumulate).reshape(a.shape)

    f.add("put", [x, at, r.normal(3)], fn=put)
    f.add("put", [x, torch.tensor([1, 1, 7]), r.normal(3)], {"accumulate": True},
          fn=put)


def matrices(f):
    r = f.rng("matrices")
    n = r.normal
    a, b = n(2, 4, 3), n(2, 5, 3)
    for p in (0.5, 1, 2, 3, "inf"):
        f.add("cdist", [a, b], {"p": p}, rtol=1e-4, atol=1e-5, grad=p != 0.5,
              fn=lambda x, y, p: torch.cdist(x, y, float(p)))
        f.add("pdist", [a[0]], {"p": p}, rtol=1e-4, atol=1e-5, grad=p != 0.5,
              fn=lambda x, p: torch.pdist(x, float(p)))
    f.add("cdist", [n(4, 3), b], rtol=1e-4, atol=1e-5)
    f.add("cdist", [a[0], a[0].clone()], rtol=1e-4, atol=1e-5, name="cdist_zero", wide=False,
          fn=lambda x, y: torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist"))
    f.add("renorm", [n(4, 3, scale=2)], {"p": 2.0, "dim": 0, "maxnorm": 1.5})
    f.add("renorm", [n(4, 3, scale=2)], {"p": 1.0, "dim": 1, "maxnorm": 5.0})
    f.add("cross", [n(4, 3), n(4, 3)], {"dim": 1})
    f.add("cross", [n(3, 4), n(3, 1)], {"dim": 0}, fn=torch.linalg.cross)
    f.add("kron", [n(2, 3), n(3, 2)])
    f.add("kron", [n(2), n(3, 2)])
    f.add("inner", [n(2, 3, 4), n(5, 4)])
    f.add("inner", [n(4), n(4)])
    f.add("vdot", [n(4), n(4)])
    f.add("addmv", [n(3), n(3, 4), n(4)], {"beta": 0.5, "alpha": 2.0})
    f.add("addr", [n(3, 4), n(3), n(4)], {"beta": 0.5, "alpha": 2.0})
    f.add("addbmm", [n(3, 4), n(2, 3, 5), n(2, 5, 4)], {"beta": 0.5, "alpha": 2.0},
          fn=lambda x, a, b, beta, alpha: beta * x + alpha * (a @ b).sum(0))
    f.add("trace", [n(3, 4)])
    f.add("diag_embed", [n(2, 3)])
    f.add("diag_embed", [n(2, 3)], {"offset": 1, "dim1": 0, "dim2": 2})
    f.add("diag_embed", [n(2, 3)], {"offset": -2})
    f.add("diagflat", [n(2, 2)], {"offset": 1})
    f.add("block_diag", [n(2, 3), n(2), n(1, 1)], fn=lambda *x: torch.block_diag(*x))
    f.add("vander", [n(4)], grad=False)
    f.add("vander", [n(4)], {"N": 3, "increasing": True}, grad=False)
    f.add("cartesian_prod", [n(2), n(3), n(2)], fn=lambda *x: torch.cartesian_prod(*x))
    f.add("combinations", [n(5)], {"r": 3})
    f.add("combinations", [n(3)], {"r": 2, "with_replacement": True})


def make():
    f = Family("search")
    searching(f)
    statistics(f)
    segments(f)
    matrices(f)
    f.save()
