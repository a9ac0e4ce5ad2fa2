// SPDX-License-Identifier: Apache-2.0
// The random generator: a seed and an offset that advances by one per random op in program order.
// Element e of a draw is philox(seed, {offset, draw, e}), so two integers are its entire state.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem {

struct GeneratorState {
  uint64_t seed = 0;
  uint64_t offset = 0;
};
/// Set the seed and reset the offset to 0: of the default generator, or of this thread's
/// GeneratorGuard if one is active. The same applies to the next two.
TD_API void manual_seed(uint64_t seed);
TD_API GeneratorState generator_state();
TD_API void set_generator_state(GeneratorState s);

/// While it lives, random ops of this thread draw from `state` instead of the default generator:
/// this makes a loader's sample depend only on (seed, epoch, sample).
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
/// The key of the next random op: advances the offset by one; throws Value after 2^32 draws.
TD_API RngKey next_rng_key();
/// The generator of step `step` inside the op with this key: the bodies of cond, while_loop and
/// scan draw from it, so the op itself advances the generator by one however often they run.
GeneratorState inner_generator(RngKey key, uint64_t step);
}  // namespace detail

}  // namespace tandem
