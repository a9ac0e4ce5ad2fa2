# SPDX-License-Identifier: Apache-2.0
# Makes tests/data/torchaudio.safetensors with torchaudio: resampling, Kaldi's and Whisper's features
# of a made-up sound. Use: PYTHON make_golden_torchaudio.py OUT (made with torchaudio 2.11)
import sys
import numpy as np
import torch
from safetensors.numpy import save_file
if len(sys.argv) > 2:  # torchaudio built for another CUDA than torch, neither used here
    torch.version.cuda = sys.argv[2]
import torchaudio.functional as F
import torchaudio.compliance.kaldi as kaldi
t = np.arange(3000) / 16000
g = np.random.default_rng(7)
x = np.stack([0.4 * np.sin(2 * np.pi * (300 + 1500 * t) * t), 0.3 * np.sin(2 * np.pi * 2900 * t)])
x = torch.tensor((x + 0.02 * g.normal(size=x.shape)).astype(np.float32))
out = {"x": x}
for a, b in [(16000, 8000), (8000, 16000), (44100, 16000), (16000, 44100), (8000, 11025), (3, 7)]:
    out[f"resample_{a}_{b}"] = F.resample(x, a, b)
out["resample_wide"] = F.resample(x, 16000, 6000, lowpass_filter_width=16, rolloff=0.9)
w = x[:1]
out["fbank"] = kaldi.fbank(w, dither=0.0)
out["fbank_80"] = kaldi.fbank(w * 32768, num_mel_bins=80, dither=0.0, window_type="hamming", snip_edges=False)
out["fbank_power"] = kaldi.fbank(w, dither=0.0, use_log_fbank=False, use_energy=True, low_freq=100, high_freq=-400,
                                 preemphasis_coefficient=0.0, remove_dc_offset=False)
# whisper/audio.py, log_mel_spectrogram
s = torch.stft(w, 400, 160, window=torch.hann_window(400), return_complex=True)[..., :-1].abs() ** 2
banks = F.melscale_fbanks(201, 0, 8000, 80, 16000, norm="slaney", mel_scale="slaney")
s = (banks.T @ s).clamp(min=1e-10).log10()
out["whisper"] = (torch.maximum(s, s.max() - 8.0) + 4.0) / 4.0
out["kaldi_mfcc_htk"] = kaldi.mfcc(w, dither=0.0, use_energy=True, htk_compat=True, window_type="blackman")
out["kaldi_mfcc"] = kaldi.mfcc(w, dither=0.0)
save_file({k: np.ascontiguousarray(v.numpy(), dtype=np.float32) for k, v in out.items()}, sys.argv[1])
for k, v in out.items():
    print(k, tuple(v.shape))
