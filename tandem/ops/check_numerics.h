// SPDX-License-Identifier: Apache-2.0
// check_numerics: a tensor that must hold no NaN and no infinity, named where it is made.
#pragma once

#include <string>

#include "tandem/graph/op_def.h"
#include "tandem/tensor/tensor.h"

namespace tandem {

struct CheckNumericsAttrs {
  std::string message;
  template <class V>
  void fields(V& v) {
    v("message", message);
  }
};

/// `x` as it is. Throws Value when it holds a NaN or an infinity, with `message`, how many there
/// are of each, the shape and the index of the first: at this line, and in a compiled function each
/// time it runs. Integers and bool pass.
TD_API Tensor check_numerics(const Tensor& x, const std::string& message = "",
                             Where where = Where::here());

namespace op {
extern TD_API const OpDef check_numerics;
}  // namespace op

}  // namespace tandem
