// SPDX-License-Identifier: Apache-2.0
// Printing of abstract values, for errors, graph dumps and symbolic tensors.
#include "tandem/graph/spec.h"

namespace tandem {

std::string Spec::to_string() const {
  static constexpr const char* kShort[kDTypeCount] = {
#define X(name, type, text) #name,
      TD_FOR_EACH_DTYPE(X)
#undef X
  };
  return kShort[static_cast<int>(dtype)] + shape.to_string();
}

}  // namespace tandem
