// SPDX-License-Identifier: Apache-2.0
// The methods of Tensor that compute: each is the public function of the same name on *this. Those
// of gradients are defined in the grad room.
#include "tandem/ops/index.h"
#include "tandem/ops/matmul.h"
#include "tandem/ops/pointwise.h"
#include "tandem/ops/reduce.h"
#include "tandem/ops/softmax.h"
#include "tandem/ops/view.h"

namespace tandem {

// ---- dtype, layout, views
Tensor Tensor::to(DType dtype, Where where) const {
  if (this->dtype() == dtype) return *this;
  CastAttrs a{dtype};
  return call(op::cast, &a, where, *this);
}
Tensor Tensor::contiguous(Where where) const { return tandem::contiguous(*this, where); }
Tensor Tensor::clone(Where where) const { return tandem::clone(*this, where); }
Tensor Tensor::reshape(Shape shape, Where where) const {
  return tandem::reshape(*this, shape, where);
}
Tensor Tensor::view(Shape shape, Where where) const { return tandem::reshape(*this, shape, where); }
Tensor Tensor::flatten(int64_t start, int64_t end, Where where) const {
  return tandem::flatten(*this, start, end, where);
}
Tensor Tensor::transpose(int64_t a, int64_t b, Where where) const {
  return tandem::transpose(*this, a, b, where);
}
Tensor Tensor::permute(IntList dims, Where where) const {
  return tandem::permute(*this, dims, where);
}
Tensor Tensor::t(Where where) const { return tandem::t(*this, where); }
Tensor Tensor::squeeze(Where where) const { return tandem::squeeze(*this, where); }
Tensor Tensor::squeeze(int64_t dim, Where where) const {
  return tandem::squeeze(*this, dim, where);
}
Tensor Tensor::unsqueeze(int64_t dim, Where where) const {
  return tandem::unsqueeze(*this, dim, where);
}
Tensor Tensor::expand(Shape shape, Where where) const {
  return tandem::expand(*this, shape, where);
}
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length, Where where) const {
  return tandem::narrow(*this, dim, start, length, where);
}
Tensor Tensor::select(int64_t dim, int64_t index, Where where) const {
  return tandem::select(*this, dim, index, where);
}
Tensor Tensor::slice(int64_t dim, int64_t start, int64_t end, int64_t step, Where where) const {
  return tandem::slice(*this, dim, start, end, step, where);
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim, Where where) const {
  return tandem::split(*this, size, dim, where);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim, Where where) const {
  return tandem::chunk(*this, chunks, dim, where);
}
std::vector<Tensor> Tensor::unbind(int64_t dim, Where where) const {
  return tandem::unbind(*this, dim, where);
}
Tensor Tensor::operator[](detail::Located<int64_t> i) const {
  return tandem::select(*this, 0, i.value, i.where);
}
Tensor Tensor::operator[](detail::Located<Slice> s) const {
  return tandem::slice(*this, 0, s.value.start, s.value.end, s.value.step, s.where);
}
Tensor Tensor::operator[](detail::Located<Tensor> index) const {
  return tandem::index(*this, index.value, index.where);
}

// ---- reductions
#define TD_REDUCTION(name)                                             \
  Tensor Tensor::name(IntList dims, bool keepdim, Where where) const { \
    return tandem::name(*this, dims, keepdim, where);                  \
  }
TD_REDUCTION(sum)
TD_REDUCTION(mean)
TD_REDUCTION(prod)
TD_REDUCTION(amax)
TD_REDUCTION(amin)
TD_REDUCTION(any)
TD_REDUCTION(all)
TD_REDUCTION(logsumexp)
#undef TD_REDUCTION
Tensor Tensor::max(Where where) const { return tandem::max(*this, where); }
Tensor Tensor::min(Where where) const { return tandem::min(*this, where); }
std::pair<Tensor, Tensor> Tensor::max(int64_t dim, bool keepdim, Where where) const {
  return tandem::max(*this, dim, keepdim, where);
}
std::pair<Tensor, Tensor> Tensor::min(int64_t dim, bool keepdim, Where where) const {
  return tandem::min(*this, dim, keepdim, where);
}
Tensor Tensor::argmax(Where where) const { return tandem::argmax(*this, where); }
Tensor Tensor::argmax(int64_t dim, bool keepdim, Where where) const {
  return tandem::argmax(*this, dim, keepdim, where);
}
Tensor Tensor::argmin(Where where) const { return tandem::argmin(*this, where); }
Tensor Tensor::argmin(int64_t dim, bool keepdim, Where where) const {
  return tandem::argmin(*this, dim, keepdim, where);
}
Tensor Tensor::var(IntList dims, int64_t correction, bool keepdim, Where where) const {
  return tandem::var(*this, dims, correction, keepdim, where);
}
Tensor Tensor::std(IntList dims, int64_t correction, bool keepdim, Where where) const {
  return tandem::sqrt(tandem::var(*this, dims, correction, keepdim, where), where);
}
Tensor Tensor::cumsum(int64_t dim, Where where) const { return tandem::cumsum(*this, dim, where); }
Tensor Tensor::cumprod(int64_t dim, Where where) const {
  return tandem::cumprod(*this, dim, where);
}
Tensor Tensor::softmax(int64_t dim, Where where) const {
  return tandem::softmax(*this, dim, {}, where);
}
Tensor Tensor::log_softmax(int64_t dim, Where where) const {
  return tandem::log_softmax(*this, dim, {}, where);
}

// ---- element by element
#define TD_UNARY(name) \
  Tensor Tensor::name(Where where) const { return tandem::name(*this, where); }
TD_UNARY(abs)
TD_UNARY(exp)
TD_UNARY(log)
TD_UNARY(sqrt)
TD_UNARY(rsqrt)
TD_UNARY(square)
TD_UNARY(sin)
TD_UNARY(cos)
TD_UNARY(tanh)
TD_UNARY(sigmoid)
TD_UNARY(relu)
#undef TD_UNARY
Tensor Tensor::pow(const Operand& exponent) const {
  const Where where = exponent.where();
  Operand e =
      exponent.is_scalar() ? Operand(exponent.scalar(), where) : Operand(exponent.tensor(), where);
  return tandem::pow(Operand(*this, where), std::move(e), where);
}
Tensor Tensor::clamp(Scalar lo, Scalar hi, Where where) const {
  return tandem::clamp(*this, Operand(lo, where), Operand(hi, where), where);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value, Where where) const {
  return tandem::masked_fill(*this, mask, Operand(value, where), where);
}

// ---- products and indices
Tensor Tensor::matmul(const Tensor& other, Where where) const {
  return tandem::matmul(*this, other, where);
}
Tensor Tensor::index_select(int64_t dim, const Tensor& index, Where where) const {
  return tandem::index_select(*this, dim, index, where);
}
Tensor Tensor::gather(int64_t dim, const Tensor& index, Where where) const {
  return tandem::gather(*this, dim, index, where);
}
Tensor Tensor::tril(int64_t diagonal, Where where) const {
  return tandem::tril(*this, diagonal, where);
}
Tensor Tensor::triu(int64_t diagonal, Where where) const {
  return tandem::triu(*this, diagonal, where);
}

}  // namespace tandem
