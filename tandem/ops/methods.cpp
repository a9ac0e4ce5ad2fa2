// SPDX-License-Identifier: Apache-2.0
// Tensor's computing methods: each is the public function of the same name on *this. The gradient
// methods are defined in the grad room.
#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/view.h"

namespace tandem {

// ---- dtype, layout, views
Tensor Tensor::to(DType dtype, SourceLocation loc) const {
  if (this->dtype() == dtype) return *this;
  CastAttrs a{dtype};
  return call(op::cast, &a, loc, *this);
}
Tensor Tensor::to(Device device, SourceLocation loc) const {
  return this->device() == device ? *this : move_to(*this, device, loc);
}
Tensor Tensor::cpu(SourceLocation loc) const { return to(tandem::cpu, loc); }
Tensor Tensor::contiguous(SourceLocation loc) const { return tandem::contiguous(*this, loc); }
Tensor Tensor::clone(SourceLocation loc) const { return tandem::clone(*this, loc); }
Tensor Tensor::reshape(Shape shape, SourceLocation loc) const {
  return tandem::reshape(*this, shape, loc);
}
Tensor Tensor::view(Shape shape, SourceLocation loc) const {
  return tandem::reshape(*this, shape, loc);
}
Tensor Tensor::flatten(int64_t start, int64_t end, SourceLocation loc) const {
  return tandem::flatten(*this, start, end, loc);
}
Tensor Tensor::transpose(int64_t a, int64_t b, SourceLocation loc) const {
  return tandem::transpose(*this, a, b, loc);
}
Tensor Tensor::permute(IntList dims, SourceLocation loc) const {
  return tandem::permute(*this, dims, loc);
}
Tensor Tensor::t(SourceLocation loc) const { return tandem::t(*this, loc); }
Tensor Tensor::squeeze(SourceLocation loc) const { return tandem::squeeze(*this, loc); }
Tensor Tensor::squeeze(int64_t dim, SourceLocation loc) const {
  return tandem::squeeze(*this, dim, loc);
}
Tensor Tensor::unsqueeze(int64_t dim, SourceLocation loc) const {
  return tandem::unsqueeze(*this, dim, loc);
}
Tensor Tensor::expand(Shape shape, SourceLocation loc) const {
  return tandem::expand(*this, shape, loc);
}
Tensor Tensor::narrow(int64_t dim, int64_t start, int64_t length, SourceLocation loc) const {
  return tandem::narrow(*this, dim, start, length, loc);
}
Tensor Tensor::select(int64_t dim, int64_t index, SourceLocation loc) const {
  return tandem::select(*this, dim, index, loc);
}
Tensor Tensor::slice(int64_t dim, int64_t start, int64_t end, int64_t step,
                     SourceLocation loc) const {
  return tandem::slice(*this, dim, start, end, step, loc);
}
std::vector<Tensor> Tensor::split(int64_t size, int64_t dim, SourceLocation loc) const {
  return tandem::split(*this, size, dim, loc);
}
std::vector<Tensor> Tensor::chunk(int64_t chunks, int64_t dim, SourceLocation loc) const {
  return tandem::chunk(*this, chunks, dim, loc);
}
std::vector<Tensor> Tensor::unbind(int64_t dim, SourceLocation loc) const {
  return tandem::unbind(*this, dim, loc);
}
Tensor Tensor::operator[](detail::Located<int64_t> i) const {
  return tandem::select(*this, 0, i.value, i.loc);
}
Tensor Tensor::operator[](detail::Located<Slice> s) const {
  return tandem::slice(*this, 0, s.value.start, s.value.end, s.value.step, s.loc);
}
Tensor Tensor::operator[](detail::Located<Tensor> index) const {
  return tandem::index(*this, index.value, index.loc);
}

// ---- reductions
#define TD_REDUCTION(name)                                                    \
  Tensor Tensor::name(IntList dims, bool keepdim, SourceLocation loc) const { \
    return tandem::name(*this, dims, keepdim, loc);                           \
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
Tensor Tensor::max(SourceLocation loc) const { return tandem::max(*this, loc); }
Tensor Tensor::min(SourceLocation loc) const { return tandem::min(*this, loc); }
std::pair<Tensor, Tensor> Tensor::max(int64_t dim, bool keepdim, SourceLocation loc) const {
  return tandem::max(*this, dim, keepdim, loc);
}
std::pair<Tensor, Tensor> Tensor::min(int64_t dim, bool keepdim, SourceLocation loc) const {
  return tandem::min(*this, dim, keepdim, loc);
}
Tensor Tensor::argmax(SourceLocation loc) const { return tandem::argmax(*this, loc); }
Tensor Tensor::argmax(int64_t dim, bool keepdim, SourceLocation loc) const {
  return tandem::argmax(*this, dim, keepdim, loc);
}
Tensor Tensor::argmin(SourceLocation loc) const { return tandem::argmin(*this, loc); }
Tensor Tensor::argmin(int64_t dim, bool keepdim, SourceLocation loc) const {
  return tandem::argmin(*this, dim, keepdim, loc);
}
Tensor Tensor::var(IntList dims, int64_t correction, bool keepdim, SourceLocation loc) const {
  return tandem::var(*this, dims, correction, keepdim, loc);
}
Tensor Tensor::std(IntList dims, int64_t correction, bool keepdim, SourceLocation loc) const {
  return tandem::std(*this, dims, correction, keepdim, loc);
}
Tensor Tensor::cumsum(int64_t dim, SourceLocation loc) const {
  return tandem::cumsum(*this, dim, loc);
}
Tensor Tensor::cumprod(int64_t dim, SourceLocation loc) const {
  return tandem::cumprod(*this, dim, loc);
}
Tensor Tensor::softmax(int64_t dim, SourceLocation loc) const {
  return tandem::softmax(*this, dim, {}, loc);
}
Tensor Tensor::log_softmax(int64_t dim, SourceLocation loc) const {
  return tandem::log_softmax(*this, dim, {}, loc);
}

// ---- elementwise
#define TD_UNARY(name) \
  Tensor Tensor::name(SourceLocation loc) const { return tandem::name(*this, loc); }
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
  const SourceLocation loc = exponent.loc();
  Operand e =
      exponent.is_scalar() ? Operand(exponent.scalar(), loc) : Operand(exponent.tensor(), loc);
  return tandem::pow(Operand(*this, loc), std::move(e), loc);
}
Tensor Tensor::clamp(Scalar lo, Scalar hi, SourceLocation loc) const {
  return tandem::clamp(*this, Operand(lo, loc), Operand(hi, loc), loc);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value, SourceLocation loc) const {
  return tandem::masked_fill(*this, mask, Operand(value, loc), loc);
}

// ---- matmuls and indices
Tensor Tensor::matmul(const Tensor& other, SourceLocation loc) const {
  return tandem::matmul(*this, other, loc);
}
Tensor Tensor::index_select(int64_t dim, const Tensor& index, SourceLocation loc) const {
  return tandem::index_select(*this, dim, index, loc);
}
Tensor Tensor::gather(int64_t dim, const Tensor& index, SourceLocation loc) const {
  return tandem::gather(*this, dim, index, loc);
}
Tensor Tensor::tril(int64_t diagonal, SourceLocation loc) const {
  return tandem::tril(*this, diagonal, loc);
}
Tensor Tensor::triu(int64_t diagonal, SourceLocation loc) const {
  return tandem::triu(*this, diagonal, loc);
}

}  // namespace tandem
