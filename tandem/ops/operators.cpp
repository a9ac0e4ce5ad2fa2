// SPDX-License-Identifier: Apache-2.0
// The operators of Tensor. `/` is true division and `%` takes the sign of the divisor, as in
// PyTorch.
#include "tandem/ops/pointwise.h"

namespace tandem {

#define TD_BINARY(symbol, function)                     \
  Tensor operator symbol(Operand a, Operand b) {        \
    const Where where = a.where();                      \
    return function(std::move(a), std::move(b), where); \
  }
TD_BINARY(+, add)
TD_BINARY(-, sub)
TD_BINARY(*, mul)
TD_BINARY(/, div)
TD_BINARY(%, remainder)
TD_BINARY(==, eq)
TD_BINARY(!=, ne)
TD_BINARY(<, lt)
TD_BINARY(<=, le)
TD_BINARY(>, gt)
TD_BINARY(>=, ge)
TD_BINARY(&, bitwise_and)
TD_BINARY(|, bitwise_or)
TD_BINARY(^, bitwise_xor)
#undef TD_BINARY

Tensor operator-(Operand a) {
  const Where where = a.where();
  return neg(a.take(), where);
}
Tensor operator~(Operand a) {
  const Where where = a.where();
  return bitwise_not(a.take(), where);
}

// The old value goes in as a temporary, so that its buffer may be reused; apply() gives it back to
// the operand when it throws.
static Tensor& assign(const OpDef& row, Tensor& a, Operand b) {
  const Where where = b.where();
  Operand in[] = {b.refers_to(a) ? Operand(a, where) : Operand(std::move(a), where), std::move(b)};
  Tensor out;
  try {
    apply(row, nullptr, in, &out, where);
  } catch (...) {
    if (in[0].is_temporary()) a = std::move(in[0].owned());
    throw;
  }
  return a = std::move(out);
}
Tensor& operator+=(Tensor& a, Operand b) { return assign(op::add, a, std::move(b)); }
Tensor& operator-=(Tensor& a, Operand b) { return assign(op::sub, a, std::move(b)); }
Tensor& operator*=(Tensor& a, Operand b) { return assign(op::mul, a, std::move(b)); }
Tensor& operator/=(Tensor& a, Operand b) { return assign(op::div, a, std::move(b)); }

}  // namespace tandem
