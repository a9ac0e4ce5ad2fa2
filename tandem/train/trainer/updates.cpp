// SPDX-License-Identifier: Apache-2.0
// A step with several optimizers: what the user's step hands to Updates, in training and in
// evaluation, and which optimizers have their turn.
#include <algorithm>
#include <set>

#include "tandem/grad/autograd.h"
#include "tandem/ops/ops.h"
#include "tandem/train/trainer/trainer_internal.h"

namespace tandem::train {

namespace {

/// Adds the losses that it is handed.
struct SumOfLosses final : Updates {
  Tensor sum = {};
  void operator()(const std::string&, const Tensor& loss, bool) override {
    sum = sum.defined() ? sum + loss.reshape({}) : loss.reshape({});
  }
  bool due(const std::string&) const override { return true; }
  bool training() const override { return false; }
};

}  // namespace

StepFunction sum_of_losses(UpdateStep step) {
  return [step = std::move(step)](const Batch& b) {
    SumOfLosses losses;
    StepOutput o = step(b, losses);
    o.loss = losses.sum;
    return o;
  };
}

class Trainer::StepUpdates final : public Updates {
 public:
  /// In evaluation: losses are noted.
  explicit StepUpdates(Trainer& t) : t_(t), made_(t.optimizers_.size()) {}
  /// In training.
  StepUpdates(Trainer& t, bool first, bool last, int64_t due)
      : t_(t),
        training_(true),
        first_(first),
        last_(last),
        due_(due),
        made_(t.optimizers_.size()) {}

  void operator()(const std::string& name, const Tensor& loss, bool retain_graph) override {
    const size_t k = index(name);
    TD_CHECK(!made_[k], Value,
             "the step hands two losses to optimizer '{}'\nAdd them, and hand over the sum.", name);
    TD_CHECK(loss.defined() && loss.numel() == 1, Shape,
             "the loss of optimizer '{}' expects one element, got {}\nReduce it: loss.mean().",
             name, loss.defined() ? loss.shape().to_string() : "an undefined tensor");
    made_[k] = true;
    result_.figures.emplace_back(name + "_loss", loss.detach());
    // Only where the step is looked at do gradients flow from the sum.
    const Tensor term = training_ ? loss.detach() : loss;
    total_ = total_.defined() ? total_ + term.reshape({}) : term.reshape({});
    if (training_ && due(name)) update(k, loss, retain_graph);
  }
  bool due(const std::string& name) const override { return (due_ >> index(name) & 1) != 0; }
  bool training() const override { return training_; }

  /// What the step made, with its own loss and figures after those of the optimizers.
  StepResult result(const StepOutput& o) {
    TD_CHECK(!o.loss.defined() || o.loss.numel() == 1, Shape,
             "the step's loss expects one element, got {}\nReduce it: loss.mean().",
             o.loss.shape().to_string());
    if (scaler_used_) t_.scaler_->update();
    result_.losses = static_cast<int64_t>(result_.figures.size());
    result_.loss = o.loss.defined() ? o.loss : total_;
    result_.norm = squares_.defined() ? sqrt(squares_) : Tensor();
    result_.output = o.output;
    result_.target = o.target;
    result_.prediction = o.prediction;
    result_.figures.insert(result_.figures.end(), o.figures.begin(), o.figures.end());
    return std::move(result_);
  }

 private:
  size_t index(const std::string& name) const {
    const std::vector<NamedOptimizer>& all = t_.optimizers_;
    std::string names;
    for (size_t k = 0; k < all.size(); ++k) {
      if (all[k].name == name) return k;
      names += (names.empty() ? "" : ", ") + all[k].name;
    }
    TD_FAIL(Value, "the trainer has no optimizer '{}'\nIt has {}.", name, names);
  }

  void update(size_t k, const Tensor& loss, bool retain_graph) {
    optim::Optimizer& optimizer = t_.optimizers_[k].optimizer;
    const AutocastGuard off(DType::bf16, false);
    if (first_) optimizer.zero_grad();
    const int64_t batches = t_.options_.accumulate;
    const Tensor scaled = batches > 1 ? loss / static_cast<double>(batches) : loss;
    backward(t_.scaler_ ? t_.scaler_->scale(scaled) : scaled, optimizer.params(), retain_graph);
    if (!last_) return;
    const Tensor norm = t_.apply_update(optimizer, loss, good_);
    scaler_used_ = t_.scaler_ != nullptr;
    if (!norm.defined()) return;
    const Tensor square = norm.reshape({}) * norm.reshape({});
    squares_ = squares_.defined() ? squares_ + square : square;
  }

  Trainer& t_;
  bool training_ = false, first_ = false, last_ = false, scaler_used_ = false;
  int64_t due_ = -1;
  std::vector<bool> made_;
  Tensor total_, squares_, good_;
  StepResult result_ = {};
};

Trainer::Trainer(nn::Module& model, UpdateStep step, std::vector<NamedOptimizer> optimizers,
                 TrainerOptions options)
    : model_(model),
      update_step_(std::move(step)),
      optimizers_(std::move(optimizers)),
      options_(std::move(options)),
      compiled_(std::make_unique<Compiled>()) {
  TD_CHECK(!optimizers_.empty() && optimizers_.size() <= 16, Value,
           "Trainer expects 1 to 16 optimizers, got {}", optimizers_.size());
  std::set<std::string> names;
  for (const NamedOptimizer& o : optimizers_) {
    TD_CHECK(!o.name.empty() && o.name.find_first_of("./") == o.name.npos, Value,
             "an optimizer of a trainer expects a name without '.' and '/', got '{}'", o.name);
    TD_CHECK(names.insert(o.name).second, Value, "two optimizers of the trainer are named '{}'",
             o.name);
    TD_CHECK(o.every >= 1, Value, "optimizer '{}' expects every >= 1, got {}", o.name, o.every);
  }
  step_function_ = [this](const Batch& b) {
    StepUpdates look(*this);
    StepOutput o = update_step_(b, look);
    StepResult r = look.result(o);
    o.loss = r.loss;
    o.figures = std::move(r.figures);
    return o;
  };
  make_steps();
}

// Bit k: optimizer k is updated in the run's update number `step`, from 1; 0: all.
int64_t Trainer::due_optimizers(int64_t step) const {
  int64_t due = 0;
  for (size_t k = 0; k < optimizers_.size(); ++k)
    if (step % optimizers_[k].every == 0) due |= int64_t{1} << k;
  return due;
}

Trainer::StepResult Trainer::train_step(const Batch& b, bool first, bool last, int64_t due) {
  if (!several()) return single_step(b, first, last);
  StepUpdates updates(*this, first, last, due);
  StepOutput o;
  {
    const AutocastGuard cast = autocast_of(options_);
    o = update_step_(b, updates);
  }
  StepResult r = updates.result(o);
  TD_CHECK(r.loss.defined(), Value,
           "the step handed no loss to any optimizer\nCall the Updates that it is given: "
           "update(\"{}\", loss).",
           optimizers_.front().name);
  for (Tensor* t : {&r.loss, &r.norm, &r.output, &r.target, &r.prediction})
    if (t->defined()) *t = t->detach();
  for (auto& [name, value] : r.figures) value = value.detach();
  return r;
}

}  // namespace tandem::train
