# SPDX-License-Identifier: Apache-2.0
"""Golden cases of pooling and resizing. Called by make_golden.py."""
import torch
import torch.nn.functional as F

from golden_lib import INF, NAN, Family, bf16, f64

MAX = [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2}, {"kernel_size": 3, "stride": 1,
       "padding": 1}, {"kernel_size": [2, 3], "stride": [1, 2], "padding": [1, 1]},
       {"kernel_size": 2, "dilation": 2, "stride": 1}, {"kernel_size": 2, "ceil_mode": True},
       {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True}]
AVG = [*MAX[:4], *MAX[5:], {"kernel_size": 3, "stride": 2, "padding": 1,
       "count_include_pad": False}, {"kernel_size": 3, "stride": 2, "padding": 1,
       "ceil_mode": True, "count_include_pad": False}, {"kernel_size": 2, "divisor_override": 3}]


def make():
    f = Family("pool", prefer=F)
    x = f.rng("x").normal(1, 2, 7, 6)
    ties = torch.tensor([[[[1.0, 1, 2, 2], [1, 1, 2, 0], [0, -0.0, NAN, 3], [-INF, -5, 1, NAN]]]])
    for a in MAX:
        f.add("max_pool2d", [x], a)
        f.add("max_pool2d", [x], dict(a, return_indices=True), grad=False,
              name="max_pool2d_indices")
    for a in MAX[1:4]:
        f.add("max_pool2d", [x.double()], a, name="max_pool2d_f64")
        f.add("avg_pool2d", [x.double()], a, name="avg_pool2d_f64")
    f.add("max_pool2d", [ties], {"kernel_size": 2}, name="max_pool2d_ties")
    f.add("max_pool2d", [x[0]], {"kernel_size": 2}, name="max_pool2d_unbatched")
    f.add("max_pool2d", [x.to(bf16)], {"kernel_size": 2}, name="max_pool2d_bf16")
    for a in AVG:
        f.add("avg_pool2d", [x], a)
    for size in (1, 2, [3, 4], [None, 2], [9, 5]):
        a = {"output_size": size}
        f.add("adaptive_avg_pool2d", [x], a)
        f.add("adaptive_max_pool2d", [x], a)
    f.add("adaptive_avg_pool2d", [x.to(f64)], {"output_size": 2}, name="adaptive_avg_pool2d_f64")
    s = f.rng("s").normal(2, 3, 9)
    for a in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}):
        f.add("max_pool1d", [s], a)
        f.add("avg_pool1d", [s], a)
    f.add("adaptive_avg_pool1d", [s], {"output_size": 4})
    f.add("adaptive_max_pool1d", [s], {"output_size": 4})
    for mode, extra in (("nearest", {}), ("bilinear", {"align_corners": False}),
                        ("bilinear", {"align_corners": True}), ("nearest-exact", {}),
                        ("bicubic", {"align_corners": False})):
        for size in ({"size": [4, 9]}, {"scale_factor": 2.0}):
            f.add("interpolate", [x], dict(size, mode=mode, **extra))
    f.save()
