// SPDX-License-Identifier: Apache-2.0
// What the files of the Trainer share: trainer.cpp (the loop), step.cpp (one step,
// validation, prediction, searches), state.cpp (saving, resuming, averages).
#pragma once

#include "tandem/base/clock.h"
#include "tandem/dist/data_parallel.h"
#include "tandem/dist/model_parallel.h"
#include "tandem/runs/pressure.h"
#include "tandem/runs/progress.h"
#include "tandem/runs/resources.h"
#include "tandem/runs/run_folder.h"
#include "tandem/train/trainer.h"

namespace tandem::train {

inline double batch_rows(const Batch& b) {
  return b.empty() || b[0].dim() == 0 ? 1.0 : static_cast<double>(b[0].size(0));
}
/// What `precision` means for the forward pass.
inline AutocastGuard autocast_of(const TrainerOptions& o) {
  return AutocastGuard(o.precision == TrainPrecision::fp16 ? DType::f16 : DType::bf16,
                       o.precision != TrainPrecision::fp32);
}
/// Where an optimizer's first parameter is.
inline Device device_of(const optim::Optimizer& optimizer) {
  return optimizer.params().empty() ? cpu : optimizer.params().front().cell()->spec().device;
}
inline Batch batch_on(Device device, Batch batch) {
  for (Tensor& t : batch)
    if (t.defined() && t.device() != device) t = t.to(device);
  return batch;
}

/// Evaluation mode while it lives.
struct EvalMode {
  nn::Module& model;
  bool before;
  explicit EvalMode(nn::Module& m) : model(m), before(m.is_training()) { model.eval(); }
  ~EvalMode() { model.train(before); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;
};

/// The averages in the model while it lives, where there are any.
struct AveragedWeights {
  optim::WeightAverage* average;
  explicit AveragedWeights(optim::WeightAverage* a)
      : average(a && !a->swapped() && a->count() > 0 ? a : nullptr) {
    if (average) average->swap();
  }
  ~AveragedWeights() {
    if (average) average->swap();
  }
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;
};

/// What a step leaves, in training and in evaluation.
struct Trainer::StepResult {
  Tensor loss = {}, norm = {}, output = {}, target = {}, prediction = {};
  Figures figures = {};
  int64_t losses = 0;  ///< this many first figures are losses of optimizers
  template <class V>
  void fields(V& v) {
    v("loss", loss);
    v("norm", norm);
    v("output", output);
    v("target", target);
    v("prediction", prediction);
    v("figures", figures);
    v("losses", losses);
  }
};

/// The compiled forms of the step; recompiled by themselves when shapes change.
struct Trainer::Compiled {
  using Train = std::function<StepResult(const Batch&, bool first, bool last, int64_t due)>;
  using Eval = std::function<StepResult(const Batch&)>;
  using Update = std::function<Tensor(Tensor loss)>;
  Train train;
  Eval eval;
  Update update;  ///< of gradients that ranks have reduced; gives their norm
};

/// A run on several ranks: this one's part in it.
struct Trainer::Ranks {
  std::unique_ptr<distributed::ModelParallel> spread;  ///< where the net's layers are
  distributed::DataParallel model;  ///< over the ranks that hold the same and have other samples
  std::optional<data::AnyPipeline> whole;  ///< the data, not this rank's part of it
  bool stop = false, late = false;         ///< what the ranks have agreed on in the last step
  /// Backward passes are this rank's alone, such as those of callbacks that look at gradients.
  struct Quiet {
    distributed::DataParallel::NoSync hold;
    explicit Quiet(distributed::DataParallel& m) : hold(m.no_sync()) {}
  };
  std::optional<Quiet> quiet;
  Ranks(nn::Module& net, const TrainerOptions& o);
  static distributed::Sharding sharding_of(TrainStrategy s) {
    using distributed::Sharding;
    return s == TrainStrategy::zero1   ? Sharding::zero1
           : s == TrainStrategy::zero2 ? Sharding::zero2
           : s == TrainStrategy::fsdp  ? Sharding::zero3
                                       : Sharding::none;
  }
  bool staged() const { return spread && spread->staged(); }
  /// Where the net is, while its optimizer works on the host; nothing where both are in one place.
  std::optional<Device> offloaded;
  // ---- of all ranks
  distributed::Engine& engine() const { return *distributed::world(); }
  int64_t rank() const { return engine().rank(); }
  int64_t size() const { return engine().size(); }
  // ---- of those that have parts of a batch
  int64_t part() const { return model.engine().rank(); }
  int64_t parts() const { return model.engine().size(); }
  /// Does this rank count what its part of a batch gave, or another one that has the same?
  bool counts() const { return !spread || spread->counts(); }
  // ---- whole parameters, where ranks hold parts of them
  bool unsharded() const { return spread ? spread->unsharded() : model.unsharded(); }
  void unshard() { spread ? spread->unshard() : model.unshard(); }
  void reshard() { spread ? spread->reshard() : model.reshard(); }
  /// Are whole parameters needed at an epoch's end and at checkpoints? A net that is spread may be
  /// run by one rank, and callbacks of any rank may read weights.
  bool whole_at_ends = false;
  void agree_on_ends(bool reads_weights);
  // ---- whose parts a run updates: those of a net whose layers are spread, or of sharded
  // parameters
  void shard_optimizer(optim::Optimizer& o) {
    spread ? spread->shard_optimizer(o) : model.shard_optimizer(o);
  }
  /// Model and optimizer are those of one rank again.
  void make_whole(optim::Optimizer& o) {
    if (spread) return spread->unshard_optimizer(o);
    model.unshard_optimizer(o);
    model.restore();
  }
  std::function<Tensor(const Tensor&)> max_over_ranks() const {
    if (!spread) return model.max_over_ranks();
    return [](const Tensor& x) { return distributed::all_reduce(x, distributed::ReduceOp::max); };
  }
  StateDict parts_of_optim_state(const optim::Optimizer& o, const StateDict& whole) {
    return spread ? spread->parts_of_optim_state(o, whole) : model.parts_of_optim_state(o, whole);
  }
  Tensor get_total_norm() { return spread ? spread->get_total_norm() : model.get_total_norm(); }
  Tensor clip_grad_norm_(double most) {
    return spread ? spread->clip_grad_norm_(most) : model.clip_grad_norm_(most);
  }
};

/// All parameters are here while it lives, where they are sharded over the ranks and this is
/// wanted; all ranks make one. Whatever reads them then, on one rank or on all, makes no call.
/// Inside another one it leaves them to that. Of several parameter servers rank 0 makes one.
class Trainer::WholeParams {
 public:
  explicit WholeParams(Trainer& t, bool wanted = true);
  /// Are they wanted at an epoch's end and at checkpoints?
  static bool at_ends(const Trainer& t) {
    return t.serving_ || (t.ranks_ && t.ranks_->whole_at_ends);
  }
  ~WholeParams() {
    try {
      if (on_ && t_.ranks_) t_.ranks_->reshard();
    } catch (...) {}  // a call that failed: the next one of this rank throws its error
  }
  WholeParams(const WholeParams&) = delete;
  WholeParams& operator=(const WholeParams&) = delete;

 private:
  Trainer& t_;
  bool on_;
};

/// While it lives, metrics and figures of the epoch are those of all ranks; all of them make one.
class Trainer::WholeSums {
 public:
  explicit WholeSums(Trainer& t);
  ~WholeSums();
  WholeSums(const WholeSums&) = delete;
  WholeSums& operator=(const WholeSums&) = delete;

 private:
  Trainer& t_;
  std::vector<Mean> figures_;
  std::vector<std::unique_ptr<Metric>> metrics_;
};

struct Trainer::Running {
  FitResult result;
  runs::Progress progress;
  Clock::time_point start = Clock::now();
  int64_t first_step = 0;  ///< where this process began
  double samples = 0;
  double last_loss = 0, last_norm = 0;
  Logs last_figures;
  double shown_samples = 0;                   ///< at the last line of the system's figures
  double shown_waited = 0, shown_busy = 0;    ///< likewise, of the data's RunStats
  double shown_calls = 0, shown_exposed = 0;  ///< likewise, of calls of the ranks
  runs::PressureMeter pressure;
  Clock::time_point shown = Clock::now();
  runs::EnergyMeter energy;
  double cpu_start = runs::process_seconds();
  std::optional<runs::RunLock> lock;
  std::unique_ptr<runs::RunFolder> folder;
  explicit Running(bool show) : progress(!show) {}
};

}  // namespace tandem::train
