# SPDX-License-Identifier: Apache-2.0
"""Golden cases of the layers of images. Called by make_golden.py."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden_layers import Layers

SHAPES = {1: (2, 4, 8), 2: (2, 4, 6, 5), 3: (1, 4, 4, 5, 3)}


def pools(f, x):
    for d in (1, 2, 3):
        f.layer(f"MaxPool{d}d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
                [x[d]])
        f.layer(f"MaxPool{d}d", {"kernel_size": 2, "stride": 1, "dilation": 2,
                                 "return_indices": True}, [x[d]], pick=[0])
        f.layer(f"AvgPool{d}d", {"kernel_size": 2}, [x[d]])
        f.layer(f"AvgPool{d}d", {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True,
                                 "count_include_pad": False}, [x[d]])
        f.layer(f"AdaptiveAvgPool{d}d", {"output_size": 3}, [x[d]])
        f.layer(f"AdaptiveMaxPool{d}d", {"output_size": 3}, [x[d]])
        f.layer(f"LPPool{d}d", {"norm_type": 2.0, "kernel_size": 2}, [x[d]])
        even = f.rng(f"even{d}").normal(1, 2, *[4, 6, 2][:d])
        y, i = getattr(F, f"max_pool{d}d")(even, 2, return_indices=True)
        f.layer(f"MaxUnpool{d}d", {"kernel_size": 2}, [y, i])
        y, i = getattr(F, f"max_pool{d}d")(x[d], 2, return_indices=True)
        f.layer(f"MaxUnpool{d}d", {"kernel_size": 2}, [y, i],
                attrs={"output_size": list(x[d].shape)},
                call=lambda m, y, i, s=x[d].shape: m(y, i, output_size=s))
    f.layer("AvgPool2d", {"kernel_size": 2, "divisor_override": 3}, [x[2]])
    f.layer("MaxPool2d", {"kernel_size": 2}, [x[2][0]])
    f.layer("FractionalMaxPool2d", {"kernel_size": 2, "output_size": [3, 2]},
            [x[2], f.rng("u").uniform(0.01, 0.99, 2, 4, 2)],
            call=lambda m, x, u: F.fractional_max_pool2d(x, 2, [3, 2], _random_samples=u.detach()))
    volume = f.rng("v3").normal(1, 2, 5, 6, 5)
    f.layer("FractionalMaxPool3d", {"kernel_size": 2, "output_size": [2, 3, 3]},
            [volume, f.rng("u3").uniform(0.01, 0.99, 1, 2, 3)],
            call=lambda m, x, u: F.fractional_max_pool3d(x, 2, [2, 3, 3], _random_samples=u.detach()))


def resizing(f, x):
    f.layer("Upsample", {"scale_factor": 2.0}, [x[1]])
    f.layer("Upsample", {"size": [9, 7], "mode": "bilinear"}, [x[2]])
    f.layer("Upsample", {"scale_factor": (1.5, 2.0), "mode": "bicubic", "align_corners": True},
            [x[2]])
    f.layer("Upsample", {"scale_factor": 1.5, "mode": "trilinear",
                         "recompute_scale_factor": True}, [x[3]])
    f.layer("UpsamplingNearest2d", {"scale_factor": 2.0}, [x[2]])
    f.layer("UpsamplingNearest2d", {"size": [7, 3]}, [x[2]])
    f.layer("UpsamplingBilinear2d", {"scale_factor": 2.0}, [x[2]])
    f.layer("UpsamplingBilinear2d", {"size": [7, 3]}, [x[2]])
    f.layer("PixelShuffle", {"upscale_factor": 2}, [x[2]])
    f.layer("PixelUnshuffle", {"downscale_factor": 2}, [x[2][:, :, :, :4]])
    f.layer("ChannelShuffle", {"groups": 2}, [x[2]])
    a = {"kernel_size": [2, 3], "dilation": [1, 2], "padding": [1, 2], "stride": [2, 1]}
    f.layer("Unfold", a, [x[2]])
    f.layer("Unfold", {"kernel_size": 2}, [x[2]])
    f.layer("Fold", dict(a, output_size=[6, 5]), [F.unfold(x[2], **a)])
    f.layer("Fold", {"output_size": [6, 5], "kernel_size": 2}, [F.unfold(x[2], 2)[0]])


def padding(f, x):
    sides = {1: [1, 2], 2: [1, 2, 2, 1], 3: [1, 2, 2, 1, 0, 3]}
    for d in (1, 2, 3):
        for kind in ("Zero", "Reflection", "Replication", "Circular"):
            f.layer(f"{kind}Pad{d}d", {"padding": 2}, [x[d]])
            f.layer(f"{kind}Pad{d}d", {"padding": sides[d]}, [x[d]])
        f.layer(f"ConstantPad{d}d", {"padding": sides[d], "value": 1.5}, [x[d]])
    f.layer("ZeroPad2d", {"padding": [1, -1, 0, -2]}, [x[2][0]])


def convolutions(f, x):
    base = {"in_channels": 4, "out_channels": 6, "kernel_size": 3}
    for d in (1, 2, 3):
        f.layer(f"Conv{d}d", dict(base, padding=1, stride=2, groups=2), [x[d]], wide=d == 3)
        for mode in ("reflect", "replicate", "circular"):
            f.layer(f"Conv{d}d", dict(base, padding=[1, 2, 1][:d], padding_mode=mode), [x[d]])
        f.layer(f"Conv{d}d", dict(base, kernel_size=2, padding="same"), [x[d]])
        f.layer(f"Conv{d}d", dict(base, kernel_size=2, padding="same", dilation=3,
                                  padding_mode="circular"), [x[d]])
        f.layer(f"Conv{d}d", dict(base, padding="valid", bias=False), [x[d]])
        f.layer(f"ConvTranspose{d}d", base, [x[d]])
        f.layer(f"ConvTranspose{d}d", dict(base, stride=2, padding=1, output_padding=1, groups=2,
                                           dilation=2), [x[d]], wide=d == 1)
        size = [2 * n for n in x[d].shape[2:]]
        f.layer(f"ConvTranspose{d}d", dict(base, stride=2, padding=1, bias=False), [x[d]],
                attrs={"output_size": size}, call=lambda m, x, s=size: m(x, output_size=s))
    f.layer("Conv2d", dict(base, padding=1), [x[2][0]])


def norms(f, x):
    for groups in (1, 2, 4):
        f.layer("GroupNorm", {"num_groups": groups, "num_channels": 4}, [x[2]], wide=groups == 2)
    f.layer("GroupNorm", {"num_groups": 2, "num_channels": 4, "affine": False, "eps": 1e-3}, [x[1]])
    for d in (1, 2, 3):
        op = f"InstanceNorm{d}d"
        f.layer(op, {"num_features": 4}, [x[d]])
        f.layer(op, {"num_features": 4, "affine": True}, [x[d]], wide=d == 2)
        for train in (True, False):
            f.layer(op, {"num_features": 4, "affine": True, "track_running_stats": True,
                         "momentum": 0.3}, [x[d]], train=train)
        f.layer(op, {"num_features": 4}, [x[d][0]])
    f.layer("LocalResponseNorm", {"size": 3}, [x[2]])
    f.layer("LocalResponseNorm", {"size": 2, "alpha": 0.4, "beta": 0.6, "k": 2.0}, [x[1]])


def make():
    f = Layers("image_layers")
    x = {d: f.rng(f"x{d}").normal(*s) for d, s in SHAPES.items()}
    pools(f, {d: v.abs() + 0.1 for d, v in x.items()})
    resizing(f, x)
    padding(f, x)
    convolutions(f, x)
    norms(f, x)
    f.save()
