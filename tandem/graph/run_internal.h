// SPDX-License-Identifier: Apache-2.0
// Running a traced graph a second time, for a derivative: no effect happens again, nothing is
// written, and the generator stays where it is.
#pragma once

#include "tandem/graph/rng.h"
#include "tandem/graph/trace.h"

namespace tandem {

/// What the first run saw.
struct SeenBefore {
  const std::vector<Tensor>* captures = nullptr;  ///< nullptr: what was traced
  const std::vector<Tensor>* cells = nullptr;     ///< per cell; nullptr: as they are now
  const GeneratorState* generator = nullptr;      ///< nullptr: as it is now
  size_t outputs = SIZE_MAX;                      ///< compute the first so many
};

/// The outputs of `g`, connected to the inputs where gradients are on. Inputs that the wanted
/// outputs do not read may be missing at the end.
std::vector<Tensor> run_again(const Graph& g, std::span<const Tensor> inputs,
                              const SeenBefore& seen = {});

namespace detail {
/// Where the generator stands; moves it by n draws. Throws as next_rng_key().
GeneratorState take_draws(uint64_t n);
}  // namespace detail

}  // namespace tandem
