// SPDX-License-Identifier: Apache-2.0
// The check of a compiled function (TANDEM_CHECK_COMPILE=1, CompileOptions::check): the same C++
// once more, op by op, with all it would write held back; what the program gave is compared.
#pragma once

#include "tandem/compile/run/specialisation.h"

namespace tandem::detail {

class EagerTwin {
 public:
  /// Runs fn; cells, gradients and the generator stay as they are. Throws what fn throws.
  EagerTwin(const CallParts& args, CompiledCore::Body body);
  /// Throws Value when the results, cells or gradients of the program differ by more than rounding.
  void compare(std::span<const Tensor> results, const std::string& name, SourceLocation loc) const;

 private:
  std::vector<Tensor> results_;
  std::vector<std::pair<Ref<Cell>, Tensor>> cells_;
  std::vector<std::pair<Ref<GradSlot>, Tensor>> grads_;
};

}  // namespace tandem::detail
