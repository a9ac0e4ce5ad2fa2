// SPDX-License-Identifier: Apache-2.0
// Data parallel training: every rank holds the whole net and sees its own part of each batch;
// backward() leaves the mean of the ranks' gradients in the parameters, so that every rank makes
// the same step.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/dist/process_group.h"
#include "tandem/nn/module.h"
#include "tandem/optim/optimizer.h"

namespace tandem::distributed {

/// What is sharded over the ranks, each holding a part: ZeRO (Rajbhandari et al. 2020). In
/// PyTorch's words, ZeroRedundancyOptimizer and FullyShardedDataParallel.
enum class Sharding : uint8_t {
  none,
  zero1,  ///< the optimizer's state
  zero2,  ///< and the gradients
  zero3,  ///< and the parameters, gathered when they are read and dropped after use
};

struct DataParallelOptions {
  /// Give rank 0's buffers (running statistics) to all before each forward pass in training mode.
  bool broadcast_buffers = true;
  /// Gradients are reduced in buckets of about this size, the first one smaller so that work begins
  /// early. 0: a twelfth of all gradients, between 0.5 and 25: what is exchanged after the backward
  /// pass, the last bucket, is a small part.
  double bucket_cap_mb = 0, first_bucket_mb = 1;
  /// Virtual shards: how many parts of a whole batch sharded_backward() computes by themselves; a
  /// power of two, a multiple of the ranks. 0: one for each rank.
  int64_t shards = 0;
  /// Batch norms use the statistics of all ranks' samples (PyTorch's SyncBatchNorm), whose numbers
  /// may differ. Not with shards, which are batches of their own.
  bool sync_batchnorm = false;
  /// The optimizer takes DataParallel::parameters(); its updates must be elementwise. A unit of
  /// parameters that come and go together is the largest module of at most bucket_cap_mb (0: 25).
  Sharding sharding = Sharding::none;
  /// Patterns for names of parameters that are left alone (nn::name_matches()): experts of which
  /// each rank has others. Not with sharding.
  std::vector<std::string> ignored = {};
  /// For a net on a device: the optimizer's state, its updates and a copy of the parameters stay on
  /// the host. Gradients come there, are applied by its kernels, and the new values go back when
  /// they are read. The optimizer takes DataParallel::parameters(). On several ranks each updates
  /// its part, as with Sharding::zero1 where no other one is set. On the host it changes nothing.
  bool offload_optimizer = false;
};

class Join;
class Reducer;
class ShardedParams;

/// `distributed::DataParallel model(net); cross_entropy(model(x), y).backward(); opt.step();`
///
/// The constructor compares names, shapes and dtypes of all ranks and gives rank 0's parameters and
/// buffers to all. backward() then reduces gradients in buckets, in the same order on all ranks,
/// while it computes the rest; the gradients that it leaves are views of the buckets. Parameters
/// that no rank used keep what they had. In compile() the reductions are part of the program: what
/// its backward() reaches is reduced in the same buckets. With one rank nothing of this happens and
/// no collective call is made.
class TD_API DataParallel {
 public:
  /// `net` must outlive this, and keep its parameters. Throws Value naming the first parameter and
  /// rank that differ, Unsupported for parameters on several devices. All ranks call it.
  explicit DataParallel(nn::Module& net, DataParallelOptions options = {},
                        std::shared_ptr<Engine> engine = world());
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// What an optimizer updates: the net's parameters, or this rank's part of each, flat, with the
  /// parameter's name, or the copies on the host of one rank that offloads.
  std::vector<Param> parameters() const;
  /// Gradient clipping by the norm over all ranks' parts; gives the norm before. All ranks call it.
  Tensor clip_grad_norm_(double max_norm, double norm_type = 2.0,
                         SourceLocation loc = SourceLocation::here());
  /// For GradScaler::set_max_over_ranks(), as each rank has gradients of its parts only; empty
  /// where it has all.
  std::function<Tensor(const Tensor&)> max_over_ranks() const;
  /// The norm that it gives, without a change.
  Tensor get_total_norm(double norm_type = 2.0, SourceLocation loc = SourceLocation::here());

  // ---- whole states, those of a net that is not sharded; all ranks call these
  /// The net's; another may be loaded by its own load_state_dict(), on all ranks.
  StateDict state_dict();
  /// That of an optimizer over parameters(), and loading one that was saved on any number of ranks.
  StateDict optim_state_dict(const optim::Optimizer& optimizer);
  void load_optim_state_dict(optim::Optimizer& optimizer, const StateDict& whole);
  /// What of it belongs to this rank.
  StateDict parts_of_optim_state(const optim::Optimizer& optimizer, const StateDict& whole) const;
  /// The entries of state_dict() and optim_state_dict(), one after the other: a unit of parameters
  /// is gathered, seen and dropped, so no rank holds all of them at a time. Every rank sees all,
  /// and must: `see` may not throw, as the other ranks wait.
  using SeeWhole = std::function<void(const std::string& name, const Tensor& whole)>;
  void each_state(const SeeWhole& see);
  void each_optim_state(const optim::Optimizer& optimizer, const SeeWhole& see);
  /// Have this optimizer over the net's parameters update parameters() instead, with the state that
  /// it has; back again. Throws Unsupported where its updates are not elementwise.
  void shard_optimizer(optim::Optimizer& optimizer);
  void unshard_optimizer(optim::Optimizer& optimizer);
  // ---- checkpoints that no rank holds as a whole; all ranks call these
  /// Each rank writes a safetensors file with its parts of the net and of an optimizer over
  /// parameters() into the folder; rank 0 its buffers and counts, and "index.json" once all files
  /// are written.
  void save_sharded(const std::string& folder, const optim::Optimizer& optimizer);
  /// Load what any number of ranks has saved. Throws Io and Format for what is not a checkpoint,
  /// Value for one of another net; nothing has changed then.
  void load_sharded(const std::string& folder, optim::Optimizer& optimizer);

  /// Have all parameters here until reshard() or the next step: reading them makes no call then.
  void unshard();
  void reshard();
  /// Is that so now?
  bool unsharded() const;
  /// Leave whole values in the net for good; no step may follow.
  void restore();

  /// The net's result. A net whose forward takes something else is called by itself, after
  /// sync_buffers().
  Tensor operator()(Tensor x, SourceLocation loc = SourceLocation::here());
  /// Rank 0's buffers to all ranks. Parameters that were gathered before the optimizer's last step
  /// are dropped.
  void sync_buffers();
  nn::Module& module() const { return net_; }
  Engine& engine() const { return *engine_; }

  /// While it lives, backward() adds to this rank's gradients and nothing is reduced: for all but
  /// the last of the backward passes of an update. `const auto hold = model.no_sync();`
  class TD_API NoSync {
   public:
    explicit NoSync(Reducer& r);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Reducer& reducer_;
    bool before_;
  };
  NoSync no_sync();

  /// Reduce the gradients that are there: after a compiled function that has computed them under
  /// no_sync().
  void reduce_gradients();

  /// Gradients with the same bits at 1, 2, 4 ... `shards` ranks. `rows` is the size of this rank's
  /// part of the batch, in order of the ranks (rank 0 has the first rows of the whole batch);
  /// `loss(begin, end)` gives the mean loss of its rows [begin, end). Every shard is computed by
  /// itself, with random numbers of its own and the buffers as they were before; the shards'
  /// gradients, losses and buffers are added up by a tree that is the same at every number of
  /// ranks. Gives the mean loss of the whole batch. Throws Value where ranks, shards and rows do
  /// not fit.
  Tensor sharded_backward(int64_t rows, const std::function<Tensor(int64_t, int64_t)>& loss);

  /// Backward passes that were reduced.
  int64_t steps() const;

 private:
  friend class Join;
  int64_t shards() const { return options_.shards > 0 ? options_.shards : engine_->size(); }
  void check_shards(int64_t rows) const;
  std::vector<Tensor> add_shards(int64_t rows, const std::function<Tensor(int64_t, int64_t)>& loss);
  Tensor mean_of_shards(const Tensor& sum, const char* label);
  void spread_buffers(int root);

  nn::Module& net_;
  DataParallelOptions options_;
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<ShardedParams> sharded_;  ///< null: not sharded
  std::unique_ptr<Reducer> reducer_;
  bool in_shard_ = false;
  Join* join_ = nullptr;  ///< that is told of each forward pass
};

}  // namespace tandem::distributed
