// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/audio.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

uint64_t little(const unsigned char* p, size_t bytes) {
  uint64_t v = 0;
  for (size_t i = bytes; i-- > 0;) v = v << 8 | p[i];
  return v;
}
template <class T>
T number(const unsigned char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

struct Coding {
  uint64_t tag = 0, channels = 0, rate = 0, bits = 0;
};

Coding read_format(const unsigned char* p, size_t bytes, std::string_view name) {
  TD_CHECK(bytes >= 16, Format, "'{}': its format chunk has {} bytes, expected at least 16", name,
           bytes);
  Coding c{little(p, 2), little(p + 2, 2), little(p + 4, 4), little(p + 14, 2)};
  if (c.tag == 0xFFFE) {  // extensible: the sub-format starts with the encoding
    TD_CHECK(bytes >= 40, Format, "'{}': its extensible format chunk is truncated", name);
    c.tag = little(p + 24, 2);
  }
  const bool pcm = c.tag == 1 && (c.bits == 8 || c.bits == 16 || c.bits == 24 || c.bits == 32);
  const bool real = c.tag == 3 && (c.bits == 32 || c.bits == 64);
  TD_CHECK(
      pcm || real, Format,
      "'{}': encoding {} with {} bits is not supported\nPCM (1) and float (3) are: convert it.",
      name, c.tag, c.bits);
  TD_CHECK(c.channels >= 1 && c.channels <= 1024 && c.rate >= 1, Format,
           "'{}': {} channels at {} Hz are impossible", name, c.channels, c.rate);
  TD_CHECK(little(p + 12, 2) == c.channels * (c.bits / 8), Format,
           "'{}': a frame of {} bytes cannot hold {} channels of {} bits", name, little(p + 12, 2),
           c.channels, c.bits);
  return c;
}

float sample(const unsigned char* p, const Coding& c) {
  if (c.tag == 3) return c.bits == 32 ? number<float>(p) : static_cast<float>(number<double>(p));
  if (c.bits == 8) return (static_cast<float>(p[0]) - 128.0F) / 128.0F;
  // The sign is that of the upper byte.
  const auto v = static_cast<int32_t>(little(p, c.bits / 8) << (32 - c.bits));
  return static_cast<float>(static_cast<double>(v) / 2147483648.0);
}

}  // namespace

Audio decode_wav(std::string_view text, const ReadAudioOptions& o, std::string_view name) {
  const Budget budget(name, text.size(), o.limits);
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  TD_CHECK(text.size() >= 12 && text.starts_with("RIFF") && text.substr(8, 4) == "WAVE", Format,
           "'{}' is not a WAV file", name);
  Coding coding;
  for (size_t at = 12; text.size() - at >= 8;) {
    const std::string_view id = text.substr(at, 4);
    const uint64_t bytes = little(p + at + 4, 4);
    at += 8;
    TD_CHECK(bytes <= text.size() - at, Format,
             "'{}': chunk '{}' has {} bytes, the file ends after {}", name,
             id == "fmt " || id == "data" ? id : "?", bytes, text.size() - at);
    if (id == "fmt ") coding = read_format(p + at, bytes, name);
    if (id == "data") {
      TD_CHECK(coding.bits, Format, "'{}': its data comes before its format chunk", name);
      const uint64_t width = coding.bits / 8, frame = width * coding.channels;
      TD_CHECK(bytes % frame == 0, Format,
               "'{}': its {} bytes of data are not a whole number of frames of {}", name, bytes,
               frame);
      const auto frames = static_cast<int64_t>(bytes / frame);
      const auto channels = static_cast<int64_t>(coding.channels);
      TD_CHECK(frames <= o.limit / channels, Format,
               "'{}' has {} samples in {} channels, at most {} are allowed", name, frames, channels,
               o.limit);
      Audio out;
      out.sample_rate = static_cast<int64_t>(coding.rate);
      out.waveform = Tensor(
          Ref<detail::TensorImpl>::adopt(detail::new_tensor({channels, frames}, DType::f32, cpu)));
      auto* to = static_cast<float*>(out.waveform.impl()->data);
      for (int64_t i = 0; i < frames; ++i)
        for (int64_t c = 0; c < channels; ++c)
          to[c * frames + i] =
              sample(p + at + static_cast<size_t>(i * channels + c) * width, coding);
      return out;
    }
    at += bytes;
    if (bytes % 2 == 1 && at < text.size()) ++at;  // chunks are aligned to even offsets
  }
  TD_FAIL(Format, "'{}' has no data", name);
}

Audio read_wav(const FilePath& path, const ReadAudioOptions& options) {
  const Ref<MappedFile> file = make_ref<MappedFile>(path);
  return decode_wav(file->view(), options, path.str());
}

Audio decode_audio(std::string_view bytes, const ReadAudioOptions& o, std::string_view name) {
  if (bytes.starts_with("fLaC")) return decode_flac(bytes, o, name);
  TD_CHECK(bytes.starts_with("RIFF"), Format, "'{}' is neither a WAV nor a FLAC file{}", name,
           bytes.empty() ? ": it is empty" : "");
  return decode_wav(bytes, o, name);
}

Audio read_audio(const FilePath& path, const ReadAudioOptions& options) {
  const Ref<MappedFile> file = make_ref<MappedFile>(path);
  return decode_audio(file->view(), options, path.str());
}

void save_wav(const Tensor& waveform, int64_t sample_rate, const FilePath& path) {
  TD_CHECK(waveform.defined() && waveform.dim() == 2 && waveform.size(0) >= 1 &&
               waveform.size(0) <= 1024,
           Shape, "save_wav expects [channels, frames], got {}",
           waveform.defined() ? waveform.shape().to_string() : "an undefined tensor");
  TD_CHECK(waveform.dtype() == DType::f32, DType, "save_wav expects f32, got {}",
           to_string(waveform.dtype()));
  TD_CHECK(sample_rate >= 1 && sample_rate <= 1 << 30, Value, "save_wav: {} Hz", sample_rate);
  const int64_t channels = waveform.size(0), frames = waveform.size(1);
  TD_CHECK(frames <= (int64_t{1} << 30) / channels, Value, "save_wav: {} frames are too many",
           frames);
  std::string out;
  const auto put = [&out](uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> (8 * i) & 0xFF);
  };
  const auto data = static_cast<uint64_t>(2 * frames * channels);
  const auto c = static_cast<uint64_t>(channels), rate = static_cast<uint64_t>(sample_rate);
  out += "RIFF";
  put(36 + data, 4);
  out += "WAVEfmt ";
  put(16, 4);
  put(1, 2);
  put(c, 2);
  put(rate, 4);
  put(rate * 2 * c, 4);
  put(2 * c, 2);
  put(16, 2);
  out += "data";
  put(data, 4);
  const std::vector<float> v = waveform.to_vector<float>();
  for (int64_t i = 0; i < frames; ++i)
    for (int64_t k = 0; k < channels; ++k) {
      const float x = v[static_cast<size_t>(k * frames + i)];
      TD_CHECK(!std::isnan(x), Value, "save_wav: sample {} is not a number", i);
      const auto whole =
          static_cast<int16_t>(std::clamp(std::nearbyint(x * 32768.0F), -32768.0F, 32767.0F));
      put(static_cast<uint16_t>(whole), 2);
    }
  AtomicFile file(path, out.size());
  file.write(out);
  file.commit();
}

}  // namespace tandem::io
