// SPDX-License-Identifier: Apache-2.0
// Operators of one input on codes as tables of all codes, and DIV of bytes as one of all pairs: the
// functions and roundings of TFLite's reference kernels. Those compute in f32 and, for 16 bits,
// interpolate between 513 samples.
#include <algorithm>
#include <cmath>

#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/onnx/tflite/fixed_point_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// A function of numbers. `least`, `most`: what the first and the last code of the result stand
/// for.
using CodeCurve = float (*)(float v, float least, float most);

/// The nearest code; 0 for NaN.
int64_t code_in(float v, const TfliteRange& r) {
  if (std::isnan(v)) return std::clamp<int64_t>(0, r.low, r.high);
  return static_cast<int64_t>(std::clamp(v, static_cast<float>(r.low), static_cast<float>(r.high)));
}
float number_of(const TfliteTensor& t, int64_t code) {
  return scale_of(t) * static_cast<float>(code - zero_of(t));
}

std::vector<int64_t> byte_table(const TfliteTensor& x, const TfliteTensor& y, CodeCurve f) {
  const TfliteRange in = tflite_codes_of(x.type), out = tflite_codes_of(y.type);
  const float least = number_of(y, out.low), most = number_of(y, out.high),
              inverse = 1 / scale_of(y);
  std::vector<int64_t> table;
  for (int64_t code = in.low; code <= in.high; ++code)
    table.push_back(code_in(
        std::round(f(number_of(x, code), least, most) * inverse) + static_cast<float>(zero_of(y)),
        out));
  return table;
}

// Samples are moved by half of what a straight line to the next is off in the middle.
std::vector<int64_t> short_table(const TfliteTensor& x, const TfliteTensor& y, CodeCurve f) {
  constexpr int kParts = 512;
  const TfliteRange r = tflite_codes_of(OnnxType::i16);
  const float first = number_of(x, r.low), last = number_of(x, r.high), least = number_of(y, r.low),
              most = number_of(y, r.high);
  const float step = (last - first) / kParts, half = step / 2,
              inverse = static_cast<float>(r.high - r.low + 1) / (most - least);
  const auto value = [&](float v) { return f(v, least, most) * inverse; };
  std::vector<int64_t> at;
  for (int i = 0; i < kParts; ++i) {
    const auto k = static_cast<float>(i);
    const float here = std::round(value(first + k * step));
    const float line = std::round((value(first + (k + 1) * step) + here) / 2);
    const float off = line - std::round(value(first + k * step + half));
    at.push_back(code_in(here - std::round(off / 2), r));
  }
  at.push_back(code_in(std::round(value(last)), r));
  std::vector<int64_t> table;
  for (int64_t code = 0; code <= r.high - r.low; ++code) {
    const auto k = static_cast<size_t>(code >> 7);
    table.push_back(at[k] + (((at[k + 1] - at[k]) * (code & 127) + 64) >> 7));
  }
  return table;
}

bool set_table(TfliteCall& c, const std::vector<int64_t>& table) {
  c.set_codes(0, c.own("Lookup", {c.x(0), tflite_code_list(c, table, c.result(0).type)},
                       {onnx_int("first", tflite_codes_of(c.tensor(0).type).low)}));
  return true;
}
bool table_of(TfliteCall& c, CodeCurve f) {
  if (!tflite_of_codes(c, 1) || c.tensor(0).type != c.result(0).type) return false;
  const TfliteTensor &x = c.tensor(0), &y = c.result(0);
  return set_table(c, x.type == OnnxType::i16 ? short_table(x, y, f) : byte_table(x, y, f));
}
/// f(code less the zero point) for each code.
template <class F>
bool exact_table(TfliteCall& c, F f) {
  const TfliteRange r = tflite_codes_of(c.tensor(0).type);
  std::vector<int64_t> table;
  for (int64_t code = r.low; code <= r.high; ++code)
    table.push_back(
        std::clamp(f(code - zero_of(c.tensor(0))) + zero_of(c.result(0)), r.low, r.high));
  return set_table(c, table);
}
bool same_types(const TfliteCall& c, bool shorts) {
  return tflite_of_codes(c, 1) && c.tensor(0).type == c.result(0).type &&
         (shorts || c.tensor(0).type != OnnxType::i16);
}

}  // namespace

bool tflite_exp_codes(TfliteCall& c) {
  return table_of(c, [](float v, float, float) { return std::exp(v); });
}
bool tflite_log_codes(TfliteCall& c) {
  return table_of(c, [](float v, float least, float) { return v <= 0 ? least : std::log(v); });
}
bool tflite_elu_codes(TfliteCall& c) {
  return table_of(c, [](float v, float, float) { return v < 0 ? std::expm1(v) : v; });
}
bool tflite_gelu_codes(TfliteCall& c) {
  constexpr auto kRootOfHalf = 0.70710678118654752440f;
  if (!c.flag(0))
    return table_of(c,
                    [](float v, float, float) { return 0.5f * v * std::erfc(v * -kRootOfHalf); });
  return table_of(c, [](float v, float, float) {
    constexpr auto kTwoByRootOfPi = 1.12837916709551257390f;
    return 0.5f * v *
           (1.0f + std::tanh(kTwoByRootOfPi * kRootOfHalf * (v + 0.044715f * v * v * v)));
  });
}
bool tflite_sigmoid_bytes(TfliteCall& c) {
  return same_types(c, false) &&
         table_of(c, [](float v, float, float) { return 1.0f / (1.0f + std::exp(-v)); });
}
bool tflite_tanh_bytes(TfliteCall& c) {
  return same_types(c, false) && table_of(c, [](float v, float, float) { return std::tanh(v); });
}

// Cut, not rounded. Roots of negative numbers, which the kernel refuses, are 0.
bool tflite_sqrt_codes(TfliteCall& c) {
  if (!same_types(c, true)) return false;
  const float in = scale_of(c.tensor(0)), out = scale_of(c.result(0));
  return exact_table(c, [&](int64_t v) {
    const float root = std::sqrt(in * static_cast<float>(std::max<int64_t>(v, 0)));
    return static_cast<int64_t>(std::min(root / out, 65536.0f));
  });
}

// Of 16 bits by samples. What is not positive has the largest code.
bool tflite_rsqrt_codes(TfliteCall& c) {
  if (!same_types(c, true)) return false;
  if (c.tensor(0).type == OnnxType::i16)
    return table_of(c,
                    [](float v, float, float most) { return v <= 0 ? most : 1.0f / std::sqrt(v); });
  constexpr int64_t kFiner = 20, kMost = 65536;
  const TfliteFactor f(1.0 / double{std::sqrt(scale_of(c.tensor(0))) * scale_of(c.result(0))});
  return exact_table(c, [&](int64_t v) {
    if (v <= 0) return kMost;
    TfliteFactor root = fixed_inverse_root(v), coarser = f;
    root.shift += kFiner;
    coarser.shift -= kFiner;
    return fixed_scaled(fixed_scaled(1, root), coarser);
  });
}

// A quotient of bytes by the inverse of the divisor. Without one: as far as codes reach.
bool tflite_quotient_codes(TfliteCall& c) {
  if (!tflite_of_codes(c, 2)) return false;
  const TfliteTensor &a = c.tensor(0), &b = c.tensor(1), &y = c.result(0);
  if (a.type == OnnxType::i16 || a.type != b.type || a.type != y.type) return false;
  const TfliteRange all = tflite_codes_of(a.type), r = tflite_range(c, y, tflite_activation(c));
  const TfliteFactor f(scale_of(a) / (scale_of(b) * scale_of(y)));
  const auto quotient = [&](int64_t n, int64_t d) -> int64_t {
    if (d == 0) return n == 0 ? 0 : n < 0 ? -65536 : 65536;
    if (d < 0) {
      n = -n;
      d = -d;
    }
    int bits = 0;
    for (int64_t v = d; v > 1; v /= 2) ++bits;
    // d is 2^bits times 1 to 2.
    const int64_t inverse = fixed_inverse(d * (int64_t{1} << (31 - bits)) - (int64_t{1} << 31));
    int headroom = 31;
    for (int64_t v = n < 0 ? ~n : n; v > 0; v /= 2) --headroom;
    TfliteFactor whole(0);
    whole.multiplier = inverse;
    const int64_t fine = fixed_scaled(n * (int64_t{1} << headroom), whole);
    TfliteFactor coarse = f;
    const int64_t shift = f.shift - bits - headroom, left = std::max<int64_t>(shift, 0);
    coarse.shift = shift - left;
    return fixed_scaled(fine, coarse) * (int64_t{1} << left);
  };
  std::vector<int64_t> table;
  for (int64_t n = all.low; n <= all.high; ++n)
    for (int64_t d = all.low; d <= all.high; ++d)
      table.push_back(
          std::clamp(quotient(n - zero_of(a), d - zero_of(b)) + zero_of(y), r.low, r.high));
  constexpr double kCodes = 256;
  const auto wide = [&](size_t i) {
    return c.tf("Cast", {c.x(i)}, {onnx_int("DstT", static_cast<int64_t>(OnnxType::i32))});
  };
  const std::string pair =
      c.tf("AddV2", {c.tf("Mul", {wide(0), c.number(kCodes, OnnxType::i32)}), wide(1)});
  c.set_codes(0, c.own("Lookup", {pair, tflite_code_list(c, table, y.type)},
                       {onnx_int("first", all.low * 256 + all.low)}));
  return true;
}

}  // namespace tandem::onnx
