#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Writes tests/io/images: small TIFF and JPEG 2000 files, and pixels.npz with what Pillow reads from
# them, [h, w, c]. Pillow writes most; what it has no settings for is written here: tiles, planes, big
# endian and BigTIFF by the layout of TIFF 6, thinned colors of JPEG 2000 by libopenjp2.
import ctypes
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image

folder = pathlib.Path(__file__).parent / "images"
rng = np.random.default_rng(0)
H, W = 18, 23
y, x = np.mgrid[0:H, 0:W]
rgb = np.stack([x * 11, y * 14, 200 * ((x > 4) & (x < 9) & (y > 2) & (y < 12))], 2).astype(np.uint8)
rgb[12:16, 12:20] = rng.integers(0, 256, (4, 8, 3))
alpha = (255 - x * 6 - y * 3).astype(np.uint8)[:, :, None]
gray = (x * 7 + y * 5).astype(np.uint8)
deep = (x * 2600 + y * 300 + 7).astype(np.uint16)
truth = {}


def keep(name, pixels=None):
    if pixels is None:
        pixels = np.asarray(Image.open(folder / name).convert("RGB"))
    truth[name] = np.ascontiguousarray(pixels if pixels.ndim == 3 else pixels[:, :, None]).astype(np.uint8)


def save(name, pixels, mode=None, wanted=None, **how):
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(folder / name, **how)
    keep(name, wanted)


save("rgb.tif", rgb, wanted=rgb)
save("lzw.tif", rgb, wanted=rgb, compression="tiff_lzw")
save("packbits.tif", gray, wanted=gray, compression="packbits")
save("alpha.tif", np.concatenate([rgb, alpha], 2), wanted=np.concatenate([rgb, alpha], 2),
     compression="tiff_adobe_deflate")
save("gray_alpha.tif", np.concatenate([gray[:, :, None], alpha], 2),
     wanted=np.concatenate([gray[:, :, None], alpha], 2))
save("deep.tif", deep, wanted=(deep.astype(np.int64) * 255 + 32767) // 65535, compression="tiff_lzw")
save("bits.tif", gray, "1", compression="group4")
truth["bits.tif"] = truth["bits.tif"][:, :, :1]
save("palette.tif", rgb, "P", compression="tiff_lzw")
save("jpeg.tif", rgb, compression="jpeg", quality=90)
save("cmyk.tif", rgb, "CMYK")
for turn in range(2, 9):
    save("turned%d.tif" % turn, rgb, compression="tiff_adobe_deflate", tiffinfo={274: turn})

save("rgb.jp2", rgb, wanted=rgb)
save("alpha.jp2", np.concatenate([rgb, alpha], 2), wanted=np.concatenate([rgb, alpha], 2))
save("gray_alpha.jp2", np.concatenate([gray[:, :, None], alpha], 2),
     wanted=np.concatenate([gray[:, :, None], alpha], 2))
save("gray.j2k", gray, wanted=gray)
save("deep.jp2", deep, wanted=(deep.astype(np.int64) * 255 + 32767) // 65535)
save("tiles.jp2", rgb, wanted=rgb, tile_size=(8, 8))
save("precincts.j2k", rgb, wanted=rgb, precinct_size=(32, 32), codeblock_size=(16, 16))
save("lossy.j2k", rgb, irreversible=True, quality_mode="rates", quality_layers=[4, 2])


def tiff(name, order, big, tiles, apart, bits=8):
    """16 x 16 tiles, deflated with horizontal differences; `apart`: planes of their own."""
    data = rgb if bits == 8 else rgb.astype(np.uint16) * 257
    word = np.dtype(order + ("u1" if bits == 8 else "u2"))
    blocks = []
    for plane in ([data[:, :, k:k + 1] for k in range(3)] if apart else [data]):
        step = (16, 16) if tiles else (5, W)
        for top in range(0, H, step[0]):
            for left in range(0, W, step[1]):
                block = plane[top:top + step[0], left:left + step[1]]
                if tiles:
                    block = np.pad(block, ((0, 16 - block.shape[0]), (0, 16 - block.shape[1]), (0, 0)))
                d = block.astype(np.int64)
                d[:, 1:] -= block[:, :-1].astype(np.int64)
                blocks.append(zlib.compress((d % (1 << bits)).astype(word).tobytes(), 9))
    offset, pointer = ("Q", 16) if big else ("I", 8)
    head = pointer
    places = []
    for b in blocks:
        places.append(head)
        head += len(b) + len(b) % 2
    tags = [(256, "H", [W]), (257, "H", [H]), (258, "H", [bits] * 3), (259, "H", [8]), (262, "H", [2]),
            (277, "H", [3]), (284, "H", [2 if apart else 1]), (317, "H", [2])]
    sizes = [len(b) for b in blocks]
    tags += ([(322, "H", [16]), (323, "H", [16]), (324, offset, places), (325, offset, sizes)] if tiles else
             [(273, offset, places), (278, "H", [5]), (279, offset, sizes)])
    end = "<" if order == "<" else ">"
    mark = b"II" if order == "<" else b"MM"
    out = mark + (struct.pack(end + "HHHQ", 43, 8, 0, head) if big else struct.pack(end + "HI", 42, head))
    for b in blocks:
        out += b + b"\0" * (len(b) % 2)
    wide = 8 if big else 4
    entry = 20 if big else 12
    after = head + (8 if big else 2) + entry * len(tags) + wide
    extra = b""
    out += struct.pack(end + ("Q" if big else "H"), len(tags))
    for tag, kind, values in sorted(tags):
        data = struct.pack(end + kind * len(values), *values)
        if len(data) > wide:
            extra, data = extra + data, struct.pack(end + offset, after + len(extra))
        out += struct.pack(end + "HH" + offset, tag, {"H": 3, "I": 4, "Q": 16}[kind], len(values))
        out += data.ljust(wide, b"\0")
    (folder / name).write_bytes(out + struct.pack(end + offset, 0) + extra)
    keep(name, rgb)


tiff("tiles_big_endian.tif", ">", False, True, True)
tiff("bigtiff.tif", "<", True, True, False)
tiff("deep_planes.tif", ">", False, False, True, 16)


def thinned(name, space, steps, planes):
    """Components that hold every `step`-th sample each way; `space` as OpenJPEG counts them."""
    lib = ctypes.CDLL("libopenjp2.so.7")
    for f in ("opj_image_create", "opj_create_compress", "opj_stream_create"):
        getattr(lib, f).restype = ctypes.c_void_p

    class One(ctypes.Structure):
        _fields_ = [(n, ctypes.c_uint32) for n in ("dx", "dy", "w", "h", "x0", "y0", "bits", "again", "signed")]

    class Component(ctypes.Structure):
        _fields_ = [(n, ctypes.c_uint32) for n in ("dx", "dy", "w", "h", "x0", "y0", "bits", "again", "signed",
                                                   "resolutions", "factor")]
        _fields_ += [("data", ctypes.POINTER(ctypes.c_int32)), ("alpha", ctypes.c_uint16)]

    class Whole(ctypes.Structure):
        _fields_ = [(n, ctypes.c_uint32) for n in ("x0", "y0", "x1", "y1", "components")]
        _fields_ += [("space", ctypes.c_int32), ("component", ctypes.POINTER(Component))]

    kinds = (One * len(planes))(*[One(s, s, p.shape[1], p.shape[0], 0, 0, 8, 8, 0) for s, p in zip(steps, planes)])
    image = Whole.from_address(lib.opj_image_create(len(planes), kinds, space))
    image.x1, image.y1 = planes[0].shape[1], planes[0].shape[0]
    for k, p in enumerate(planes):
        flat = np.ascontiguousarray(p, np.int32).ravel()
        ctypes.memmove(image.component[k].data, flat.ctypes.data, flat.nbytes)
    settings = ctypes.create_string_buffer(1 << 16)
    lib.opj_set_default_encoder_parameters(settings)
    codec = ctypes.c_void_p(lib.opj_create_compress(2))
    out = bytearray()
    at = [0]

    @ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    def write(data, n, _):
        out[at[0]:at[0] + n] = ctypes.string_at(data, n)
        at[0] += n
        return n

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    def skip(n, _):
        out.extend(b"\0" * max(0, at[0] + n - len(out)))
        at[0] += n
        return n

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_void_p)
    def seek(to, _):
        at[0] = to
        return 1

    stream = ctypes.c_void_p(lib.opj_stream_create(ctypes.c_size_t(1 << 16), 0))
    lib.opj_stream_set_write_function(stream, write)
    lib.opj_stream_set_skip_function(stream, skip)
    lib.opj_stream_set_seek_function(stream, seek)
    where = ctypes.c_void_p(ctypes.addressof(image))
    assert lib.opj_setup_encoder(codec, settings, where) and lib.opj_start_compress(codec, where, stream)
    assert lib.opj_encode(codec, stream) and lib.opj_end_compress(codec, stream)
    (folder / name).write_bytes(bytes(out))


large = np.tile(rgb, (2, 2, 1))  # six resolutions, OpenJPEG's default, want 32 pixels each way
ycc = np.asarray(Image.fromarray(large).convert("YCbCr")).astype(np.int64)
half = ycc[::2, ::2]
thinned("thinned.jp2", 3, [1, 2, 2], [ycc[:, :, 0], half[:, :, 1], half[:, :, 2]])
again = np.stack([ycc[:, :, 0]] + [half[:, :, k].repeat(2, 0).repeat(2, 1) for k in (1, 2)], 2).astype(np.uint8)
truth["thinned.jp2"] = np.asarray(Image.fromarray(again, "YCbCr").convert("RGB"))
np.savez_compressed(folder / "pixels.npz", **truth)
for name in sorted(truth):
    print(name, truth[name].shape, (folder / name).stat().st_size)
