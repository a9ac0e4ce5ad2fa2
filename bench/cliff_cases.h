// SPDX-License-Identifier: Apache-2.0
// The cases of bench/cliffs: ops with parameters off the beaten path, each with PyTorch's spelling.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::bench {

/// One op with one set of parameters.
struct CliffCase {
  std::string name;
  /// Inputs separated by "|", each "shape [domain] [dtype] [layout]". Domains: any (-2..2), prob
  /// (0.05..0.95), gt1 (1.05..3), int:K (i64 0..K-1). dtype: f32 or bf16. layout: last
  /// (channels-last), turned (the last two dimensions are exchanged in memory). A float input is a
  /// variable of the gradient unless "constant" stands there.
  std::string inputs;
  std::string torch;  ///< an expression over x[0], x[1], ...
  std::function<Tensor(const std::vector<Tensor>&)> run;
};

/// The table of cases and, from the op table, element-wise rows and reductions.
std::vector<CliffCase> cliff_cases();

}  // namespace tandem::bench
