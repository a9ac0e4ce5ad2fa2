# SPDX-License-Identifier: Apache-2.0
"""Writes valid files of formats that the library does not write into corpus/READER, for the fuzz and
attack programs to begin with: each reaches code that the others do not. Made with Pillow 13.0.0.

usage: make_corpus.py"""
import os
import struct

import numpy as np
from PIL import Image

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def path(reader, name):
    os.makedirs(os.path.join(HERE, reader), exist_ok=True)
    return os.path.join(HERE, reader, name)


def image(mode):
    y, x = np.mgrid[0:17, 0:26]
    planes = [(x * 9 + y * k * 5) % 256 for k in range(1, 5)]
    n = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    pixels = np.stack(planes[:n], -1).astype(np.uint8)
    return Image.fromarray(pixels[..., 0] if n == 1 else pixels, mode)


def jpegs():
    rgb, exif = image("RGB"), Image.Exif()
    exif[0x0112] = 6  # turned
    rgb.save(path("jpeg", "halved.jpg"), quality=40, subsampling=2)
    rgb.save(path("jpeg", "progressive.jpg"), quality=40, progressive=True, subsampling=1)
    rgb.save(path("jpeg", "restarts.jpg"), quality=40, restart_marker_blocks=2, subsampling=0)
    image("L").save(path("jpeg", "turned.jpg"), quality=40, optimize=True, exif=exif)
    image("CMYK").save(path("jpeg", "cmyk.jpg"), quality=40)


def webps():
    image("RGB").save(path("webp", "lossy.webp"), quality=40)
    image("RGBA").save(path("webp", "alpha.webp"), quality=40, alpha_quality=50)
    image("RGBA").save(path("webp", "lossless.webp"), lossless=True)
    image("RGB").quantize(8).convert("RGB").save(path("webp", "palette.webp"), lossless=True)
    frames = [image("RGB"), image("RGB").rotate(180)]
    frames[0].save(path("webp", "moving.webp"), save_all=True, append_images=frames[1:], quality=40)


def wav(name, kind, channels, bits, data, extensible=False):
    frame = channels * bits // 8
    head = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, channels, 8000, 8000 * frame,
                       frame, bits)
    if extensible:
        head += struct.pack("<HHIHH12s", 22, bits, (1 << channels) - 1, kind, 0,
                            bytes.fromhex("00001000800000aa00389b71"))
    chunks = b"fmt " + struct.pack("<I", len(head)) + head
    chunks += b"LIST" + struct.pack("<I", 4) + b"INFO"
    chunks += b"data" + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    with open(path("wav", name), "wb") as f:
        f.write(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)


def wavs():
    wave = np.sin(np.arange(24) / 3)
    wav("bytes.wav", 1, 1, 8, (wave * 100 + 128).astype(np.uint8).tobytes())
    wav("three_bytes.wav", 1, 2, 24, (wave * 2**30).astype("<i4").tobytes()[:72])
    wav("floats.wav", 3, 1, 32, wave.astype("<f4").tobytes())
    wav("doubles.wav", 3, 2, 64, wave.astype("<f8").tobytes())
    wav("extensible.wav", 1, 2, 16, (wave * 30000).astype("<i2").tobytes(), extensible=True)


if __name__ == "__main__":
    jpegs()
    webps()
    wavs()
