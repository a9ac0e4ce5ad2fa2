# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files of the ops, layers and optimizers with PyTorch, beside this file.

usage: make_golden.py [family ...]      (environment: scripts/peers torch)
The files are committed; run this again only to add cases. README.md describes the format.
"""
import importlib
import sys

import torch

FAMILIES = ["pointwise", "reduce", "view_index", "contraction", "pool", "norm_loss", "layers", "nn",
            "optim", "promotion", "linalg", "search", "image", "image_layers", "fft",
            "distributions", "special", "names", "singular"]

if __name__ == "__main__":
    torch.set_num_threads(1)
    # warn_only: unpooling has no such form; it writes one value per place here.
    torch.use_deterministic_algorithms(True, warn_only=True)
    for family in sys.argv[1:] or FAMILIES:
        importlib.import_module("make_golden_" + family).make()
