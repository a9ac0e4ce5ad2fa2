// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/image/plain.h"

#include <cstring>

namespace tandem::io {
namespace {

struct Plain {
  std::string_view bytes, name;
  int64_t limit;

  template <class... T>
  [[noreturn]] void fail(fmt::format_string<T...> text, const T&... args) const {
    const std::string reason = fmt::vformat(text, fmt::make_format_args(args...));
    TD_FAIL(Format, "'{}' cannot be decoded: {}", name, reason);
  }
  /// A little-endian number of `n` bytes.
  int64_t number(size_t at, size_t n) const {
    if (at + n > bytes.size()) fail("it is truncated");
    uint64_t v = 0;
    std::memcpy(&v, bytes.data() + at, n);
    return n == 4 ? static_cast<int64_t>(static_cast<int32_t>(v)) : static_cast<int64_t>(v);
  }
  Tensor image(int64_t channels, int64_t h, int64_t w) const {
    if (h <= 0 || w <= 0 || h > limit || w > limit / h) fail("it is {} x {} pixels", w, h);
    return Tensor(
        Ref<detail::TensorImpl>::adopt(detail::new_tensor(Shape(channels, h, w), DType::u8, cpu)));
  }
};

Tensor decode_bmp(const Plain& p) {
  const int64_t data = p.number(10, 4), head = p.number(14, 4);
  const int64_t w = p.number(18, 4), signed_h = p.number(22, 4);
  const int64_t bits = p.number(28, 2), compression = p.number(30, 4);
  if (head < 40 || (bits != 24 && bits != 32 && bits != 8) ||
      (compression != 0 && !(compression == 3 && bits == 32)))
    p.fail("this BMP variant is not supported ({} bits, compression {})", bits, compression);
  const int64_t h = signed_h < 0 ? -signed_h : signed_h;
  Tensor out = p.image(3, h, w);
  const int64_t stride = (w * bits + 31) / 32 * 4, pixel = bits / 8;
  const auto size = static_cast<int64_t>(p.bytes.size());
  if (data < 0 || data > size || stride * h > size - data) p.fail("it is truncated");
  const auto* rows = reinterpret_cast<const unsigned char*>(p.bytes.data()) + data;
  auto* planes = static_cast<unsigned char*>(out.impl()->data);
  for (int64_t y = 0; y < h; ++y) {
    const unsigned char* row = rows + stride * (signed_h < 0 ? y : h - 1 - y);
    for (int64_t x = 0; x < w; ++x) {
      const unsigned char* from = row + x * pixel;
      if (bits == 8) {
        const int64_t entry = 14 + head + 4 * int64_t{*from};
        if (entry + 4 > data) p.fail("color {} is outside its palette", int{*from});
        from = reinterpret_cast<const unsigned char*>(p.bytes.data()) + entry;
      }
      for (int64_t c = 0; c < 3; ++c) planes[(c * h + y) * w + x] = from[2 - c];
    }
  }
  return out;
}

Tensor decode_pnm(const Plain& p) {
  size_t at = 2;
  auto number = [&] {
    for (;;) {  // white space and comments
      if (at >= p.bytes.size()) p.fail("it is truncated");
      if (p.bytes[at] == '#')
        while (at < p.bytes.size() && p.bytes[at] != '\n') ++at;
      else if (std::strchr(" \t\r\n", p.bytes[at]))
        ++at;
      else
        break;
    }
    int64_t v = 0;
    const size_t start = at;
    for (; at < p.bytes.size() && p.bytes[at] >= '0' && p.bytes[at] <= '9' && at < start + 9; ++at)
      v = v * 10 + (p.bytes[at] - '0');
    if (at == start) p.fail("expected a number at byte {}", at);
    return v;
  };
  const int64_t channels = p.bytes[1] == '6' ? 3 : 1;
  const int64_t w = number(), h = number(), top = number();
  if (top < 1 || top > 255) p.fail("its largest value is {}", top);
  ++at;  // one white space character
  Tensor out = p.image(channels, h, w);
  if (at > p.bytes.size() || static_cast<int64_t>(p.bytes.size() - at) < channels * h * w)
    p.fail("it is truncated");
  const auto* from = reinterpret_cast<const unsigned char*>(p.bytes.data()) + at;
  auto* planes = static_cast<unsigned char*>(out.impl()->data);
  for (int64_t i = 0; i < h * w; ++i)
    for (int64_t c = 0; c < channels; ++c)
      planes[c * h * w + i] = static_cast<unsigned char>(from[i * channels + c] * 255 / top);
  return out;
}

}  // namespace

bool is_plain_image(std::string_view bytes) {
  return bytes.starts_with("BM") || bytes.starts_with("P5") || bytes.starts_with("P6");
}

Tensor decode_plain_image(std::string_view bytes, const ReadImageOptions& options,
                          std::string_view name) {
  const Budget budget(name, bytes.size(), options.limits);
  const Plain p{bytes, name, options.limit};
  if (!is_plain_image(bytes)) p.fail("it is neither BMP nor PNM");
  return bytes[0] == 'B' ? decode_bmp(p) : decode_pnm(p);
}

}  // namespace tandem::io
