// SPDX-License-Identifier: Apache-2.0
// Losses of classes: PyTorch's with class weights, which may be counted, and Keras's
// cross-entropies.
#include "tandem/base/error.h"
#include "tandem/ops/ops.h"
#include "tandem/train/losses.h"

namespace tandem::train {
namespace {

// "balanced": n / (classes * count), so that every class counts the same (scikit-learn's rule).
Tensor balanced_weights(const data::AnyPipeline& train, int64_t classes) {
  data::AnyPipeline pass(train.stage(), train.seed(), train.prefetch_options());
  TD_CHECK(
      pass.size() != INT64_MAX, Value,
      "class_weights balanced expects data with an end, to count its labels\nGive the weights as "
      "numbers.");
  std::vector<double> counts(static_cast<size_t>(classes));
  pass.set_epoch(0);
  pass.begin_pass();
  for (std::vector<Tensor> b; pass.next(b);) {
    TD_CHECK(
        b.size() >= 2 && !is_floating(b[1].dtype()), Value,
        "class_weights balanced expects labels of whole numbers as a batch's second field\nGive "
        "the weights as numbers.");
    for (const int64_t label : b[1].reshape({-1}).to(DType::i64).to_vector<int64_t>()) {
      if (label < 0) continue;  // none
      if (static_cast<size_t>(label) >= counts.size())
        counts.resize(static_cast<size_t>(label) + 1);
      ++counts[static_cast<size_t>(label)];
    }
  }
  double all = 0, present = 0;
  for (double c : counts) {
    all += c;
    present += c > 0;
  }
  std::vector<float> weights;
  for (double c : counts) weights.push_back(c > 0 ? static_cast<float>(all / (present * c)) : 0.0F);
  return tensor(weights);
}

Tensor tensor_of(const std::vector<double>& numbers) {
  return numbers.empty() ? Tensor() : tensor(std::vector<float>(numbers.begin(), numbers.end()));
}
// For a step that is traced, where `x` lies.
Tensor held(const Tensor& weights, const Tensor& x) {
  return weights.defined() ? constant(weights).to(x.device()) : weights;
}

// The options of a loss with a weight for each class.
template <class O>
struct Weighted {
  O loss = {};
  WordOrNumbers class_weights = {};
  template <class V>
  void fields(V& v) {
    loss.fields(v);
    v("class_weights", class_weights,
      {.doc = "a factor for each class, or balanced: n / (classes * count) of the training data",
       .at_least = 0,
       .one_of = "balanced"});
  }
};
template <class O, auto f>
MadeLoss weighted(const void* options) {
  const auto& o = *static_cast<const Weighted<O>*>(options);
  const auto weights = std::make_shared<Tensor>(tensor_of(o.class_weights.numbers));
  MadeLoss made{[weights, loss = o.loss](const Tensor& x, const Tensor& y) -> Tensor {
    O with = loss;
    with.weight = held(*weights, x);
    return f(x, y, with, SourceLocation::here());
  }};
  if (!o.class_weights.word.empty())
    made.prepare = [weights](const data::AnyPipeline& train, int64_t classes) {
      *weights = balanced_weights(train, classes);
    };
  return made;
}
template <class O, auto f>
constexpr LossRow weighted_loss(const char* name, const char* doc, const char* example) {
  return {{name, doc, example, &kFieldsType<Weighted<O>>}, weighted<O, f>};
}

// The options of the ops (ops/nn/loss.h) that recipes take besides.
struct CrossEntropy : CrossEntropyOptions {
  template <class V>
  void fields(V& v) {
    v("label_smoothing", label_smoothing, {.doc = "share that is spread over all classes"});
    v("ignore_index", ignore_index, {.doc = "targets with this label add nothing"});
  }
};
struct Nll : NllLossOptions {
  template <class V>
  void fields(V& v) {
    v("ignore_index", ignore_index, {.doc = "targets with this label add nothing"});
  }
};
struct MultiMargin : MultiMarginLossOptions {
  template <class V>
  void fields(V& v) {
    v("p", p, {.doc = "power of each term"});
    v("margin", margin, {.doc = "margin to be reached"});
  }
};

struct PositiveWeighted {
  std::vector<double> pos_weight = {};
  template <class V>
  void fields(V& v) {
    v("pos_weight", pos_weight,
      {.doc = "factor of the positive term, for each output or one for all",
       .single = Single::itself});
  }
};
MadeLoss bce_with_weights(const void* options) {
  const Tensor weight = tensor_of(static_cast<const PositiveWeighted*>(options)->pos_weight);
  return {[weight](const Tensor& x, const Tensor& y) {
    return binary_cross_entropy_with_logits(x, targets_like(y, x), {.pos_weight = held(weight, x)});
  }};
}

LossParts class_parts(const Tensor& scores, const Tensor& target, bool sparse) {
  // Keras also takes labels as a column [n, 1].
  Tensor y = sparse && target.dim() == scores.dim() && target.size(-1) == 1 ? target.squeeze(-1)
             : sparse                                                       ? target
                      : targets_like(target, scores);
  if (sparse && is_floating(y.dtype())) y = y.to(DType::i64);
  return {cross_entropy(scores, y, {.reduction = Reduction::none}), scores,
          sparse ? y : y.argmax(1)};
}
Tensor log_of(const Tensor& p, bool from_logits) {
  return from_logits ? p : log(clamp(p, kKerasEpsilon, 1 - kKerasEpsilon));
}
LossParts sparse_parts(const Tensor& output, const Tensor& target, bool from_logits) {
  return class_parts(log_of(output, from_logits), target, true);
}
LossParts dense_parts(const Tensor& output, const Tensor& target, bool from_logits) {
  return class_parts(log_of(output, from_logits), target, false);
}
LossParts binary_parts(const Tensor& output, const Tensor& target, bool from_logits) {
  LossParts r{.output = output};
  if (!from_logits) {
    const Tensor p = clamp(output, kKerasEpsilon, 1 - kKerasEpsilon);
    r.output = log(p) - log1p(-p);
  }
  r.target = targets_like(target, r.output);
  r.loss = binary_cross_entropy_with_logits(r.output, r.target, {.reduction = Reduction::none});
  return r;
}

}  // namespace

namespace loss_rows {
constinit const LossRow cross_entropy = weighted_loss<CrossEntropy, tandem::cross_entropy>(
    "cross_entropy", "Cross-entropy of scores with labels, or with probabilities of classes.",
    "{type: cross_entropy, label_smoothing: 0.1}");
constinit const LossRow nll = weighted_loss<Nll, nll_loss>(
    "nll", "Cross-entropy of log-probabilities with labels.", "{type: nll}");
constinit const LossRow multi_margin = weighted_loss<MultiMargin, multi_margin_loss>(
    "multi_margin", "sum max(0, margin - x_y + x_j)^p / classes over j != y.",
    "{type: multi_margin}");
constinit const LossRow bce_with_logits = {
    {"bce_with_logits", "Binary cross-entropy of sigmoid(x), stable.", "{type: bce_with_logits}",
     &kFieldsType<PositiveWeighted>},
    bce_with_weights};
constinit const LossRow sparse_categorical_crossentropy = {
    {"sparse_categorical_crossentropy", "Keras's cross-entropy with labels.",
     "{type: sparse_categorical_crossentropy}"},
    nullptr,
    sparse_parts};
constinit const LossRow categorical_crossentropy = {
    {"categorical_crossentropy", "Keras's cross-entropy with one-hot rows.",
     "{type: categorical_crossentropy}"},
    nullptr,
    dense_parts};
constinit const LossRow binary_crossentropy = {
    {"binary_crossentropy", "Keras's binary cross-entropy.", "{type: binary_crossentropy}"},
    nullptr,
    binary_parts};
}  // namespace loss_rows

}  // namespace tandem::train
