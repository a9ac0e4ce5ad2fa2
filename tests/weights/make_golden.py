#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Makes the .pth files beside it with PyTorch: dtypes, views of one storage, a checkpoint with an
# optimizer, the format before PyTorch 1.6, pickle protocol 4, and what only PyTorch has. Use: tests/weights/make_golden.py
import os

import numpy as np
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
save("module.pth", net)

# What only PyTorch has, each beside the tensor that it is read as.
bits = torch.arange(256, dtype=torch.uint8)
only = {f"{f}": bits.view(getattr(torch, f)) for f in
        "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu".split()}
want = {k: v.float() for k, v in only.items()}
small = torch.tensor([[0, 1, 255], [7, 200, 3]])
for name, read in (("uint16", torch.int32), ("uint32", torch.int64), ("uint64", torch.int64)):
    only[name] = small.to(getattr(torch, name)).t()
    want[name] = small.to(read).t()
pairs = torch.tensor([[1 + 2j, 3 - 4j], [0.5j, -1]])
for name in ("complex32", "complex64", "complex128"):
    only[name] = pairs.to(getattr(torch, name)).t()
    want[name] = torch.view_as_real(pairs.t().to(torch.complex128)).contiguous()
numbers = torch.tensor([[0.0, 1.25, -2.5], [3.0, 0.5, 6.0]])
only["qint8"] = torch.quantize_per_tensor(numbers, 0.1, -3, torch.qint8)
only["quint8"] = torch.quantize_per_tensor(numbers, 0.25, 100, torch.quint8).t()
only["qint32"] = torch.quantize_per_tensor(numbers, 1e-3, 5, torch.qint32)
only["channels"] = torch.quantize_per_channel(numbers, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 1,
                                              torch.qint8)
sparse = torch.tensor([[0.0, 0, 3], [4, 0, 5]])
only["coo"] = sparse.to_sparse()
only["hybrid"] = torch.arange(12.0).reshape(3, 2, 2).to_sparse(1)
only["twice"] = torch.sparse_coo_tensor([[0, 0, 1], [2, 2, 0]], [1.0, 2.0, 4.0], (2, 3))
only["csr"] = sparse.to_sparse_csr()
only["csc"] = sparse.to_sparse_csc()
only["none"] = torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.long), torch.zeros(0), (2, 3))
for k in ("qint8", "quint8", "qint32", "channels"):
    want[k] = only[k].dequantize()
for k in ("coo", "hybrid", "twice", "csr", "csc", "none"):
    want[k] = only[k].to_dense()
values = {"f64": np.float64(1.5), "f32": np.float32(0.25), "i64": np.int64(-3), "u8": np.uint8(200), "flag": np.bool_(True),
          "text": np.str_("größe"), "array": np.arange(6.0).reshape(2, 3), "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
          "ids": np.array([1, 65535], np.uint16), "complex": np.array([1 + 2j]), "empty": np.zeros((0, 2), np.float32)}
save("only_torch.pth", {"only": only, "want": want, "numpy": values})
old = {k: v for k, v in only.items() if not k.startswith(("float8", "uint", "complex32"))}
save("legacy_only_torch.pth", {"only": old, "want": {k: want[k] for k in old}}, _use_new_zipfile_serialization=False)
