// SPDX-License-Identifier: Apache-2.0
// Ranks with unequal numbers of batches: those that have no more take part in the steps of the
// others, as in PyTorch's join().
#pragma once

#include <functional>

#include "tandem/dist/data_parallel.h"

namespace tandem::distributed {

struct JoinOptions {
  /// Gradients are sums over the ranks that have a batch, divided by the number of all ranks;
  /// false: by the number of those that have one, so that a batch counts more where there are
  /// fewer.
  bool divide_by_initial_world_size = true;
  /// In place of going on without a rank that has no more batches, all ranks throw Value.
  bool throw_on_early_termination = false;
};

/// While it lives, ranks may make different numbers of steps:
///
///     Join join(model, [&] { opt.step(); });
///     for (auto [x, y] : own_batches) {
///       opt.zero_grad();
///       loss_of(model(x), y).backward();
///       opt.step();
///     }
///     join.finish();
///
/// `update` is what the loop does between two backward passes, on a rank whose loop has ended: it
/// is given the same gradients as the others, so parameters, moments and counts stay equal to the
/// bit, and buffers are those of the first rank that had a batch in the step before. Each
/// training pass through the model (or sync_buffers()) is followed by one backward pass, under
/// no_sync() or not, and the loop makes no other calls of all ranks. A step costs a small call
/// more. With one rank nothing happens.
class TD_API Join {
 public:
  /// All ranks make one. Sharded gradients and moments are parts as before; the parameters come
  /// at the beginning of a forward pass. Throws Unsupported for Sharding::zero3 and for
  /// sync_batchnorm, whose forward passes make calls, and for a second one at a time.
  explicit Join(DataParallel& model, std::function<void()> update, JoinOptions options = {});
  /// finish(), unless an error is on its way.
  ~Join() noexcept(false);
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  /// This rank has no more batches: take part in the others' steps until they have none either.
  /// Throws Io for a rank that is gone.
  void finish();
  /// Steps in which this rank had no batch.
  int64_t steps_without_batch() const { return served_; }

 private:
  friend class DataParallel;
  struct Round {
    int active = 0;       ///< ranks that have a batch
    int buffers = 0;      ///< the rank whose buffers count
    bool reduces = true;  ///< gradients are reduced after it
  };
  Round meet(bool has_batch);
  /// A forward pass begins. Gives the rank whose buffers count. Throws Unsupported in a trace.
  int open();
  void serve(const Round& round);

  DataParallel& model_;
  std::function<void()> update_;
  JoinOptions options_;
  int errors_;  ///< under way when this was made
  int64_t served_ = 0;
  int first_ = 0;  ///< the first rank that had a batch in the last round: its buffers count
  bool finished_ = false;
};

}  // namespace tandem::distributed
