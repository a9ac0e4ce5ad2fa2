// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/shard_reducer_internal.h"

#include <cstring>

#include "tandem/base/copy_bytes.h"
#include "tandem/base/error.h"
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
  for (Bucket& b : buckets_) try {  // after an error: nobody may write to memory that is gone
      b.work.wait();
    } catch (...) {}
}

void ShardReducer::begin_pass() {
  TD_CHECK(!is_tracing(), Unsupported,
           "gradients of sharded parameters in compile()\nCompile the forward and backward pass "
           "under no_sync(), and call reduce_gradients() outside.");
  next_ = 0;
  users_ = zeros({static_cast<int64_t>(params_.size())});
  for (Bucket& b : buckets_) b.given = 0;
}

// As in BucketReducer; the gradient leaves its slot.
void ShardReducer::give(size_t i, bool used) {
  const ShardedParams::Place& p = sharded_.places()[i];
  const ShardedParams::Unit& u = sharded_.units()[p.unit];
  Bucket& b = buckets_[p.unit];
  if (b.given == 0) {
    if (!b.flat.defined()) b.flat = empty({u.elements}, u.dtype);
    std::memset(b.flat.impl()->data, 0, static_cast<size_t>(u.elements) * size_of(u.dtype));
  }
  Tensor g = params_[i].param.grad();
  if (g.defined()) {
    if (g.dtype() != u.dtype) g = g.to(u.dtype);
    if (!g.is_contiguous()) g = g.contiguous();
    copy_bytes(byte_at(b.flat, p.offset), g.impl()->data,
               static_cast<size_t>(g.numel()) * size_of(u.dtype));
    params_[i].param.zero_grad();
    if (used || unsent_[i]) users_.mutable_data<float>()[i] = 1;
  }
  given_[i] = 1;
  ++b.given;
  launch_full();
}

// In order of the units from the last one, which is the same on all ranks.
void ShardReducer::launch_full() {
  const auto& units = sharded_.units();
  for (; next_ < units.size(); ++next_) {
    const size_t k = units.size() - 1 - next_;
    const ShardedParams::Unit& u = units[k];
    Bucket& b = buckets_[k];
    if (b.given < u.params.size()) return;
    b.part = empty({u.part}, u.dtype);
    b.work = engine_.reduce_scatter({b.flat.impl()->data, u.elements, u.dtype},
                                    {b.part.impl()->data, u.part, u.dtype}, ReduceOp::sum,
                                    {.label = fmt::format("gradients of {}", u.name),
                                     .ordered = ordered_,
                                     .divisor = divisor_});
    sharded_.used_in_backward(k);
    // One whole gradient under way beside the one that is filled.
    if (sharded_.sharding() != Sharding::zero1 && k + 1 < units.size()) settle(buckets_[k + 1]);
  }
}

void ShardReducer::settle(Bucket& b) {
  b.work.wait();
  b.work = Work();
  if (sharded_.sharding() != Sharding::zero1) b.flat = Tensor();
}

void ShardReducer::end_pass() {
  engine_
      .all_reduce({users_.impl()->data, users_.numel(), users_.dtype()}, ReduceOp::sum,
                  {.label = "users of parameters"})
      .wait();
  const std::vector<float> users = users_.to_vector<float>();
  for (size_t k = buckets_.size(); k-- > 0;) {
    const ShardedParams::Unit& u = sharded_.units()[k];
    Bucket& b = buckets_[k];
    settle(b);
    for (const size_t i : u.params) {
      unsent_[i] = 0;
      if (users[i] == 0) continue;
      const ShardedParams::Place& p = sharded_.places()[i];
      const Tensor g = narrow(
          b.part, 0, p.begin < p.end ? p.offset + p.begin - sharded_.first(u) : 0, p.end - p.begin);
      const Tensor before = p.shard.grad();
      p.shard.set_grad(before.defined() ? before + g : g);
    }
    b.part = Tensor();
  }
  sharded_.end_step();
}

}  // namespace tandem::distributed
