// SPDX-License-Identifier: Apache-2.0
// Sound features against torchaudio's (make_golden_torchaudio.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "tandem/data/sets/kaldi.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/support/init.h"

namespace tandem::data {
namespace {

StateDict golden() {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  return load(std::string(root ? root : ".") + "/tests/data/torchaudio.safetensors");
}

void expect_close(const char* what, const Tensor& got, const Tensor& want) {
  SCOPED_TRACE(what);
  ASSERT_EQ(got.shape(), want.shape());
  const float scale = want.abs().max().item<float>();
  EXPECT_LE((got - want).abs().max().item<float>(), 1e-4F * std::max(scale, 1.0F));
}

TEST(AudioFeatures, ResampleEqualsTorchaudios) {
  const StateDict g = golden();
  const Tensor x = g.at("x");
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{16000, 8000},
                                 {8000, 16000},
                                 {44100, 16000},
                                 {16000, 44100},
                                 {8000, 11025},
                                 {3, 7}}) {
    const std::string name = fmt::format("resample_{}_{}", from, to);
    expect_close(name.c_str(), resample(x, from, to), g.at(name));
  }
  expect_close("wide", resample(x, 16000, 6000, {.lowpass_filter_width = 16, .rolloff = 0.9}),
               g.at("resample_wide"));
}

TEST(AudioFeatures, KaldisEqualTorchaudios) {
  const StateDict g = golden();
  const Tensor x = g.at("x").narrow(0, 0, 1);
  expect_close("fbank", kaldi_fbank(x), g.at("fbank"));
  expect_close(
      "fbank_80",
      kaldi_fbank(x * 32768.0,
                  {.num_mel_bins = 80, .window_type = SpeechWindow::hamming, .snip_edges = false}),
      g.at("fbank_80"));
  expect_close("fbank_power",
               kaldi_fbank(x[0], {.low_freq = 100,
                                  .high_freq = -400,
                                  .preemphasis_coefficient = 0,
                                  .remove_dc_offset = false,
                                  .use_energy = true,
                                  .use_log_fbank = false}),
               g.at("fbank_power"));
  expect_close("mfcc", kaldi_mfcc(x), g.at("kaldi_mfcc"));
  expect_close("mfcc_htk",
               kaldi_mfcc(x, {.fbank = {.window_type = SpeechWindow::blackman,
                                        .use_energy = true,
                                        .htk_compat = true}}),
               g.at("kaldi_mfcc_htk"));
  expect_close("whisper", whisper_log_mel(x), g.at("whisper"));
  EXPECT_EQ(error_of([&] { kaldi_fbank(x.narrow(1, 0, 300)); }),
            "Value: kaldi_fbank: frames of 400 samples every 160, of a sound of 300.");
  EXPECT_EQ(error_of([] {
              kaldi_fbank(ones({2, 4000}));
            }),
            "Shape: kaldi_fbank: a waveform is f32 [1, time] or [time], got [2, 4000].");
  EXPECT_EQ(error_of([&] { kaldi_fbank(x, {.low_freq = 9000}); }),
            "Value: kaldi_fbank: 23 bins between 9000 and 8000 Hz at 16000 Hz.");
  EXPECT_EQ(error_of([&] { kaldi_mfcc(x, {.num_ceps = 24}); }),
            "Value: kaldi_mfcc: 24 coefficients of 23 bins.");
}

// Of a chirp, by the library transformers (tests/peers/transformers --golden).
TEST(AudioFeatures, WhisperFeaturesEqualTransformers) {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  const StateDict g = load(std::string(root ? root : ".") + "/tests/data/whisper.safetensors");
  std::vector<float> sound;
  for (int i = 0; i < 16000; ++i)
    sound.push_back(static_cast<float>(0.5 * std::sin(0.05 * i + 2e-5 * i * i)));
  const Tensor got = whisper_features(tensor(sound).reshape({1, 16000}), 8, 1);
  expect_close("features", got.squeeze(0), g.at("whisper"));
  EXPECT_EQ(whisper_features(tensor(sound).reshape({1, 16000})).shape(), (Shape{1, 80, 3000}));
}

}  // namespace
}  // namespace tandem::data
