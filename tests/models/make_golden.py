#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Makes tests/models/golden.json.gz with torchvision: for every model the keys, shapes, dtypes, means and
# deviations of a fresh state_dict, and for some the logits (computed in float64) with values that
# models_test.cpp makes by the same formula. Use: tests/models/make_golden.py
import gzip
import json
import math
import os

import numpy as np
import torch
import torchvision
from torch import nn


def values(key, shape):
    """Element i: a hash of key and i in [0, 1), scaled by the rank and the name."""
    n = int(np.prod(shape)) if len(shape) else 1
    h = 2166136261
    for c in key.encode():
        h = (h ^ c) * 16777619 & 0xFFFFFFFF
    z = (np.arange(n, dtype=np.uint64) * 0x9E3779B9 + h) & 0xFFFFFFFF
    z ^= z >> 16
    z = z * 0x85EBCA6B & 0xFFFFFFFF
    z ^= z >> 13
    z = z * 0xC2B2AE35 & 0xFFFFFFFF
    z ^= z >> 16
    u = (z >> 8).astype(np.float64) / 2**24
    if key == "input":
        v = 2 * u - 1
    elif len(shape) == 3:
        v = (2 * u - 1) * 0.1
    elif len(shape) >= 2:
        v = (2 * u - 1) * math.sqrt(6 * shape[0] / n)
    elif key.endswith("weight") or key.endswith("running_var"):
        v = 0.5 + u
    else:
        v = (u - 0.5) * 0.2
    return v.astype(np.float32).reshape(shape)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = torch.max_pool2d(self.conv1(x).relu(), 2)
        x = torch.max_pool2d(self.conv2(x).relu(), 2)
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


class DoubleConv(nn.Module):
    def __init__(self, i, o, m):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(i, m, 3, padding=1, bias=False), nn.BatchNorm2d(m), nn.ReLU(),
            nn.Conv2d(m, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(i, o, o))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, i, o, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        else:
            self.up = nn.ConvTranspose2d(i, i // 2, 2, stride=2)
        self.conv = DoubleConv(i, o, i // 2 if bilinear else o)

    def forward(self, x, beside):
        x = self.up(x)
        dy, dx = beside.shape[2] - x.shape[2], beside.shape[3] - x.shape[3]
        x = nn.functional.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([beside, x], 1))


class OutConv(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv = nn.Conv2d(i, o, 1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, bilinear=False, base=64):
        super().__init__()
        f, b = 2 if bilinear else 1, base
        self.inc = DoubleConv(3, b, b)
        self.down1, self.down2, self.down3 = Down(b, 2 * b), Down(2 * b, 4 * b), Down(4 * b, 8 * b)
        self.down4 = Down(8 * b, 16 * b // f)
        self.up1, self.up2 = Up(16 * b, 8 * b // f, bilinear), Up(8 * b, 4 * b // f, bilinear)
        self.up3, self.up4 = Up(4 * b, 2 * b // f, bilinear), Up(2 * b, b, bilinear)
        self.outc = OutConv(b, 2)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        return self.outc(self.up4(self.up3(self.up2(self.up1(self.down4(x4), x4), x3), x2), x1))


tv = torchvision.models
keys = """alexnet vgg16 vgg11_bn resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d
 densenet121 densenet169 densenet201 squeezenet1_0 squeezenet1_1 shufflenet_v2_x0_5
 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small
 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 convnext_tiny
 convnext_small vit_b_16 vit_l_16""".split()
cases = {name: (getattr(tv, name), 64) for name in """alexnet vgg11_bn resnet18 resnet50 resnext50_32x4d densenet121
 squeezenet1_0 squeezenet1_1 shufflenet_v2_x0_5 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small efficientnet_b0
 efficientnet_b1 convnext_tiny""".split()}
cases.update({
    "resnet50 dilated": (lambda: tv.resnet50(num_classes=7, replace_stride_with_dilation=[False, True, True]), 64),
    "mobilenet_v2 narrow": (lambda: tv.mobilenet_v2(num_classes=7, width_mult=0.5), 48),
    "mobilenet_v3_large tail": (lambda: tv.mobilenet_v3_large(num_classes=7, reduced_tail=True, dilated=True), 64),
    "vit_b_32 small": (lambda: tv.vit_b_32(num_classes=7, image_size=64, representation_size=32), 64),
    "lenet": (LeNet, 28), "unet": (lambda: UNet(base=16), 40), "unet bilinear": (lambda: UNet(True, 16), 40)})

out = {"keys": [], "cases": []}
torch.manual_seed(0)
torch.set_num_threads(1)
for name, make in [(n, getattr(tv, n)) for n in keys] + [("lenet", LeNet), ("unet", UNet)]:
    m = make()
    entries = []
    for key, v in m.state_dict().items():
        d = v.double()
        wide = v.numel() >= 2000
        entries.append([key, list(v.shape), str(v.dtype)[6:],
                        float(f"{d.mean():.3g}") if wide else 0, float(f"{d.std():.4g}") if wide else 0])
    out["keys"].append({"name": name, "params": sum(p.numel() for p in m.parameters()), "entries": entries})
for name, (make, size) in cases.items():
    m = make().eval()
    m.load_state_dict({k: v if v.dim() == 0 else torch.from_numpy(values(k, tuple(v.shape)))
                       for k, v in m.state_dict().items()})
    x = torch.from_numpy(values("input", (2, 1 if name == "lenet" else 3, size, size)))
    with torch.no_grad():
        y = m.double()(x.double())
    flat = y.reshape(2, -1)
    out["cases"].append({"name": name, "input": list(x.shape), "shape": list(y.shape),
                         "scale": float(f"{flat.abs().max():.9g}"),
                         "first": [float(f"{v:.9g}") for v in flat[:, :7].flatten()],
                         "mean": [float(f"{v:.9g}") for v in flat.mean(1)]})
    print(name, out["cases"][-1]["first"][:3], out["cases"][-1]["scale"])
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden.json.gz")
with open(path, "wb") as f, gzip.GzipFile(filename="", mode="wb", fileobj=f, compresslevel=9, mtime=0) as z:
    z.write(json.dumps(out, separators=(",", ":")).encode())
print(os.path.getsize(path), "bytes")
