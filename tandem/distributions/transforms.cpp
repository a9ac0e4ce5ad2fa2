// SPDX-License-Identifier: Apache-2.0
#include "tandem/distributions/transforms.h"

#include <cmath>

#include "tandem/distributions/distributions_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/linalg/linalg.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/matmul/matrix.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::distributions {

using detail::sum_last;

namespace {

double epsilon_of(const Tensor& x) { return x.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23; }
double tiny_of(const Tensor& x) { return x.dtype() == DType::f64 ? 0x1p-1022 : 0x1p-126; }

Tensor growing(double sign = 1) { return full(Shape(), sign, DType::f32); }

// log(1 + exp(x)) for every x.
Tensor soft(const Tensor& x) { return -logsigmoid(-x); }

Tensor clipped_sigmoid(const Tensor& x) { return clamp(sigmoid(x), tiny_of(x), 1 - epsilon_of(x)); }

Tensor parameter(const Operand& p) {
  return p.is_scalar() ? full(Shape(), p.scalar().to_double(), DType::f32) : p.tensor();
}
// A number as x's dtype, so that it does not promote x.
Tensor like(const Tensor& p, const Tensor& x) { return p.dim() == 0 ? p.to(x.dtype()) : p; }

Shape front(const Shape& s, int dropped) {
  TD_CHECK(s.rank() >= dropped, Shape, "{} has too few dimensions: expected at least {}",
           s.to_string(), dropped);
  Shape out;
  for (int i = 0; i + dropped < s.rank(); ++i) out.push_back(s[i]);
  return out;
}

Tensor last_but(const Tensor& x, int64_t less) { return narrow(x, -1, 0, x.shape(-1) - Dim(less)); }

}  // namespace

void Transform::lacks(const char* what) const {
  TD_CHECK(false, Unsupported, "{} has no {}", name(), what);
  throw 0;  // not reached
}
Tensor Transform::log_abs_det_jacobian(const Tensor&, const Tensor&) const {
  lacks("log_abs_det_jacobian");
}
Tensor Transform::sign() const { lacks("sign: it does not grow or fall everywhere"); }

// ---- of single numbers

const char* ExpTransform::name() const { return "ExpTransform"; }
Tensor ExpTransform::operator()(const Tensor& x) const { return exp(x); }
Tensor ExpTransform::inv(const Tensor& y) const { return log(y); }
Tensor ExpTransform::log_abs_det_jacobian(const Tensor& x, const Tensor&) const { return x; }
Tensor ExpTransform::sign() const { return growing(); }

const char* PowerTransform::name() const { return "PowerTransform"; }
PowerTransform::PowerTransform(const Operand& e) : exponent(parameter(e)) {}
Tensor PowerTransform::operator()(const Tensor& x) const { return pow(x, like(exponent, x)); }
Tensor PowerTransform::inv(const Tensor& y) const { return pow(y, 1.0 / like(exponent, y)); }
Tensor PowerTransform::log_abs_det_jacobian(const Tensor& x, const Tensor& y) const {
  return log(abs(like(exponent, x) * y / x));
}
Tensor PowerTransform::sign() const { return tandem::sign(exponent); }
Shape PowerTransform::forward_shape(const Shape& s) const {
  return broadcast_shapes(s, exponent.shape());
}
Shape PowerTransform::inverse_shape(const Shape& s) const { return forward_shape(s); }

const char* SigmoidTransform::name() const { return "SigmoidTransform"; }
Tensor SigmoidTransform::operator()(const Tensor& x) const { return clipped_sigmoid(x); }
Tensor SigmoidTransform::inv(const Tensor& y) const {
  const Tensor p = clamp(y, tiny_of(y), 1 - epsilon_of(y));
  return log(p) - log1p(-p);
}
Tensor SigmoidTransform::log_abs_det_jacobian(const Tensor& x, const Tensor&) const {
  return -soft(-x) - soft(x);
}
Tensor SigmoidTransform::sign() const { return growing(); }

const char* SoftplusTransform::name() const { return "SoftplusTransform"; }
Tensor SoftplusTransform::operator()(const Tensor& x) const { return soft(x); }
Tensor SoftplusTransform::inv(const Tensor& y) const { return log(-expm1(-y)) + y; }
Tensor SoftplusTransform::log_abs_det_jacobian(const Tensor& x, const Tensor&) const {
  return -soft(-x);
}
Tensor SoftplusTransform::sign() const { return growing(); }

const char* TanhTransform::name() const { return "TanhTransform"; }
Tensor TanhTransform::operator()(const Tensor& x) const { return tanh(x); }
Tensor TanhTransform::inv(const Tensor& y) const { return atanh(y); }
Tensor TanhTransform::log_abs_det_jacobian(const Tensor& x, const Tensor&) const {
  return 2.0 * (std::log(2.0) - x - soft(-2.0 * x));
}
Tensor TanhTransform::sign() const { return growing(); }

const char* AbsTransform::name() const { return "AbsTransform"; }
Tensor AbsTransform::operator()(const Tensor& x) const { return abs(x); }
Tensor AbsTransform::inv(const Tensor& y) const { return y; }

const char* AffineTransform::name() const { return "AffineTransform"; }
AffineTransform::AffineTransform(const Operand& l, const Operand& s, int64_t dims)
    : loc(parameter(l)), scale(parameter(s)), event_dim(dims) {
  TD_CHECK(dims >= 0, Value, "AffineTransform: event_dim is {}, it must not be negative", dims);
}
Tensor AffineTransform::operator()(const Tensor& x) const {
  return like(loc, x) + like(scale, x) * x;
}
Tensor AffineTransform::inv(const Tensor& y) const { return (y - like(loc, y)) / like(scale, y); }
Tensor AffineTransform::log_abs_det_jacobian(const Tensor& x, const Tensor&) const {
  return sum_last(expand(log(abs(like(scale, x))), x.shape()), event_dim);
}
Tensor AffineTransform::sign() const { return tandem::sign(scale); }
Shape AffineTransform::forward_shape(const Shape& s) const {
  return broadcast_shapes(broadcast_shapes(s, loc.shape()), scale.shape());
}
Shape AffineTransform::inverse_shape(const Shape& s) const { return forward_shape(s); }

const char* CumulativeDistributionTransform::name() const {
  return "CumulativeDistributionTransform";
}
CumulativeDistributionTransform::CumulativeDistributionTransform(
    std::shared_ptr<const Distribution> d)
    : distribution(std::move(d)) {
  TD_CHECK(distribution != nullptr, Value,
           "CumulativeDistributionTransform: expected a distribution");
}
Tensor CumulativeDistributionTransform::operator()(const Tensor& x) const {
  return distribution->cdf(x);
}
Tensor CumulativeDistributionTransform::inv(const Tensor& y) const { return distribution->icdf(y); }
Tensor CumulativeDistributionTransform::log_abs_det_jacobian(const Tensor& x, const Tensor&) const {
  return distribution->log_prob(x);
}
Tensor CumulativeDistributionTransform::sign() const { return growing(); }

// ---- of vectors

const char* StickBreakingTransform::name() const { return "StickBreakingTransform"; }
namespace {
// log(n), log(n - 1), ... log(1): evens out the pieces for x = 0.
Tensor stick_offsets(const Tensor& x, int64_t n) {
  return log(flip(arange(n, x.dtype()) + 1.0, {0}));
}
}  // namespace
Tensor StickBreakingTransform::operator()(const Tensor& x) const {
  const Tensor z = clipped_sigmoid(x - stick_offsets(x, x.size(-1)));
  return pad(z, {0, 1}, "constant", 1.0) * pad(cumprod(1.0 - z, -1), {1, 0}, "constant", 1.0);
}
Tensor StickBreakingTransform::inv(const Tensor& y) const {
  const Tensor piece = last_but(y, 1);
  const Tensor left = clamp_min(1.0 - cumsum(piece, -1), tiny_of(y));
  return log(piece) - log(left) + stick_offsets(y, y.size(-1) - 1);
}
Tensor StickBreakingTransform::log_abs_det_jacobian(const Tensor& x, const Tensor& y) const {
  const Tensor moved = x - stick_offsets(x, x.size(-1));
  return sum(-moved + logsigmoid(moved) + log(last_but(y, 1)), {-1});
}
Shape StickBreakingTransform::forward_shape(const Shape& s) const {
  Shape out = front(s, 1);
  out.push_back(s.back() + Dim(1));
  return out;
}
Shape StickBreakingTransform::inverse_shape(const Shape& s) const {
  Shape out = front(s, 1);
  out.push_back(s.back() - Dim(1));
  return out;
}

const char* SoftmaxTransform::name() const { return "SoftmaxTransform"; }
Tensor SoftmaxTransform::operator()(const Tensor& x) const { return softmax(x, -1); }
Tensor SoftmaxTransform::inv(const Tensor& y) const { return log(y); }

// ---- of matrices

namespace {

// Flat positions of the elements below the diagonal of an [n, n] matrix.
Tensor below_diagonal(int64_t n) {
  const Tensor at = tril_indices(n, n, -1);
  return at[0] * n + at[1];
}
// The size n of a matrix with `count` elements below its diagonal.
int64_t side_of(int64_t count) {
  const auto n = static_cast<int64_t>((1 + std::sqrt(1 + 8 * static_cast<double>(count))) / 2);
  TD_CHECK(n * (n - 1) / 2 == count, Shape,
           "{} numbers are not the part of a matrix below its diagonal: expected n (n - 1) / 2",
           count);
  return n;
}
Tensor to_lower(const Tensor& x) {
  const int64_t n = side_of(x.size(-1));
  Shape flat = front(x.shape(), 1), square_shape = flat;
  flat.push_back(n * n);
  square_shape.push_back(n);
  square_shape.push_back(n);
  const Tensor zero = zeros(flat, x.dtype());
  return reshape(index_put(zero, {Ellipsis, below_diagonal(n)}, x), square_shape);
}
Tensor from_lower(const Tensor& y) {
  return index(flatten(y, -2, -1), {Ellipsis, below_diagonal(y.size(-1))});
}
Tensor moved_right(const Tensor& x) { return pad(last_but(x, 1), {1, 0}, "constant", 1.0); }

}  // namespace

const char* CorrCholeskyTransform::name() const { return "CorrCholeskyTransform"; }
Tensor CorrCholeskyTransform::operator()(const Tensor& x) const {
  const double e = epsilon_of(x);
  const Tensor r = to_lower(clamp(tanh(x), e - 1, 1 - e));
  const Tensor rest = cumprod(sqrt(1.0 - square(r)), -1);
  return (r + eye(r.size(-1), -1, x.dtype())) * moved_right(rest);
}
Tensor CorrCholeskyTransform::inv(const Tensor& y) const {
  const Tensor left = moved_right(1.0 - cumsum(square(y), -1));
  return atanh(from_lower(y) / sqrt(from_lower(left)));
}
Tensor CorrCholeskyTransform::log_abs_det_jacobian(const Tensor& x, const Tensor& y) const {
  // Of the products of square roots, then of tanh.
  const Tensor left = 1.0 - cumsum(square(y), -1);
  const int64_t n = y.size(-1);
  const Tensor inner = narrow(narrow(left, -2, 1, n - 1), -1, 0, n - 1);
  const Tensor below = index(flatten(inner, -2, -1), {Ellipsis, below_diagonal(n - 1)});
  const Tensor stick = 0.5 * sum(log(below), {-1});
  return stick - 2.0 * sum(x + soft(-2.0 * x) - std::log(2.0), {-1});
}
Shape CorrCholeskyTransform::forward_shape(const Shape& s) const {
  Shape out = front(s, 1);
  const int64_t n = side_of(s.back().value());
  out.push_back(n);
  out.push_back(n);
  return out;
}
Shape CorrCholeskyTransform::inverse_shape(const Shape& s) const {
  Shape out = front(s, 2);
  const int64_t n = s.back().value();
  out.push_back(n * (n - 1) / 2);
  return out;
}

namespace {
Tensor with_diagonal(const Tensor& x, const Tensor& d) { return tril(x, -1) + diag_embed(d); }
}  // namespace

const char* LowerCholeskyTransform::name() const { return "LowerCholeskyTransform"; }
Tensor LowerCholeskyTransform::operator()(const Tensor& x) const {
  return with_diagonal(x, exp(tandem::diagonal(x, 0, -2, -1)));
}
Tensor LowerCholeskyTransform::inv(const Tensor& y) const {
  return with_diagonal(y, log(tandem::diagonal(y, 0, -2, -1)));
}

const char* PositiveDefiniteTransform::name() const { return "PositiveDefiniteTransform"; }
Tensor PositiveDefiniteTransform::operator()(const Tensor& x) const {
  const Tensor root = LowerCholeskyTransform()(x);
  return matmul(root, root, MatmulAttrs{false, true});
}
Tensor PositiveDefiniteTransform::inv(const Tensor& y) const {
  return LowerCholeskyTransform().inv(linalg::cholesky(y));
}

}  // namespace tandem::distributions
