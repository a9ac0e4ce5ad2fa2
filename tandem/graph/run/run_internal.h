// SPDX-License-Identifier: Apache-2.0
// Rerunning a traced graph for a derivative: no effect is repeated, nothing is written, and the
// generator does not advance.
#pragma once

#include "tandem/graph/rng.h"
#include "tandem/graph/trace.h"

namespace tandem {

/// The state that the first run saw.
struct SeenBefore {
  const std::vector<Tensor>* captures = nullptr;  ///< nullptr: what was traced
  const std::vector<Tensor>* cells = nullptr;     ///< per cell; nullptr: as they are now
  const GeneratorState* generator = nullptr;      ///< nullptr: as it is now
  size_t outputs = SIZE_MAX;                      ///< compute only the first outputs
};

/// The outputs of `g`, connected to the inputs if gradients are on. Trailing inputs that the
/// requested outputs do not read may be missing.
std::vector<Tensor> run_again(const Graph& g, std::span<const Tensor> inputs,
                              const SeenBefore& seen = {});

namespace detail {
/// The generator's state; advances it by n draws. Throws as next_rng_key() does.
GeneratorState take_draws(uint64_t n);
}  // namespace detail

}  // namespace tandem
