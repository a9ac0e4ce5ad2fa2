# SPDX-License-Identifier: Apache-2.0
# Images and what torchvision.transforms.v2.functional makes of them, for tests/data/transforms_test.cpp.
# Use: PYTHON make_golden_transforms.py OUT            two small images (tests/data/transforms.safetensors)
#      PYTHON make_golden_transforms.py OUT FOLDER N   N images of a folder of JPEG files, halved
# What OUT holds already stays (PyTorch's versions round single values otherwise): delete it to make all of it again.
import glob, os, sys
import numpy as np, torch
import torchvision.transforms.v2 as T
import torchvision.transforms.v2.functional as F
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode as M
from PIL import Image
from safetensors.torch import load_file, save_file

def small(seed, h, w):
    g = np.random.default_rng(seed)
    y, x = np.mgrid[0:h, 0:w]
    base = np.stack([127 + 90 * np.sin(x / 7 + k) * np.cos(y / 5 - k) for k in range(3)])
    return torch.from_numpy(np.clip(base + g.normal(0, 18, base.shape), 0, 255).astype(np.uint8))

start = lambda w, h: [[0, 0], [w - 1, 0], [w - 1, h - 1], [0, h - 1]]
end = lambda w, h: [[3, 2], [w - 6, 1], [w - 2, h - 5], [4, h - 3]]

def waves(t):  # a displacement [1, h, w, 2] of some pixels
    y, x = np.mgrid[0 : t.shape[1], 0 : t.shape[2]].astype(np.float64)
    d = np.stack([0.12 * np.sin(0.31 * x + 0.17 * y), 0.09 * np.cos(0.23 * x - 0.29 * y)], -1)
    return torch.from_numpy(d.astype(np.float32))[None]

def boxes(t):
    w, h = t.shape[2], t.shape[1]
    b = torch.tensor([[3.0, 4.0, 20.5, 17.25], [0.0, 0.0, w, h], [w - 9.5, 6.0, w - 1, h - 2.0], [7.0, 9.0, 7.5, 9.5]])
    return tv_tensors.BoundingBoxes(b, format="XYXY", canvas_size=(h, w))

plain = lambda b: b.as_subclass(torch.Tensor)
matrix = torch.from_numpy(np.fromfunction(lambda i, j: 0.1 * np.sin(0.7 * i + 1.3 * j), (60, 60)).astype(np.float32))
mean = torch.arange(60, dtype=torch.float32)
CASES = {
    "resize_bilinear": lambda t: F.resize(t, [24, 31]),
    "resize_up": lambda t: F.resize(t, [71, 90]),
    "resize_bicubic": lambda t: F.resize(t, [24, 31], interpolation=M.BICUBIC),
    "resize_plain": lambda t: F.resize(t, [24, 31], antialias=False),
    "resize_nearest": lambda t: F.resize(t, [24, 31], interpolation=M.NEAREST),
    "resize_nearest_exact": lambda t: F.resize(t, [24, 31], interpolation=M.NEAREST_EXACT),
    "resize_shorter": lambda t: F.resize(t, [20]),
    "center_crop": lambda t: F.center_crop(t, [21, 30]),
    "center_crop_pad": lambda t: F.center_crop(t, [400, 30]),
    "crop": lambda t: F.crop(t, -3, 5, 20, 25),
    "hflip": F.horizontal_flip,
    "vflip": F.vertical_flip,
    "pad": lambda t: F.pad(t, [3, 4, 5, 6], fill=[10, 20, 30]),
    "pad_reflect": lambda t: F.pad(t, [3, 4], padding_mode="reflect"),
    "pad_symmetric": lambda t: F.pad(t, [3, 4], padding_mode="symmetric"),
    "pad_edge": lambda t: F.pad(t, [2], padding_mode="edge"),
    "rotate": lambda t: F.rotate(t, 33.5),
    "rotate_bilinear": lambda t: F.rotate(t, -21.0, interpolation=M.BILINEAR, fill=[9, 8, 7]),
    "rotate_expand": lambda t: F.rotate(t, 40.0, interpolation=M.BILINEAR, expand=True),
    "affine": lambda t: F.affine(t, 12.5, [3, -2], 1.2, [4.0, -3.0]),
    "affine_bilinear": lambda t: F.affine(t, -50.0, [0, 4], 0.8, [7.0, 2.0], interpolation=M.BILINEAR, fill=[1, 2, 3]),
    "affine_center": lambda t: F.affine(t, 20.0, [0, 0], 1.0, [0.0, 0.0], center=[5.0, 9.0]),
    "perspective": lambda t: F.perspective(t, start(t.shape[2], t.shape[1]), end(t.shape[2], t.shape[1])),
    "brightness": lambda t: F.adjust_brightness(t, 1.37),
    "contrast": lambda t: F.adjust_contrast(t, 0.62),
    "saturation": lambda t: F.adjust_saturation(t, 1.9),
    "hue": lambda t: F.adjust_hue(t, 0.21),
    "hue_back": lambda t: F.adjust_hue(t, -0.4),
    "sharpness": lambda t: F.adjust_sharpness(t, 2.3),
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "invert": F.invert,
    "posterize": lambda t: F.posterize(t, 3),
    "solarize": lambda t: F.solarize(t, 100),
    "grayscale": lambda t: F.rgb_to_grayscale(t, 3),
    "blur": lambda t: F.gaussian_blur(t, [5, 3], [1.3, 0.7]),
    "erase": lambda t: F.erase(t, 4, 6, 10, 12, torch.tensor([7, 8, 9], dtype=torch.uint8)[:, None, None]),
    "to_float": lambda t: F.to_dtype(t, torch.float32, scale=True),
    "normalize": lambda t: F.normalize(F.to_dtype(t, torch.float32, scale=True), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    "elastic": lambda t: F.elastic(t, waves(t)),
    "elastic_fill": lambda t: F.elastic(t, waves(t), fill=[9, 8, 7]),
    "elastic_nearest": lambda t: F.elastic(t, waves(t), interpolation=M.NEAREST, fill=0),
    "elastic_boxes": lambda t: plain(F.elastic(boxes(t), waves(t))),
    "boxes_xywh": lambda t: plain(T.ConvertBoundingBoxFormat("XYWH")(boxes(t))),
    "boxes_cxcywh": lambda t: plain(T.ConvertBoundingBoxFormat("CXCYWH")(boxes(t))),
    # the same numbers taken for middles and sizes
    "boxes_back": lambda t: F.convert_bounding_box_format(plain(boxes(t)), old_format="CXCYWH", new_format="XYXY"),
    "scale_jitter": lambda t: T.ScaleJitter((30, 24), (0.83, 0.83))(t),
    "shortest_size": lambda t: T.RandomShortestSize([20], 26)(t),
    "random_resize": lambda t: T.RandomResize(20, 21)(t),
    "five_crop": lambda t: torch.stack(T.FiveCrop([8, 11])(t)),
    "ten_crop": lambda t: torch.stack(T.TenCrop(7, vertical_flip=True)(t)),
    "rgb": lambda t: T.RGB()(t[:1, :9]),
    "noise_mean": lambda t: T.GaussianNoise(0.3, 0.0)(t[:, :9]),
    "noise_unclipped": lambda t: T.GaussianNoise(-0.3, 0.0, clip=False)(t[:, :9]),
    "whitening": lambda t: T.LinearTransformation(matrix, mean)(t[:, 2:6, 3:8]),
    "subsample": lambda t: T.UniformTemporalSubsample(5)(t[0, :14, :3].reshape(14, 1, 1, 3)),
    "subsample_more": lambda t: T.UniformTemporalSubsample(27)(t[0, :3, :3].reshape(3, 1, 1, 3)),
}
out = {}
if len(sys.argv) > 2:
    files = sorted(glob.glob(sys.argv[2] + "/*.jpg"))[: int(sys.argv[3])]
    images = [torch.from_numpy(np.array(Image.open(f).convert("RGB").reduce(2))).permute(2, 0, 1).contiguous() for f in files]
else:
    images = [small(1, 37, 53), small(2, 48, 33)]
for i, t in enumerate(images):
    out[f"{i}.image"] = t
    for name, f in CASES.items():
        out[f"{i}.{name}"] = f(t).contiguous()
    # Pillow's own words on resizing
    for name, mode in (("pil_bilinear", Image.BILINEAR), ("pil_bicubic", Image.BICUBIC)):
        small_ = Image.fromarray(t.permute(1, 2, 0).numpy()).resize((31, 24), mode)
        out[f"{i}.{name}"] = torch.from_numpy(np.array(small_)).permute(2, 0, 1).contiguous()
if os.path.exists(sys.argv[1]):
    out.update(load_file(sys.argv[1]))
save_file(out, sys.argv[1])
