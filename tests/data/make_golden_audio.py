# SPDX-License-Identifier: Apache-2.0
# Makes tests/data/audio.safetensors with librosa: features of half a second of a made-up sound.
# Use: PYTHON make_golden_audio.py OUT
import sys
import librosa, numpy as np
from safetensors.numpy import save_file
sr = 16000
t = np.arange(sr // 2) / sr
g = np.random.default_rng(5)
x = (0.4 * np.sin(2 * np.pi * (300 + 1500 * t) * t) + 0.2 * np.sin(2 * np.pi * 3100 * t) + 0.02 * g.normal(size=t.size)).astype(np.float32)
kw = dict(window="hann", center=True, pad_mode="reflect")
out = {"x": x[None]}
out["power"] = np.abs(librosa.stft(x, n_fft=400, hop_length=200, **kw)) ** 2
out["magnitude_short"] = np.abs(librosa.stft(x, n_fft=512, win_length=320, hop_length=160, **kw))
out["mel_htk"] = librosa.feature.melspectrogram(y=x, sr=sr, n_fft=400, hop_length=200, n_mels=40, htk=True, norm=None, **kw)
out["mel_slaney"] = librosa.feature.melspectrogram(y=x, sr=sr, n_fft=2048, hop_length=512, n_mels=128, **kw)
out["db"] = librosa.power_to_db(out["mel_htk"], top_db=80.0)
m = librosa.feature.melspectrogram(y=x, sr=sr, n_fft=400, hop_length=200, n_mels=40, htk=True, norm=None, **kw)
out["mfcc"] = librosa.feature.mfcc(S=librosa.power_to_db(m, top_db=80.0), n_mfcc=13)
save_file({k: np.ascontiguousarray(v, dtype=np.float32) for k, v in out.items()}, sys.argv[1])
