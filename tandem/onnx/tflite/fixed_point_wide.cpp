// SPDX-License-Identifier: Apache-2.0
// Fixed-point numbers of 32 bits with the roundings of gemmlowp's, as TFLite's reference kernels
// use them. A number here is its 32 bits in 64: no step of these functions leaves their range.
#include <algorithm>
#include <bit>

#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/onnx/tflite/fixed_point_internal.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kMostWide = 2147483647;
constexpr int64_t kBits31 = 31;

/// a * b / 2^31, halves up.
int64_t times_wide(int64_t a, int64_t b) {
  return (a * b + (int64_t{1} << (kBits31 - 1))) >> kBits31;
}

// exp(a) for -1/4 <= a < 0 without bits before the point: a Taylor series around -1/8.
int64_t exp_of_quarter_wide(int64_t a) {
  constexpr int64_t kFirst = 1895147668, kThird = 715827883;  // exp(-1/8), 1/3
  const int64_t x = a + (int64_t{1} << 28), x2 = times_wide(x, x), x3 = times_wide(x2, x),
                x4 = times_wide(x2, x2);
  const int64_t rest =
      fixed_divided(times_wide(fixed_divided(x4, 2) + x3, kThird) + x2, 1);  // as in 16 bits
  return kFirst + times_wide(kFirst, x + rest);
}

/// The power of two of the highest bit of a positive number.
int64_t highest(int64_t v) { return std::bit_width(static_cast<uint64_t>(v)) - 1; }

}  // namespace

int64_t fixed_divided(int64_t v, int64_t bits) {
  if (bits <= 0) return v;
  if (bits > 62) return 0;
  const int64_t mask = (int64_t{1} << bits) - 1, half = (mask >> 1) + (v < 0 ? 1 : 0);
  return (v >> bits) + ((v & mask) > half ? 1 : 0);
}

int64_t fixed_scaled(int64_t v, const TfliteFactor& f) {
  const int64_t left = std::clamp<int64_t>(f.shift, 0, 30);
  return fixed_divided(times_wide(v * (int64_t{1} << left), f.multiplier),
                       std::max<int64_t>(-f.shift, 0));
}

// The bits behind the point are 26; exp(-1/4) and so on are in 31 bits.
int64_t fixed_exp(int64_t a) {
  if (a >= 0) return kMostWide;
  constexpr int kAfter = 26, kBefore = 5;
  constexpr int64_t kQuarter = int64_t{1} << (kAfter - 2);
  const int64_t part = (a & (kQuarter - 1)) - kQuarter, rest = part - a;
  int64_t y = exp_of_quarter_wide(part * (int64_t{1} << kBefore));
  constexpr int64_t kPowers[] = {1672461947, 1302514674, 790015084, 290630308,
                                 39332535,   720401,     242};
  for (int p = -2; p <= 4; ++p)
    if (rest & (int64_t{1} << (kAfter + p))) y = times_wide(y, kPowers[p + 2]);
  return y;
}

// 1 / (1 + a) for 0 <= a < 1, from 1 / ((1 + a) / 2) by three steps of Newton's.
int64_t fixed_inverse(int64_t a) {
  constexpr int64_t kFirst = 1515870810, kSlope = -1010580540, kOne = int64_t{1} << 29;
  const int64_t half = (a + kMostWide + 1) / 2;
  int64_t x = kFirst + times_wide(half, kSlope);
  for (int i = 0; i < 3; ++i) x += times_wide(x, kOne - times_wide(half, x)) * 4;
  return std::min(x * 2, kMostWide);
}

// Five steps of Newton's for a number between 2 and 8 times a power of 4; 3 bits before the point.
TfliteFactor fixed_inverse_root(int64_t v) {
  TfliteFactor f(0);
  if (v <= 1) {
    f.multiplier = kMostWide;
    return f;
  }
  int64_t shift = 11;
  for (; v >= int64_t{1} << 29; v /= 4) ++shift;
  const int64_t pairs = (30 - highest(v)) / 2 - 1;
  shift -= pairs;
  const int64_t in = (v << (2 * pairs)) >> 1, half = fixed_divided(in, 1);
  constexpr int64_t kThreeHalves = (int64_t{1} << 28) + (int64_t{1} << 27);
  int64_t x = int64_t{1} << 28;
  for (int i = 0; i < 5; ++i) {
    const int64_t cube =
        std::clamp(times_wide(times_wide(x, x), x) * 64, -kMostWide - 1, kMostWide);
    x = std::clamp((times_wide(kThreeHalves, x) - times_wide(half, cube)) * 8, -kMostWide - 1,
                   kMostWide);
  }
  f.multiplier = times_wide(x, 1518500250);  // half of the root of 2
  if (shift < 0) {
    f.multiplier <<= -shift;
    shift = 0;
  }
  f.shift = -shift;
  return f;
}

}  // namespace tandem::onnx
