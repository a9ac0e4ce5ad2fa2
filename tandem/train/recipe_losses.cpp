// SPDX-License-Identifier: Apache-2.0
// `loss:` of a recipe: losses by PyTorch's names with PyTorch's options, and those that only Keras
// has by Keras's.
#include <algorithm>

#include "tandem/ops/ops.h"
#include "tandem/train/keras_names_internal.h"
#include "tandem/train/model.h"
#include "tandem/train/recipe_parts_internal.h"

namespace tandem::train {
namespace {

// "balanced": n / (classes * count), so that every class counts the same (scikit-learn's rule).
Tensor balanced_weights(const RecipeData& data) {
  data::AnyPipeline pass(data.train.stage(), data.train.seed(), data.train.prefetch_options());
  TD_CHECK(
      pass.size() != INT64_MAX, Value,
      "class_weights balanced wants data with an end, to count its labels\nGive the weights as "
      "numbers.");
  const auto known = data.info.find("classes");
  std::vector<double> counts(known == data.info.end() ? 0 : static_cast<size_t>(known->second));
  pass.set_epoch(0);
  pass.begin_pass();
  for (Batch b; pass.next(b);) {
    TD_CHECK(b.size() >= 2 && !is_floating(b[1].dtype()), Value,
             "class_weights balanced wants labels of whole numbers as a batch's second field\nGive "
             "the weights as numbers.");
    for (const int64_t label : b[1].reshape({-1}).to(DType::i64).to_vector<int64_t>()) {
      if (label < 0) continue;  // none
      if (static_cast<size_t>(label) >= counts.size())
        counts.resize(static_cast<size_t>(label) + 1);
      ++counts[static_cast<size_t>(label)];
    }
  }
  double all = 0, classes = 0;
  for (double c : counts) {
    all += c;
    classes += c > 0;
  }
  std::vector<float> weights;
  for (double c : counts) weights.push_back(c > 0 ? static_cast<float>(all / (classes * c)) : 0.0F);
  return tensor(weights);
}

// `class_weights: [1, 2.5]` or `balanced`, which is known once the data is there.
struct ClassWeights {
  std::shared_ptr<Tensor> value = std::make_shared<Tensor>();
  bool balanced = false;
  explicit ClassWeights(Options& o) {
    balanced = o.is_text("class_weights") && o.text("class_weights") == "balanced";
    if (balanced) return;
    const std::vector<double> given = o.numbers("class_weights", std::vector<double>{});
    for (double w : given)
      if (w < 0) o.fail("class_weights", fmt::format("wants numbers from 0 on, got {:g}", w));
    if (!given.empty()) *value = tensor(std::vector<float>(given.begin(), given.end()));
  }
  RecipeLoss with(RecipeLoss loss) const {
    if (balanced)
      loss.prepare = [v = value](const RecipeData& data) { *v = balanced_weights(data); };
    return loss;
  }
};

// For a step that is traced.
Tensor held(const Tensor& weights) { return weights.defined() ? constant(weights) : weights; }

using Make = std::function<RecipeLoss(Options&)>;
using Plain = Tensor (*)(const Tensor& x, const Tensor& y);

// Losses of numbers: targets of the output's shape and dtype; [n] beside [n, 1] is one column.
Make on_numbers(Plain f) {
  return [f](Options&) -> RecipeLoss {
    return [f](const Tensor& x, const Tensor& y) { return f(x, targets_like(y, x)); };
  };
}

std::map<std::string, Make> torch_losses() {
  std::map<std::string, Make> m;
  m["cross_entropy"] = [](Options& o) {
    const double smoothing = o.number("label_smoothing", 0.0);
    const int64_t ignore = o.whole("ignore_index", -100);
    const ClassWeights w(o);
    return w.with([=, v = w.value](const Tensor& x, const Tensor& y) {
      return cross_entropy(
          x, y, {.weight = held(*v), .ignore_index = ignore, .label_smoothing = smoothing});
    });
  };
  m["nll"] = [](Options& o) {
    const int64_t ignore = o.whole("ignore_index", -100);
    const ClassWeights w(o);
    return w.with([=, v = w.value](const Tensor& x, const Tensor& y) {
      return nll_loss(x, y, {.weight = held(*v), .ignore_index = ignore});
    });
  };
  m["multi_margin"] = [](Options& o) {
    const int64_t p = o.whole("p", 1);
    const double margin = o.number("margin", 1.0);
    const ClassWeights w(o);
    return w.with([=, v = w.value](const Tensor& x, const Tensor& y) {
      return multi_margin_loss(x, y, {.p = p, .margin = margin, .weight = held(*v)});
    });
  };
  m["mse"] = on_numbers([](const Tensor& x, const Tensor& y) { return mse_loss(x, y); });
  m["l1"] = on_numbers([](const Tensor& x, const Tensor& y) { return l1_loss(x, y); });
  m["soft_margin"] =
      on_numbers([](const Tensor& x, const Tensor& y) { return soft_margin_loss(x, y); });
  m["multilabel_soft_margin"] = on_numbers(
      [](const Tensor& x, const Tensor& y) { return multilabel_soft_margin_loss(x, y); });
  m["bce"] =
      on_numbers([](const Tensor& x, const Tensor& y) { return binary_cross_entropy(x, y); });
  m["smooth_l1"] = [](Options& o) -> RecipeLoss {
    const double beta = o.number("beta", 1.0);
    return [beta](const Tensor& x, const Tensor& y) {
      return smooth_l1_loss(x, targets_like(y, x), {.beta = beta});
    };
  };
  m["huber"] = [](Options& o) -> RecipeLoss {
    const double delta = o.number("delta", 1.0);
    return [delta](const Tensor& x, const Tensor& y) {
      return huber_loss(x, targets_like(y, x), {.delta = delta});
    };
  };
  m["bce_with_logits"] = [](Options& o) -> RecipeLoss {
    const std::vector<double> given = o.numbers("pos_weight", std::vector<double>{});
    Tensor weight;
    if (!given.empty()) weight = tensor(std::vector<float>(given.begin(), given.end()));
    return [weight](const Tensor& x, const Tensor& y) {
      return binary_cross_entropy_with_logits(x, targets_like(y, x), {.pos_weight = held(weight)});
    };
  };
  m["kl_div"] = [](Options& o) -> RecipeLoss {
    const bool log_target = o.flag("log_target", false);
    return [log_target](const Tensor& x, const Tensor& y) {  // PyTorch's "batchmean"
      return kl_div(x, targets_like(y, x),
                    {.reduction = Reduction::sum, .log_target = log_target}) /
             static_cast<double>(x.size(0));
    };
  };
  m["poisson_nll"] = [](Options& o) -> RecipeLoss {
    const bool log_input = o.flag("log_input", true), full = o.flag("full", false);
    return [=](const Tensor& x, const Tensor& y) {
      return poisson_nll_loss(x, targets_like(y, x), {.log_input = log_input, .full = full});
    };
  };
  m["hinge_embedding"] = [](Options& o) -> RecipeLoss {
    const double margin = o.number("margin", 1.0);
    return [margin](const Tensor& x, const Tensor& y) {
      return hinge_embedding_loss(x, targets_like(y, x), {.margin = margin});
    };
  };
  m["focal"] = [](Options& o) -> RecipeLoss {
    const double alpha = o.number("alpha", 0.25), gamma = o.number("gamma", 2.0);
    return [=](const Tensor& x, const Tensor& y) {
      return sigmoid_focal_loss(x, targets_like(y, x), {.alpha = alpha, .gamma = gamma});
    };
  };
  m["dice"] = [](Options& o) -> RecipeLoss {
    const double smooth = o.number("smooth", 1.0);
    return [smooth](const Tensor& x, const Tensor& y) {
      return dice_loss(x, targets_like(y, x), {.smooth = smooth});
    };
  };
  m["tversky"] = [](Options& o) -> RecipeLoss {
    const double alpha = o.number("alpha", 0.5), beta = o.number("beta", 0.5),
                 smooth = o.number("smooth", 1.0);
    return [=](const Tensor& x, const Tensor& y) {
      return tversky_loss(x, targets_like(y, x), {.alpha = alpha, .beta = beta, .smooth = smooth});
    };
  };
  return m;
}

}  // namespace

void add_losses(Registry& r) {
  for (auto& [name, make] : torch_losses()) r.loss[name] = make;
  for (const std::string& name : keras_loss_names())
    r.loss.emplace(name, [name](Options&) -> RecipeLoss {
      return [choice = LossChoice(name)](const Tensor& x, const Tensor& y) {
        return mean_loss(loss_parts(choice, true, x, y).loss, {});
      };
    });
}

}  // namespace tandem::train
