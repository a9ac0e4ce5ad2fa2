// SPDX-License-Identifier: Apache-2.0
// Speech features as used by two families of models: Kaldi's filter banks and MFCC (with the
// arguments and defaults of torchaudio.compliance.kaldi) and Whisper's logarithmic mel spectrogram.
#pragma once

#include "tandem/data/audio.h"

namespace tandem::data {

enum class SpeechWindow : uint8_t { povey, hanning, hamming, blackman, rectangular };
struct FbankOptions {
  double sample_frequency = 16000;
  double frame_length = 25, frame_shift = 10;  ///< milliseconds
  int64_t num_mel_bins = 23;
  double low_freq = 20, high_freq = 0;  ///< high_freq <= 0: relative to half the sample frequency
  double preemphasis_coefficient = 0.97;
  double blackman_coeff = 0.42;
  double energy_floor = 1;  ///< for the energy column; 0: none
  double dither = 0;        ///< deviation of the added noise (Kaldi's own default is 1)
  SpeechWindow window_type = SpeechWindow::povey;
  bool remove_dc_offset = true, round_to_power_of_two = true;
  bool snip_edges = true;                       ///< whole frames only; else the ends are reflected
  bool raw_energy = true;                       ///< of the samples before preemphasis and window
  bool use_energy = false, htk_compat = false;  ///< the energy comes first, with htk_compat last
  bool use_power = true, use_log_fbank = true;
};
/// f32 [frames, num_mel_bins (+ 1 with use_energy)] of a waveform f32 [1, time] or [time]. Kaldi's
/// samples are those of 16-bit integers: multiply by 32768 to get its numbers. Noise comes from
/// this thread's generator. Throws Shape, Value.
TD_API Tensor kaldi_fbank(const Tensor& waveform, const FbankOptions& options = {});

struct KaldiMFCCOptions {
  int64_t num_ceps = 13;
  double cepstral_lifter = 22;  ///< 0: none
  FbankOptions fbank = {};      ///< with use_energy the energy replaces the first coefficient
};
/// f32 [frames, num_ceps].
TD_API Tensor kaldi_mfcc(const Tensor& waveform, const KaldiMFCCOptions& options = {});

/// The input of OpenAI's Whisper: f32 [channels, n_mels, time / 160] from 16 kHz sound [channels,
/// time]: log10 of the mel spectrogram (400, 160, Slaney), clipped to 8 below its maximum, then (x
/// + 4) / 4. Pad or truncate the sound to 30 s first.
TD_API Tensor whisper_log_mel(const Tensor& waveform, int64_t n_mels = 80);

}  // namespace tandem::data
