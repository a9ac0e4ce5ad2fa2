# SPDX-License-Identifier: Apache-2.0
"""Golden cases of Fourier transforms and windows. Called by make_golden.py.

Complex tensors are stored as real ones with a last dimension (real, imaginary).
"""
import torch

from golden_lib import Family, f64


def real_in(op):
    return lambda x, **kw: torch.view_as_real(getattr(torch.fft, op)(x, **kw))


def real_out(op):
    return lambda x, **kw: getattr(torch.fft, op)(torch.view_as_complex(x), **kw)


def both(op):
    return lambda x, **kw: torch.view_as_real(getattr(torch.fft, op)(torch.view_as_complex(x), **kw))


def stft(x, window, **kw):
    return torch.view_as_real(torch.stft(x, window=window, return_complex=True, **kw))


def istft(x, window, **kw):
    return torch.istft(torch.view_as_complex(x), window=window, **kw)


def make():
    f = Family("fft")
    r = f.rng("x")
    add = f.add
    n = lambda *s: r.normal(*s, dtype=f64)
    for size in (1, 2, 7, 8, 12, 67, 134):
        add("fft", [n(2, size, 2)], fn=both("fft"))
        add("rfft", [n(2, size)], fn=real_in("rfft"))
    for norm in ("backward", "ortho", "forward"):
        for length in (4, 5, 9):
            a = {"n": length, "dim": 0, "norm": norm}
            add("fft", [n(6, 2, 2)], a, fn=both("fft"))
            add("ifft", [n(6, 2, 2)], a, fn=both("ifft"))
            add("rfft", [n(6, 2)], a, fn=real_in("rfft"))
            add("irfft", [n(4, 2, 2)], a, fn=real_out("irfft"))
    add("irfft", [n(2, 5, 2)], fn=real_out("irfft"))
    add("fft", [r.normal(3, 8, 2)], fn=both("fft"), rtol=1e-4, atol=1e-5)
    add("rfft", [r.normal(3, 10)], fn=real_in("rfft"), rtol=1e-4, atol=1e-5)
    for op in ("fftn", "ifftn", "fft2", "ifft2"):
        add(op, [n(2, 3, 4, 2)], fn=both(op))
        add(op, [n(2, 3, 4, 2)], {"s": [4, 2], "dim": [0, 2], "norm": "ortho"}, fn=both(op))
    for op in ("rfftn", "rfft2"):
        add(op, [n(2, 3, 4)], fn=real_in(op))
        add(op, [n(2, 3, 4)], {"s": [5, 3], "dim": [2, 0]}, fn=real_in(op))
    for op in ("irfftn", "irfft2"):
        add(op, [n(2, 3, 4, 2)], fn=real_out(op))
        add(op, [n(2, 3, 4, 2)], {"s": [5, 3], "dim": [2, 0]}, fn=real_out(op))
    for op in ("fftfreq", "rfftfreq"):
        for k in (1, 6, 7):
            add(op, [], {"count": k, "d": 0.5}, fn=lambda count, d, op=op: getattr(torch.fft, op)(count, d))
    x = n(4, 5)
    for op in ("fftshift", "ifftshift"):
        add(op, [x], fn=getattr(torch.fft, op))
        add(op, [x], {"dim": [1]}, fn=getattr(torch.fft, op))
    for op in ("hann_window", "hamming_window", "blackman_window", "bartlett_window",
               "kaiser_window"):
        for periodic in (True, False):
            for k in (1, 8, 9):
                add(op, [], {"count": k, "periodic": periodic},
                    fn=lambda count, periodic, op=op: getattr(torch, op)(count, periodic),
                    rtol=1e-5, atol=1e-6)
    w = torch.hann_window(12, dtype=f64)
    x = n(2, 50)
    for a in ({"n_fft": 12, "hop_length": 4}, {"n_fft": 12, "hop_length": 3, "center": False},
              {"n_fft": 16, "hop_length": 4, "win_length": 12, "normalized": True},
              {"n_fft": 12, "hop_length": 5, "onesided": False, "pad_mode": "constant"}):
        add("stft", [x, w], a, fn=stft)
        b = {k: v for k, v in a.items() if k != "pad_mode"}
        if a.get("center", True):
            y = stft(x, w, **a)
            add("istft", [y, w], dict(b, length=50), fn=istft)
            add("istft", [y[0].contiguous(), w], b, fn=istft)
    f.save()
