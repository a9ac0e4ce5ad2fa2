// SPDX-License-Identifier: Apache-2.0
// Audio features with torchaudio's names, arguments and defaults: spectrogram, mel scale, MFCC,
// decibels, resampling, masking in time and frequency; and datasets of WAV and FLAC files.
// Waveforms are f32 [channels, time], features [channels, bins, frames].
#pragma once

#include <string>
#include <vector>

#include "tandem/data/damaged.h"
#include "tandem/data/sets/datasets.h"
#include "tandem/io/audio.h"

namespace tandem::data {

struct SpectrogramOptions {
  int64_t n_fft = 400;
  int64_t win_length = 0;   ///< 0: n_fft
  int64_t hop_length = 0;   ///< 0: win_length / 2
  int64_t pad = 0;          ///< zeros added on both sides
  double power = 2;         ///< 1: magnitude, 2: power
  bool normalized = false;  ///< divide by the square root of the window's energy
  bool center = true;       ///< frame t is centred on sample t * hop_length; the ends are reflected
};
/// |STFT|^power with a periodic Hann window: [channels, n_fft / 2 + 1, frames].
TD_API Tensor spectrogram(const Tensor& waveform, const SpectrogramOptions& options = {});

enum class MelScale : uint8_t { htk, slaney };
struct MelOptions {
  int64_t sample_rate = 16000;
  SpectrogramOptions spectrogram = {};
  double f_min = 0, f_max = 0;  ///< f_max 0: half the sample rate
  int64_t n_mels = 128;
  bool slaney_norm = false;  ///< filters of area 1 (torchaudio's norm = "slaney")
  MelScale mel_scale = MelScale::htk;
};
/// The triangular filters, f32 [n_freqs, n_mels].
TD_API Tensor melscale_fbanks(int64_t n_freqs, const MelOptions& options);
TD_API Tensor mel_spectrogram(const Tensor& waveform, const MelOptions& options = {});

struct DecibelOptions {
  double multiplier = 10, amin = 1e-10, ref = 1;  ///< for power; for magnitude the multiplier is 20
  double top_db = -1;  ///< raise values more than this below the highest; negative: no limit
};
TD_API Tensor amplitude_to_DB(const Tensor& x, const DecibelOptions& options = {});

struct MFCCOptions {
  int64_t n_mfcc = 40;
  bool log_mels = false;  ///< logarithm instead of decibels with top_db = 80
  MelOptions mel = {};
};
/// DCT-II (orthonormal) of the logarithm of the mel spectrogram.
TD_API Tensor mfcc(const Tensor& waveform, const MFCCOptions& options = {});

/// The input of Whisper for mono sound of 16,000 samples a second, f32 [channels, time]: the
/// logarithm of its mel spectrogram (Slaney's scale, no more than 8 decades below the highest
/// value), shifted to about [-1, 1]: [channels, n_mels, frames]. The sound is cut, or filled with
/// zeros, to `seconds`; a frame lasts 10 ms.
TD_API Tensor whisper_features(const Tensor& waveform, int64_t n_mels = 80, int64_t seconds = 30);

struct ResampleOptions {
  int64_t lowpass_filter_width = 6;
  double rolloff = 0.99;
};
/// Band-limited interpolation with a windowed sinc (Hann).
TD_API Tensor resample(const Tensor& waveform, int64_t orig_freq, int64_t new_freq,
                       const ResampleOptions& options = {});

/// Zeros up to `mask_param` neighbouring frames (bins), drawn from this thread's generator.
TD_API Tensor time_masking(const Tensor& features, int64_t mask_param);
TD_API Tensor frequency_masking(const Tensor& features, int64_t mask_param);

/// A waveform [channels, time] cut, or filled with zeros, to `length` samples; 0: as it is.
TD_API Tensor fixed_length(const Tensor& waveform, int64_t length);

struct WavFolderOptions {
  int64_t length = 0;  ///< samples of each: truncated, or padded with zeros; 0: unchanged
  /// Keep files for which this returns true; all if it is empty.
  std::function<bool(const std::string& stem)> filter = {};
  /// Replace a sample that cannot be read by the next one that can, and count it in damaged();
  /// otherwise throw Format naming the file.
  bool skip_damaged = false;
};
/// The WAV and FLAC files of a folder, sorted; the class is the name up to the first '_' (as in
/// "7_jackson_3.wav"), classes are sorted. Samples: x f32 [channels, time], y i64 0-d.
class TD_API WavFolder {
 public:
  static constexpr const char* kName = "WavFolder";
  explicit WavFolder(const FilePath& folder, WavFolderOptions options = {});
  int64_t size() const { return static_cast<int64_t>(files_.size()); }
  Example get(int64_t i) const;
  const std::vector<std::string>& classes() const { return classes_; }
  /// How often a damaged file was skipped.
  int64_t damaged() const { return damaged_.count(); }

 private:
  Example read(int64_t i) const;
  WavFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<std::pair<std::string, int64_t>> files_;
  Damaged damaged_;
};

}  // namespace tandem::data
