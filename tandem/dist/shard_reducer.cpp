// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/shard_reducer_internal.h"

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/gaps_internal.h"
#include "tandem/dist/reduce_internal.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {

ShardReducer::ShardReducer(std::vector<NamedParam> named, ShardedParams& params,
                           const DataParallelOptions& options, std::shared_ptr<Engine> engine)
    : Reducer(std::move(named), std::move(engine)),
      sharded_(params),
      ordered_(options.shards > 0),
      buckets_(params.units().size()) {
  watch();
}

ShardReducer::~ShardReducer() {
  unwatch_gradients(*this);
  for (Bucket& b : buckets_) b.call.settle();  // after an error: nobody may write to what is gone
}

void ShardReducer::begin_pass() {
  TD_CHECK(!is_tracing() || values_hidden(), Unsupported,
           "gradients of sharded parameters in a function that is compiled with Control::eager\n"
           "Leave it out, or reduce outside: no_sync() inside, reduce_gradients() after it.");
  TD_CHECK(!is_tracing() || !sharded_.offloads(), Unsupported,
           "gradients in a compiled function, and an optimizer on the host (offload_optimizer): a "
           "program runs on one device\nCompile forward and backward pass under no_sync(), and "
           "call reduce_gradients() and the optimizer's step() outside; or run the step op by op.");
  next_ = 0;
  if (!is_tracing()) users_ = zeros_flat(static_cast<int64_t>(params_.size()), DType::f32, cpu);
  used_.assign(params_.size(), 0);
  for (Bucket& b : buckets_) {
    b.given = 0;
    b.call.settle();  // of a pass that has thrown
    if (is_tracing()) b.flat = b.part = Tensor();
  }
}

// As in BucketReducer; the gradient leaves its slot.
void ShardReducer::give(size_t i, bool used) {
  const ShardedParams::Place& p = sharded_.places()[i];
  const ShardedParams::Unit& u = sharded_.units()[p.unit];
  Bucket& b = buckets_[p.unit];
  given_[i] = 1;
  ++b.given;
  if (is_tracing()) {
    used_[i] = params_[i].param.grad().defined();
    return launch_full();
  }
  if (b.given == 1) {
    if (!b.flat.defined()) b.flat = empty_flat(u.elements, u.dtype, sharded_.device());
    clear_flat(b.flat);
  }
  Tensor g = params_[i].param.grad();
  if (g.defined()) {
    if (g.dtype() != u.dtype) g = g.to(u.dtype);
    if (!g.is_contiguous()) g = g.contiguous();
    copy_into(b.flat, p.offset, g);
    params_[i].param.zero_grad();
    if (used || unsent_[i]) users_.mutable_data<float>()[i] = 1;
  }
  launch_full();
}

// In order of the units from the last one, which is the same on all ranks.
void ShardReducer::launch_full() {
  const auto& units = sharded_.units();
  for (; next_ < units.size(); ++next_) {
    const size_t k = units.size() - 1 - next_;
    if (buckets_[k].given < units[k].params.size()) return;
    is_tracing() ? launch_traced(k) : launch(k);
    // One whole gradient under way beside the one that is filled.
    if (!keeps_whole() && k + 1 < units.size())
      is_tracing() ? settle_traced(buckets_[k + 1]) : settle(buckets_[k + 1]);
  }
}

void ShardReducer::launch(size_t k) {
  const ShardedParams::Unit& u = sharded_.units()[k];
  Bucket& b = buckets_[k];
  b.call = sharded_.calls().sum(b.flat, fmt::format("gradients of {}", u.name), ordered_, divisor_);
  if (!keeps_whole()) b.flat = Tensor();  // the call has what it needs
  sharded_.used_in_backward(k);
}

void ShardReducer::settle(Bucket& b) {
  if (b.call.running()) b.part = b.call.wait();
}

void ShardReducer::end_pass() {
  const bool traced = is_tracing();
  std::vector<float> users(used_.begin(), used_.end());
  if (!traced) {
    engine_
        .all_reduce({users_.impl()->data, users_.numel(), users_.dtype()}, ReduceOp::sum,
                    {.label = "users of parameters"})
        .wait();
    users = users_.to_vector<float>();
  }
  const NoGradGuard no_grad;
  for (size_t k = buckets_.size(); k-- > 0;) {
    const ShardedParams::Unit& u = sharded_.units()[k];
    Bucket& b = buckets_[k];
    traced ? settle_traced(b) : settle(b);
    for (const size_t i : u.params) {
      unsent_[i] = 0;
      if (users[i] == 0) continue;
      const ShardedParams::Place& p = sharded_.places()[i];
      const Tensor g = narrow(
          b.part, 0, p.begin < p.end ? p.offset + p.begin - sharded_.first(u) : 0, p.end - p.begin);
      const Tensor before = p.shard.grad(), own = g.reshape(p.shard.shape());
      p.shard.set_grad(before.defined() ? before + own : own);
    }
    b.part = Tensor();
  }
  if (traced)
    sharded_.end_step_in(*cell_trace());
  else
    sharded_.end_step();
}

// ---- in a trace: the same calls, as rows of the program

// Which parameters have a gradient is the trace's, the same on all ranks: no numbers of users
// travel, and a unit without gradients does not either.
void ShardReducer::launch_traced(size_t k) {
  const ShardedParams::Unit& u = sharded_.units()[k];
  if (std::none_of(u.params.begin(), u.params.end(), [&](size_t i) { return used_[i] != 0; }))
    return;
  const NoGradGuard no_grad;
  Bucket& b = buckets_[k];
  b.flat = gradients_of(u);
  for (const size_t i : u.params) params_[i].param.zero_grad();
  detail::RowCall how = traced_call(fmt::format("gradients of {}", u.name), ordered_);
  if (!is_host(sharded_.device())) how.divisor = 1;  // the program divides
  b.part = detail::start_scatter_sum(b.flat, group_, how);
}

// Each in its place, zeros between them.
Tensor ShardReducer::gradients_of(const ShardedParams::Unit& u) const {
  const DeviceGuard there(sharded_.device());
  std::vector<Tensor> all;
  Gaps gaps([&](int64_t, int64_t n) { all.push_back(zeros({n}, u.dtype)); });
  for (const size_t i : u.params) {
    if (!used_[i]) continue;
    const ShardedParams::Place& p = sharded_.places()[i];
    gaps.piece(p.offset, p.numel);
    all.push_back(params_[i].param.grad().to(u.dtype).reshape({-1}));
  }
  gaps.until(u.elements);
  return all.size() == 1 ? all[0] : cat(all, 0);
}

void ShardReducer::settle_traced(Bucket& b) {
  if (!b.flat.defined()) return;
  const NoGradGuard no_grad;
  b.part = detail::wait_scatter_sum(b.part, b.flat, group_);
  if (!is_host(sharded_.device())) b.part = b.part / divisor_;
  b.flat = Tensor();
}

}  // namespace tandem::distributed
