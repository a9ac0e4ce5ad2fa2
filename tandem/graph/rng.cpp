// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/rng.h"

#include <mutex>

#include "tandem/base/philox.h"
#include "tandem/graph/run/run_internal.h"

namespace tandem {
namespace {

struct Generator {
  std::mutex lock;
  GeneratorState state;
};
Generator& generator() {
  static Generator* g = new Generator;
  return *g;
}

thread_local GeneratorState* t_own = nullptr;

}  // namespace

GeneratorGuard::GeneratorGuard(GeneratorState state) : state_(state), old_(t_own) {
  t_own = &state_;
}
GeneratorGuard::~GeneratorGuard() { t_own = old_; }

void manual_seed(uint64_t seed) { set_generator_state({seed, 0}); }

GeneratorState generator_state() {
  if (t_own) return *t_own;
  Generator& g = generator();
  std::lock_guard hold(g.lock);
  return g.state;
}

void set_generator_state(GeneratorState s) {
  if (t_own) {
    *t_own = s;
    return;
  }
  Generator& g = generator();
  std::lock_guard hold(g.lock);
  g.state = s;
}

namespace detail {

GeneratorState take_draws(uint64_t n) {
  GeneratorState own, *state = t_own;
  Generator& g = generator();
  std::unique_lock hold(g.lock, std::defer_lock);
  if (!state) {
    hold.lock();
    state = &g.state;
  }
  own = *state;
  TD_CHECK(own.offset + n <= (uint64_t{1} << 32), Value,
           "the generator has made 2^32 draws\nCall manual_seed() with a new seed.");
  state->offset += n;
  return own;
}

RngKey next_rng_key() {
  if (Trace* t = context().trace; t && !t->lazy) return {0, t->graph->rng_draws++};
  const GeneratorState s = take_draws(1);
  return {s.seed, static_cast<uint32_t>(s.offset)};
}

GeneratorState inner_generator(RngKey key, uint64_t step) {
  constexpr uint32_t kDraw = 0x696e6e72;  // no random op makes so many draws for one element
  return {philox(key.seed, key.offset, step, kDraw).word64(0), 0};
}

}  // namespace detail
}  // namespace tandem
