// SPDX-License-Identifier: Apache-2.0
// The row fft, torch.fft's functions built on it, windows and short-time transforms.
#include "tandem/ops/linalg/fft.h"

#include <cmath>
#include <numbers>

#include "tandem/ops/function_internal.h"
#include "tandem/ops/linalg/fft_internal.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::composed;
using fft::FftAttrs;
using fft::RealFftAttrs;

void check_complex(const Shape& s) {
  TD_CHECK(s.rank() >= 2 && dims_equal(s.back(), Dim(2)), Shape,
           "expected complex numbers as a last dimension of 2, got shape {}\nUse make_complex.",
           s.to_string());
}

void fft_infer(InferCall& c) {
  const Spec& x = c.in[0];
  TD_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, DType,
           "x is {}, expected float32 or float64\nConvert it with .to(float32).",
           to_string(x.dtype));
  check_complex(x.shape);
  normalize_dim(c.get_attrs<FftAttrs>().dim, x.rank() - 1);
  c.out[0] = Spec(x.dtype, x.shape, x.device);
}
// The transpose of the transform is itself, its conjugate the opposite direction.
void fft_vjp(VjpCall& c) {
  FftAttrs a = c.get_attrs<FftAttrs>();
  a.inverse = !a.inverse;
  c.results[0] = call(op::fft, &a, c.loc(), c.grad());
}
void fft_batch(BatchCall& c) {
  FftAttrs a = c.get_attrs<FftAttrs>();
  a.dim = normalize_dim(a.dim, c.rank(0) - 1) + 1;
  c.out[0] = call(op::fft, &a, c.node.loc, c.in[0]);
}
double fft_flops(const InferCall& c) {
  const Shape& s = c.in[0].shape;
  if (s.is_symbolic() || s.numel() == Dim(0)) return 0;
  const int d = normalize_dim(c.get_attrs<FftAttrs>().dim, s.rank() - 1);
  return 2.5 * static_cast<double>(s.numel().value()) *
         std::log2(static_cast<double>(s[d].value()) + 1);
}

// ---- real numbers and the lower half of their spectrum

void real_infer(InferCall& c, bool inverse) {
  const Spec& x = c.in[0];
  const auto& a = c.get_attrs<RealFftAttrs>();
  TD_CHECK(x.dtype == DType::f32 || x.dtype == DType::f64, DType,
           "x is {}, expected float32 or float64\nConvert it with .to(float32).",
           to_string(x.dtype));
  if (inverse) check_complex(x.shape);
  const int rank = x.rank() - inverse;
  const int d = normalize_dim(a.dim, rank);
  const int64_t half = a.length / 2 + 1;
  const Dim want(inverse ? half : a.length);
  TD_CHECK(a.length >= 1 && dims_equal(x.shape[d], want), Shape,
           "x is {} for a length of {} in dimension {}", x.shape.to_string(), a.length, d);
  Shape s;
  for (int i = 0; i < rank; ++i)
    s.push_back(i != d ? x.shape[i] : inverse ? Dim(a.length) : Dim(half));
  if (!inverse) s.push_back(2);
  c.out[0] = Spec(x.dtype, s, x.device);
}
void rfft_infer(InferCall& c) { real_infer(c, false); }
void irfft_infer(InferCall& c) { real_infer(c, true); }

// How often a frequency occurs in the whole spectrum, as [k, 1, ..., 1] against x: twice, except 0
// and the middle of an even length.
Tensor multiplicity(const Tensor& x, const RealFftAttrs& a, int d) {
  const int64_t half = a.length / 2 + 1;
  std::vector<double> v(static_cast<size_t>(half), 2.0);
  v[0] = 1;
  if (a.length % 2 == 0) v.back() = 1;
  Shape s;
  for (int i = 0; i < x.dim(); ++i) s.push_back(i == d ? half : 1);
  return tensor(v).to(x.dtype()).reshape(s);
}
// The transpose of each is the other, counting twice the frequencies that occur twice.
void rfft_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<RealFftAttrs>();
  const Tensor& g = c.grad();
  const int d = normalize_dim(a.dim, g.dim() - 1);
  c.results[0] = call(op::irfft, &a, c.loc(), div(g, multiplicity(g, a, d), c.loc()));
}
void irfft_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<RealFftAttrs>();
  const Tensor y = call(op::rfft, &a, c.loc(), c.grad());
  const int d = normalize_dim(a.dim, y.dim() - 1);
  c.results[0] = mul(y, multiplicity(y, a, d), c.loc());
}
void real_batch(BatchCall& c) {
  RealFftAttrs a = c.get_attrs<RealFftAttrs>();
  const bool inverse = c.node.op == &op::irfft;
  a.dim = normalize_dim(a.dim, c.rank(0) - inverse) + 1;
  c.out[0] = call(*c.node.op, &a, c.node.loc, c.in[0]);
}
double real_flops(const InferCall& c) {
  const Shape& s = c.in[0].shape;
  if (s.is_symbolic()) return 0;
  return 1.25 * static_cast<double>(s.numel().value()) *
         std::log2(static_cast<double>(c.get_attrs<RealFftAttrs>().length) + 1);
}

// ---- parts of the functions

double factor(std::string_view norm, double n, bool inverse) {
  TD_CHECK(norm == "backward" || norm == "ortho" || norm == "forward", Value,
           "norm '{}' must be backward, ortho or forward", norm);
  if (norm == "ortho") return 1 / std::sqrt(n);
  return (norm == "forward") != inverse ? 1 / n : 1;
}

// The norm of a transform that runs in the other direction.
std::string_view opposite(std::string_view norm) {
  return norm == "backward" ? "forward" : norm == "forward" ? "backward" : norm;
}

// Truncated, or padded with zeros, at the end of `dim`.
Tensor resized(const Tensor& x, int dim, int64_t n) {
  TD_CHECK(n >= 1, Value, "the length must be positive, got {}", n);
  TD_CHECK(n < int64_t{1} << 31, Memory, "a length of {} is too long", n);
  const int64_t have = x.size(dim);
  if (have == n) return x;
  if (have > n) return narrow(x, dim, 0, n);
  Shape s = x.shape();
  s[dim] = n - have;
  return cat({x, zeros(s, x.dtype())}, dim);
}

Tensor raw(const Tensor& x, int dim, bool inverse) {
  FftAttrs a{dim, inverse};
  return call(op::fft, &a, SourceLocation::here(), x);
}
Tensor scaled(const Tensor& x, double by) { return by == 1 ? x : x * by; }

Tensor as_real_input(const Tensor& x) { return is_floating(x.dtype()) ? x : x.to(DType::f32); }

Tensor c2c(const Tensor& in, int64_t dim, std::optional<int64_t> n, std::string_view norm,
           bool inverse) {
  const Tensor x = as_real_input(in);
  check_complex(x.shape());
  const int d = normalize_dim(dim, x.dim() - 1);
  const int64_t length = n.value_or(x.size(d));
  return scaled(raw(resized(x, d, length), d, inverse),
                factor(norm, static_cast<double>(length), inverse));
}

Tensor r2c(const Tensor& in, int64_t dim, std::optional<int64_t> n, std::string_view norm) {
  const Tensor x = as_real_input(in);
  const int d = normalize_dim(dim, x.dim());
  const int64_t length = n.value_or(x.size(d));
  const Tensor real = resized(x, d, length);
  const RealFftAttrs a{d, length};
  return scaled(call(op::rfft, &a, SourceLocation::here(), real),
                factor(norm, static_cast<double>(length), false));
}

Tensor c2r(const Tensor& in, int64_t dim, std::optional<int64_t> n, std::string_view norm) {
  Tensor x = as_real_input(in);
  check_complex(x.shape());
  const int d = normalize_dim(dim, x.dim() - 1);
  const int64_t length = n.value_or(2 * (x.size(d) - 1));
  TD_CHECK(length >= 1, Value, "the length must be positive, got {}\nPass n.", length);
  const int64_t half = length / 2 + 1;
  const RealFftAttrs a{d, length};
  return scaled(call(op::irfft, &a, SourceLocation::here(), resized(x, d, half)),
                factor(norm, static_cast<double>(length), true));
}

// The dims and lengths of a transform over several of the `rank` dims.
struct Plan {
  std::vector<int> dims;
  std::vector<std::optional<int64_t>> lengths;
};
Plan plan_of(const IntList& s, const IntList& dim, int rank) {
  Plan p;
  TD_CHECK(s.empty() || dim.empty() || s.rank() == dim.rank(), Value,
           "s {} and dim {} differ in length", s.to_string(), dim.to_string());
  const int count = !dim.empty() ? dim.rank() : !s.empty() ? s.rank() : rank;
  TD_CHECK(count <= rank, Shape, "{} dims are more than x has", count);
  for (int i = 0; i < count; ++i) {
    const int d = dim.empty() ? rank - count + i : normalize_dim(dim[i].value(), rank);
    for (int other : p.dims) TD_CHECK(other != d, Value, "dimension {} is named twice", d);
    p.dims.push_back(d);
    p.lengths.push_back(s.empty() || s[i].value() == -1 ? std::optional<int64_t>()
                                                        : std::optional<int64_t>(s[i].value()));
  }
  TD_CHECK(!p.dims.empty(), Shape, "there is no dimension to transform");
  return p;
}

Tensor many(const Tensor& x, const IntList& s, const IntList& dim, std::string_view norm,
            bool inverse) {
  check_complex(x.shape());
  const Plan p = plan_of(s, dim, x.dim() - 1);
  Tensor y = x;
  for (size_t i = p.dims.size(); i-- > 0;) y = c2c(y, p.dims[i], p.lengths[i], norm, inverse);
  return y;
}
Tensor many_real(const Tensor& x, const IntList& s, const IntList& dim, std::string_view norm) {
  const Plan p = plan_of(s, dim, x.dim());
  const size_t last = p.dims.size() - 1;
  Tensor y = r2c(x, p.dims[last], p.lengths[last], norm);
  for (size_t i = last; i-- > 0;) y = c2c(y, p.dims[i], p.lengths[i], norm, false);
  return y;
}
Tensor many_to_real(const Tensor& x, const IntList& s, const IntList& dim, std::string_view norm) {
  check_complex(x.shape());
  const Plan p = plan_of(s, dim, x.dim() - 1);
  const size_t last = p.dims.size() - 1;
  Tensor y = x;
  for (size_t i = 0; i < last; ++i) y = c2c(y, p.dims[i], p.lengths[i], norm, true);
  return c2r(y, p.dims[last], p.lengths[last], norm);
}

}  // namespace

namespace op {
constinit const OpDef fft = make_row("fft", Family::index, Types::same, {"x"}, fields<FftAttrs>())
                                .infer(fft_infer)
                                .vjp(fft_vjp)
                                .batch(fft_batch)
                                .reference(detail::reference_fft)
                                .flops(fft_flops)
                                .doc(
                                    "Discrete Fourier transform of complex numbers [..., 2] along "
                                    "a dim, without a factor.");
constinit const OpDef rfft =
    make_row("rfft", Family::index, Types::same, {"x"}, fields<RealFftAttrs>())
        .infer(rfft_infer)
        .vjp(rfft_vjp)
        .batch(real_batch)
        .reference(detail::reference_rfft)
        .flops(real_flops)
        .doc("Frequencies 0 to n / 2 of n real numbers along a dim, without a factor.");
constinit const OpDef irfft =
    make_row("irfft", Family::index, Types::same, {"x"}, fields<RealFftAttrs>())
        .infer(irfft_infer)
        .vjp(irfft_vjp)
        .batch(real_batch)
        .reference(detail::reference_irfft)
        .flops(real_flops)
        .doc("n real numbers from the lower half of their spectrum along a dim, without a factor.");
}  // namespace op

std::span<const OpDef* const> fft_rows() {
  static constexpr const OpDef* kRows[] = {&op::fft, &op::rfft, &op::irfft};
  return kRows;
}

namespace fft {

using Length = std::optional<int64_t>;

Tensor fft(const Tensor& x, Length n, int64_t dim, std::string_view norm, SourceLocation loc) {
  return composed("fft", loc, x, [&] { return c2c(x, dim, n, norm, false); });
}
Tensor ifft(const Tensor& x, Length n, int64_t dim, std::string_view norm, SourceLocation loc) {
  return composed("ifft", loc, x, [&] { return c2c(x, dim, n, norm, true); });
}
Tensor rfft(const Tensor& x, Length n, int64_t dim, std::string_view norm, SourceLocation loc) {
  return composed("rfft", loc, x, [&] { return r2c(x, dim, n, norm); });
}
Tensor irfft(const Tensor& x, Length n, int64_t dim, std::string_view norm, SourceLocation loc) {
  return composed("irfft", loc, x, [&] { return c2r(x, dim, n, norm); });
}
Tensor hfft(const Tensor& x, Length n, int64_t dim, std::string_view norm, SourceLocation loc) {
  return composed("hfft", loc, x, [&] { return c2r(complex_conj(x), dim, n, opposite(norm)); });
}
Tensor ihfft(const Tensor& x, Length n, int64_t dim, std::string_view norm, SourceLocation loc) {
  return composed("ihfft", loc, x, [&] { return complex_conj(r2c(x, dim, n, opposite(norm))); });
}
#define TD_MANY(name, ...)                                                    \
  Tensor name(const Tensor& x, IntList s, IntList dim, std::string_view norm, \
              SourceLocation loc) {                                           \
    return composed(#name, loc, [&] { return __VA_ARGS__; });                 \
  }
TD_MANY(fftn, many(x, s, dim, norm, false))
TD_MANY(ifftn, many(x, s, dim, norm, true))
TD_MANY(fft2, many(x, s, dim, norm, false))
TD_MANY(ifft2, many(x, s, dim, norm, true))
TD_MANY(rfftn, many_real(x, s, dim, norm))
TD_MANY(rfft2, many_real(x, s, dim, norm))
TD_MANY(irfftn, many_to_real(x, s, dim, norm))
TD_MANY(irfft2, many_to_real(x, s, dim, norm))
TD_MANY(hfftn, many_to_real(complex_conj(x), s, dim, opposite(norm)))
TD_MANY(hfft2, many_to_real(complex_conj(x), s, dim, opposite(norm)))
TD_MANY(ihfftn, complex_conj(many_real(x, s, dim, opposite(norm))))
TD_MANY(ihfft2, complex_conj(many_real(x, s, dim, opposite(norm))))
#undef TD_MANY

Tensor fftfreq(int64_t n, double d, DType dtype, SourceLocation loc) {
  return composed("fftfreq", loc, [&] {
    TD_CHECK(n >= 1 && d != 0, Value, "n must be positive and d not 0, got {} and {}", n, d);
    const Tensor up = arange(n / 2 + n % 2), down = arange(-(n / 2), 0);
    return (cat({up, down}).to(DType::f64) / (static_cast<double>(n) * d)).to(dtype);
  });
}
Tensor rfftfreq(int64_t n, double d, DType dtype, SourceLocation loc) {
  return composed("rfftfreq", loc, [&] {
    TD_CHECK(n >= 1 && d != 0, Value, "n must be positive and d not 0, got {} and {}", n, d);
    return (arange(n / 2 + 1).to(DType::f64) / (static_cast<double>(n) * d)).to(dtype);
  });
}

namespace {
Tensor moved(const Tensor& x, const IntList& dim, bool back) {
  IntList dims = normalize_dims(dim, x.dim()), shifts;
  for (Dim d : dims) {
    const int64_t n = x.size(static_cast<int>(d.raw()));
    shifts.push_back(back ? (n + 1) / 2 : n / 2);
  }
  return x.dim() ? roll(x, shifts, dims) : x;
}
}  // namespace
Tensor fftshift(const Tensor& x, IntList dim, SourceLocation loc) {
  return composed("fftshift", loc, x, [&] { return moved(x, dim, false); });
}
Tensor ifftshift(const Tensor& x, IntList dim, SourceLocation loc) {
  return composed("ifftshift", loc, x, [&] { return moved(x, dim, true); });
}

}  // namespace fft

// ---- complex numbers

Tensor make_complex(const Tensor& real, const Tensor& imag, SourceLocation loc) {
  return composed("make_complex", loc, real, [&] {
    return stack(broadcast_tensors({real, imag}), -1);
  });
}
Tensor complex_real(const Tensor& x, SourceLocation loc) {
  return composed("complex_real", loc, x, [&] {
    check_complex(x.shape());
    return select(x, -1, 0);
  });
}
Tensor complex_imag(const Tensor& x, SourceLocation loc) {
  return composed("complex_imag", loc, x, [&] {
    check_complex(x.shape());
    return select(x, -1, 1);
  });
}
Tensor complex_mul(const Tensor& x, const Tensor& y, SourceLocation loc) {
  return composed("complex_mul", loc, x, [&] {
    const Tensor a = complex_real(x), b = complex_imag(x), c = complex_real(y), d = complex_imag(y);
    return make_complex(a * c - b * d, a * d + b * c);
  });
}
Tensor complex_conj(const Tensor& x, SourceLocation loc) {
  return composed("complex_conj", loc, x,
                  [&] { return make_complex(complex_real(x), -complex_imag(x)); });
}
Tensor complex_abs(const Tensor& x, SourceLocation loc) {
  return composed("complex_abs", loc, x, [&] {
    check_complex(x.shape());
    return norm(x, 2, {-1});
  });
}
Tensor complex_angle(const Tensor& x, SourceLocation loc) {
  return composed("complex_angle", loc, x, [&] { return atan2(complex_imag(x), complex_real(x)); });
}

// ---- windows

namespace {
// f(position of the sample in 0..1).
template <class F>
Tensor window_of(const char* name, int64_t n, bool periodic, DType dtype, SourceLocation loc,
                 F&& f) {
  return composed(name, loc, [&] {
    TD_CHECK(n >= 0 && n < int64_t{1} << 40, Value, "n must not be negative, got {}", n);
    TD_CHECK(is_floating(dtype), DType, "expected a floating dtype, got {}", to_string(dtype));
    if (n <= 1) return ones(Shape(n), dtype);
    const auto last = static_cast<double>(periodic ? n : n - 1);
    return f(arange(n).to(DType::f64) / last).to(dtype);
  });
}
// The Bessel function I0 by its power series, exact for the arguments of windows.
double bessel_i0(double x) {
  double term = 1, sum = 1;
  for (int k = 1; k < 500 && term > sum * 1e-17; ++k) {
    term *= (x / 2 / k) * (x / 2 / k);
    sum += term;
  }
  return sum;
}
}  // namespace

Tensor hann_window(int64_t n, bool periodic, DType dtype, SourceLocation loc) {
  return window_of("hann_window", n, periodic, dtype, loc,
                   [](const Tensor& t) { return 0.5 - 0.5 * cos(t * (2 * std::numbers::pi)); });
}
Tensor hamming_window(int64_t n, bool periodic, double alpha, double beta, DType dtype,
                      SourceLocation loc) {
  return window_of("hamming_window", n, periodic, dtype, loc,
                   [&](const Tensor& t) { return alpha - beta * cos(t * (2 * std::numbers::pi)); });
}
Tensor blackman_window(int64_t n, bool periodic, DType dtype, SourceLocation loc) {
  return window_of("blackman_window", n, periodic, dtype, loc, [](const Tensor& t) {
    return 0.42 - 0.5 * cos(t * (2 * std::numbers::pi)) + 0.08 * cos(t * (4 * std::numbers::pi));
  });
}
Tensor bartlett_window(int64_t n, bool periodic, DType dtype, SourceLocation loc) {
  return window_of("bartlett_window", n, periodic, dtype, loc,
                   [](const Tensor& t) { return 1.0 - abs(2.0 * t - 1.0); });
}
Tensor kaiser_window(int64_t n, bool periodic, double beta, DType dtype, SourceLocation loc) {
  return window_of("kaiser_window", n, periodic, dtype, loc, [&](const Tensor& t) {
    TD_CHECK(beta >= 0 && beta < 600, Value, "beta must be in 0..600, got {}", beta);
    // The argument of I0's power series.
    const Tensor square = (1.0 - tandem::square(2.0 * t - 1.0)) * (beta * beta / 4);
    Tensor term = ones_like(t), sum = term;
    for (int k = 1; k <= 30 + static_cast<int>(1.5 * beta); ++k) {
      term = term * square / static_cast<double>(k * k);
      sum = sum + term;
    }
    return sum / bessel_i0(beta);
  });
}

// ---- short-time transforms

namespace {

struct Frames {
  int64_t hop;
  Tensor window;  ///< [n_fft]
};
Frames frames_of(int64_t n_fft, const StftOptions& o, DType dtype) {
  TD_CHECK(n_fft >= 1, Value, "n_fft must be positive, got {}", n_fft);
  const int64_t hop = o.hop_length.value_or(n_fft / 4), width = o.win_length.value_or(n_fft);
  TD_CHECK(hop >= 1, Value, "hop_length must be positive, got {}", hop);
  TD_CHECK(width >= 1 && width <= n_fft, Value, "win_length must be in 1..{}, got {}", n_fft,
           width);
  TD_CHECK(!o.window.defined() || (o.window.dim() == 1 && dims_equal(o.window.shape(0), width)),
           Shape, "the window must be [{}], got shape {}", width,
           o.window.defined() ? o.window.shape().to_string() : "");
  Tensor w = o.window.defined() ? o.window.to(dtype) : ones(Shape(width), dtype);
  const int64_t before = (n_fft - width) / 2;
  if (width < n_fft) w = pad(w, {before, n_fft - width - before});
  return {hop, w};
}

}  // namespace

Tensor stft(const Tensor& x, int64_t n_fft, const StftOptions& o, SourceLocation loc) {
  return composed("stft", loc, x, [&] {
    TD_CHECK(x.dim() == 1 || x.dim() == 2, Shape, "expected [time] or [batch, time], got shape {}",
             x.shape().to_string());
    const Frames f = frames_of(n_fft, o, x.dtype());
    Tensor signal = x;
    if (o.center) {
      TD_CHECK(o.pad_mode != "reflect" || x.size(-1) > n_fft / 2, Shape,
               "reflection expects more than {} samples, got {}", n_fft / 2, x.size(-1));
      signal = pad(x, {n_fft / 2, n_fft / 2}, o.pad_mode);
    }
    TD_CHECK(signal.size(-1) >= n_fft, Shape, "{} samples are fewer than n_fft = {}",
             signal.size(-1), n_fft);
    const Tensor frames = unfold(signal, -1, n_fft, f.hop) * f.window;
    const int d = frames.dim() - 1;
    Tensor y = o.onesided ? r2c(frames, d, {}, "backward")
                          : raw(make_complex(frames, zeros_like(frames)), d, false);
    y = transpose(y, d - 1, d);
    return o.normalized ? y / std::sqrt(static_cast<double>(n_fft)) : y;
  });
}

Tensor istft(const Tensor& x, int64_t n_fft, const StftOptions& o, std::optional<int64_t> length,
             SourceLocation loc) {
  return composed("istft", loc, x, [&] {
    check_complex(x.shape());
    TD_CHECK(x.dim() == 3 || x.dim() == 4, Shape,
             "expected [frequencies, frames, 2] or [batch, frequencies, frames, 2], got shape {}",
             x.shape().to_string());
    const Frames f = frames_of(n_fft, o, x.dtype());
    const int64_t rows = o.onesided ? n_fft / 2 + 1 : n_fft;
    TD_CHECK(x.size(-3) == rows, Shape, "expected {} frequencies, got {}", rows, x.size(-3));
    Tensor t = transpose(x, -3, -2);
    if (o.normalized) t = t * std::sqrt(static_cast<double>(n_fft));
    const int d = t.dim() - 2;
    // The upper half of the frequencies is redundant.
    Tensor frames = c2r(narrow(t, d, 0, n_fft / 2 + 1), d, n_fft, "backward");
    frames = frames * f.window;
    const int64_t count = frames.size(-2), total = n_fft + f.hop * (count - 1);
    const auto added = [&](const Tensor& parts) {
      Shape s = parts.shape();
      s.erase(s.rank() - 1);
      s[s.rank() - 1] = total;
      UnfoldAttrs a{s.rank() - 1, n_fft, f.hop, s};
      return call(op::unfold_backward, &a, SourceLocation::here(), parts);
    };
    const Tensor weight = added(expand(square(f.window), Shape(count, n_fft)));
    const int64_t start = o.center ? n_fft / 2 : 0;
    int64_t end = length ? start + *length : o.center ? total - n_fft / 2 : total;
    TD_CHECK(end > start, Shape, "no samples remain of {}", total);
    const int64_t missing = std::max<int64_t>(end - total, 0);
    end -= missing;
    const Tensor inside = narrow(weight, 0, start, end - start);
    TD_CHECK(inside.is_symbolic() || amin(abs(inside)).to(DType::f64).item<double>() > 1e-11, Value,
             "the windows overlap too little: a sample has no weight");
    const Tensor y = narrow(added(frames), -1, start, end - start) / inside;
    return missing ? pad(y, {0, missing}) : y;
  });
}

}  // namespace tandem
