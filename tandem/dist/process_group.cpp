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

// A dense value of its own, to be written.
Tensor own_copy(const Tensor& x, const char* name) {
  TD_CHECK(x.defined() && !x.is_symbolic(), Unsupported,
           "{} wants a value\nInside compile() there is none: call it outside.", name);
  TD_CHECK(is_host(x.device()), Unsupported, "{} wants a tensor on the host: x.cpu()", name);
  return x.detach().clone().contiguous();
}
Array elements_of(const Tensor& x) { return {x.impl()->data, x.numel(), x.dtype()}; }

}  // namespace

void init_process_group(const EngineOptions& options) {
  World& w = the_world();
  std::lock_guard hold(w.lock);
  if (!w.engine) w.engine = tcp_engine(find_place(), options);
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

Tensor all_reduce(const Tensor& x, ReduceOp op) {
  Tensor y = own_copy(x, "all_reduce");
  if (get_world_size() > 1) world()->all_reduce(elements_of(y), op).wait();
  return y;
}

Tensor all_gather(const Tensor& x) {
  const Tensor in = own_copy(x, "all_gather");
  Tensor y = in.unsqueeze(0).clone();
  if (get_world_size() == 1) return y;
  y = cat(std::vector<Tensor>(static_cast<size_t>(get_world_size()), y), 0);
  world()->all_gather(elements_of(in), elements_of(y)).wait();
  return y;
}

Tensor broadcast(const Tensor& x, int root) {
  Tensor y = own_copy(x, "broadcast");
  if (get_world_size() > 1) world()->broadcast(elements_of(y), root).wait();
  return y;
}

void barrier() {
  if (get_world_size() > 1) world()->barrier().wait();
}

}  // namespace tandem::distributed
