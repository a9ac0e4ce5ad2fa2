// SPDX-License-Identifier: Apache-2.0
// Fourier transforms and the linear algebra that ONNX has.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

// [..., 1 or 2] to [..., 2], along `axis`; ONNX's inverse divides by the length.
std::string dft(OnnxExportCall& c, const std::string& x, int axis, bool inverse, bool onesided) {
  OnnxAttributes all;
  if (inverse) all.push_back(onnx_int("inverse", 1));
  if (onesided) all.push_back(onnx_int("onesided", 1));
  if (c.b.opset() < 20) {
    all.push_back(onnx_int("axis", axis));
    return c.b.node("DFT", {x}, all);
  }
  return c.b.node("DFT", {x, "", c.b.number(axis, DType::i64)}, all);
}

}  // namespace

bool export_fft(OnnxExportCall& c) {
  const auto& a = c.get_attrs<fft::FftAttrs>();
  const int d = normalize_dim(a.dim, c.rank(0) - 1);
  std::string y = dft(c, c.x(0), d, a.inverse, false);
  if (a.inverse) {
    const std::string n = c.b.reshape(c.b.dim(c.shape(0)[d]), Shape{});
    y = c.b.node("Mul", {y, c.b.cast(n, DType::i64, c.dtype(0))});
  }
  c.set(0, y);
  return true;
}
bool export_rfft(OnnxExportCall& c) {
  const int d = c.axis(c.get_attrs<fft::RealFftAttrs>().dim);
  const std::string x = c.b.node("Unsqueeze", {c.x(0), c.b.ints({-1})});
  c.set(0, dft(c, x, d, false, true));
  return true;
}
// The other half of the spectrum is the first one, reversed and conjugated.
bool export_irfft(OnnxExportCall& c) {
  const auto& a = c.get_attrs<fft::RealFftAttrs>();
  const int d = normalize_dim(a.dim, c.rank(0) - 1);
  const int64_t n = a.length, half = n / 2 + 1;
  if (n < 1) return false;
  return c.by_ops([&](std::span<const Tensor> in) -> std::vector<Tensor> {
    const Tensor re = in[0].select(-1, 0), im = in[0].select(-1, 1);
    const auto whole = [&](const Tensor& v, bool odd) {
      if (n <= half) return narrow(v, d, 0, n);
      const Tensor tail = flip(narrow(v, d, 1, n - half), {d});
      return cat({narrow(v, d, 0, half), odd ? -tail : tail}, d);
    };
    // The entries without a partner are real.
    Tensor odd = whole(im, true);
    std::vector<int64_t> keep(static_cast<size_t>(n), 1);
    keep[0] = 0;
    if (n % 2 == 0) keep[static_cast<size_t>(n / 2)] = 0;
    Shape at;
    for (int k = 0; k < odd.dim(); ++k) at.push_back(k == d ? Dim(n) : Dim(1));
    odd = odd * constant(tensor(keep).reshape(at).to(odd.dtype()));
    const fft::FftAttrs back{d, true};
    const Tensor y =
        call(op::fft, &back, SourceLocation::here(), stack({whole(re, false), odd}, -1));
    return {y.select(-1, 0)};
  });
}

bool export_det(OnnxExportCall& c) {
  c.set(0, c.b.node("Det", {c.x(0)}));
  return true;
}

}  // namespace tandem::onnx
