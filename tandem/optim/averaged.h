// SPDX-License-Identifier: Apache-2.0
// Averages of a model's weights over training: exponential (EMA) and equal (SWA), as a copy of the
// model or beside a model of any type, and update_bn, which gives the averaged model its batch
// statistics.
#pragma once

#include "tandem/nn/module.h"

namespace tandem::optim {

struct AveragedModelOptions {
  /// EMA: avg = decay avg + (1 - decay) p. None: the mean of all values so far (SWA).
  std::optional<double> decay = {};
  /// Average floating buffers too; else the latest ones are taken over.
  bool use_buffers = false;
  /// EMA: the decay of update n (from 1) is at most (1 + n) / (10 + n), so that the first weights
  /// are soon forgotten.
  bool warmup = false;
};

namespace detail {
/// The averaging, over the parameters and buffers of two modules of one structure.
class TD_API Averager {
 public:
  explicit Averager(AveragedModelOptions options);
  void update(nn::Module& average, nn::Module& model, SourceLocation loc);
  /// The same over cells, one beside the other.
  struct Pair {
    Ref<Cell> average, model;
    bool mean;  ///< else the latest value is taken over
  };
  void update(const std::vector<Pair>& cells, SourceLocation loc);
  bool use_buffers() const { return o_.use_buffers; }
  StateDict state_dict(const nn::Module& average) const;
  void load_state_dict(nn::Module& average, const StateDict& state);
  Buffer n_averaged;  ///< i64: how often update() ran

 private:
  AveragedModelOptions o_;
};

/// Batch norms of a model with their statistics emptied and cumulative averages switched on; put
/// back at the end.
class TD_API BatchNormReset {
 public:
  explicit BatchNormReset(nn::Module& model);
  ~BatchNormReset();
  BatchNormReset(const BatchNormReset&) = delete;
  BatchNormReset& operator=(const BatchNormReset&) = delete;
  bool any() const { return !found_.empty(); }

 private:
  nn::Module& model_;
  bool training_;
  std::vector<std::pair<nn::Module*, std::optional<double>>> found_;
};
}  // namespace detail

/// A copy of `model` whose weights are averages. Call update_parameters(model) after the
/// optimizer's steps, and the copy (`module`) to predict.
template <nn::IsModule M>
class AveragedModel {
 public:
  explicit AveragedModel(const M& model, AveragedModelOptions options = {})
      : module(nn::clone(model)), averager_(options) {}
  void update_parameters(M& model, SourceLocation loc = SourceLocation::here()) {
    averager_.update(module, model, loc);
  }
  template <class... Args>
  auto operator()(Args&&... args) {
    return module(std::forward<Args>(args)...);
  }
  Tensor n_averaged() const { return averager_.n_averaged.value(); }
  /// "n_averaged" and the copy's names after "module.".
  StateDict state_dict() const { return averager_.state_dict(module); }
  void load_state_dict(const StateDict& state) { averager_.load_state_dict(module, state); }

  M module;

 private:
  detail::Averager averager_;
};

/// The same beside a model of any type: the averages lie in cells of their own. swap() exchanges
/// them with the model's values, to predict with them and to resume training afterwards. The model
/// must outlive it and keep its layers.
class TD_API WeightAverage {
 public:
  explicit WeightAverage(nn::Module& model, AveragedModelOptions options = {});
  /// Take the model's present values into the average. Throws Value while they are exchanged.
  void update(SourceLocation loc = SourceLocation::here());
  void swap();
  bool swapped() const { return swapped_; }
  /// How often update() ran; the averages of 0 are the values that the model had at first.
  int64_t count() const;
  /// "n_averaged", and the averages by the model's names after "module.".
  StateDict state_dict() const;
  /// Throws Value for a missing or unknown name, Shape for another shape; changes nothing then.
  void load_state_dict(const StateDict& state);
  /// The averages of such a state, by the model's names; empty for a state that has none yet.
  static StateDict weights_of(const StateDict& state);

 private:
  std::vector<detail::Averager::Pair> cells_;
  std::vector<std::string> names_;
  detail::Averager averager_;
  bool swapped_ = false;
};

/// Run `model` over the batches of `loader` (tensors, or structs or pairs whose first member is the
/// input) in training mode without gradients, so that its batch norms hold the statistics of its
/// present weights.
template <class Loader, class M>
void update_bn(Loader&& loader, M& model) {
  detail::BatchNormReset reset(model);
  if (!reset.any()) return;
  NoGradGuard no_grad;
  for (auto&& batch : loader) {
    if constexpr (std::is_convertible_v<decltype(batch), Tensor>) {
      model(batch);
    } else {
      auto& [x, y] = batch;
      model(x);
    }
  }
}

}  // namespace tandem::optim
