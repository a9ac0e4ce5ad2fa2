// SPDX-License-Identifier: Apache-2.0
// Printing of abstract values, for errors, graph dumps and symbolic tensors.
#include "tandem/graph/spec.h"

namespace tandem {

std::string Spec::to_string() const { return short_name(dtype) + shape.to_string(); }

}  // namespace tandem
