# SPDX-License-Identifier: Apache-2.0
"""Golden cases of resampling, patches, pooling of all ranks and detection. Called by make_golden.py.

Cases of detection come from torchvision; without it they cannot be made.
"""
import torch
import torch.nn.functional as F
import torchvision.ops as V

from golden_lib import Family, f32, f64, u8

SHAPES = {1: (2, 3, 7), 2: (1, 2, 6, 5), 3: (1, 2, 4, 3, 5)}


def interpolation(f):
    x = {d: f.rng(f"i{d}").normal(*s) for d, s in SHAPES.items()}
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}
    for d in (1, 2, 3):
        sizes = [{"size": [11, 4, 7][:d]}, {"scale_factor": 1.7}, {"size": [3, 2, 9][:d]},
                 {"scale_factor": [0.6, 2.0, 1.3][:d]}]
        for mode in ("nearest", "nearest-exact", "area", linear[d]):
            for s in sizes:
                f.add("interpolate", [x[d]], dict(s, mode=mode), name=f"interpolate_{mode}{d}")
        for s in sizes[:2]:
            a = dict(s, mode=linear[d], align_corners=True)
            f.add("interpolate", [x[d]], a, name=f"interpolate_corners{d}")
    for s in ({"size": [9, 8]}, {"scale_factor": 0.5}, {"size": [1, 1]}, {"scale_factor": 2.3}):
        for corners in (False, True):
            f.add("interpolate", [x[2]], dict(s, mode="bicubic", align_corners=corners),
                  name="interpolate_bicubic")
    big = f.rng("big").normal(1, 2, 13, 11)
    for mode in ("bilinear", "bicubic"):
        for corners in (False, True):
            for s in ({"size": [5, 4]}, {"scale_factor": 0.4}, {"size": [20, 7]}):
                f.add("interpolate", [big], dict(s, mode=mode, align_corners=corners,
                      antialias=True), name=f"interpolate_antialias_{mode}")
    f.add("interpolate", [x[2]], {"scale_factor": 1.7, "mode": "bilinear",
          "recompute_scale_factor": True}, name="interpolate_recompute")
    f.add("interpolate", [x[2].to(f64)], {"scale_factor": 2.0, "mode": "bicubic"},
          name="interpolate_f64")
    f.add("interpolate", [f.rng("u8").ints(0, 255, 1, 1, 3, 4, dtype=u8)], {"size": [5, 7]},
          name="interpolate_u8")


def sampling(f):
    x = {2: f.rng("g2").normal(2, 3, 5, 4), 3: f.rng("g3").normal(1, 2, 4, 3, 5)}
    grid = {2: f.rng("grid2").uniform(-1.6, 1.6, 2, 4, 3, 2),
            3: f.rng("grid3").uniform(-1.6, 1.6, 1, 2, 3, 2, 3)}
    for d in (2, 3):
        for mode in ("bilinear", "nearest") + (("bicubic",) if d == 2 else ()):
            for padding in ("zeros", "border", "reflection"):
                for corners in (False, True):
                    f.add("grid_sample", [x[d], grid[d]], {"mode": mode, "padding_mode": padding,
                          "align_corners": corners}, name=f"grid_sample_{mode}{d}")
    f.add("grid_sample", [x[2].to(f64), grid[2].to(f64)], {"align_corners": False},
          name="grid_sample_f64")
    far = {"zeros": 1e30, "border": float("inf")}
    for padding, v in far.items():
        odd = torch.tensor([[[[v, 0.0], [0.2, -v]], [[1e6, -1e6], [1.0, -1.0]]]]).repeat(2, 1, 1, 1)
        f.add("grid_sample", [x[2], odd], {"padding_mode": padding, "align_corners": False},
              name="grid_sample_far", grad=False)
    for corners in (False, True):
        f.add("affine_grid", [f.rng("theta2").normal(2, 2, 3)],
              {"size": [2, 3, 4, 5], "align_corners": corners}, fn=F.affine_grid)
        f.add("affine_grid", [f.rng("theta3").normal(1, 3, 4)],
              {"size": [1, 2, 3, 2, 1], "align_corners": corners}, fn=F.affine_grid)


def patches(f):
    x = f.rng("patch").normal(2, 3, 6, 7)
    for a in ({"kernel_size": 2, "stride": 2}, {"kernel_size": [2, 3], "padding": [1, 2]},
              {"kernel_size": [3, 2], "dilation": [2, 1], "padding": 1, "stride": [1, 2]}):
        cols = F.unfold(x, **a)
        f.add("im2col", [x], a, fn=F.unfold)
        f.add("col2im", [f.rng("cols").normal(*cols.shape)], dict(a, output_size=[6, 7]),
              fn=F.fold)
    f.add("im2col", [x[0]], {"kernel_size": 2}, fn=F.unfold, name="im2col_unbatched")
    f.add("col2im", [f.rng("c0").normal(8, 6)], {"output_size": [3, 4], "kernel_size": 2},
          fn=F.fold, name="col2im_unbatched")
    c = f.rng("shuffle").normal(2, 6, 3, 2)
    for groups in (1, 2, 3):
        f.add("channel_shuffle", [c], {"groups": groups}, fn=F.channel_shuffle)


def pools(f):
    x = {1: f.rng("p1").normal(2, 3, 9), 2: f.rng("p2").normal(1, 2, 7, 6),
         3: f.rng("p3").normal(1, 2, 5, 6, 4)}
    for d in (1, 3):
        for a in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1,
                  "ceil_mode": True}, {"kernel_size": 2, "stride": 1, "dilation": 2}):
            f.add(f"max_pool{d}d", [x[d]], a)
            f.add(f"max_pool{d}d", [x[d]], dict(a, return_indices=True), grad=False,
                  name=f"max_pool{d}d_indices")
        for a in ({"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1,
                  "ceil_mode": True}, {"kernel_size": 3, "stride": 2, "padding": 1,
                  "count_include_pad": False}):
            f.add(f"avg_pool{d}d", [x[d]], a)
    f.add("avg_pool3d", [x[3]], {"kernel_size": [2, 3, 2], "divisor_override": 5})
    for d in (1, 2, 3):
        for size in ([2, 3, 2][:d], [4, 1, 3][:d], 2):
            a = {"output_size": size}
            if d != 2:
                f.add(f"adaptive_avg_pool{d}d", [x[d]], a)
                f.add(f"adaptive_max_pool{d}d", [x[d]], a)
            f.add(f"adaptive_max_pool{d}d", [x[d]], dict(a, return_indices=True), grad=False,
                  name=f"adaptive_max_pool{d}d_indices")
        for a in ({"norm_type": 2.0, "kernel_size": 2}, {"norm_type": 3.0, "kernel_size": 3,
                  "stride": 2}, {"norm_type": 1.5, "kernel_size": 2, "stride": 2,
                  "ceil_mode": True}):
            v = x[d].abs() + 0.1 if a["norm_type"] == 1.5 else x[d]
            # A window with a negative sum has a derivative that is not finite.
            f.add(f"lp_pool{d}d", [v.abs() + 0.1], a)
        for a in ({"kernel_size": 2}, {"kernel_size": 2, "stride": 2, "padding": 1},
                  {"kernel_size": 3, "stride": 2, "size": True}):
            b = {k: v for k, v in a.items() if k != "size"}
            v = f.rng(f"u{d}").normal(2, 2, *[8, 6, 4][:d])
            y, i = getattr(F, f"max_pool{d}d")(v, return_indices=True, **b)
            if "size" in a:
                b["output_size"] = list(v.shape[2:])
            f.add(f"max_unpool{d}d", [y, i], b)
    u = f.rng("samples").uniform(0.01, 0.99, 1, 2, 2)
    for a in ({"kernel_size": 2, "output_size": [3, 2]}, {"kernel_size": [3, 2],
              "output_ratio": [0.5, 0.7]}, {"kernel_size": 2, "output_size": [1, 4]}):
        f.add("fractional_max_pool2d", [x[2], u], a, no_grad_inputs=(1,),
              fn=lambda x, s, **k: F.fractional_max_pool2d(x, _random_samples=s, **k))
        f.add("fractional_max_pool2d", [x[2], u], dict(a, return_indices=True), grad=False,
              name="fractional_max_pool2d_indices",
              fn=lambda x, s, **k: F.fractional_max_pool2d(x, _random_samples=s, **k))
    for size, a in ((2, {}), (3, {"alpha": 0.5, "beta": 0.6, "k": 2.0}), (5, {"alpha": 0.1})):
        f.add("local_response_norm", [f.rng("lrn").normal(2, 6, 3, 2)], dict(a, size=size))
    f.add("local_response_norm", [x[1]], {"size": 2}, name="local_response_norm_1d")
    f.add("local_response_norm", [x[3]], {"size": 3, "alpha": 0.3}, name="local_response_norm_3d")


def convolutions(f):
    x = f.rng("ct").normal(2, 4, 5, 4)
    w = f.rng("ctw").normal(4, 3, 3, 2)
    for a in ({"stride": 2, "output_padding": 1, "dilation": [2, 1]},
              {"stride": 1, "dilation": [3, 2], "output_padding": [2, 1], "padding": 1},
              {"stride": [2, 1], "dilation": [4, 2], "output_padding": [3, 1]},
              {"stride": 2, "dilation": 5, "output_padding": 4, "padding": [3, 1]}):
        f.add("conv_transpose2d", [x, w, f.rng("ctb").normal(3)], a,
              name="conv_transpose2d_dilated")
    x3 = f.rng("ct3").normal(1, 4, 3, 2, 3)
    for a in ({}, {"stride": 2, "padding": 1, "output_padding": 1}, {"groups": 2, "dilation": 2}):
        f.add("conv_transpose3d", [x3, f.rng("ct3w").normal(4, 2, 2, 3, 2)], a)


def boxes(r, n, size):
    at = r.uniform(0, size * 0.7, n, 2)
    return torch.cat([at, at + r.uniform(1, size * 0.6, n, 2)], 1)


def detection(f):
    r = f.rng("boxes")
    b = boxes(r, 24, 20)
    scores = r.uniform(0, 1, 24)
    classes = r.ints(0, 3, 24)
    f.add("box_area", [b], fn=V.box_area)
    f.add("box_iou", [b[:6], b[6:15]], fn=V.box_iou)
    for t in (0.1, 0.4, 0.7):
        f.add("nms", [b, scores], {"iou_threshold": t}, fn=V.nms, grad=False)
        f.add("batched_nms", [b, scores, classes], {"iou_threshold": t}, fn=V.batched_nms,
              grad=False)
    ties = torch.tensor([0.5, 0.9, 0.5, 0.9, 0.1, 0.5])
    f.add("nms", [b[:6], ties], {"iou_threshold": 0.2}, fn=V.nms, grad=False, name="nms_ties")
    x = f.rng("roi").normal(2, 3, 9, 11)
    k = torch.cat([torch.tensor([[0.0], [1], [1], [0], [1]]), boxes(f.rng("k"), 5, 14)], 1)
    k[4, 1:] = torch.tensor([-3.0, -2.0, 15.0, 12.0])
    for a in ({"output_size": 3}, {"output_size": [2, 4], "spatial_scale": 0.5,
              "sampling_ratio": 2}, {"output_size": 2, "aligned": True, "spatial_scale": 0.7},
              {"output_size": [3, 2], "aligned": True, "sampling_ratio": 3}):
        f.add("roi_align", [x, k], a, fn=V.roi_align, no_grad_inputs=(1,))
    for a in ({"output_size": 3}, {"output_size": [2, 4], "spatial_scale": 0.5},
              {"output_size": 5, "spatial_scale": 0.9}):
        f.add("roi_pool", [x, k], a, fn=V.roi_pool, no_grad_inputs=(1,))


def make():
    f = Family("image", prefer=F)
    interpolation(f)
    sampling(f)
    patches(f)
    pools(f)
    convolutions(f)
    detection(f)
    f.save()
