// SPDX-License-Identifier: Apache-2.0
// The random generator: a seed and an offset that advances by one per random op in program order.
// Element e of a draw is philox(seed, {offset, draw, e}), so saving two integers saves it all.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {

struct GeneratorState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};
/// Set the default generator's seed and set its offset to 0.
TD_API void manual_seed(uint64_t seed);
TD_API GeneratorState generator_state();
TD_API void set_generator_state(GeneratorState s);

/// While it lives, random ops of this thread draw from `state` instead of the default generator:
/// what makes a loader's sample depend on (seed, epoch, sample) alone.
class TD_API GeneratorGuard {
 public:
  explicit GeneratorGuard(GeneratorState state);
  ~GeneratorGuard();
  GeneratorGuard(const GeneratorGuard&) = delete;
  GeneratorGuard& operator=(const GeneratorGuard&) = delete;

 private:
  GeneratorState state_;
  GeneratorState* old_;
};

namespace detail {
/// The key of the next random op: moves the offset by one; throws Value after 2^32 draws.
TD_API RngKey next_rng_key();
}  // namespace detail

}  // namespace tandem
