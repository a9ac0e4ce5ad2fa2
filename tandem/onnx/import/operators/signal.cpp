// SPDX-License-Identifier: Apache-2.0
// ONNX's signal ops: transforms (complex numbers are a last dimension of 2), windows, mel weights.
#include <cmath>
#include <numbers>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// Real signals [..., 1] as complex ones [..., 2].
Tensor complex_of(const Tensor& x) {
  TD_CHECK(x.size(-1) == 1 || x.size(-1) == 2, Shape, "expected [..., 1] or [..., 2], got {}",
           x.shape().to_string());
  return x.size(-1) == 2 ? x : cat({x, zeros_like(x)}, -1);
}

/// Forward transform along `dim`; the first half of the frequencies if one-sided.
Tensor forward(const Tensor& x, int64_t n, int64_t dim, bool onesided) {
  const Tensor y = fft::fft(complex_of(x), n, dim);
  return onesided ? y.narrow(dim, 0, n / 2 + 1) : y;
}

Tensor computable(const Tensor& x) { return x.dtype() == DType::f64 ? x : x.to(DType::f32); }

void dft(OnnxCall& c) {
  const Tensor x = computable(c.x(0));
  const int64_t axis = c.has(2) ? c.int_at(2) : c.attr("axis", c.version() >= 20 ? -2 : 1);
  const int d = normalize_dim(axis, x.dim());
  TD_CHECK(d < x.dim() - 1, Index, "axis {} is the complex dimension", axis);
  const bool inverse = c.attr("inverse", 0), onesided = c.attr("onesided", 0);
  const int64_t natural = inverse && onesided ? 2 * (x.size(d) - 1) : x.size(d);
  const int64_t n = c.has(1) ? c.int_at(1) : natural;
  TD_CHECK(n > 0, Value, "expected a positive length, got {}", n);
  if (!inverse)
    c.set_like(0, forward(x, n, d, onesided));
  else if (onesided)
    c.set_like(0, fft::irfft(complex_of(x), n, d).unsqueeze(-1));
  else
    c.set_like(0, fft::ifft(complex_of(x), n, d));
}

void stft_of(OnnxCall& c) {
  Tensor x = computable(c.x(0));
  TD_CHECK(x.dim() == 3, Shape, "expected [batch, time, 1 or 2], got {}", x.shape().to_string());
  const int64_t step = c.int_at(1), time = x.size(1);
  const int64_t n = c.has(3) ? c.int_at(3) : c.has(2) ? c.x(2).size(0) : time;
  TD_CHECK(step > 0 && n > 0 && n <= time, Value, "frames of {} every {} in {}", n, step, time);
  const int64_t frames = 1 + (time - n) / step;
  const Tensor at =
      arange(0, frames, 1, DType::i64).reshape({frames, 1}) * step + arange(0, n, 1, DType::i64);
  Tensor y = index_select(x, 1, at.reshape({-1})).reshape({x.size(0), frames, n, x.size(2)});
  if (c.has(2)) y = y * c.x(2).to(x.dtype()).reshape({-1, 1});
  c.set_like(0, forward(y, n, 2, c.attr("onesided", 1) != 0));
}

/// a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n) for the window's n samples.
void window(OnnxCall& c, double a0, double a1, double a2) {
  const int64_t size = c.int_at(0);
  TD_CHECK(size >= 0, Value, "expected a size, got {}", size);
  check_onnx_size(Shape(size));
  const double n = static_cast<double>(c.attr("periodic", 1) ? size : size - 1);
  const Tensor i = arange(0, size, 1, DType::f64);
  const Tensor y =
      a0 - cos(i * (2 * std::numbers::pi) / n) * a1 + cos(i * (4 * std::numbers::pi) / n) * a2;
  const auto type = static_cast<OnnxType>(c.attr("output_datatype", 1));
  c.set(0, cast_value(OnnxValue(y), type));
}
void hann(OnnxCall& c) { window(c, 0.5, 0.5, 0); }
void hamming(OnnxCall& c) { window(c, 25.0 / 46, 21.0 / 46, 0); }
void blackman(OnnxCall& c) { window(c, 0.42, 0.5, 0.08); }

void mel_weights(OnnxCall& c) {
  const int64_t bins = c.int_at(0), length = c.int_at(1), rate = c.int_at(2);
  const double low = c.number(3), high = c.number(4);
  TD_CHECK(bins > 0 && length > 0 && rate > 0, Value, "expected positive sizes");
  check_onnx_size(Shape(length / 2 + 1, bins), sizeof(double));
  auto mel = [](double f) { return 2595 * std::log10(1 + f / 700); };
  const double step = (mel(high) - mel(low)) / static_cast<double>(bins + 2);
  std::vector<int64_t> at;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz =
        700 * (std::pow(10.0, (static_cast<double>(i) * step + mel(low)) / 2595) - 1);
    at.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
  }
  const int64_t rows = length / 2 + 1;
  std::vector<double> w(static_cast<size_t>(rows * bins), 0);
  auto put = [&](int64_t row, int64_t bin, double v) {
    TD_CHECK(row >= 0 && row < rows, Value, "the frequency {} Hz is above half of {} Hz", high,
             rate);
    w[static_cast<size_t>(row * bins + bin)] = v;
  };
  for (int64_t i = 0; i < bins; ++i) {
    const auto k = static_cast<size_t>(i);
    const int64_t left = at[k], centre = at[k + 1], right = at[k + 2];
    if (left == centre) put(centre, i, 1);
    for (int64_t j = left; j <= centre && left < centre; ++j)
      put(j, i, static_cast<double>(j - left) / static_cast<double>(centre - left));
    for (int64_t j = centre; j < right; ++j)
      put(j, i, static_cast<double>(right - j) / static_cast<double>(right - centre));
  }
  const auto type = static_cast<OnnxType>(c.attr("output_datatype", 1));
  c.set(0, cast_value(OnnxValue(tensor(w, Shape(rows, bins))), type));
}

// com.microsoft: real signals without a dimension for complex numbers; the last dimensions are the
// signal's.
int64_t signal_dims(const OnnxCall& c) {
  TD_CHECK(c.attr("onesided", 1) == 1 && c.attr("normalized", 0) == 0, Unsupported,
           "only one-sided transforms without a factor are possible");
  const int64_t n = c.attr("signal_ndim", 1);
  TD_CHECK(n >= 1 && n <= 3, Unsupported, "signals of {} dimensions, one to three are possible", n);
  return n;
}
IntList last_dims(int64_t n) {
  IntList dims;
  for (int64_t d = -n; d < 0; ++d) dims.push_back(d);
  return dims;
}
void real_transform(OnnxCall& c) {
  c.set_like(0, fft::rfftn(computable(c.x(0)), {}, last_dims(signal_dims(c))));
}
void real_inverse(OnnxCall& c) {
  c.set_like(0, fft::irfftn(computable(c.x(0)), {}, last_dims(signal_dims(c))));
}

}  // namespace

std::span<const OnnxRow> onnx_signal_rows() {
  static constexpr OnnxRow kRows[] = {
      {"", "DFT", 17, 0, dft, {3, 1, "axis inverse onesided"}, &op::fft, export_fft},
      settings_from(1, {"", "STFT", 17, 0, stft_of, {4, 1, "onesided"}}),
      {"", "HannWindow", 17, 0, hann, {1, 1, "output_datatype periodic"}},
      {"", "HammingWindow", 17, 0, hamming, {1, 1, "output_datatype periodic"}},
      {"", "BlackmanWindow", 17, 0, blackman, {1, 1, "output_datatype periodic"}},
      settings_from(0, {"", "MelWeightMatrix", 17, 0, mel_weights, {5, 1, "output_datatype"}}),
      {kOnnxMicrosoft, "Rfft", 1, 0, real_transform, {1, 1, "normalized onesided signal_ndim"}},
      {kOnnxMicrosoft, "Irfft", 1, 0, real_inverse, {1, 1, "normalized onesided signal_ndim"}},
      exported(op::rfft, export_rfft),
      exported(op::irfft, export_irfft),
  };
  return kRows;
}

}  // namespace tandem::onnx
