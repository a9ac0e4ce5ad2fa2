// SPDX-License-Identifier: Apache-2.0
// After Kaldi's feature-window.cc, mel-computations.cc and feature-fbank.cc, in the form of
// torchaudio/compliance/kaldi.py.
#include "tandem/data/sets/kaldi.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tandem/graph/context.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/linalg/fft.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

constexpr double kLeast = 1.1920928955078125e-07;  // of a float near 1

double mel_of(double hz) { return 1127 * std::log(1 + hz / 700); }

std::vector<double> window_of(int64_t n, const FbankOptions& o) {
  std::vector<double> w;
  for (int64_t i = 0; i < n; ++i) {
    const double a = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(n - 1);
    switch (o.window_type) {
      case SpeechWindow::povey:
        w.push_back(std::pow(0.5 - 0.5 * std::cos(a), 0.85));
        break;
      case SpeechWindow::hanning:
        w.push_back(0.5 - 0.5 * std::cos(a));
        break;
      case SpeechWindow::hamming:
        w.push_back(0.54 - 0.46 * std::cos(a));
        break;
      case SpeechWindow::blackman:
        w.push_back(o.blackman_coeff - 0.5 * std::cos(a) +
                    (0.5 - o.blackman_coeff) * std::cos(2 * a));
        break;
      case SpeechWindow::rectangular:
        w.push_back(1);
    }
  }
  return w;
}

struct Frames {
  int64_t count = 0, size = 0, padded = 0;
  std::vector<float> samples;  ///< [count, padded], windowed
  std::vector<float> energy;   ///< logarithm
};

Frames frames_of(const std::vector<float>& sound, const FbankOptions& o) {
  Frames f;
  const auto n = static_cast<int64_t>(sound.size());
  const auto shift = static_cast<int64_t>(o.sample_frequency * o.frame_shift * 0.001);
  f.size = static_cast<int64_t>(o.sample_frequency * o.frame_length * 0.001);
  TD_CHECK(shift >= 1 && f.size >= 2 && f.size <= n, Value,
           "kaldi_fbank: frames of {} samples every {}, of a sound of {}", f.size, shift, n);
  f.padded = f.size;
  if (o.round_to_power_of_two)
    for (f.padded = 1; f.padded < f.size;) f.padded *= 2;
  f.count = o.snip_edges ? 1 + (n - f.size) / shift : (n + shift / 2) / shift;
  const int64_t before = o.snip_edges ? 0 : f.size / 2 - shift / 2;
  const std::vector<double> window = window_of(f.size, o);
  f.samples.resize(static_cast<size_t>(f.count * f.padded));
  const auto key = o.dither > 0 ? tandem::detail::next_rng_key() : RngKey{};
  PhiloxStream random(key.seed, key.offset);
  std::vector<double> x(static_cast<size_t>(f.size));
  const auto log_energy = [&] {
    double sum = 0;
    for (const double v : x) sum += v * v;
    const double e = std::log(std::max(sum, kLeast));
    f.energy.push_back(
        static_cast<float>(o.energy_floor > 0 ? std::max(e, std::log(o.energy_floor)) : e));
  };
  for (int64_t k = 0; k < f.count; ++k) {
    double mean = 0;
    for (int64_t i = 0; i < f.size; ++i) {
      int64_t at = k * shift + i - before;
      at = at < 0    ? -at - 1
           : at >= n ? 2 * n - 1 - at
                     : at;  // reflected, with the end samples repeated
      double& v = x[static_cast<size_t>(i)];
      v = sound[static_cast<size_t>(std::clamp<int64_t>(at, 0, n - 1))];
      if (o.dither > 0) v += o.dither * static_cast<double>(random.next_normal());
      mean += v / static_cast<double>(f.size);
    }
    if (o.remove_dc_offset)
      for (double& v : x) v -= mean;
    if (o.raw_energy) log_energy();
    for (size_t i = x.size(); i-- > 0;)
      x[i] = (x[i] - o.preemphasis_coefficient * x[i > 0 ? i - 1 : 0]) * window[i];
    if (!o.raw_energy) log_energy();
    std::copy(x.begin(), x.end(), f.samples.begin() + k * f.padded);
  }
  return f;
}

// The triangular mel filters, f32 [bins, mels].
Tensor banks(int64_t padded, const FbankOptions& o) {
  const double nyquist = o.sample_frequency / 2;
  const double high = o.high_freq > 0 ? o.high_freq : nyquist + o.high_freq;
  TD_CHECK(o.num_mel_bins > 3 && o.low_freq >= 0 && o.low_freq < high && high <= nyquist, Value,
           "kaldi_fbank: {} bins between {} and {} Hz at {} Hz", o.num_mel_bins, o.low_freq, high,
           o.sample_frequency);
  const double low_mel = mel_of(o.low_freq);
  const double step = (mel_of(high) - low_mel) / static_cast<double>(o.num_mel_bins + 1);
  const int64_t bins = padded / 2 + 1;
  std::vector<float> bank(static_cast<size_t>(bins * o.num_mel_bins));
  for (int64_t b = 0; b < padded / 2; ++b) {  // the highest bin belongs to none
    const double mel =
        mel_of(o.sample_frequency / static_cast<double>(padded) * static_cast<double>(b));
    for (int64_t m = 0; m < o.num_mel_bins; ++m) {
      const double left = low_mel + static_cast<double>(m) * step;
      const double v = std::min((mel - left) / step, (left + 2 * step - mel) / step);
      bank[static_cast<size_t>(b * o.num_mel_bins + m)] = static_cast<float>(std::max(v, 0.0));
    }
  }
  return tensor(bank, Shape(bins, o.num_mel_bins));
}

/// The filter banks, and the energy column [frames, 1].
std::pair<Tensor, Tensor> fbank_and_energy(const Tensor& waveform, const FbankOptions& o) {
  TD_CHECK(waveform.defined() && waveform.dtype() == DType::f32 &&
               (waveform.dim() == 1 || (waveform.dim() == 2 && waveform.size(0) == 1)),
           Shape, "kaldi_fbank: a waveform is f32 [1, time] or [time], got {}",
           waveform.defined() ? waveform.shape().to_string() : "an undefined tensor");
  const Frames f = frames_of(waveform.to_vector<float>(), o);
  const Tensor spectrum = fft::rfft(tensor(f.samples, Shape(f.count, f.padded)));
  Tensor power = complex_real(spectrum).square() + complex_imag(spectrum).square();
  if (!o.use_power) power = power.sqrt();
  Tensor mel = matmul(power, banks(f.padded, o));
  if (o.use_log_fbank) mel = log(maximum(mel, kLeast));
  return {mel, tensor(f.energy, Shape(f.count, int64_t{1}))};
}

}  // namespace

Tensor kaldi_fbank(const Tensor& waveform, const FbankOptions& o) {
  NoGradGuard no_grad;
  const auto [mel, energy] = fbank_and_energy(waveform, o);
  if (!o.use_energy) return mel;
  return o.htk_compat ? cat({mel, energy}, 1) : cat({energy, mel}, 1);
}

Tensor kaldi_mfcc(const Tensor& waveform, const KaldiMFCCOptions& o) {
  NoGradGuard no_grad;
  const int64_t n = o.fbank.num_mel_bins;
  TD_CHECK(o.num_ceps >= 1 && o.num_ceps <= n, Value, "kaldi_mfcc: {} coefficients of {} bins",
           o.num_ceps, n);
  FbankOptions fbank = o.fbank;
  fbank.use_log_fbank = fbank.use_power = true;
  const auto [mel, energy] = fbank_and_energy(waveform, fbank);
  std::vector<float> dct;  // [mels, coefficients], liftered
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < o.num_ceps; ++k) {
      const double lift =
          o.cepstral_lifter > 0
              ? 1 + 0.5 * o.cepstral_lifter *
                        std::sin(std::numbers::pi * static_cast<double>(k) / o.cepstral_lifter)
              : 1;
      dct.push_back(
          static_cast<float>(lift * std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n)) *
                             std::cos(std::numbers::pi / static_cast<double>(n) *
                                      (static_cast<double>(i) + 0.5) * static_cast<double>(k))));
    }
  Tensor out = matmul(mel, tensor(dct, Shape(n, o.num_ceps)));
  if (fbank.use_energy) out = cat({energy, out.narrow(1, 1, o.num_ceps - 1)}, 1);
  if (!fbank.htk_compat) return out;
  // The first coefficient comes last, and without energy it is scaled as in HTK.
  Tensor first = out.narrow(1, 0, 1);
  if (!fbank.use_energy) first = first * std::sqrt(2.0);
  return cat({out.narrow(1, 1, o.num_ceps - 1), first}, 1);
}

Tensor whisper_log_mel(const Tensor& waveform, int64_t n_mels) {
  NoGradGuard no_grad;
  const Tensor mel = mel_spectrogram(waveform, {.spectrogram = {.n_fft = 400, .hop_length = 160},
                                                .n_mels = n_mels,
                                                .slaney_norm = true,
                                                .mel_scale = MelScale::slaney});
  // The last frame lies past the end and is dropped.
  const Tensor x = log10(maximum(mel.narrow(2, 0, mel.size(2) - 1), 1e-10));
  return (maximum(x, x.max() - 8.0) + 4.0) / 4.0;
}

}  // namespace tandem::data
