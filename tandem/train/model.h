// SPDX-License-Identifier: Apache-2.0
// Model: a Keras-style API, a thin layer over Trainer: compile, fit, evaluate, predict,
// summary. Names and defaults are Keras's; images stay [n, c, h, w] and nets end with scores.
#pragma once

#include <map>

#include "tandem/optim/optimizers.h"
#include "tandem/train/callbacks.h"

namespace tandem::train {

/// How to make an optimizer for a net: by Keras's name with Keras's
/// defaults ("adam": epsilon 1e-7), by its options, or one that is there already.
class TD_API OptimizerChoice {
 public:
  using Make = std::function<std::unique_ptr<optim::Optimizer>(std::vector<Param>)>;
  /// A name of optim::optimizers(), with Keras's defaults where Keras has it. Throws Value naming
  /// the nearest.
  OptimizerChoice(const char* name) : OptimizerChoice(std::string(name)) {}
  OptimizerChoice(const std::string& name);
  /// It must outlive the model.
  OptimizerChoice(optim::Optimizer& optimizer) : given(&optimizer) {}
#define X(name)                                                  \
  OptimizerChoice(optim::name##Options o)                        \
      : make([o](std::vector<Param> p) {                         \
          return std::make_unique<optim::name>(std::move(p), o); \
        }) {}
  TD_FOR_EACH_OPTIMIZER(X)
#undef X
  Make make = {};
  optim::Optimizer* given = nullptr;
};

/// A loss by Keras's name, or a function of output and target that gives a value per sample ([n] or
/// [n, ...], averaged) or their mean (0-d; sample weights are then refused).
struct TD_API LossChoice {
  using Function = std::function<Tensor(const Tensor& output, const Tensor& target)>;
  LossChoice() = default;
  /// A name of losses() that has Keras's formula. Throws Value naming the nearest.
  LossChoice(const char* name) : LossChoice(std::string(name)) {}
  LossChoice(const std::string& name);
  template <class F>
    requires std::is_invocable_r_v<Tensor, F&, Tensor, Tensor> LossChoice(F f)
        : function(std::move(f)) {}
    std::string name;  ///< "" for a function
    Function function = {};
};

struct CompileModelOptions {
  OptimizerChoice optimizer = "rmsprop";
  LossChoice loss = {};
  /// By Keras's names (accuracy, auc, sparse_top_k_categorical_accuracy ...) or make_metric()'s.
  std::vector<std::string> metrics = {};
  bool run_eagerly = false;  ///< the step op by op instead of as one planned program
  /// The net gives scores, as nets here do; false: it ends with softmax or sigmoid. For losses and
  /// metrics of classes.
  bool from_logits = true;
  double global_clipnorm = 0;  ///< 0: no clipping
  int64_t gradient_accumulation_steps = 1;
};

/// What one compares with after each epoch. `data` or else x and y.
struct ValidationData {
  ValidationData() = default;
  ValidationData(Tensor x, Tensor y, Tensor sample_weight = {})
      : x(std::move(x)), y(std::move(y)), sample_weight(std::move(sample_weight)) {}
  ValidationData(data::AnyPipeline batches) : data(std::move(batches)) {}
  Tensor x = {}, y = {}, sample_weight = {};
  std::optional<data::AnyPipeline> data = {};
};

struct FitOptions {
  int64_t batch_size = 32;
  int64_t epochs = 1;
  int verbose = 1;  ///< 0 nothing, 1 a bar, 2 a line an epoch
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  double validation_split = 0;  ///< share of the last samples that are not trained on
  ValidationData validation_data = {};
  bool shuffle = true;
  std::map<int64_t, double> class_weight = {};  ///< factors of samples by label; others: 1
  Tensor sample_weight = {};                    ///< [n]
  int64_t initial_epoch = 0;
  int64_t steps_per_epoch = -1, validation_steps = -1;
  int64_t validation_batch_size = 0;  ///< 0: batch_size
  int64_t validation_freq = 1;        ///< epochs
};
struct EvaluateOptions {
  int64_t batch_size = 32;
  Tensor sample_weight = {};
  int64_t steps = -1;
};
struct PredictOptions {
  int64_t batch_size = 32;
};

/// `train::Model model(net);` then compile() and fit(). A net that has a name must outlive the
/// model; a temporary is kept in it.
class TD_API Model {
 public:
  template <class Net>
    requires(nn::IsModule<std::remove_cvref_t<Net>>&&
                 std::is_invocable_r_v<Tensor, std::remove_cvref_t<Net>&, Tensor>)
  explicit Model(Net&& net) {
    using N = std::remove_cvref_t<Net>;
    if constexpr (std::is_lvalue_reference_v<Net>)
      take(net, [n = &net](const Batch& b) { return (*n)(b[0]); }, {});
    else {
      auto own = std::make_shared<N>(std::move(net));
      take(
          *own, [own](const Batch& b) { return (*own)(b[0]); }, own);
    }
  }
  /// For nets of several inputs: `forward` makes the output of a batch whose first `inputs` fields
  /// are inputs; the target comes next, then the weights of the samples if there are any.
  Model(nn::Module& net, std::function<Tensor(const Batch&)> forward, int64_t inputs = 1);
  ~Model();
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;

  /// Say how to train. A second call starts over with the weights as they are.
  void compile(CompileModelOptions options = {});
  /// Train on x [n, ...] and y [n, ...]. Throws Shape when their sizes differ, Value without
  /// compile().
  std::shared_ptr<History> fit(const Tensor& x, const Tensor& y, const FitOptions& options = {});
  /// The same on batches of fields (x, y) or (x, y, sample_weight); batch_size, shuffle and
  /// validation_split are then up to the pipeline.
  std::shared_ptr<History> fit(data::AnyPipeline batches, const FitOptions& options = {});
  /// "loss" and the metrics.
  Logs evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options = {});
  Logs evaluate(data::AnyPipeline batches, const EvaluateOptions& options = {});
  /// The outputs for x, in evaluation mode and without gradients.
  Tensor predict(const Tensor& x, const PredictOptions& options = {});
  Tensor predict(data::AnyPipeline batches);
  /// One update; the loss before it.
  double train_on_batch(const Tensor& x, const Tensor& y);

  /// Layers, shapes of their outputs (for one sample of shape `input`, or once the model has seen
  /// data) and numbers of parameters.
  std::string summary(const std::vector<int64_t>& input = {});
  /// As safetensors.
  void save_weights(const FilePath& path) const;
  /// Throws Io, Format, and Value with all names that do not fit.
  void load_weights(const FilePath& path);

  nn::Module& net() const { return *net_; }
  /// The optimizer and the Trainer underneath; both throw Value before compile().
  optim::Optimizer& optimizer() const;
  Trainer& trainer() const;

 private:
  struct Compiled;
  void take(nn::Module& net, std::function<Tensor(const Batch&)> forward,
            std::shared_ptr<void> own);
  Compiled& compiled() const;
  std::shared_ptr<History> run(data::AnyPipeline train, std::optional<data::AnyPipeline> val,
                               const FitOptions& options);

  nn::Module* net_ = nullptr;
  std::shared_ptr<void> own_;
  std::function<Tensor(const Batch&)> forward_;
  int64_t inputs_ = 1;
  std::shared_ptr<Compiled> compiled_;
  Tensor sample_;  ///< one that was seen, for summary()
};

}  // namespace tandem::train
