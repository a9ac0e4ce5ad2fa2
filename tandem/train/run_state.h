// SPDX-License-Identifier: Apache-2.0
// Exact resume for any loop: snapshot() takes everything that the next step depends on, restore()
// restores it, StopGuard turns Ctrl-C and SIGTERM into a request. Trainer uses these
// alone.
#pragma once

#include "tandem/data/pipeline.h"
#include "tandem/nn/module.h"
#include "tandem/optim/grad_scaler.h"
#include "tandem/optim/schedules.h"
#include "tandem/train/checkpoint.h"

namespace tandem::train {

/// The parts of a run that hold state; those that it has not are null. `extra` are further named
/// values with their way back, such as an average of the weights.
struct RunParts {
  nn::Module* model = nullptr;
  optim::Optimizer* optimizer = nullptr;
  optim::LRScheduler* schedule = nullptr;
  optim::GradScaler* scaler = nullptr;
  data::AnyPipeline* data = nullptr;
  struct Extra {
    std::string name;
    std::function<StateDict()> get;
    std::function<void(const StateDict&)> set;
  };
  std::vector<Extra> extra = {};
  /// Of a run with several optimizers, in place of `optimizer` and `schedule`.
  std::vector<std::pair<std::string, optim::Optimizer*>> optimizers = {};
  std::vector<std::pair<std::string, optim::LRScheduler*>> schedules = {};
  /// What snapshot() takes in place of the state dicts of `model` and `optimizer`: whole values of
  /// a run whose ranks have parts of them.
  std::optional<StateDict> model_state = {}, optimizer_state = {};
};

/// The state after step `step`: values of all parts, place in the data, seed and offset of the
/// random generator. `more` is kept in state.json under "more". Throws Value without a model and
/// extra parts.
TD_API Snapshot snapshot(const RunParts& parts, int64_t step, io::Json more = {});
/// Put a snapshot back; gives its "more". Throws Value for a snapshot of a run with other parts.
/// Warns where it was made on another kind of machine.
TD_API io::Json restore(const RunParts& parts, const Snapshot& snapshot);

/// What a program has to say when its run is resumed.
struct ResumeHooks {
  /// Sees the checkpoint before anything is restored or written. Throws to refuse it.
  std::function<void(const Snapshot&)> before = {};
  /// When all is restored: may change it, such as a rate, and says what it changed ("" for
  /// nothing).
  std::function<std::string()> after = {};
};

/// The part that holds an average of the weights (optim::WeightAverage).
inline constexpr const char* kAveragePart = "average";
/// The weights of a checkpoint to predict with: the average if it holds one, else the model's.
TD_API StateDict weights_of(const Snapshot& snapshot);

/// While it lives SIGINT and SIGTERM ask to stop instead of ending the process; a second SIGINT
/// ends it with code 130. Guards nest.
class TD_API StopGuard {
 public:
  StopGuard();
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;
};
/// True once a signal came (or request_stop()) while a StopGuard lived; the last guard's end
/// forgets it.
TD_API bool stop_requested();
TD_API void request_stop();
/// The signal that asked, 0 for request_stop() or none.
TD_API int stop_signal();

}  // namespace tandem::train
