// SPDX-License-Identifier: Apache-2.0
// Tensor's computing methods: each is the public function of the same name on *this. Those of
// Param and Buffer are the methods of their values. The gradient methods are defined in the grad
// room.
#include "tandem/graph/cell.h"
#include "tandem/ops/ops.h"

namespace tandem {

// ---- from the list
#define TD_DEFINED(type, name, ...) type name,
#define TD_PASSED(type, name, ...) std::move(name),
#define TD_METHODS(R, name, parameters, arguments)                  \
  R Tensor::name(parameters SourceLocation loc) const {             \
    return tandem::name(*this, arguments loc);                      \
  }                                                                 \
  R detail::CellHandle::name(parameters SourceLocation loc) const { \
    return this->value().name(arguments loc);                       \
  }
#define METHOD0(R, name) TD_METHODS(R, name, , )
#define METHOD1(R, name, a) TD_METHODS(R, name, TD_DEFINED a, TD_PASSED a)
#define METHOD2(R, name, a, b) \
  TD_METHODS(R, name, TD_DEFINED a TD_DEFINED b, TD_PASSED a TD_PASSED b)
#define METHOD3(R, name, a, b, c) \
  TD_METHODS(R, name, TD_DEFINED a TD_DEFINED b TD_DEFINED c, TD_PASSED a TD_PASSED b TD_PASSED c)
#define METHOD4(R, name, a, b, c, d)                                       \
  TD_METHODS(R, name, TD_DEFINED a TD_DEFINED b TD_DEFINED c TD_DEFINED d, \
             TD_PASSED a TD_PASSED b TD_PASSED c TD_PASSED d)
#define METHOD5(R, name, a, b, c, d, e)                                                 \
  TD_METHODS(R, name, TD_DEFINED a TD_DEFINED b TD_DEFINED c TD_DEFINED d TD_DEFINED e, \
             TD_PASSED a TD_PASSED b TD_PASSED c TD_PASSED d TD_PASSED e)
#include "tandem/tensor/methods.def"
#undef TD_METHODS
#undef TD_DEFINED
#undef TD_PASSED

// ---- dtype and device
Tensor Tensor::to(DType dtype, SourceLocation loc) const {
  if (this->dtype() == dtype) return *this;
  CastAttrs a{dtype};
  return call(op::cast, &a, loc, *this);
}
Tensor Tensor::to(Device device, SourceLocation loc) const {
  return this->device() == device ? *this : move_to(*this, device, loc);
}
Tensor Tensor::cpu(SourceLocation loc) const { return to(tandem::cpu, loc); }

// ---- indices
Tensor Tensor::operator[](detail::Located<int64_t> i) const {
  return tandem::select(*this, 0, i.value, i.loc);
}
Tensor Tensor::operator[](detail::Located<Slice> s) const {
  return tandem::slice(*this, 0, s.value.start, s.value.end, s.value.step, s.loc);
}
Tensor Tensor::operator[](detail::Located<Tensor> index) const {
  return tandem::index(*this, index.value, index.loc);
}

// ---- other orders of arguments
Tensor Tensor::where(const Tensor& condition, Operand other, SourceLocation loc) const {
  return tandem::where(condition, *this, std::move(other), loc);
}
Tensor Tensor::polygamma(int64_t n, SourceLocation loc) const {
  return tandem::polygamma(n, *this, loc);
}
QrResult Tensor::qr(bool some, SourceLocation loc) const {
  return linalg::qr(*this, some ? "reduced" : "complete", loc);
}
HistogramResult Tensor::histogram(int64_t bins, const Tensor& weight, bool density,
                                  SourceLocation loc) const {
  return tandem::histogram(*this, bins, {}, weight, density, loc);
}
Tensor Tensor::new_tensor(const Tensor& data, std::optional<DType> dtype,
                          SourceLocation loc) const {
  return data.detach().to(dtype.value_or(this->dtype()), loc).clone(loc);
}
Tensor Tensor::new_zeros(Shape size, std::optional<DType> dtype, SourceLocation loc) const {
  return zeros(size, dtype.value_or(this->dtype()), loc);
}
Tensor Tensor::new_ones(Shape size, std::optional<DType> dtype, SourceLocation loc) const {
  return ones(size, dtype.value_or(this->dtype()), loc);
}
Tensor Tensor::new_empty(Shape size, std::optional<DType> dtype, SourceLocation loc) const {
  return empty(size, dtype.value_or(this->dtype()), loc);
}
Tensor Tensor::new_empty_strided(Shape size, IntList stride, std::optional<DType> dtype,
                                 SourceLocation loc) const {
  return empty_strided(size, stride, dtype.value_or(this->dtype()), loc);
}
Tensor Tensor::new_full(Shape size, Scalar value, std::optional<DType> dtype,
                        SourceLocation loc) const {
  return full(size, value, dtype.value_or(this->dtype()), loc);
}

}  // namespace tandem
