// SPDX-License-Identifier: Apache-2.0
// Reducers of DataParallel: what watches the gradients of its net. BucketReducer: a gradient that
// is complete is copied to its place in a flat bucket; full buckets are reduced in order of their
// index, which is the same on all ranks, while the walk computes the rest. At the end the
// parameters' gradients are views of the buckets. (shard_reducer_internal.h has the one of sharded
// nets.)
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/dist/collectives_internal.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/dist/device_calls_internal.h"
#include "tandem/grad/grad_watch.h"

namespace tandem::distributed {

struct NamedParam {
  std::string name;
  Param param;
};

/// Where an element of a flat array lies.
inline char* byte_at(const Tensor& flat, int64_t element) {
  return static_cast<char*>(flat.impl()->data) +
         static_cast<size_t>(element) * size_of(flat.dtype());
}

class Reducer : public GradWatcher {
 public:
  /// Reduce what the slots hold now; sums are divided by `divisor`.
  void reduce_all(double divisor);
  /// While on, walks reduce nothing. Gives what it was.
  bool pause(bool on);
  bool is_paused() const { return pause_->on; }
  /// Sums of walks are divided by that, in place of the number of ranks.
  void set_divisor(double divisor) { walk_divisor_ = divisor; }
  double divisor_of_walks() const { return walk_divisor_; }
  /// Empty the gradients but those that were added while paused and not reduced yet.
  void clear_reduced();
  int64_t steps() const { return passes_->made; }
  const std::vector<NamedParam>& params() const { return params_; }

  void walk_begins(std::span<GradSlot* const> reached, bool create_graph) final;
  void gradient_ready(GradSlot& slot) final;
  void walk_ends(bool failed) final;

 protected:
  // ---- one pass: begin_pass(), give() for each parameter, end_pass(); in a trace they record it
  virtual void begin_pass() = 0;
  /// A parameter's gradient of this rank is known: `used` says whether this pass has added to it.
  virtual void give(size_t i, bool used) = 0;
  virtual void end_pass() = 0;

  Reducer(std::vector<NamedParam> params, std::shared_ptr<Engine> engine);
  bool paused() const;
  size_t index_of(const GradSlot& slot) const { return index_.at(&slot); }
  /// How a call of this pass is recorded in a trace.
  detail::RowCall traced_call(const std::string& label, bool ordered);
  /// Have walks tell this one of the parameters' gradients.
  void watch();

  std::vector<NamedParam> params_;
  std::shared_ptr<Engine> group_;
  Engine& engine_;            ///< the group's
  std::vector<char> given_;   ///< parameters: in this pass
  std::vector<char> unsent_;  ///< parameters: gradients were added while paused
  double divisor_ = 1;        ///< of this pass's sums
  double walk_divisor_ = 1;   ///< of those that walks begin

 private:
  void begin(double divisor);
  void end();
  /// A compiled program depends on it.
  struct Pause : RefCounted {
    bool on = false;
  };
  const std::shared_ptr<detail::PassCount> passes_ = std::make_shared<detail::PassCount>();
  bool opened_ = false;  ///< in a trace: a call of this pass counts it
  Ref<Pause> pause_ = make_ref<Pause>();
  bool paused_in_trace_ = false;  ///< by what is traced itself
  std::unordered_map<const GradSlot*, size_t> index_;
};

class BucketReducer final : public Reducer {
 public:
  BucketReducer(std::vector<NamedParam> params, const DataParallelOptions& options,
                std::shared_ptr<Engine> engine);
  ~BucketReducer() override;

  /// A line for each bucket: which parameters it holds.
  std::vector<std::string> plan() const;

 private:
  struct Place {
    size_t bucket = 0;
    int64_t offset = 0;  ///< of its first element
    int64_t flag = 0;    ///< of the element that says how many ranks have a gradient for it
  };
  struct Bucket {
    DType dtype = DType::f32;
    std::vector<size_t> params;
    int64_t elements = 0;
    size_t given = 0;
    Tensor flat;  ///< in a trace the value that is reduced
    Work work;
    std::vector<size_t> traced;  ///< the parameters in it, in a trace
  };
  void make_buckets(const DataParallelOptions& options);
  void close_bucket(Bucket& b);
  void begin_pass() override;
  void give(size_t i, bool used) override;
  void end_pass() override;
  void launch_full();
  void take_views(Bucket& b);
  Tensor gradients_of(const Bucket& b) const;
  void bring_to_host(Bucket& b);
  void start_on_device(Bucket& b);
  void take_from_device();
  bool by_device() const { return ranks_ != nullptr; }
  /// Do calls run beside the backward pass?
  bool overlaps() const { return is_host(device_) || by_device(); }
  void settle_device();
  void launch_traced(size_t k);
  void take_traced(Bucket& b);

  Device device_;                       ///< of the parameters
  std::shared_ptr<DeviceRanks> ranks_;  ///< where buckets stay on the device
  bool ordered_;                        ///< sums of shards: by the tree on every engine
  std::vector<char> used_;  ///< parameters: the trace, or the pass on a device, adds to them
  std::vector<Place> places_;
  std::vector<Bucket> buckets_;
  size_t next_ = 0;  ///< bucket that is reduced next
};

/// Give one rank's values of these cells to all ranks.
void broadcast_cells(Engine& engine, const std::vector<Cell*>& cells, const std::string& label,
                     int root = 0);

/// Rank 0's value of each cell goes to all, one after the other, so that a rank holds one whole
/// value at a time beside what `keep` (index in `cells`, value on the host) stores of it. Rank 0
/// computes deferred values and leaves them so. Makes no call where there is one rank.
void share_cells(Engine& engine, const std::vector<Cell*>& cells, const std::string& label,
                 const std::function<void(size_t, const Tensor&)>& keep);
/// What keeps all of it.
void store_shared(Cell& cell, const Tensor& whole);

/// An optimizer's state, of which deferred values stay so, and whether there are any.
std::pair<StateDict, bool> state_as_it_is(const optim::Optimizer& optimizer);

/// Compare lines that describe something, in order, over all ranks: throws Value naming the first
/// one that differs from rank 0's, and the rank; `advice` ends the text. The same error on all
/// ranks.
void compare_lines(Engine& engine, const std::vector<std::string>& lines, const char* what,
                   const char* advice);

}  // namespace tandem::distributed
