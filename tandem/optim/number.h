// SPDX-License-Identifier: Apache-2.0
// Number: a factor of an update, a double in eager and a 0-d f64 tensor in a trace. Both go through
// the same functions, so that an eager and a traced step have equal bits.
#pragma once

#include <cmath>

#include "tandem/base/math_prelude.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/pointwise/pointwise.h"

namespace tandem::optim {

class Number {
 public:
  Number(double v = 0) : v_(v) {}
  explicit Number(Tensor t) : t_(std::move(t)) {}
  bool is_tensor() const { return t_.defined(); }
  double value() const { return v_; }
  Operand operand() const {
    if (t_.defined()) return Operand(Tensor(t_));  // of its own: this may be a temporary
    return Operand(v_);
  }
  /// As an f64 tensor.
  Tensor tensor() const { return t_; }

 private:
  Tensor t_;
  double v_ = 0;
};

inline bool plain(const Number& a) { return !a.is_tensor(); }
#define TD_NUMBER_OPERATOR(symbol)                                       \
  inline Number operator symbol(const Number& a, const Number& b) {      \
    if (plain(a) && plain(b)) return Number(a.value() symbol b.value()); \
    return Number(a.operand() symbol b.operand());                       \
  }
TD_NUMBER_OPERATOR(+)
TD_NUMBER_OPERATOR(-)
TD_NUMBER_OPERATOR(*)
TD_NUMBER_OPERATOR(/)
#undef TD_NUMBER_OPERATOR
inline Number pow(const Number& a, const Number& b) {
  if (plain(a) && plain(b)) return tdm_pow(a.value(), b.value());
  return Number(tandem::pow(a.operand(), b.operand()));
}
inline Number sqrt(const Number& a) {
  if (plain(a)) return std::sqrt(a.value());
  return Number(tandem::sqrt(a.tensor()));
}
inline Number max(const Number& a, const Number& b) {
  if (plain(a) && plain(b)) return a.value() < b.value() ? b : a;
  return Number(tandem::maximum(a.operand(), b.operand()));
}
inline Number min(const Number& a, const Number& b) {
  if (plain(a) && plain(b)) return b.value() < a.value() ? b : a;
  return Number(tandem::minimum(a.operand(), b.operand()));
}
/// a > b ? yes : no
inline Number if_above(const Number& a, const Number& b, const Number& yes, const Number& no) {
  if (plain(a) && plain(b) && plain(yes) && plain(no)) return a.value() > b.value() ? yes : no;
  return Number(tandem::where(a.operand() > b.operand(), yes.operand(), no.operand()));
}
/// A 0-d result as a factor: read in eager, f64 in a trace.
TD_API Number read(const Tensor& t);
/// The Euclidean norm of all elements.
TD_API Number length(const Tensor& t);
inline double flag_of(bool b) { return b ? 1 : 0; }
/// Rounded to f32, as PyTorch keeps some factors.
inline Number as_f32(const Number& a) {
  if (plain(a)) return static_cast<double>(static_cast<float>(a.value()));
  return Number(a.tensor().to(DType::f32).to(DType::f64));
}

}  // namespace tandem::optim
