#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Makes the .pth files beside it with PyTorch: dtypes, views of one storage, a checkpoint with an
# optimizer, the format before PyTorch 1.6, pickle protocol 4. Use: tests/weights/make_golden.py
import os

import torch

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
os.makedirs(here, exist_ok=True)


def save(name, value, **options):
    torch.save(value, os.path.join(here, name), **options)


names = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
dtypes = {n: (torch.arange(6).reshape(2, 3) % 2 if n == "bool" else torch.arange(6).reshape(2, 3)).to(getattr(torch, n))
          for n in names}
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
views = {"base": base, "t": base.t(), "slice": base[1:3, ::2], "row": base[2], "again": base,
         "expanded": torch.arange(3.0).expand(4, 3), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
         "parameter": torch.nn.Parameter(torch.ones(2))}
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
with torch.no_grad():
    for i, p in enumerate(net.parameters()):
        p.copy_(torch.arange(p.numel(), dtype=torch.float32).reshape(p.shape) + i)
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
net(torch.ones(4, 3) * torch.arange(4.0).reshape(4, 1)).sum().backward()
opt.step()
checkpoint = {"model": net.state_dict(), "optimizer": opt.state_dict(), "epoch": 3, "best": 0.5, "name": "run",
              "none": None, "flags": [True, False], "pair": (1, 2), "negative": -7, "big": 2**40,
              "dtype": torch.float16, "device": torch.device("cpu"), "size": base.shape}
save("dtypes.pth", dtypes)
save("views.pth", views)
save("checkpoint.pth", checkpoint)
save("legacy.pth", views, _use_new_zipfile_serialization=False)
save("legacy_small.pth", {"w": torch.ones(2)}, _use_new_zipfile_serialization=False)
save("legacy_dtypes.pth", dtypes, _use_new_zipfile_serialization=False)
save("protocol4.pth", views, pickle_protocol=4)
save("float8.pth", {"w": torch.zeros(2, dtype=torch.float8_e4m3fn)})
save("module.pth", net)
