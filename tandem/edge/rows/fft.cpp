// SPDX-License-Identifier: Apache-2.0
// Fourier transforms of lines, along one dimension: numbers are gathered into an array on the
// stack, transformed there (rows/functions.cpp), and stored.
#include "tandem/ops/linalg/fft.h"

#include <cmath>
#include <numbers>
#include <string>

#include "tandem/edge/rows_internal.h"
#include "tandem/graph/apply.h"

namespace tandem::edge {
namespace {

/// Which dimension is transformed, and how long a line is.
struct FftLine {
  int dim;
  int64_t n;
  bool inverse = false;
};
FftLine line_of(const KernelCall& c) {
  if (&c.op == &op::fft) {
    const auto& a = c.get_attrs<fft::FftAttrs>();
    const int d = normalize_dim(a.dim, c.in[0].rank - 1);
    return {d, c.in[0].shape[d], a.inverse};
  }
  const auto& a = c.get_attrs<fft::RealFftAttrs>();
  const int rank = c.in[0].rank - (&c.op == &op::irfft ? 1 : 0);
  return {normalize_dim(a.dim, rank), a.length, &c.op == &op::irfft};
}

// exp(-2 pi i k / n) for k below n.
void write_roots(int64_t n, DType t, Lines& to) {
  std::vector<std::string> parts;
  for (int64_t k = 0; k < n; ++k) {
    const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
    for (const double v : {std::cos(angle), std::sin(angle)}) parts.push_back(number_literal(v, t));
  }
  write_table(c_type(t), "roots", parts, to);
}

// The place of the line's element `k` in an array whose other dimensions have loops.
std::string at(const Array& a, const FftLine& l, int rank, const std::string& k) {
  std::string s = fmt::format("{} * {}", k, a.strides[l.dim]);
  for (int d = 0; d < rank; ++d)
    if (d != l.dim && a.shape[d] != 1) s += fmt::format(" + i{} * {}", d, a.strides[d]);
  return s;
}

}  // namespace

bool takes_fft(const KernelCall& c) {
  constexpr int64_t kMostBytes = 32768;  // of the stack
  return line_of(c).n * 4 * static_cast<int64_t>(size_of(c.in[0].dtype)) <= kMostBytes;
}

void emit_fft(const KernelCall& c, Body& to) {
  const FftLine l = line_of(c);
  const Array &x = c.in[0], &y = c.out[0];
  const DType t = x.dtype;
  const bool from_real = &c.op == &op::rfft, to_real = &c.op == &op::irfft;
  const int rank = from_real ? x.rank : x.rank - 1;
  const int64_t half = l.n / 2 + 1, part_x = from_real ? 0 : x.strides[rank],
                part_y = to_real ? 0 : y.strides[rank];
  Lines& out = to.text;
  write_roots(l.n, t, out);
  out.line("{} a[{}], b[{}];", c_type(t), 2 * l.n, 2 * l.n);
  for (int d = 0; d < rank; ++d)
    if (d != l.dim) out.loop(fmt::format("i{}", d), x.shape[d]);
  const char* sign = l.inverse ? "-" : "";  // an inverse is the transform of conjugates
  out.loop("k", l.n);
  const std::string k = l.n == 1 ? "0" : "k";
  if (from_real) {
    out.line("a[2 * {0}] = x0[{1}];", k, at(x, l, rank, k));
    out.line("a[2 * {} + 1] = 0;", k);
  } else if (to_real) {  // the upper half is the conjugate of the lower
    out.line("const int32_t at = {0} < {1} ? {0} : {2} - {0};", k, half, l.n);
    out.line("a[2 * {0}] = x0[{1}];", k, at(x, l, rank, "at"));
    out.line(
        "a[2 * {0} + 1] = ({0} == 0 || 2 * {0} == {1}) ? 0 : {0} < {2} ? -x0[{3} + {4}] : "
        "x0[{3} + {4}];",
        k, l.n, half, at(x, l, rank, "at"), part_x);
  } else {
    out.line("a[2 * {0}] = x0[{1}];", k, at(x, l, rank, k));
    out.line("a[2 * {0} + 1] = {1}x0[{2} + {3}];", k, sign, at(x, l, rank, k), part_x);
  }
  out.end_loop(l.n);
  out.line("{}(a, b, roots, {});", t == DType::f32 ? kFftOfFloats : kFftOfDoubles, l.n);
  const int64_t stored = from_real ? half : l.n;
  out.loop("k", stored);
  const std::string m = stored == 1 ? "0" : "k";
  out.line("y0[{}] = a[2 * {}];", at(y, l, rank, m), m);
  if (!to_real) out.line("y0[{} + {}] = {}a[2 * {} + 1];", at(y, l, rank, m), part_y, sign, m);
  out.end_loop(stored);
  for (int d = rank - 1; d >= 0; --d)
    if (d != l.dim) out.end_loop(x.shape[d]);
}

}  // namespace tandem::edge
