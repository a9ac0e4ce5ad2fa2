// SPDX-License-Identifier: Apache-2.0
// Servable: a model made ready to answer many. It finds out by running which sizes of batches give
// every row the bits that it has alone; others are not used. So a row never depends on whom it was
// batched with, and a model whose rows see each other is not batched at all.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/predictor.h"

namespace tandem::serve {

using recipe::ModelPort;

struct ServableOptions {
  int64_t max_batch = 32;  ///< rows; 1: no batching
  bool same_bits = true;   ///< false: sizes that round differently are used, too
  int instances = 1;       ///< programs that may run at the same time
  int threads = 0;         ///< of each; 0: all cores
  /// Where instances run, in turn, at least one on each; empty: the CPU.
  std::vector<Device> devices = {};
  std::string shapes = "";   ///< open sizes for the warm-up, as x:1x3x224x224
  std::string weights = "";  ///< of a run: last or best
  /// Of the weights of a Hugging Face folder's decoder; outputs are f32 all the same.
  DType dtype = DType::f32;
  double warm_seconds = 5;  ///< after which the warm-up tries no larger batches
  /// Inputs that get what an output of the step before gave, as "h_in=h_out", and inputs that say
  /// where in its sequence a step is, as "start=START": start, end, ready or id.
  std::vector<std::string> state = {}, controls = {};
};
struct SequenceAsk;
struct StepRun;
class Ensemble;

class TD_API Servable {
 public:
  /// A run's folder, a Hugging Face folder or a file of a graph. Runs the model once, so that it is
  /// known to work. Throws what loading throws.
  static std::shared_ptr<Servable> load(const std::string& path, const ServableOptions& options);
  explicit Servable(recipe::LoadedModel model, const ServableOptions& options = {});
  /// The same model loaded on several devices: instances take them in turn.
  Servable(std::vector<recipe::LoadedModel> models, const ServableOptions& options);
  explicit Servable(std::shared_ptr<Ensemble> ensemble, const ServableOptions& options = {});

  /// Inputs with their names, dtypes and shapes; -1: open. Those of a state are not among them.
  const std::vector<ModelPort>& inputs() const { return shown_inputs_; }
  const std::vector<ModelPort>& outputs() const { return shown_outputs_; }
  /// "onnx", "run", "huggingface", "ensemble": where it came from.
  const std::string& platform() const { return platform_; }
  int instances() const { return static_cast<int>(instances_.size()); }
  int threads() const { return options_.threads; }
  /// Where an instance runs.
  Device device_of(int instance) const;
  /// Devices in the order of the options, with the number of instances on each.
  std::vector<std::pair<Device, int>> instances_by_device() const;

  /// Prepare the larger batches: compile, compare, measure. Calls from other threads may run
  /// meanwhile.
  void warm_up();
  /// May requests be put together?
  bool batched() const { return sizes_ready_.load(std::memory_order_acquire) > 1; }
  /// Why not, or why no larger batches; "" where all sizes are used.
  std::string note() const;
  /// The sizes of batches that are used, ascending, with the seconds that each takes.
  struct Size {
    int64_t rows = 1;
    double seconds = 0;
  };
  std::vector<Size> sizes() const;
  /// Seconds that one row takes: the quickest of late.
  double seconds_of_one() const { return one_.load(std::memory_order_relaxed); }
  /// A request of one row took this long.
  void took_alone(double seconds);
  /// The sizes whose runs cover `rows` in the least time; the last one may be larger than what is
  /// left, and is then filled up.
  std::vector<int64_t> cover(int64_t rows) const;
  /// That size where one run covers them, else `rows`.
  int64_t filled(int64_t rows) const;

  /// An instance: hold its lock to run it.
  std::mutex& lock_of(int instance) { return instances_[static_cast<size_t>(instance)]->lock; }
  /// Run on `rows` rows: of a batched model in prepared sizes, else as they are. `took`: what the
  /// steps of an ensemble took is added to it.
  std::vector<Tensor> run(int instance, const std::vector<Tensor>& inputs, int64_t rows,
                          std::vector<StepRun>* took = nullptr);

  /// Does it keep a state between requests?
  bool stateful() const { return !states_.empty() || !controls_.empty(); }
  /// What run() takes: inputs, states (none: the first ones, zeros) and what controls say.
  std::vector<Tensor> with_states(const std::vector<Tensor>& inputs,
                                  const std::vector<Tensor>& states, const SequenceAsk& ask) const;
  /// Takes the states out of what run() gave.
  std::vector<Tensor> take_states(std::vector<Tensor>& outputs) const;
  /// Did the same inputs give the same outputs, to the bit?
  bool repeats() const { return repeats_; }
  /// Does it know how to prepare images, texts or other files?
  bool takes_files() const { return !file_kind_.empty(); }
  /// Which: "image", "sound", "table", "text"; "" for arrays alone.
  std::string_view file_kind() const { return file_kind_; }
  recipe::Predictor& predictor() { return *instances_[0]->predictor; }
  /// The models that it runs; none of a model itself.
  Ensemble* ensemble() const { return ensemble_.get(); }
  /// The model of a Hugging Face folder; none of anything else.
  const std::shared_ptr<models::PretrainedModel>& pretrained() const { return pretrained_; }

 private:
  struct Instance {
    std::mutex lock;
    std::unique_ptr<recipe::Predictor> predictor;
  };
  /// `counted`: for somebody who asked.
  std::vector<Tensor> call(int instance, const std::vector<Tensor>& inputs, bool counted = false,
                           std::vector<StepRun>* took = nullptr);
  void prepare(std::vector<recipe::LoadedModel> models);
  std::shared_ptr<models::PretrainedModel> pretrained_;
  void make_instances(const std::vector<recipe::LoadedModel>& models);
  void first_run();
  bool try_size(int64_t rows);
  std::string compare(const std::vector<Tensor>& outputs, int64_t rows) const;
  void learn_outputs(const std::vector<Tensor>& outputs);
  void find_states(const std::vector<Tensor>& outputs);

  ServableOptions options_;
  std::shared_ptr<Ensemble> ensemble_;
  std::string platform_;
  std::vector<ModelPort> inputs_, outputs_;              ///< all that the model has
  std::vector<ModelPort> shown_inputs_, shown_outputs_;  ///< without those of sequences
  struct StatePort {
    size_t in = 0, out = 0;
    Tensor first;
  };
  struct ControlPort {
    std::string kind;
    size_t in = 0;
  };
  std::vector<StatePort> states_;
  std::vector<ControlPort> controls_;
  std::string_view file_kind_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<std::vector<Tensor>> samples_, answers_;  ///< rows of the warm-up, alone
  static constexpr size_t kMostSizes = 16;
  std::vector<Size> sizes_ = std::vector<Size>(kMostSizes);  ///< the first sizes_ready_ count
  std::atomic<size_t> sizes_ready_{1};
  std::atomic<double> one_{0};
  bool repeats_ = true;
  mutable std::mutex note_lock_;
  std::string note_;
};

}  // namespace tandem::serve
