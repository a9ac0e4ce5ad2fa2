// SPDX-License-Identifier: Apache-2.0
// A number here is its 16 bits; `bits` says how many of them stand before the point. Constants are
// those of 32 bits, rounded to 16.
#include "tandem/onnx/tflite/fixed_point_internal.h"

#include <algorithm>

namespace tandem::onnx {
namespace {

using Short = int16_t;
constexpr int kBits = 15;  ///< beside the sign
constexpr Short kMost = INT16_MAX, kLeast = INT16_MIN;

Short wrapped(int v) { return static_cast<Short>(static_cast<uint16_t>(v)); }
Short plus(Short a, Short b) { return wrapped(a + b); }
Short minus(Short a, Short b) { return wrapped(a - b); }

/// v / 2^shift, halves away from zero.
int divided(int v, int shift) {
  const int mask = (1 << shift) - 1, half = (mask >> 1) + (v < 0 ? 1 : 0);
  return (v >> shift) + ((v & mask) > half ? 1 : 0);
}
Short constant16(int v) { return wrapped(divided(v, 16)); }

/// a * b / 2^15, halves up.
Short times(Short a, Short b) {
  if (a == kLeast && b == kLeast) return kMost;
  const int product = a * b, nudge = product >= 0 ? 1 << 14 : 1 - (1 << 14);
  return wrapped((product + nudge) / (1 << kBits));
}
/// v * 2^shift, bounded.
Short scaled(Short v, int shift) {
  if (shift <= 0) return wrapped(divided(v, -shift));
  const int limit = (1 << (kBits - shift)) - 1;
  return v > limit ? kMost : v < -limit ? kLeast : wrapped(v * (1 << shift));
}
Short half_sum(Short a, Short b) {
  const int sum = a + b;
  return wrapped((sum + (sum >= 0 ? 1 : -1)) / 2);
}
Short bounded_sum(Short a, Short b) { return wrapped(std::clamp<int>(a + b, kLeast, kMost)); }

// exp(a) for -1/4 <= a < 0 without bits before the point: a Taylor series around -1/8.
Short exp_of_quarter(Short a) {
  const Short first = constant16(1895147668), third = constant16(715827883);  // exp(-1/8), 1/3
  const Short x = plus(a, 1 << (kBits - 3)), x2 = times(x, x), x3 = times(x2, x),
              x4 = times(x2, x2);
  const Short rest =
      scaled(plus(times(plus(scaled(x4, -2), x3), third), x2), -1);  // x^4/24 + x^3/6 + x^2/2
  return bounded_sum(first, times(first, plus(x, rest)));
}

// exp(a) for a <= 0; the result has no bits before the point.
Short exp_of_negative(Short a, int bits) {
  if (a == 0) return kMost;
  const int after = kBits - bits;
  const Short quarter = wrapped(1 << (after - 2));
  const Short part = minus(wrapped(a & (quarter - 1)), quarter);
  Short y = exp_of_quarter(scaled(part, bits));
  const Short rest = minus(part, a);
  // exp(-2^p) for p = -2 ... 4, in 31 bits.
  constexpr int kPowers[] = {1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242};
  for (int p = -2; p <= 4; ++p)
    if (bits > p && (rest & (1 << (after + p)))) y = times(y, constant16(kPowers[p + 2]));
  constexpr int kFarBits = 5, kFar = 36;  // below -32
  if (bits > kFarBits && a < constant16(-(1 << (kFar - bits)))) return 0;
  return y;
}

// 1 / ((1 + a) / 2) with 2 bits before the point, for 0 <= a <= 1: three steps of Newton's.
Short inverse_of_half(Short a) {
  constexpr int kTwo = 2;
  const Short half = half_sum(a, kMost), one = 1 << (kBits - kTwo);
  Short x = plus(constant16(1515870810), times(half, constant16(-1010580540)));  // 48/17, -32/17
  for (int i = 0; i < 3; ++i) x = plus(x, scaled(times(x, minus(one, times(half, x))), kTwo));
  return x;
}

Short sigmoid_of(Short a) {
  constexpr int kInputBits = 3;
  if (a == 0) return 1 << (kBits - 1);
  const Short size = a > 0 ? a : minus(0, a);
  const Short y = scaled(inverse_of_half(exp_of_negative(minus(0, size), kInputBits)), 1);
  return a > 0 ? y : minus(kMost, y);
}

// (1 - e) / (1 + e) with e = exp(-2 |a|), whose input has a bit more before the point.
Short tanh_of(Short a, int bits) {
  if (a == 0) return 0;
  const Short e = exp_of_negative(a < 0 ? a : minus(0, a), bits + 1);
  const Short y = scaled(minus(inverse_of_half(e), 1 << (kBits - 2)), 2);
  return a < 0 ? minus(0, y) : y;
}

template <class F>
std::vector<int64_t> table_of(F f) {
  std::vector<int64_t> out;
  for (int64_t v = kFirstShort; v <= kLastShort; ++v) out.push_back(f(static_cast<Short>(v)));
  return out;
}

}  // namespace

std::vector<int64_t> fixed_sigmoid_table() { return table_of(sigmoid_of); }
std::vector<int64_t> fixed_tanh_table(int integer_bits) {
  return table_of([=](Short v) { return tanh_of(v, integer_bits); });
}

}  // namespace tandem::onnx
