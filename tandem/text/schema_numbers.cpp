// SPDX-License-Identifier: Apache-2.0
// Ranges of numbers as networks over their decimal digits.
#include <algorithm>
#include <string>

#include "tandem/base/error.h"
#include "tandem/text/grammar_internal.h"

namespace tandem::text {
namespace {

constexpr int kFraction = 6;  ///< digits after the point of a number with bounds

void any_digits(NetworkBuilder& b, int32_t from, size_t count, int32_t to) {
  for (; count > 1; --count) {
    const int32_t next = b.node();
    b.byte(from, '0', '9', next);
    from = next;
  }
  if (count == 0)
    b.nothing(from, to);
  else
    b.byte(from, '0', '9', to);
}

// Digits of [low, high], which are equally long.
void digits_between(NetworkBuilder& b, int32_t from, std::string_view low, std::string_view high,
                    int32_t to) {
  if (low.empty()) return b.nothing(from, to);
  const char first = low[0], last = high[0];
  const auto rest = low.size() - 1;
  const auto digit = [&](char c) { return b.literal(from, std::string_view(&c, 1)); };
  if (first == last) return digits_between(b, digit(first), low.substr(1), high.substr(1), to);
  digits_between(b, digit(first), low.substr(1), std::string(rest, '9'), to);
  digits_between(b, digit(last), std::string(rest, '0'), high.substr(1), to);
  if (last - first < 2) return;
  const int32_t middle = b.node();
  b.byte(from, static_cast<uint8_t>(first + 1), static_cast<uint8_t>(last - 1), middle);
  any_digits(b, middle, rest, to);
}

void magnitudes(NetworkBuilder& b, int32_t from, uint64_t least, uint64_t most, int32_t to) {
  if (least > most) return;
  const std::string low = std::to_string(least), high = std::to_string(most);
  for (size_t n = low.size(); n <= high.size(); ++n) {
    std::string first(n, '0'), last(n, '9');
    first[0] = '1';
    digits_between(b, from, n == low.size() ? low : first, n == high.size() ? high : last, to);
  }
}

// Without the sign: [least, most], each bound with or without itself.
void fractions(NetworkBuilder& b, int32_t from, NumberBound least, NumberBound most, int32_t to) {
  const auto low = static_cast<uint64_t>(least.at), high = static_cast<uint64_t>(most.at);
  if (low > high) return;
  if (!most.open && !(low == high && least.open)) magnitudes(b, from, high, high, to);
  if (low == high) return;
  const int32_t whole = b.node(), point = b.node();
  if (!least.open) magnitudes(b, from, low, low, whole);
  magnitudes(b, from, low + 1, high - 1, whole);
  b.nothing(whole, to);
  b.byte(whole, '.', '.', point);
  int32_t at = point;
  for (int i = 0; i < kFraction; ++i) {
    const int32_t next = b.node();
    b.byte(at, '0', '9', next);
    b.nothing(next, to);
    at = next;
  }
  if (!least.open) return;
  // The bound with a fraction that is not zero.
  const int32_t edge = b.node();
  magnitudes(b, from, low, low, edge);
  at = b.literal(edge, ".");
  for (int i = 0; i < kFraction; ++i) {
    const int32_t next = b.node();
    b.byte(at, '1', '9', to);
    b.byte(at, '0', '9', next);
    at = next;
  }
}

uint64_t magnitude(int64_t v) {
  return v < 0 ? ~static_cast<uint64_t>(v) + 1 : static_cast<uint64_t>(v);
}

}  // namespace

void add_integers(NetworkBuilder& b, int32_t from, int64_t least, int64_t most, int32_t to) {
  if (most >= 0)
    magnitudes(b, from, static_cast<uint64_t>(std::max<int64_t>(least, 0)),
               static_cast<uint64_t>(most), to);
  if (least >= 0) return;
  magnitudes(b, b.literal(from, "-"), most >= 0 ? 1 : magnitude(most), magnitude(least), to);
}

void add_numbers(NetworkBuilder& b, int32_t from, NumberBound least, NumberBound most, int32_t to) {
  if (most.at >= 0) fractions(b, from, least.at >= 0 ? least : NumberBound{}, most, to);
  if (least.at < 0)
    fractions(b, b.literal(from, "-"),
              most.at > 0 ? NumberBound{0, true} : NumberBound{-most.at, most.open},
              {-least.at, least.open}, to);
}

}  // namespace tandem::text
