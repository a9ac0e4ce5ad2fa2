// SPDX-License-Identifier: Apache-2.0
// Optimizers and losses by Keras's names, with Keras's defaults and formulas.
#include <map>

#include "tandem/base/nearest.h"
#include "tandem/ops/ops.h"
#include "tandem/optim/optim.h"
#include "tandem/train/keras_names_internal.h"
#include "tandem/train/model.h"
#include "tandem/train/optimizer_table_internal.h"

namespace tandem::train {
namespace {

template <class Map>
const typename Map::mapped_type& entry(const Map& map, const std::string& name, const char* what) {
  if (auto it = map.find(name); it != map.end()) return it->second;
  std::vector<std::string> names;
  for (const auto& [n, v] : map) names.push_back(n);
  const std::string near = nearest_word(name, names);
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
  TD_FAIL(Value, "there is no {} '{}'{}", what, name,
          near.empty() ? ". There are " + all : fmt::format(", did you mean '{}'?", near));
}

// Keras's epsilon: what keeps logarithms and quotients finite.
constexpr double kEpsilon = 1e-7;

using Fn = LossChoice::Function;
constexpr auto kNone = Reduction::none;

Tensor log_ratio(const Tensor& y, const Tensor& x) {
  return log(maximum(y, kEpsilon) / maximum(x, kEpsilon));
}
// -1 and 1 for labels that are 0 and 1.
Tensor signs(const Tensor& y) { return where((y == 0.0).any(), 2.0 * y - 1.0, y); }

const std::map<std::string, Fn>& element_losses() {
  static const std::map<std::string, Fn> all = [] {
    std::map<std::string, Fn> m;
    auto add = [&m](std::initializer_list<const char*> names, Fn f) {
      for (const char* n : names) m[n] = f;
    };
    add({"mse", "mean_squared_error"},
        [](const Tensor& x, const Tensor& y) { return square(x - y); });
    add({"mae", "mean_absolute_error"},
        [](const Tensor& x, const Tensor& y) { return abs(x - y); });
    add({"mape", "mean_absolute_percentage_error"}, [](const Tensor& x, const Tensor& y) {
      return 100.0 * abs((y - x) / maximum(abs(y), kEpsilon));
    });
    add({"msle", "mean_squared_logarithmic_error"}, [](const Tensor& x, const Tensor& y) {
      return square(log1p(maximum(x, kEpsilon)) - log1p(maximum(y, kEpsilon)));
    });
    add({"huber"},
        [](const Tensor& x, const Tensor& y) { return huber_loss(x, y, {.reduction = kNone}); });
    add({"log_cosh", "logcosh"},
        [](const Tensor& x, const Tensor& y) { return log_cosh_loss(x, y, {.reduction = kNone}); });
    add({"poisson"}, [](const Tensor& x, const Tensor& y) { return x - y * log(x + kEpsilon); });
    add({"hinge"}, [](const Tensor& x, const Tensor& y) { return relu(1.0 - signs(y) * x); });
    add({"squared_hinge"},
        [](const Tensor& x, const Tensor& y) { return square(relu(1.0 - signs(y) * x)); });
    return m;
  }();
  return all;
}

// Those that sum over the last dimension.
const std::map<std::string, Fn>& row_losses() {
  static const std::map<std::string, Fn> all = {
      {"kl_divergence",
       [](const Tensor& x, const Tensor& y) {
         return (clamp(y, kEpsilon, 1.0) *
                 log_ratio(clamp(y, kEpsilon, 1.0), clamp(x, kEpsilon, 1.0)))
             .sum({-1});
       }},
      {"cosine_similarity",
       [](const Tensor& x, const Tensor& y) {
         auto unit = [](const Tensor& t) {
           return t / maximum(sqrt(square(t).sum({-1}, true)), kEpsilon);
         };
         return -(unit(x) * unit(y)).sum({-1});
       }},
  };
  return all;
}

const std::map<std::string, std::string>& class_losses() {
  static const std::map<std::string, std::string> all = {
      {"sparse_categorical_crossentropy", "sparse"},
      {"categorical_crossentropy", "dense"},
      {"binary_crossentropy", "binary"},
  };
  return all;
}

}  // namespace

Tensor targets_like(const Tensor& y, const Tensor& x) {
  Tensor t = y.to(x.dtype());
  if (t.shape() != x.shape() && t.numel() == x.numel()) t = t.reshape(x.shape());
  TD_CHECK(t.shape() == x.shape(), Shape, "the loss wants targets of the output's shape {}, got {}",
           x.shape().to_string(), y.shape().to_string());
  return t;
}

OptimizerChoice::OptimizerChoice(const std::string& name)
    : make([m = keras_optimizer(entry(optimizer_table(), name, "optimizer"))](
               std::vector<Param> p) { return m(std::move(p)); }) {}

std::vector<std::string> keras_loss_names() {
  std::vector<std::string> all;
  for (const auto& [k, v] : element_losses()) all.push_back(k);
  for (const auto& [k, v] : row_losses()) all.push_back(k);
  for (const auto& [k, v] : class_losses()) all.push_back(k);
  return all;
}

LossChoice::LossChoice(const std::string& n) : name(n) {
  std::map<std::string, int> all;
  for (const std::string& k : keras_loss_names()) all[k] = 0;
  entry(all, n, "loss");
}

LossParts loss_parts(const LossChoice& choice, bool from_logits, const Tensor& output,
                     const Tensor& target) {
  LossParts r{.output = output, .target = target};
  if (choice.function) {
    r.loss = choice.function(output, target);
    return r;
  }
  if (auto it = class_losses().find(choice.name); it != class_losses().end()) {
    const std::string& kind = it->second;
    if (!from_logits) {
      const Tensor p = clamp(output, kEpsilon, 1 - kEpsilon);
      r.output = kind == "binary" ? log(p) - log1p(-p) : log(p);
    }
    if (kind == "binary") {
      r.target = targets_like(target, r.output);
      r.loss = binary_cross_entropy_with_logits(r.output, r.target, {.reduction = kNone});
      return r;
    }
    const bool sparse = kind == "sparse";
    // Keras also takes labels as a column [n, 1].
    Tensor y = sparse && target.dim() == output.dim() && target.size(-1) == 1 ? target.squeeze(-1)
               : sparse                                                       ? target
                        : targets_like(target, output);
    if (sparse && is_floating(y.dtype())) y = y.to(DType::i64);
    r.loss = cross_entropy(r.output, y, {.reduction = kNone});
    r.target = sparse ? y : y.argmax(1);
    return r;
  }
  r.target = targets_like(target, output);
  const auto& elements = element_losses();
  const auto it = elements.find(choice.name);
  r.loss = it != elements.end() ? it->second(output, r.target)
                                : row_losses().at(choice.name)(output, r.target);
  return r;
}

std::string metric_by_keras_name(const std::string& name) {
  static const std::map<std::string, std::string> all = {
      {"acc", "accuracy"},
      {"sparse_categorical_accuracy", "accuracy"},
      {"categorical_accuracy", "accuracy"},
      {"binary_accuracy", "accuracy"},
      {"sparse_top_k_categorical_accuracy", "top5_accuracy"},
      {"top_k_categorical_accuracy", "top5_accuracy"},
      {"AUC", "auc"},
      {"Precision", "precision"},
      {"Recall", "recall"},
      {"f1_score", "f1"},
      {"mean_absolute_error", "mae"},
      {"mean_squared_error", "mse"},
      {"root_mean_squared_error", "rmse"},
      {"r2_score", "r2"},
  };
  const auto it = all.find(name);
  return it == all.end() ? name : it->second;
}

}  // namespace tandem::train
