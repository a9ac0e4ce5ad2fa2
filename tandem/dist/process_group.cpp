// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/process_group.h"

#include <mutex>

#include "tandem/base/error.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

struct World {
  std::mutex lock;
  std::shared_ptr<Engine> engine;
  ~World() {
    if (engine) engine->goodbye();
  }
};
// Destroyed at the end of the process, which says goodbye to the others.
World& the_world() {
  static World w;
  return w;
}

}  // namespace

void init_process_group(const EngineOptions& options) {
  World& w = the_world();
  std::lock_guard hold(w.lock);
  if (!w.engine) w.engine = make_engine(find_place(), options);
}

void destroy_process_group() {
  World& w = the_world();
  std::lock_guard hold(w.lock);
  w.engine.reset();
}

bool is_initialized() {
  World& w = the_world();
  std::lock_guard hold(w.lock);
  return w.engine != nullptr;
}

const std::shared_ptr<Engine>& world() {
  init_process_group();
  return the_world().engine;
}

int get_rank() { return is_initialized() ? world()->rank() : 0; }
int get_world_size() { return is_initialized() ? world()->size() : 1; }

void barrier() {
  if (world()->size() > 1) world()->barrier().wait();
}

}  // namespace tandem::distributed
