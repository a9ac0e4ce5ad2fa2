// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/join.h"

#include <exception>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/dist/reducer_internal.h"
#include "tandem/dist/sharded_params_internal.h"
#include "tandem/graph/trace.h"

namespace tandem::distributed {

Join::Join(DataParallel& model, std::function<void()> update, JoinOptions options)
    : model_(model),
      update_(std::move(update)),
      options_(options),
      errors_(std::uncaught_exceptions()) {
  TD_CHECK(update_, Value, "Join expects what the loop does after backward(), such as opt.step()");
  TD_CHECK(!model.join_, Unsupported, "a second Join of a model at a time");
  TD_CHECK(
      !model.sharded_ || !model.sharded_->frees(), Unsupported,
      "Join with Sharding::zero3, whose forward passes make calls of all ranks\nGive all ranks "
      "as many batches, or shard by zero2.");
  TD_CHECK(!model.options_.sync_batchnorm, Unsupported,
           "Join with sync_batchnorm, whose forward passes make calls of all ranks\nGive all ranks "
           "as many batches, or leave it out.");
  model.join_ = this;
}

Join::~Join() noexcept(false) {
  struct Leave {
    Join& j;
    explicit Leave(Join& of) : j(of) {}
    ~Leave() {
      j.model_.join_ = nullptr;
      j.model_.reducer_->set_divisor(j.model_.engine_->size());
    }
  } leave(*this);
  if (std::uncaught_exceptions() == errors_) finish();
}

// All ranks are in it: those that have a batch at the beginning of a forward pass, the others when
// they have ended.
Join::Round Join::meet(bool has_batch) {
  Engine& engine = *model_.engine_;
  const int64_t own[2] = {has_batch, has_batch && !model_.reducer_->is_paused()};
  std::vector<int64_t> all(2 * static_cast<size_t>(engine.size()));
  engine
      .all_gather({own, 2, DType::i64}, {all.data(), 2 * engine.size(), DType::i64},
                  {"who has a batch"})
      .wait();
  Round round{.buffers = first_, .reduces = false};
  for (int r = engine.size(); r-- > 0;) {
    if (all[2 * static_cast<size_t>(r)] == 0) continue;
    ++round.active;
    first_ = r;
    round.reduces |= all[2 * static_cast<size_t>(r) + 1] != 0;
  }
  if (round.active > 0 && !options_.divide_by_initial_world_size)
    model_.reducer_->set_divisor(round.active);
  // Those that have a batch read the parameters; the others take part in the calls of that.
  if (round.active > 0 && model_.sharded_) model_.sharded_->gather_all();
  if (options_.throw_on_early_termination && round.active > 0 && round.active < engine.size())
    for (int r = 0; r < engine.size(); ++r)
      TD_CHECK(all[2 * static_cast<size_t>(r)] != 0, Value,
               "rank {} has no more batches, and {} of {} ranks have\n"
               "JoinOptions::throw_on_early_termination says that all end here.",
               r, round.active, engine.size());
  return round;
}

int Join::open() {
  TD_CHECK(
      !is_tracing(), Unsupported,
      "a step of a Join in compile()\nCompile the net's own forward and the backward pass under "
      "no_sync(), with sync_buffers() before and reduce_gradients() after it.");
  return model_.engine_->size() == 1 ? 0 : meet(true).buffers;
}

// What the others' model() and backward() call, with nothing of this rank.
void Join::serve(const Round& round) {
  ++served_;
  if (model_.options_.broadcast_buffers) model_.spread_buffers(round.buffers);
  if (!round.reduces) return;
  Reducer& reducer = *model_.reducer_;
  reducer.clear_reduced();
  if (model_.sharded_)
    for (const Param& shard : model_.sharded_->shards()) shard.zero_grad();
  reducer.reduce_all(reducer.divisor_of_walks());
  update_();
}

void Join::finish() {
  if (std::exchange(finished_, true) || model_.engine_->size() == 1) return;
  for (Round round = meet(false); round.active > 0; round = meet(false)) serve(round);
  if (model_.options_.broadcast_buffers) model_.spread_buffers(first_);
}

}  // namespace tandem::distributed
