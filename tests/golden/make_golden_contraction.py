# SPDX-License-Identifier: Apache-2.0
"""Golden cases of matmul, conv and attention in their forms. Called by make_golden.py."""
import torch
import torch.nn.functional as F

from golden_lib import Family, bf16, f16, f32, f64, i32, i64

LOOSE = {"rtol": 2e-5, "atol": 5e-6}


def loose(dt):
    return LOOSE if dt == f32 else {}


def products(f):
    shapes = [((4,), (4,)), ((4,), (4, 3)), ((2, 4), (4,)), ((2, 4), (4, 3)),
              ((3, 2, 4), (4, 5)), ((3, 2, 4), (3, 4, 2)), ((2, 1, 3, 4), (5, 4, 2)),
              ((3, 2, 4), (4,)), ((4,), (3, 4, 2)), ((2, 3), (1, 3, 2)), ((2, 4, 3, 2), (4, 2, 5)),
              ((17, 33), (33, 9)), ((1, 5), (5, 1)), ((0, 3), (3, 2)), ((2, 0), (0, 3))]
    for a, b in shapes:
        r = f.rng(f"{a}{b}")
        x, y = r.normal(*a), r.normal(*b)
        f.add("matmul", [x, y], **LOOSE)
        if a in ((2, 4), (3, 2, 4)) and b in ((4, 3), (3, 4, 2)):
            f.add("matmul", [x.double(), y.double()], name="matmul_f64")
            for dt, n in ((f16, "f16"), (bf16, "bf16")):
                f.add("matmul", [x.to(dt), y.to(dt)], name="matmul_" + n)
            for dt, n in ((i32, "i32"), (i64, "i64")):
                f.add("matmul", [(x * 5).to(dt), (y * 5).to(dt)], name="matmul_" + n)
    r = f.rng("products")
    m, k, v, w = r.normal(3, 4), r.normal(4, 5), r.normal(4), r.normal(3)
    f.add("mm", [m, k], **LOOSE)
    f.add("mv", [m, v], **LOOSE)
    f.add("dot", [v, v + 1], **LOOSE)
    f.add("outer", [v, w])
    f.add("bmm", [r.normal(2, 3, 4), r.normal(2, 4, 5)], **LOOSE)
    f.add("addmm", [r.normal(5), m, k], {"beta": 0.5, "alpha": 2.0}, **LOOSE)
    f.add("addmm", [r.normal(3, 5), m, k], **LOOSE)
    f.add("baddbmm", [r.normal(1, 3, 5), r.normal(2, 3, 4), r.normal(2, 4, 5)],
          {"beta": 0.5, "alpha": 2.0}, **LOOSE)
    f.add("tensordot", [r.normal(2, 3, 4), r.normal(4, 3, 5)], {"dims": [[1, 2], [1, 0]]}, **LOOSE)
    f.add("cdist", [r.normal(4, 3), r.normal(5, 3)], {"p": 2.0}, **LOOSE)
    f.add("einsum", [m, k], {"equation": "ij,jk->ik"}, fn=einsum, **LOOSE)
    f.add("einsum", [m], {"equation": "ij->j"}, fn=einsum, **LOOSE)
    f.add("einsum", [m[:, :3].contiguous()], {"equation": "ii->i"}, fn=einsum)
    f.add("einsum", [r.normal(2, 3, 4), r.normal(2, 5, 4)], {"equation": "bid,bjd->bij"},
          fn=einsum, **LOOSE)
    f.add("einsum", [r.normal(2, 3, 4), r.normal(4, 2)], {"equation": "...d,dk->...k"}, fn=einsum,
          **LOOSE)
    f.add("einsum", [v, w, r.normal(4, 3)], {"equation": "i,j,ij->"}, fn=einsum, **LOOSE)
    for lead in ((), (3,), (2, 3)):
        x, wt, b = r.normal(*lead, 4), r.normal(5, 4), r.normal(5)
        f.add("linear", [x, wt, b], fn=F.linear, **LOOSE)
        f.add("linear", [x, wt, None], fn=F.linear, **LOOSE)
    f.add("linear", [x.double(), wt.double(), b.double()], fn=F.linear, name="linear_f64")
    f.add("linear", [x.to(bf16), wt.to(bf16), b.to(bf16)], fn=F.linear, name="linear_bf16")
    f.add("bilinear", [r.normal(3, 2), r.normal(3, 4), r.normal(5, 2, 4), r.normal(5)],
          fn=F.bilinear, **LOOSE)


def einsum(*xs, equation):
    return torch.einsum(equation, *xs)


CONV2D = [
    # x, weight, attrs
    ((1, 1, 5, 5), (2, 1, 3, 3), {}),
    ((2, 3, 6, 5), (4, 3, 3, 2), {"stride": 2, "padding": 1}),
    ((2, 3, 7, 6), (4, 3, 3, 3), {"stride": [2, 1], "padding": [0, 2]}),
    ((1, 2, 8, 8), (3, 2, 3, 3), {"dilation": 2}),
    ((1, 2, 9, 8), (3, 2, 3, 2), {"dilation": [2, 3], "padding": [2, 3], "stride": [2, 1]}),
    ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    ((2, 4, 5, 5), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    ((2, 4, 5, 5), (8, 1, 3, 3), {"groups": 4, "stride": 2}),
    ((2, 3, 4, 4), (5, 3, 1, 1), {}),
    ((2, 3, 4, 4), (5, 3, 1, 1), {"stride": 2}),
    ((1, 2, 5, 6), (3, 2, 3, 2), {"padding": "same"}),
    ((1, 2, 5, 6), (3, 2, 4, 2), {"padding": "same", "dilation": 2}),
    ((1, 2, 5, 6), (3, 2, 3, 3), {"padding": "valid"}),
    ((1, 3, 4, 4), (2, 3, 4, 4), {}),
    ((0, 3, 4, 4), (2, 3, 3, 3), {}),
]


def convs(f):
    for xs, ws, attrs in CONV2D:
        r = f.rng(f"{xs}{ws}{attrs}")
        x, w, b = r.normal(*xs), r.normal(*ws), r.normal(ws[0])
        f.add("conv2d", [x, w, b], attrs, fn=F.conv2d, **LOOSE)
        if not attrs or attrs.get("groups") == 2:
            f.add("conv2d", [x.double(), w.double(), None], attrs, fn=F.conv2d, name="conv2d_f64")
    r = f.rng("conv")
    x, w, b = r.normal(3, 5, 5), r.normal(2, 3, 3, 3), r.normal(2)
    f.add("conv2d", [x, w, b], {"padding": 1}, fn=F.conv2d, name="conv2d_unbatched", **LOOSE)
    f.add("conv2d", [x[None].to(bf16), w.to(bf16), b.to(bf16)], {"padding": 1}, fn=F.conv2d,
          name="conv2d_bf16")
    for attrs in ({}, {"stride": 2, "padding": 2}, {"dilation": 3}, {"padding": "same"}):
        f.add("conv1d", [r.normal(2, 3, 9), r.normal(4, 3, 3), r.normal(4)], attrs, fn=F.conv1d,
              **LOOSE)
    f.add("conv1d", [r.normal(2, 4, 7), r.normal(4, 1, 2), None], {"groups": 4}, fn=F.conv1d,
          **LOOSE)
    for attrs in ({}, {"stride": [1, 2, 1], "padding": 1}):
        f.add("conv3d", [r.normal(1, 2, 4, 4, 3), r.normal(3, 2, 2, 3, 2), r.normal(3)], attrs,
              fn=F.conv3d, **LOOSE)
    for attrs in ({}, {"stride": 2}, {"stride": 2, "padding": 1, "output_padding": 1},
                  {"dilation": 2, "padding": [1, 0]}):
        f.add("conv_transpose2d", [r.normal(2, 3, 3, 4), r.normal(3, 2, 3, 3), r.normal(2)], attrs,
              fn=F.conv_transpose2d, **LOOSE)
    f.add("conv_transpose2d", [r.normal(1, 4, 3, 3), r.normal(4, 2, 2, 2), None],
          {"groups": 2, "stride": 2}, fn=F.conv_transpose2d, **LOOSE)
    f.add("conv_transpose1d", [r.normal(2, 3, 5), r.normal(3, 2, 4), r.normal(2)],
          {"stride": 2, "padding": 1}, fn=F.conv_transpose1d, **LOOSE)


def attention(f):
    r = f.rng("attention")
    q, k, v = r.normal(2, 2, 5, 4), r.normal(2, 2, 6, 4), r.normal(2, 2, 6, 3)
    sq, sk, sv = r.normal(2, 2, 5, 4), r.normal(2, 2, 5, 4), r.normal(2, 2, 5, 4)
    mask = r.bools(5, 6)
    mask[:, 0] = True
    bias = r.normal(2, 1, 5, 6)
    sdpa = F.scaled_dot_product_attention
    name = "scaled_dot_product_attention"

    def add(xs, attrs=None, **kw):
        f.add(name, xs, attrs, fn=lambda a, b, c, m=None, **o: sdpa(a, b, c, attn_mask=m, **o),
              **kw)
    for dt in (f32, f64):
        add([t.to(dt) for t in (q, k, v)], **loose(dt))
        add([t.to(dt) for t in (sq, sk, sv)], {"is_causal": True}, **loose(dt))
        add([*(t.to(dt) for t in (q, k, v)), mask], **loose(dt))
        add([*(t.to(dt) for t in (q, k, v)), bias.to(dt)], **loose(dt))
    add([q, k, v], {"is_causal": True}, **LOOSE)
    add([q, k, v], {"scale": 0.3}, **LOOSE)
    add([q[0], k[0], v[0]], **LOOSE)
    add([q[0, 0], k[0, 0], v[0, 0]], **LOOSE)
    add([r.normal(1, 4, 3, 4), r.normal(1, 2, 3, 4), r.normal(1, 2, 3, 4)], {"enable_gqa": True},
        **LOOSE)
    add([t.to(bf16) for t in (sq, sk, sv)], {"is_causal": True}, rtol=2e-2, atol=2e-2)


def make():
    f = Family("contraction")
    products(f)
    convs(f)
    attention(f)
    f.save()
