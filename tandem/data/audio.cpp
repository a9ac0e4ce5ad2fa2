// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/audio.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numbers>
#include <numeric>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/linalg/fft.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

void check_sound(const Tensor& x, const char* what) {
  TD_CHECK(x.defined() && x.dim() == 2 && x.dtype() == DType::f32, Shape,
           "{}: expected a waveform f32 [channels, time], got {}", what,
           x.defined() ? x.shape().to_string() : "an undefined tensor");
}

double to_mel(double hz, MelScale scale) {
  if (scale == MelScale::htk) return 2595 * std::log10(1 + hz / 700);
  const double step = 200.0 / 3;  // linear up to 1000 Hz
  return hz < 1000 ? hz / step : 15 + std::log(hz / 1000) / (std::log(6.4) / 27);
}
double to_hz(double mel, MelScale scale) {
  if (scale == MelScale::htk) return 700 * (std::pow(10, mel / 2595) - 1);
  return mel < 15 ? mel * 200 / 3 : 1000 * std::exp(std::log(6.4) / 27 * (mel - 15));
}

Tensor masked(const Tensor& x, int64_t mask_param, int64_t dim, const char* what) {
  TD_CHECK(x.defined() && x.dim() == 3 && mask_param >= 0, Shape,
           "{}: features must be [channels, bins, frames]", what);
  NoGradGuard no_grad;
  const auto key = tandem::detail::next_rng_key();
  PhiloxStream random(key.seed, key.offset);
  const int64_t n = x.size(dim);
  const double width = static_cast<double>(random.next_uniform()) * static_cast<double>(mask_param);
  const double room = std::max(static_cast<double>(n) - width, 0.0);
  const auto begin = static_cast<int64_t>(static_cast<double>(random.next_uniform()) * room);
  const int64_t end = std::min(begin + static_cast<int64_t>(width), n);
  std::vector<float> keep(static_cast<size_t>(n), 1.0F);
  std::fill(keep.begin() + begin, keep.begin() + end, 0.0F);
  return x * tensor(keep, dim == 1 ? Shape(n, 1) : Shape(1, n));
}

}  // namespace

Tensor spectrogram(const Tensor& waveform, const SpectrogramOptions& o) {
  check_sound(waveform, "spectrogram");
  const int64_t n = o.n_fft, length = o.win_length ? o.win_length : n;
  const int64_t hop = o.hop_length ? o.hop_length : length / 2;
  TD_CHECK(n >= 1 && length >= 1 && length <= n && hop >= 1 && o.pad >= 0 && o.power > 0, Value,
           "spectrogram: n_fft {}, win_length {}, hop_length {}", n, length, hop);
  const int64_t time = waveform.size(1) + 2 * o.pad, half = o.center ? n / 2 : 0;
  TD_CHECK(time > half && time + 2 * half >= n, Value,
           "spectrogram: {} samples are too few for n_fft {}", time, n);
  const Tensor window = hann_window(length);
  const Tensor spectrum =
      stft(o.pad ? pad(waveform, {o.pad, o.pad}) : waveform, n,
           {.hop_length = hop, .win_length = length, .window = window, .center = o.center});
  Tensor power = complex_real(spectrum).square() + complex_imag(spectrum).square();
  if (o.normalized) power = power / window.square().sum();
  return o.power == 2 ? power : power.pow(o.power / 2);
}

Tensor melscale_fbanks(int64_t n_freqs, const MelOptions& o) {
  const double top = o.f_max > 0 ? o.f_max : static_cast<double>(o.sample_rate / 2);
  TD_CHECK(n_freqs >= 2 && o.n_mels >= 1 && o.sample_rate >= 2 && o.f_min >= 0 && o.f_min < top,
           Value, "melscale_fbanks: {} bins to {} mels between {} and {} Hz", n_freqs, o.n_mels,
           o.f_min, top);
  std::vector<double> points;
  const double low = to_mel(o.f_min, o.mel_scale), high = to_mel(top, o.mel_scale);
  for (int64_t i = 0; i < o.n_mels + 2; ++i)
    points.push_back(
        to_hz(low + (high - low) * static_cast<double>(i) / static_cast<double>(o.n_mels + 1),
              o.mel_scale));
  std::vector<float> bank(static_cast<size_t>(n_freqs * o.n_mels));
  for (int64_t f = 0; f < n_freqs; ++f) {
    const double hz = static_cast<double>(o.sample_rate / 2) * static_cast<double>(f) /
                      static_cast<double>(n_freqs - 1);
    for (int64_t m = 0; m < o.n_mels; ++m) {
      const double* p = points.data() + m;
      double v = std::max(0.0, std::min((hz - p[0]) / (p[1] - p[0]), (p[2] - hz) / (p[2] - p[1])));
      if (o.slaney_norm) v *= 2 / (p[2] - p[0]);
      bank[static_cast<size_t>(f * o.n_mels + m)] = static_cast<float>(v);
    }
  }
  return tensor(bank, Shape(n_freqs, o.n_mels));
}

Tensor mel_spectrogram(const Tensor& waveform, const MelOptions& o) {
  const Tensor power = spectrogram(waveform, o.spectrogram);
  return matmul(melscale_fbanks(power.size(1), o).t(), power);
}

Tensor amplitude_to_DB(const Tensor& x, const DecibelOptions& o) {
  TD_CHECK(o.amin > 0 && o.ref > 0, Value, "amplitude_to_DB: amin {} and ref {} must be positive",
           o.amin, o.ref);
  const Tensor db =
      log10(maximum(x, o.amin)) * o.multiplier - o.multiplier * std::log10(std::max(o.amin, o.ref));
  return o.top_db < 0 ? db : maximum(db, db.max() - o.top_db);
}

Tensor mfcc(const Tensor& waveform, const MFCCOptions& o) {
  NoGradGuard no_grad;
  const Tensor mel = mel_spectrogram(waveform, o.mel);
  const int64_t n = o.mel.n_mels;
  TD_CHECK(o.n_mfcc >= 1 && o.n_mfcc <= n, Value, "mfcc: {} coefficients of {} mels", o.n_mfcc, n);
  const Tensor logs = o.log_mels ? log(mel + 1e-6) : amplitude_to_DB(mel, {.top_db = 80});
  std::vector<float> dct;
  for (int64_t k = 0; k < o.n_mfcc; ++k)
    for (int64_t i = 0; i < n; ++i)
      dct.push_back(
          static_cast<float>(std::cos(std::numbers::pi / static_cast<double>(n) *
                                      (static_cast<double>(i) + 0.5) * static_cast<double>(k)) *
                             std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n))));
  return matmul(tensor(dct, Shape(o.n_mfcc, n)), logs);
}

Tensor whisper_features(const Tensor& waveform, int64_t n_mels, int64_t seconds) {
  check_sound(waveform, "whisper_features");
  constexpr int64_t kRate = 16000;
  MelOptions o{
      .sample_rate = kRate, .n_mels = n_mels, .slaney_norm = true, .mel_scale = MelScale::slaney};
  o.spectrogram.hop_length = 160;
  const Tensor mel = mel_spectrogram(fixed_length(waveform, seconds * kRate), o);
  const Tensor decades = log10(maximum(mel.narrow(2, 0, mel.size(2) - 1), full({}, 1e-10)));
  return (maximum(decades, amax(decades, {1, 2}, true) - 8) + 4) / 4;
}

Tensor resample(const Tensor& waveform, int64_t orig_freq, int64_t new_freq,
                const ResampleOptions& o) {
  check_sound(waveform, "resample");
  TD_CHECK(orig_freq >= 1 && new_freq >= 1 && o.lowpass_filter_width >= 1 && o.rolloff > 0 &&
               o.rolloff <= 1,
           Value, "resample: from {} to {} Hz", orig_freq, new_freq);
  const int64_t common = std::gcd(orig_freq, new_freq);
  const int64_t from = orig_freq / common, to = new_freq / common;
  if (from == to) return waveform;
  TD_CHECK(to <= 1 << 16 && from <= 1 << 16, Value,
           "resample: the ratio {} / {} cannot be reduced far enough", new_freq, orig_freq);
  const double base = static_cast<double>(std::min(from, to)) * o.rolloff;
  const auto wide = static_cast<double>(o.lowpass_filter_width);
  const auto width = static_cast<int64_t>(std::ceil(wide * static_cast<double>(from) / base));
  const int64_t taps = 2 * width + from;
  std::vector<double> kernels;  // one per phase of the result
  for (int64_t phase = 0; phase < to; ++phase)
    for (int64_t i = 0; i < taps; ++i) {
      double t = (-static_cast<double>(phase) / static_cast<double>(to) +
                  static_cast<double>(i - width) / static_cast<double>(from)) *
                 base;
      t = std::clamp(t, -wide, wide);
      const double window = std::pow(std::cos(t * std::numbers::pi / wide / 2), 2);
      const double sinc = t == 0 ? 1 : std::sin(t * std::numbers::pi) / (t * std::numbers::pi);
      kernels.push_back(sinc * window * base / static_cast<double>(from));
    }
  const int64_t channels = waveform.size(0), n = waveform.size(1);
  const int64_t m = (to * n + from - 1) / from;
  const std::vector<float> x = waveform.to_vector<float>();
  std::vector<float> out(static_cast<size_t>(channels * m));
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < m; ++i) {
      const double* k = kernels.data() + i % to * taps;
      const int64_t begin = i / to * from - width;
      double sum = 0;
      for (int64_t j = std::max<int64_t>(0, -begin); j < taps && begin + j < n; ++j)
        sum += static_cast<double>(x[static_cast<size_t>(c * n + begin + j)]) * k[j];
      out[static_cast<size_t>(c * m + i)] = static_cast<float>(sum);
    }
  return tensor(out, Shape(channels, m));
}

Tensor time_masking(const Tensor& features, int64_t mask_param) {
  return masked(features, mask_param, 2, "time_masking");
}
Tensor frequency_masking(const Tensor& features, int64_t mask_param) {
  return masked(features, mask_param, 1, "frequency_masking");
}

Tensor fixed_length(const Tensor& waveform, int64_t length) {
  Tensor x = waveform;
  const int64_t n = x.size(1);
  if (length > 0 && n > length) x = x.narrow(1, 0, length);
  if (length > n) x = cat({x, zeros({x.size(0), length - n})}, 1);
  return x.contiguous();
}

WavFolder::WavFolder(const FilePath& folder, WavFolderOptions options)
    : options_(std::move(options)) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::pair<std::string, std::string>> found;  // path, class
  for (fs::directory_iterator it(folder.str(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string stem = it->path().stem().string();
    const std::string kind = it->path().extension().string();
    if ((kind != ".wav" && kind != ".flac") || (options_.filter && !options_.filter(stem)))
      continue;
    found.emplace_back(it->path().string(), stem.substr(0, stem.find('_')));
    classes_.push_back(found.back().second);
  }
  TD_CHECK(!error, Io, "cannot list '{}': {}", folder.str(), error.message());
  TD_CHECK(!found.empty(), Value, "WavFolder: there is no .wav or .flac in '{}'", folder.str());
  std::sort(found.begin(), found.end());
  std::sort(classes_.begin(), classes_.end());
  classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
  for (auto& [path, name] : found)
    files_.emplace_back(std::move(path), std::lower_bound(classes_.begin(), classes_.end(), name) -
                                             classes_.begin());
}

Example WavFolder::get(int64_t i) const {
  TD_CHECK(i >= 0 && i < size(), Index, "sample {} of a dataset of {}", i, size());
  NoGradGuard no_grad;
  return damaged_.take(i, size(), options_.skip_damaged, [this](int64_t k) { return read(k); });
}

Example WavFolder::read(int64_t i) const {
  const auto& [file, label] = files_[static_cast<size_t>(i)];
  return {fixed_length(io::read_audio(file).waveform, options_.length), tensor(label)};
}

}  // namespace tandem::data
