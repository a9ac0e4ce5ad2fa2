// SPDX-License-Identifier: Apache-2.0
// Transforms that hold others, and the choice of a transform for a constraint.
#include <algorithm>
#include <utility>

#include "tandem/distributions/distributions_internal.h"
#include "tandem/distributions/transforms.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::distributions {

namespace {

void check_parts(const char* name, const std::vector<TransformPtr>& parts) {
  for (const TransformPtr& p : parts)
    TD_CHECK(p != nullptr, Value, "{}: a transform is missing", name);
}
bool all_bijective(const std::vector<TransformPtr>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [](const TransformPtr& p) { return p->bijective(); });
}

// `from` in place of `to` at the end of a shape.
Shape exchanged(const Shape& s, const Shape& from, const Shape& to) {
  const int kept = s.rank() - from.rank();
  bool fits = kept >= 0;
  for (int i = 0; fits && i < from.rank(); ++i) fits = dims_equal(s[kept + i], from[i]);
  TD_CHECK(fits, Shape, "ReshapeTransform: {} does not end with {}", s.to_string(),
           from.to_string());
  Shape out;
  for (int i = 0; i < kept; ++i) out.push_back(s[i]);
  for (Dim d : to) out.push_back(d);
  return out;
}

}  // namespace

const char* ReshapeTransform::name() const { return "ReshapeTransform"; }
ReshapeTransform::ReshapeTransform(Shape in, Shape out) : in_shape(in), out_shape(out) {
  TD_CHECK(dims_equal(in.numel(), out.numel()), Shape,
           "ReshapeTransform: {} and {} hold different numbers of elements", in.to_string(),
           out.to_string());
}
Tensor ReshapeTransform::operator()(const Tensor& x) const {
  return reshape(x, forward_shape(x.shape()));
}
Tensor ReshapeTransform::inv(const Tensor& y) const { return reshape(y, inverse_shape(y.shape())); }
Tensor ReshapeTransform::log_abs_det_jacobian(const Tensor& x, const Tensor&) const {
  return zeros(exchanged(x.shape(), in_shape, Shape()), x.dtype());
}
Shape ReshapeTransform::forward_shape(const Shape& s) const {
  return exchanged(s, in_shape, out_shape);
}
Shape ReshapeTransform::inverse_shape(const Shape& s) const {
  return exchanged(s, out_shape, in_shape);
}

const char* ComposeTransform::name() const { return "ComposeTransform"; }
ComposeTransform::ComposeTransform(std::vector<TransformPtr> p) : parts(std::move(p)) {
  check_parts("ComposeTransform", parts);
}
Tensor ComposeTransform::operator()(const Tensor& x) const {
  Tensor y = x;
  for (const TransformPtr& p : parts) y = (*p)(y);
  return y;
}
Tensor ComposeTransform::inv(const Tensor& y) const {
  Tensor x = y;
  for (auto p = parts.rbegin(); p != parts.rend(); ++p) x = (*p)->inv(x);
  return x;
}
int ComposeTransform::domain_dims() const {
  if (parts.empty()) return 0;
  int dims = parts.back()->codomain_dims();
  for (auto p = parts.rbegin(); p != parts.rend(); ++p)
    dims = std::max(dims + (*p)->domain_dims() - (*p)->codomain_dims(), (*p)->domain_dims());
  return dims;
}
int ComposeTransform::codomain_dims() const {
  if (parts.empty()) return 0;
  int dims = parts.front()->domain_dims();
  for (const TransformPtr& p : parts)
    dims = std::max(dims + p->codomain_dims() - p->domain_dims(), p->codomain_dims());
  return dims;
}
bool ComposeTransform::bijective() const { return all_bijective(parts); }
Tensor ComposeTransform::log_abs_det_jacobian(const Tensor& x, const Tensor& y) const {
  if (parts.empty()) return zeros_like(x);
  Tensor total, from = x;
  int dims = domain_dims();
  for (size_t i = 0; i < parts.size(); ++i) {
    const Tensor to = i + 1 < parts.size() ? (*parts[i])(from) : y;
    const Tensor term =
        detail::sum_last(parts[i]->log_abs_det_jacobian(from, to), dims - parts[i]->domain_dims());
    total = total.defined() ? total + term : term;
    dims += parts[i]->codomain_dims() - parts[i]->domain_dims();
    from = to;
  }
  return total;
}
Tensor ComposeTransform::sign() const {
  Tensor s = full(Shape(), 1.0, DType::f32);
  for (const TransformPtr& p : parts) s = s * p->sign();
  return s;
}
Shape ComposeTransform::forward_shape(const Shape& s) const {
  Shape out = s;
  for (const TransformPtr& p : parts) out = p->forward_shape(out);
  return out;
}
Shape ComposeTransform::inverse_shape(const Shape& s) const {
  Shape out = s;
  for (auto p = parts.rbegin(); p != parts.rend(); ++p) out = (*p)->inverse_shape(out);
  return out;
}

const char* IndependentTransform::name() const { return "IndependentTransform"; }
IndependentTransform::IndependentTransform(TransformPtr b, int64_t n)
    : base(std::move(b)), reinterpreted_batch_ndims(n) {
  check_parts("IndependentTransform", {base});
  TD_CHECK(n >= 0, Value, "IndependentTransform: {} dimensions, expected 0 or more", n);
}
int IndependentTransform::domain_dims() const {
  return base->domain_dims() + static_cast<int>(reinterpreted_batch_ndims);
}
int IndependentTransform::codomain_dims() const {
  return base->codomain_dims() + static_cast<int>(reinterpreted_batch_ndims);
}
Tensor IndependentTransform::operator()(const Tensor& x) const { return (*base)(x); }
Tensor IndependentTransform::inv(const Tensor& y) const { return base->inv(y); }
Tensor IndependentTransform::log_abs_det_jacobian(const Tensor& x, const Tensor& y) const {
  return detail::sum_last(base->log_abs_det_jacobian(x, y), reinterpreted_batch_ndims);
}
Shape IndependentTransform::forward_shape(const Shape& s) const { return base->forward_shape(s); }
Shape IndependentTransform::inverse_shape(const Shape& s) const { return base->inverse_shape(s); }

const char* CatTransform::name() const { return "CatTransform"; }
CatTransform::CatTransform(std::vector<TransformPtr> t, int64_t d, std::vector<int64_t> l)
    : transforms(std::move(t)), dim(d), lengths(std::move(l)) {
  check_parts("CatTransform", transforms);
  if (lengths.empty()) lengths.assign(transforms.size(), 1);
  TD_CHECK(lengths.size() == transforms.size(), Value, "CatTransform: {} transforms, {} lengths",
           transforms.size(), lengths.size());
}
int CatTransform::domain_dims() const {
  int dims = 0;
  for (const TransformPtr& t : transforms) dims = std::max(dims, t->domain_dims());
  return dims;
}
bool CatTransform::bijective() const { return all_bijective(transforms); }
Tensor CatTransform::operator()(const Tensor& x) const {
  const std::vector<Tensor> pieces = split(x, lengths, dim);
  std::vector<Tensor> out;
  for (size_t i = 0; i < pieces.size(); ++i) out.push_back((*transforms[i])(pieces[i]));
  return cat(out, dim);
}
Tensor CatTransform::inv(const Tensor& y) const {
  const std::vector<Tensor> pieces = split(y, lengths, dim);
  std::vector<Tensor> out;
  for (size_t i = 0; i < pieces.size(); ++i) out.push_back(transforms[i]->inv(pieces[i]));
  return cat(out, dim);
}
Tensor CatTransform::log_abs_det_jacobian(const Tensor& x, const Tensor& y) const {
  const std::vector<Tensor> a = split(x, lengths, dim), b = split(y, lengths, dim);
  std::vector<Tensor> terms;
  for (size_t i = 0; i < a.size(); ++i)
    terms.push_back(detail::sum_last(transforms[i]->log_abs_det_jacobian(a[i], b[i]),
                                     domain_dims() - transforms[i]->domain_dims()));
  // Along a dimension of the event the terms add up.
  const int64_t at = normalize_dim(dim, x.dim()) - x.dim() + domain_dims();
  if (at < 0) return cat(terms, at);
  Tensor total = terms.at(0);
  for (size_t i = 1; i < terms.size(); ++i) total = total + terms[i];
  return total;
}

const char* StackTransform::name() const { return "StackTransform"; }
StackTransform::StackTransform(std::vector<TransformPtr> t, int64_t d)
    : transforms(std::move(t)), dim(d) {
  check_parts("StackTransform", transforms);
}
bool StackTransform::bijective() const { return all_bijective(transforms); }
namespace {
std::vector<Tensor> slices_for(const StackTransform& t, const Tensor& x) {
  TD_CHECK(x.size(t.dim) == static_cast<int64_t>(t.transforms.size()), Shape,
           "StackTransform: dimension {} of {} is not the number of transforms, {}", t.dim,
           x.shape().to_string(), t.transforms.size());
  return unbind(x, t.dim);
}
}  // namespace
Tensor StackTransform::operator()(const Tensor& x) const {
  std::vector<Tensor> out = slices_for(*this, x);
  for (size_t i = 0; i < out.size(); ++i) out[i] = (*transforms[i])(out[i]);
  return stack(out, dim);
}
Tensor StackTransform::inv(const Tensor& y) const {
  std::vector<Tensor> out = slices_for(*this, y);
  for (size_t i = 0; i < out.size(); ++i) out[i] = transforms[i]->inv(out[i]);
  return stack(out, dim);
}
Tensor StackTransform::log_abs_det_jacobian(const Tensor& x, const Tensor& y) const {
  const std::vector<Tensor> a = slices_for(*this, x), b = slices_for(*this, y);
  std::vector<Tensor> terms;
  for (size_t i = 0; i < a.size(); ++i)
    terms.push_back(transforms[i]->log_abs_det_jacobian(a[i], b[i]));
  return stack(terms, dim);
}

TransformPtr identity_transform() {
  return std::make_shared<ComposeTransform>(std::vector<TransformPtr>());
}

namespace {

TransformPtr then_affine(TransformPtr first, double loc, double scale) {
  return std::make_shared<ComposeTransform>(
      std::vector<TransformPtr>{std::move(first), std::make_shared<AffineTransform>(loc, scale)});
}

// What biject_to and transform_to have in common; null for the rest.
TransformPtr usual(const Constraint& c) {
  switch (c.kind) {
    case Constraint::Kind::real:
      return identity_transform();
    case Constraint::Kind::positive:
      return std::make_shared<ExpTransform>();
    case Constraint::Kind::greater_than:
      return then_affine(std::make_shared<ExpTransform>(), c.lower, 1);
    case Constraint::Kind::less_than:
      return then_affine(std::make_shared<ExpTransform>(), c.upper, -1);
    case Constraint::Kind::interval: {
      TransformPtr unit = std::make_shared<SigmoidTransform>();
      if (c.lower == 0 && c.upper == 1) return unit;
      return then_affine(std::move(unit), c.lower, c.upper - c.lower);
    }
    case Constraint::Kind::corr_cholesky:
      return std::make_shared<CorrCholeskyTransform>();
    default:
      return nullptr;
  }
}

}  // namespace

TransformPtr biject_to(const Constraint& c) {
  TransformPtr t = usual(c);
  if (!t && c.kind == Constraint::Kind::simplex) t = std::make_shared<StickBreakingTransform>();
  TD_CHECK(t != nullptr, Unsupported,
           "biject_to: there is no bijection to this constraint\nUse transform_to.");
  return t;
}
TransformPtr transform_to(const Constraint& c) {
  if (TransformPtr t = usual(c)) return t;
  if (c.kind == Constraint::Kind::simplex) return std::make_shared<SoftmaxTransform>();
  if (c.kind == Constraint::Kind::lower_cholesky) return std::make_shared<LowerCholeskyTransform>();
  return std::make_shared<PositiveDefiniteTransform>();
}

}  // namespace tandem::distributions
