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

}  // namespace tandem
