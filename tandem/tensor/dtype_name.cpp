// SPDX-License-Identifier: Apache-2.0
#include "tandem/tensor/dtype_name.h"

#include "tandem/base/error.h"

namespace tandem {

DType dtype_named(std::string_view name) {
#define X(short_name, type, text) \
  if (name == #short_name || name == text) return DType::short_name;
  TD_FOR_EACH_DTYPE(X)
#undef X
  TD_FAIL(Value, "there is no dtype '{}'\nTry float32, float16 or bfloat16.", name);
}

}  // namespace tandem
