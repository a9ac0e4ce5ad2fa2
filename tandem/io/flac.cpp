// SPDX-License-Identifier: Apache-2.0
// A decoder of FLAC after RFC 9639: frames of subframes, each a constant, samples as they are, or a
// predictor and its errors in Rice's code.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/io/audio.h"
#include "tandem/tensor/strided.h"

namespace tandem::io {
namespace {

template <class T, T kPolynomial>
constexpr std::array<T, 256> sum_table() {
  std::array<T, 256> out{};
  constexpr int kShift = 8 * sizeof(T) - 8;
  for (unsigned i = 0; i < 256; ++i) {
    auto v = static_cast<T>(i << kShift);
    for (int k = 0; k < 8; ++k)
      v = static_cast<T>(v >> (kShift + 7) ? (v << 1) ^ kPolynomial : v << 1);
    out[i] = v;
  }
  return out;
}
constexpr auto kSum8 = sum_table<uint8_t, 0x07>();
constexpr auto kSum16 = sum_table<uint16_t, 0x8005>();

uint8_t sum8(std::string_view s) {
  uint8_t v = 0;
  for (const char c : s) v = kSum8[v ^ static_cast<uint8_t>(c)];
  return v;
}
uint16_t sum16(std::string_view s) {
  uint16_t v = 0;
  for (const char c : s)
    v = static_cast<uint16_t>(v << 8 ^ kSum16[(v >> 8) ^ static_cast<uint8_t>(c)]);
  return v;
}

/// Bits from the highest of each byte on.
class Bits {
 public:
  Bits(std::string_view bytes, std::string_view name) : bytes_(bytes), name_(name) {}
  uint64_t take(unsigned n) {
    while (held_ < n) {
      if (at_ >= bytes_.size()) fail("it is cut");
      window_ = window_ << 8 | static_cast<unsigned char>(bytes_[at_++]);
      held_ += 8;
    }
    held_ -= n;
    return window_ >> held_ & ((uint64_t{1} << n) - 1);
  }
  int64_t take_signed(unsigned n) {
    if (n == 0) return 0;
    const uint64_t v = take(n);
    return static_cast<int64_t>(v << (64 - n)) >> (64 - n);
  }
  /// Zeros before the next one, which goes too.
  uint64_t zeros() {
    uint64_t n = 0;
    while (take(1) == 0)
      if (++n > uint64_t{1} << 32) fail("a number does not end");
    return n;
  }
  /// On to the next whole byte.
  void align() { held_ -= held_ % 8; }
  /// The byte at which it stands; only when aligned.
  size_t place() const { return at_ - held_ / 8; }
  void seek(size_t place) {
    at_ = place;
    held_ = 0;
  }
  bool at_end() const { return place() >= bytes_.size(); }
  std::string_view bytes() const { return bytes_; }
  [[noreturn]] void fail(const char* why) const {
    TD_FAIL(Format, "'{}' is damaged near byte {}: {}", name_, at_, why);
  }

 private:
  std::string_view bytes_, name_;
  size_t at_ = 0;
  uint64_t window_ = 0;
  unsigned held_ = 0;
};

struct Stream {
  uint64_t rate = 0, channels = 0, bits = 0, samples = 0;
};

Stream read_heads(Bits& in) {
  Stream s;
  in.take(32);  // "fLaC"
  for (bool first = true, last = false; !last; first = false) {
    last = in.take(1) != 0;
    const uint64_t type = in.take(7), length = in.take(24);
    const size_t begin = in.place();
    if (length > in.bytes().size() - begin) in.fail("a block of its head is cut");
    if (first) {
      if (type != 0 || length < 34) in.fail("it does not begin with its stream's description");
      in.take(32);  // sizes of blocks
      in.take(48);  // and of frames
      s.rate = in.take(20);
      s.channels = in.take(3) + 1;
      s.bits = in.take(5) + 1;
      s.samples = in.take(36);
      if (s.rate == 0 || s.bits < 4) in.fail("its description cannot be");
    }
    in.seek(begin + length);
  }
  return s;
}

void read_residual(Bits& in, std::vector<int64_t>& out, unsigned order) {
  const uint64_t method = in.take(2), parts = uint64_t{1} << in.take(4);
  if (method > 1) in.fail("a coding of errors is not known");
  const unsigned width = method == 0 ? 4 : 5;
  if (out.size() % parts != 0 || out.size() / parts < order) in.fail("parts do not fit its block");
  const size_t each = out.size() / parts;
  for (uint64_t part = 0; part < parts; ++part) {
    const auto k = static_cast<unsigned>(in.take(width));
    const bool plain = k == (1U << width) - 1;
    const auto bits = plain ? static_cast<unsigned>(in.take(5)) : 0;
    for (size_t i = part == 0 ? order : part * each; i < (part + 1) * each; ++i) {
      if (plain) {
        out[i] = in.take_signed(bits);
      } else {
        const uint64_t high = in.zeros(), v = high << k | in.take(k);
        out[i] = static_cast<int64_t>(v >> 1) ^ -static_cast<int64_t>(v & 1);
      }
    }
  }
}

/// out[i] += (sum of the `order` values before, weighted) >> shift. Sums wrap, as hostile files
/// would have it.
void predict(std::vector<int64_t>& out, const int64_t* weights, size_t order, int64_t shift) {
  for (size_t i = order; i < out.size(); ++i) {
    uint64_t sum = 0;
    for (size_t k = 0; k < order; ++k)
      sum += static_cast<uint64_t>(weights[k]) * static_cast<uint64_t>(out[i - 1 - k]);
    out[i] = static_cast<int64_t>(static_cast<uint64_t>(out[i]) +
                                  static_cast<uint64_t>(static_cast<int64_t>(sum) >> shift));
  }
}

void read_subframe(Bits& in, std::vector<int64_t>& out, unsigned bits) {
  if (in.take(1) != 0) in.fail("a subframe does not begin with 0");
  const auto type = static_cast<unsigned>(in.take(6));
  unsigned wasted = 0;
  if (in.take(1) != 0) wasted = static_cast<unsigned>(in.zeros()) + 1;
  if (wasted >= bits) in.fail("a subframe has no bits");
  bits -= wasted;
  if (type == 0) {
    std::fill(out.begin(), out.end(), in.take_signed(bits));
  } else if (type == 1) {
    for (int64_t& v : out) v = in.take_signed(bits);
  } else if ((type >= 8 && type <= 12) || type >= 32) {
    const unsigned order = type >= 32 ? type - 31 : type - 8;
    if (order > out.size()) in.fail("a predictor is longer than its block");
    for (unsigned i = 0; i < order; ++i) out[i] = in.take_signed(bits);
    std::array<int64_t, 32> weights{};
    int64_t shift = 0;
    if (type >= 32) {
      const auto precision = static_cast<unsigned>(in.take(4)) + 1;
      shift = in.take_signed(5);
      if (precision == 16 || shift < 0) in.fail("a predictor cannot be");
      for (unsigned i = 0; i < order; ++i) weights[i] = in.take_signed(precision);
    } else {
      constexpr int64_t kFixed[5][4] = {
          {0, 0, 0, 0}, {1, 0, 0, 0}, {2, -1, 0, 0}, {3, -3, 1, 0}, {4, -6, 4, -1}};
      std::copy_n(kFixed[order], 4, weights.begin());
    }
    read_residual(in, out, order);
    predict(out, weights.data(), order, shift);
  } else {
    in.fail("a kind of subframe is not known");
  }
  if (wasted > 0)
    for (int64_t& v : out) v = static_cast<int64_t>(static_cast<uint64_t>(v) << wasted);
}

/// The samples of the next frame, by channel.
void read_frame(Bits& in, const Stream& s, std::vector<std::vector<int64_t>>& out) {
  const size_t begin = in.place();
  if (in.take(15) != 0x7FFC) in.fail("a frame does not begin here");
  in.take(1);  // are block sizes fixed
  const uint64_t size_code = in.take(4), rate_code = in.take(4), channel_code = in.take(4),
                 bits_code = in.take(3);
  if (in.take(1) != 0 || size_code == 0 || rate_code == 15 || channel_code > 10)
    in.fail("a frame's head cannot be");
  const auto lead = static_cast<unsigned char>(in.take(8));  // its number, coded as UTF-8
  const int more = std::countl_one(lead);
  if (more == 1 || more > 7) in.fail("a frame's number cannot be");
  for (int i = 1; i < more; ++i)
    if (in.take(8) >> 6 != 2) in.fail("a frame's number cannot be");
  uint64_t n = 0;
  if (size_code == 1)
    n = 192;
  else if (size_code <= 5)
    n = uint64_t{576} << (size_code - 2);
  else if (size_code <= 7)
    n = in.take(size_code == 6 ? 8 : 16) + 1;
  else
    n = uint64_t{256} << (size_code - 8);
  if (rate_code >= 12) in.take(rate_code == 12 ? 8 : 16);
  const std::string_view head = in.bytes().substr(begin, in.place() - begin);
  if (in.take(8) != sum8(head)) in.fail("the sum of a frame's head is wrong");
  constexpr unsigned kBits[] = {0, 8, 12, 0, 16, 20, 24, 32};
  const unsigned bits = bits_code == 0 ? static_cast<unsigned>(s.bits) : kBits[bits_code];
  const uint64_t channels = channel_code < 8 ? channel_code + 1 : 2;
  if (bits != s.bits || channels != s.channels)
    in.fail("a frame is of another kind than its stream");
  for (uint64_t c = 0; c < channels; ++c) {
    out[c].assign(n, 0);
    const bool side = (channel_code == 8 && c == 1) || (channel_code == 9 && c == 0) ||
                      (channel_code == 10 && c == 1);
    read_subframe(in, out[c], bits + (side ? 1 : 0));
  }
  in.align();
  const std::string_view frame = in.bytes().substr(begin, in.place() - begin);
  if (in.take(16) != sum16(frame)) in.fail("the sum of a frame is wrong");
  for (uint64_t i = 0; channel_code >= 8 && i < n; ++i) {
    const auto a = static_cast<uint64_t>(out[0][i]), b = static_cast<uint64_t>(out[1][i]);
    if (channel_code == 8) {  // left, difference
      out[1][i] = static_cast<int64_t>(a - b);
    } else if (channel_code == 9) {  // difference, right
      out[0][i] = static_cast<int64_t>(a + b);
    } else {  // mean, difference
      const uint64_t twice = a << 1 | (b & 1);
      out[0][i] = static_cast<int64_t>(twice + b) >> 1;
      out[1][i] = static_cast<int64_t>(twice - b) >> 1;
    }
  }
}

}  // namespace

Audio decode_flac(std::string_view bytes, const ReadAudioOptions& o, std::string_view name) {
  TD_CHECK(bytes.starts_with("fLaC"), Format, "'{}' is no FLAC file", name);
  Bits in(bytes, name);
  const Stream s = read_heads(in);
  const auto channels = static_cast<int64_t>(s.channels);
  const auto too_long = [&](uint64_t frames) {
    TD_CHECK(frames <= static_cast<uint64_t>(o.limit / channels), Format,
             "'{}' has {} samples in {} channels, at most {} are allowed", name, frames, channels,
             o.limit);
  };
  too_long(s.samples);
  std::vector<std::vector<float>> all(s.channels);
  std::vector<std::vector<int64_t>> block(s.channels);
  const double scale = 1.0 / static_cast<double>(uint64_t{1} << (s.bits - 1));
  while (!in.at_end() && (s.samples == 0 || all[0].size() < s.samples)) {
    read_frame(in, s, block);
    too_long(all[0].size() + block[0].size());
    for (size_t c = 0; c < all.size(); ++c)
      for (const int64_t v : block[c])
        all[c].push_back(static_cast<float>(static_cast<double>(v) * scale));
  }
  const size_t frames = all[0].size();
  TD_CHECK(s.samples == 0 || frames == s.samples, Format, "'{}' is cut: {} of {} samples are there",
           name, frames, s.samples);
  Audio out;
  out.sample_rate = static_cast<int64_t>(s.rate);
  out.waveform = Tensor(Ref<detail::TensorImpl>::adopt(
      detail::new_tensor({channels, static_cast<int64_t>(frames)}, DType::f32, cpu)));
  auto* to = static_cast<float*>(out.waveform.impl()->data);
  for (const auto& c : all) to = std::copy(c.begin(), c.end(), to);
  return out;
}

}  // namespace tandem::io
