// SPDX-License-Identifier: Apache-2.0
// The operators of Tensor. `/` is true division and `%` takes the sign of the divisor, as in
// PyTorch.
#include "tandem/ops/pointwise/pointwise.h"

namespace tandem {

#define TD_BINARY(symbol, function)                   \
  Tensor operator symbol(Operand a, Operand b) {      \
    const SourceLocation loc = a.loc();               \
    return function(std::move(a), std::move(b), loc); \
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
  const SourceLocation loc = a.loc();
  return neg(a.take(), loc);
}
Tensor operator~(Operand a) {
  const SourceLocation loc = a.loc();
  return bitwise_not(a.take(), loc);
}

// The old value is passed as a temporary, so that its buffer may be reused; apply() restores the
// operand if it throws.
static Tensor& assign(const OpDef& row, Tensor& a, Operand b) {
  const SourceLocation loc = b.loc();
  Operand in[] = {b.refers_to(a) ? Operand(a, loc) : Operand(std::move(a), loc), std::move(b)};
  Tensor out;
  try {
    apply(row, nullptr, in, &out, loc);
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
