// SPDX-License-Identifier: Apache-2.0
// JsonNumber: a number of JSON's grammar, taken apart while its end is looked for. Requests are
// mostly numbers, and most have few enough digits that one product or quotient of doubles gives the
// nearest value (Clinger 1990).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace tandem::serve {

struct JsonNumber {
  size_t length = 0;  ///< 0: there is none
  bool negative = false;
  bool whole = true;    ///< neither a point nor an exponent
  uint64_t digits = 0;  ///< times 10^exponent, if `exact`
  int64_t exponent = 0;
  bool exact = true;  ///< the digits fit

  /// The number at the front of the text.
  static JsonNumber scan(const char* text, const char* end);
  /// The value nearest to the number; false where it takes more than a few operations to know.
  template <class T>
  bool real(T& out) const;

 private:
  const char* take_digits(const char* p, const char* end);
  const char* take_exponent(const char* p, const char* end);
};

/// How many of eight characters, the first one in the lowest byte, are digits before the first that
/// is none, and their value. No branch depends on the text.
inline int leading_digits(uint64_t text, uint64_t& value) {
  text -= 0x3030303030303030;
  const uint64_t others = ((text + 0x7676767676767676) | text) & 0x8080808080808080;
  const int n = std::countr_zero(others) / 8;
  if (n == 0) return 0;
  text <<= 64 - 8 * n;  // digits of value 0 come in front
  text = text * 10 + (text >> 8);
  constexpr uint64_t kPairs = 0x000000FF000000FF;  // three products in the place of eight
  value = ((text & kPairs) * 0x000F424000000064 + (text >> 16 & kPairs) * 0x0000271000000001) >> 32;
  return n;
}

/// Digits are added to those before; past 18 of them nothing is known but the length.
inline const char* JsonNumber::take_digits(const char* p, const char* end) {
  static constexpr std::array<uint64_t, 9> kTens = {1,      10,      100,      1000,     10000,
                                                    100000, 1000000, 10000000, 100000000};
  if constexpr (std::endian::native == std::endian::little) {
    while (end - p >= 8 && digits <= 9999999999U) {
      uint64_t text, value = 0;
      std::memcpy(&text, p, 8);
      const int n = leading_digits(text, value);
      digits = digits * kTens[static_cast<size_t>(n)] + value;
      p += n;
      if (n < 8) return p;
    }
  }
  for (; p < end; ++p) {
    const auto d = static_cast<unsigned>(static_cast<unsigned char>(*p)) - '0';
    if (d > 9) break;
    if (digits > 99999999999999999U) exact = false;
    digits = digits * 10 + d;
  }
  return p;
}

inline const char* JsonNumber::take_exponent(const char* p, const char* end) {
  const bool below = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) ++p;
  int64_t e = 0;
  const char* const from = p;
  for (; p < end && *p >= '0' && *p <= '9'; ++p) e = e < 100000 ? e * 10 + (*p - '0') : e;
  exponent += below ? -e : e;
  return p == from ? nullptr : p;
}

inline JsonNumber JsonNumber::scan(const char* text, const char* end) {
  JsonNumber n;
  const char* p = text;
  n.negative = p < end && *p == '-';
  p += n.negative ? 1 : 0;
  const char* const first = p;
  p = n.take_digits(p, end);
  if (p == first || (*first == '0' && p > first + 1)) return {};
  if (p < end && *p == '.') {
    const char* const point = ++p;
    p = n.take_digits(p, end);
    if (p == point) return {};
    n.exponent = point - p;
    n.whole = false;
  }
  if (p < end && (*p == 'e' || *p == 'E')) {
    p = n.take_exponent(p + 1, end);
    if (!p) return {};
    n.whole = false;
  }
  n.length = static_cast<size_t>(p - text);
  return n;
}

template <class T>
bool JsonNumber::real(T& out) const {
  static constexpr std::array<double, 23> kTens = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
  if (!exact || exponent < -22 || exponent > 22) return false;
  // Both sides are doubles, so their product or quotient is rounded once.
  const bool rounded = digits > (uint64_t{1} << 53);
  const auto d = static_cast<double>(digits);
  const double v = exponent < 0 ? d / kTens[static_cast<size_t>(-exponent)]
                                : d * kTens[static_cast<size_t>(exponent)];
  if constexpr (std::is_same_v<T, float>) {
    // A second rounding is that of the number itself unless the double lies between two floats:
    // which side the number was on is lost then. Where the digits were rounded, too, the double is
    // off by two of its last places at most.
    constexpr uint64_t kBelow = (uint64_t{1} << 29) - 1, kHalf = uint64_t{1} << 28;
    if (v != 0 && (v < static_cast<double>(std::numeric_limits<float>::min()) ||
                   v > static_cast<double>(std::numeric_limits<float>::max())))
      return false;
    const auto apart =
        static_cast<int64_t>(std::bit_cast<uint64_t>(v) & kBelow) - static_cast<int64_t>(kHalf);
    if ((apart < 0 ? -apart : apart) <= (rounded ? 2 : 0)) return false;
  } else if (rounded) {
    return false;
  }
  out = static_cast<T>(
      std::bit_cast<double>(std::bit_cast<uint64_t>(v) | static_cast<uint64_t>(negative) << 63));
  return true;
}

}  // namespace tandem::serve
