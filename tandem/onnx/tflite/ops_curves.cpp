// SPDX-License-Identifier: Apache-2.0
// LOGISTIC, TANH and SOFTMAX of 16-bit codes by tables of all codes, with the integers of TFLite's
// reference kernels. These interpolate: the first two between samples of the sigmoid at every 1/24.
#include <algorithm>
#include <array>
#include <cmath>

#include "tandem/onnx/tflite/codes_internal.h"
#include "tandem/onnx/tflite/fixed_point_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

constexpr int64_t kSamples = 256, kMostSample = 65535;

/// 65,536 sigmoid(i / 24), each moved by half of what a straight line to the next is off in the
/// middle between both.
std::array<int64_t, kSamples> sigmoid_samples() {
  const auto sigmoid = [](double i) { return 65536 / (1 + std::exp(-i / 24)); };
  std::array<int64_t, kSamples> out;
  for (size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<double>(i);
    const double middle = (sigmoid(at) + sigmoid(at + 1)) / 2;
    const double moved = sigmoid(at) + (sigmoid(at + 0.5) - middle) / 2;
    out[i] = std::min(static_cast<int64_t>(std::floor(moved + 0.5)), kMostSample);
  }
  out.back() = kMostSample;
  return out;
}

/// From codes to steps of 1/12288, in which 2^17 is 10.7.
struct CurveFactor {
  CurveFactor(float scale, bool is_tanh) {
    int power = 0;
    const bool exact = std::frexp(scale, &power) == 0.5f;
    const int left = power - 1 + 12;
    if (exact && (left == 0 || (is_tanh && left == 1))) {
      multiplier = int64_t{3} << left;
      return;
    }
    double factor = double{scale} * 4096 * 3;
    for (; factor <= 32767.0 / 2 && shift <= 30; factor *= 2) ++shift;
    // All codes but 0 lie behind the last sample then, whatever the scale.
    constexpr double kMost = 2147483647;
    multiplier = static_cast<int64_t>(std::min(factor, kMost));
  }
  int64_t operator()(int64_t code) const {
    const int64_t half = shift > 0 ? int64_t{1} << (shift - 1) : 0;
    return (code * multiplier + half) >> shift;
  }
  int64_t multiplier = 0;
  int shift = 0;
};

/// The sigmoid of |x| in steps of 1/65536, times 2^bits; x has that many bits between two samples.
int64_t interpolated(const std::array<int64_t, kSamples>& samples, int64_t x, int bits,
                     int64_t most) {
  const auto at = static_cast<size_t>(std::abs(x) >> bits);
  if (at + 1 >= samples.size()) return most;
  const int64_t part = std::abs(x) & ((1 << bits) - 1);
  return (samples[at] << bits) + part * (samples[at + 1] - samples[at]);
}

int64_t sigmoid_code(const std::array<int64_t, kSamples>& samples, int64_t x) {
  constexpr int kPart = 9;
  const int64_t y = interpolated(samples, x, kPart, int64_t{0x7fff} << (kPart + 1));
  const int64_t half = 1 << kPart;
  return (x >= 0 ? y + half : (int64_t{1} << (16 + kPart)) - y + half - 1) >> (kPart + 1);
}
int64_t tanh_code(const std::array<int64_t, kSamples>& samples, int64_t x) {
  constexpr int kPart = 8;  // the samples are read at 2 x
  const int64_t y = interpolated(samples, x, kPart, int64_t{0xffff} << kPart);
  const int64_t middle = int64_t{1} << (15 + kPart), half = 1 << (kPart - 1);
  return (x >= 0 ? y - middle + half : middle - y + half - 1) >> kPart;
}

/// f over 0 to 1 in 512 parts, times 32768, as the codes that lie between two samples. Samples are
/// moved by half of what a straight line is off in the middle, rounded at each step.
template <class F>
std::vector<int64_t> interpolated_table(double low, double high, F f) {
  constexpr int64_t kParts = 512, kPart = 128;
  const double step = (high - low) / kParts;
  const auto sample = [&](double i) { return f(low + i * step) * 32768; };
  std::vector<int64_t> at;
  for (int64_t i = 0; i <= kParts; ++i) {
    const auto k = static_cast<double>(i);
    double v = std::round(sample(k));
    if (i < kParts) {
      const double line = std::round((sample(k + 1) + v) / 2);
      v -= std::round((line - std::round(sample(k + 0.5))) / 2);
    }
    at.push_back(std::clamp(static_cast<int64_t>(v), kFirstShort, kLastShort));
  }
  std::vector<int64_t> out;
  for (int64_t code = 0; code < kParts * kPart; ++code) {
    const auto k = static_cast<size_t>(code / kPart);
    out.push_back(at[k] + (((at[k + 1] - at[k]) * (code % kPart) + kPart / 2) >> 7));
  }
  return out;
}

std::string short_list(const TfliteCall& c, const std::vector<int64_t>& v) {
  const Tensor codes = tensor(v, Shape(static_cast<int64_t>(v.size()))).to(DType::i16);
  return c.b.constant("codes", OnnxValue(codes, OnnxType::i16));
}

/// Whether input and result are symmetric, the result in steps of 1/32768.
bool short_curve(const TfliteCall& c) {
  const TfliteTensor &x = c.tensor(0), &y = c.result(0);
  const auto fits = [](const TfliteTensor& t) {
    return t.type == OnnxType::i16 && t.scales.scale.size() == 1 && t.scales.scale[0] > 0 &&
           t.scales.zero[0] == 0;
  };
  return fits(x) && fits(y) && y.scales.scale[0] == std::ldexp(1.0f, -15);
}

}  // namespace

bool tflite_curve_codes(TfliteCall& c) {
  const bool is_tanh = std::string_view(c.row.name) == "TANH";
  if (!short_curve(c)) return is_tanh ? tflite_tanh_bytes(c) : tflite_sigmoid_bytes(c);
  const CurveFactor factor(c.tensor(0).scales.scale[0], is_tanh);
  const auto samples = sigmoid_samples();
  std::vector<int64_t> table;
  for (int64_t code = kFirstShort; code <= kLastShort; ++code)
    table.push_back(is_tanh ? tanh_code(samples, factor(code))
                            : sigmoid_code(samples, factor(code)));
  c.set_codes(0, c.own("Lookup", {c.x(0), short_list(c, table)}, {onnx_int("first", kFirstShort)}));
  return true;
}

bool tflite_softmax_codes(TfliteCall& c) {
  if (!short_curve(c) || c.tensor(0).shape.empty()) return tflite_softmax_bytes(c);
  constexpr double kRange = 10;  // of exp, in codes of 65535 steps
  const TfliteFactor f(double{c.tensor(0).scales.scale[0] * c.real(0)} / (kRange / 65535));
  if (f.multiplier == 0) return false;
  const std::string powers = short_list(
                        c, interpolated_table(-kRange, 0, [](double v) { return std::exp(v); })),
                    inverses = short_list(
                        c, interpolated_table(0, 1, [](double v) { return 1 / (1 + v); }));
  c.set_codes(0, c.own("Softmax", {c.x(0), powers, inverses},
                       {onnx_ints("factor", {f.multiplier, f.shift})}));
  return true;
}

}  // namespace tandem::onnx
