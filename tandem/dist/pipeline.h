// SPDX-License-Identifier: Apache-2.0
// Pipeline parallel (Huang et al. 2019, Narayanan et al. 2021): the ranks of a group each hold
// consecutive layers, and a batch passes through them in microbatches. Names are those of
// torch.distributed.pipelining.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "tandem/dist/process_group.h"
#include "tandem/nn/container.h"

namespace tandem::distributed {

/// A part of a net, which takes one tensor and gives one: number `index` of `count`, on rank index
/// % ranks. It must outlive the schedule.
struct PipelineStage {
  nn::Module* part = nullptr;
  int64_t index = 0, count = 1;
  PipelineStage(nn::Module& part, int64_t stage_index, int64_t num_stages)
      : part(&part), index(stage_index), count(num_stages) {}
};

enum class PipelineKind : uint8_t {
  gpipe,        ///< all forward passes, then all backward passes
  one_f_one_b,  ///< backward passes as early as possible: holds at most `ranks` microbatches
  interleaved,  ///< the same with several stages a rank: shorter pauses, more messages
};

/// One pass of one microbatch through one stage.
struct PipelineAction {
  bool forward = true;
  int64_t stage = 0, microbatch = 0;
  friend bool operator==(const PipelineAction&, const PipelineAction&) = default;
};
/// What that rank does in a step, in order. Throws Value where microbatches do not fit the kind:
/// interleaved needs a multiple of the ranks.
TD_API std::vector<PipelineAction> pipeline_actions(PipelineKind kind, int64_t rank, int64_t ranks,
                                                    int64_t stages_per_rank,
                                                    int64_t n_microbatches);

/// `Schedule1F1B schedule({part, rank, ranks}, 8, loss_fn); Tensor loss = schedule.step(x, y);`
///
/// step() leaves in the parameters the gradients of the mean of the microbatches' losses, added to
/// those that are there; they are summed in order of the microbatches, so that all kinds give the
/// same bits. Under DataParallel of another group, step() under no_sync() and reduce_gradients()
/// afterwards. All ranks of the group call step().
class TD_API PipelineSchedule {
 public:
  using Loss = std::function<Tensor(const Tensor& out, const Tensor& target)>;
  /// Throws Value where the stages are not those of this rank.
  PipelineSchedule(PipelineKind kind, std::vector<PipelineStage> stages, int64_t n_microbatches,
                   Loss loss, std::shared_ptr<Engine> group = world());

  /// One forward and backward pass of a batch, cut along the first dimension. The rank of the first
  /// stage gives x, that of the last one target; others may leave them out. Gives the mean loss, on
  /// all ranks. Throws Shape for a batch that does not divide into microbatches.
  Tensor step(const Tensor& x = {}, const Tensor& target = {});
  /// A forward pass without gradients: the result, on the rank of the last stage.
  Tensor eval(const Tensor& x = {});

  const std::vector<PipelineAction>& actions() const { return actions_; }
  /// The most microbatches whose activations this rank has held at once.
  int64_t most_held() const { return most_held_; }

 private:
  struct Held {
    Tensor in, out;
  };
  using Key = std::pair<int64_t, int64_t>;  ///< stage, microbatch
  struct Letter {
    int64_t forward = 0, stage = 0, microbatch = 0;
    Tensor value;
  };
  PipelineStage& stage_of(int64_t index);
  int rank_of(int64_t stage) const { return static_cast<int>(stage % group_->size()); }
  void check_batch(const Tensor& x, const char* what, bool wanted) const;
  Tensor microbatch(const Tensor& x, int64_t i) const;
  void forward(const PipelineAction& a, const Tensor& x, const Tensor& target);
  void backward(const PipelineAction& a);
  void send(bool forward, int64_t stage, int64_t microbatch, const Tensor& value);
  Tensor receive(bool forward, int64_t from_stage, int64_t stage, int64_t microbatch);
  Letter read_letter(int from);
  void begin();
  void end();

  std::vector<PipelineStage> stages_;
  int64_t microbatches_ = 1, count_ = 1;
  Loss loss_;
  std::shared_ptr<Engine> group_;
  std::vector<PipelineAction> actions_;
  std::map<Key, Held> held_;
  std::vector<Letter> early_;  ///< came before they were wanted
  std::vector<std::pair<Work, Tensor>> sent_;
  Tensor losses_;  ///< their sum, on the rank of the last stage
  int64_t most_held_ = 0;
  bool broken_ = false;  ///< a step has thrown: others may have sent what it did not read
};

struct ScheduleGPipe : PipelineSchedule {
  ScheduleGPipe(PipelineStage stage, int64_t n_microbatches, Loss loss,
                std::shared_ptr<Engine> group = world())
      : PipelineSchedule(PipelineKind::gpipe, {stage}, n_microbatches, std::move(loss),
                         std::move(group)) {}
};
struct Schedule1F1B : PipelineSchedule {
  Schedule1F1B(PipelineStage stage, int64_t n_microbatches, Loss loss,
               std::shared_ptr<Engine> group = world())
      : PipelineSchedule(PipelineKind::one_f_one_b, {stage}, n_microbatches, std::move(loss),
                         std::move(group)) {}
};
struct ScheduleInterleaved1F1B : PipelineSchedule {
  ScheduleInterleaved1F1B(std::vector<PipelineStage> stages, int64_t n_microbatches, Loss loss,
                          std::shared_ptr<Engine> group = world())
      : PipelineSchedule(PipelineKind::interleaved, std::move(stages), n_microbatches,
                         std::move(loss), std::move(group)) {}
};

/// Where to cut a chain of layers into `stages` parts so that the most expensive one costs least:
/// the first layer of each part. Throws Value for fewer layers than parts.
TD_API std::vector<int64_t> balanced_split(const std::vector<double>& costs, int64_t stages);
/// The same for the layers of a chain by the time that a forward and a backward pass take for this
/// input: rank 0's measurement, on all ranks of the group, which all call it. Gradients that the
/// net has are kept.
TD_API std::vector<int64_t> split_by_time(nn::Sequential& net, const Tensor& x, int64_t stages,
                                          const std::shared_ptr<Engine>& group = world());
/// The layers of a chain from split[stage] to split[stage + 1], which it shares with `net`.
TD_API nn::Sequential stage_of(const nn::Sequential& net, const std::vector<int64_t>& split,
                               int64_t stage);

}  // namespace tandem::distributed
