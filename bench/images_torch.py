#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/compare_images: DataLoader and torchvision v2 over a folder of JPEG files.

usage: images_torch.py FOLDER --size 224 [--exact] [--workers 2] [--decode io|pil] [--seconds 3]
One round of at least --seconds is printed as a line of JSON for every line read from stdin, so that
the caller can take turns with another program; workers stay alive between epochs and rounds.
"""
import argparse
import glob
import json
import os
import sys
import time

import torch
import torchvision
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Files(Dataset):
    def __init__(self, folder, size, decode):
        self.files = sorted(glob.glob(os.path.join(folder, "*.jpg")))
        self.decode = decode
        last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        resize = [v2.Resize(size, antialias=True)]
        if len(size) == 1:
            resize += [v2.CenterCrop(size)]
        # v2's own advice: uint8 tensors; from Pillow it resizes the PIL image, then converts.
        self.transform = v2.Compose(resize + ([v2.ToImage()] if decode == "pil" else []) + last)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        if self.decode == "pil":
            from PIL import Image
            with Image.open(self.files[i]) as image:
                return self.transform(image.convert("RGB"))
        data = torchvision.io.read_file(self.files[i])
        return self.transform(torchvision.io.decode_jpeg(data, mode=torchvision.io.ImageReadMode.RGB))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--height", type=int, default=224)
    p.add_argument("--width", type=int, default=0, help="0: shorter side to height, then a square crop")
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--decode", choices=["io", "pil"], default="io")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--seconds", type=float, default=3)
    p.add_argument("--dump", help="write the first image's numbers (f32) here and stop")
    a = p.parse_args()
    torch.set_num_threads(1)
    files = Files(a.folder, [a.height, a.width] if a.width else [a.height], a.decode)
    if a.dump:
        files[0].numpy().tofile(a.dump)
        return 0
    loader = DataLoader(files, batch_size=a.batch, shuffle=True, num_workers=a.workers,
                        persistent_workers=a.workers > 0, prefetch_factor=4 if a.workers else None)
    for _ in sys.stdin:
        n, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < a.seconds:
            for x in loader:
                n += x.shape[0]
        took = time.perf_counter() - begin
        print(json.dumps({"images_per_second": n / took,
                          "version": f"{torch.__version__} / {torchvision.__version__}"}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
