// SPDX-License-Identifier: Apache-2.0
// check_numerics: asserts that a tensor has no NaN or infinity, at the place where it is computed.
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

/// Returns `x` unchanged. Throws Value when it contains a NaN or an infinity, with `message`, the
/// number of each, the shape and the index of the first: at this line, and in a compiled function
/// each time it runs. Integers and bool pass.
TD_API Tensor check_numerics(const Tensor& x, const std::string& message = "",
                             SourceLocation loc = SourceLocation::here());

namespace op {
extern TD_API const OpDef check_numerics;
}  // namespace op

}  // namespace tandem
