// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/flexbuffer.h"

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/io/bytes_internal.h"

namespace tandem::io {
namespace {

class FlexReader {
 public:
  FlexReader(std::string_view bytes, const std::string& what) : bytes_(bytes), what_(what) {}

  std::map<std::string, double> run() const {
    constexpr uint8_t kMap = 9;
    if (bytes_.size() < 3) fail();
    const auto width = static_cast<uint8_t>(bytes_.back());
    const auto type = static_cast<uint8_t>(bytes_[bytes_.size() - 2]);
    if (type >> 2 != kMap || bytes_.size() < 2u + width) fail();
    return map_at(before(bytes_.size() - 2 - width, width), uint64_t{1} << (type & 3));
  }

 private:
  [[noreturn]] void fail() const {
    TD_FAIL(Format, "'{}': options of a custom operator are not a map of numbers", what_);
  }
  uint64_t whole(uint64_t at, uint64_t width) const {
    if (at > bytes_.size() || width > bytes_.size() - at) fail();
    switch (width) {
      case 1:
        return number_at<uint8_t>(bytes_, at);
      case 2:
        return number_at<uint16_t>(bytes_, at);
      case 4:
        return number_at<uint32_t>(bytes_, at);
      case 8:
        return number_at<uint64_t>(bytes_, at);
      default:
        fail();
    }
  }
  /// What the offset at `at` leads back to.
  uint64_t before(uint64_t at, uint64_t width) const {
    const uint64_t back = whole(at, width);
    if (back > at) fail();
    return at - back;
  }
  std::string word(uint64_t at) const {
    const size_t end = bytes_.find('\0', at);
    if (at >= bytes_.size() || end == std::string_view::npos) fail();
    return std::string(bytes_.substr(at, end - at));
  }
  double real(uint64_t at, uint64_t width) const {
    whole(at, width);
    if (width == 4) return number_at<float>(bytes_, at);
    if (width == 8) return number_at<double>(bytes_, at);
    fail();
  }
  static double signed_of(uint64_t v, uint64_t width) {
    const auto bits = static_cast<int>(64 - 8 * width);
    return static_cast<double>(static_cast<int64_t>(v << bits) >> bits);
  }

  // Before its values stand where its keys are, how wide their offsets are, and how many there are.
  std::map<std::string, double> map_at(uint64_t at, uint64_t width) const {
    enum : uint8_t { kInt = 1, kUint = 2, kFloat = 3, kBool = 26 };
    if (at < 3 * width) fail();
    const uint64_t n = whole(at - width, width), wide = whole(at - 2 * width, width),
                   keys = before(at - 3 * width, width), types = at + n * width;
    if (n > bytes_.size() || n * width > bytes_.size()) fail();
    std::map<std::string, double> out;
    for (uint64_t i = 0; i < n; ++i) {
      Budget::count();
      const auto type = static_cast<uint8_t>(whole(types + i, 1));
      const uint64_t value = at + i * width;
      const std::string name = word(before(keys + i * wide, wide));
      if (type >> 2 == kInt) out[name] = signed_of(whole(value, width), width);
      if (type >> 2 == kUint || type >> 2 == kBool)
        out[name] = static_cast<double>(whole(value, width));
      if (type >> 2 == kFloat) out[name] = real(value, width);
    }
    return out;
  }

  std::string_view bytes_;
  const std::string& what_;
};

}  // namespace

std::map<std::string, double> flexbuffer_numbers(std::string_view bytes, const std::string& what) {
  return FlexReader(bytes, what).run();
}

}  // namespace tandem::io
