// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/adaptive.h"

#include <cmath>

#include "tandem/ops/index/index.h"
#include "tandem/ops/nn/functional.h"
#include "tandem/ops/nn/softmax.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace {

void check_cutoffs(const std::vector<int64_t>& cutoffs, int64_t classes) {
  TD_CHECK(!cutoffs.empty(), Value, "AdaptiveLogSoftmaxWithLoss expects at least one cutoff");
  int64_t before = 0;
  for (int64_t c : cutoffs) {
    TD_CHECK(
        c > before && c < classes, Value,
        "AdaptiveLogSoftmaxWithLoss expects increasing cutoffs between 1 and {}, got {} after {}",
        classes - 1, c, before);
    before = c;
  }
}

// The log-probability of each row's class.
Tensor picked_log_prob(const Tensor& logits, const Tensor& classes) {
  return squeeze(gather(log_softmax(logits, 1), 1, unsqueeze(classes, 1)), 1);
}

}  // namespace

AdaptiveLogSoftmaxWithLoss::AdaptiveLogSoftmaxWithLoss(Dim in, int64_t classes,
                                                       std::vector<int64_t> c,
                                                       AdaptiveLogSoftmaxOptions o)
    : head(in, c.empty() ? Dim(0) : Dim(c[0] + static_cast<int64_t>(c.size())),
           {.bias = o.head_bias, .dtype = o.dtype}),
      in_features(in.value()),
      n_classes(classes),
      cutoffs(std::move(c)),
      options(o) {
  check_cutoffs(cutoffs, classes);
  TD_CHECK(o.div_value > 0, Value, "AdaptiveLogSoftmaxWithLoss expects div_value > 0, got {}",
           o.div_value);
  cutoffs.push_back(classes);
  for (size_t i = 0; i + 1 < cutoffs.size(); ++i) {
    const auto hidden = static_cast<int64_t>(static_cast<double>(in_features) /
                                             std::pow(o.div_value, static_cast<double>(i + 1)));
    const LinearOptions plain{.bias = false, .dtype = o.dtype};
    tail.push_back(
        Sequential(Linear(in, hidden, plain), Linear(hidden, cutoffs[i + 1] - cutoffs[i], plain)));
  }
  TD_REGISTER(head, tail);
}

Tensor AdaptiveLogSoftmaxWithLoss::target_log_prob(const Tensor& x, const Tensor& target) {
  const DeviceGuard there(x.device());
  const int64_t shortlist = cutoffs[0];
  Tensor entry = clamp_max(target, shortlist - 1);  // of the head
  Tensor within;                                    // log-probability inside the cluster
  for (size_t i = 0; i + 1 < cutoffs.size(); ++i) {
    const int64_t low = cutoffs[i], high = cutoffs[i + 1];
    const Tensor here = logical_and(target >= low, target < high);
    entry = where(here, shortlist + static_cast<int64_t>(i), entry);
    if (!within.defined()) within = zeros({x.shape(0)}, x.dtype());
    if (x.is_symbolic() || target.is_symbolic()) {  // which rows are meant is not known
      const Tensor classes = clamp(target - low, 0, high - low - 1);
      within = within + where(here, picked_log_prob(tail[i](x), classes), 0.0);
      continue;
    }
    const Tensor rows = squeeze(nonzero(here), 1);
    if (rows.numel() == 0) continue;
    const Tensor classes = index_select(target, 0, rows) - low;
    within =
        index_add(within, 0, rows, picked_log_prob(tail[i](index_select(x, 0, rows)), classes));
  }
  return within + picked_log_prob(head(x), entry);
}

AdaptiveLogSoftmaxResult AdaptiveLogSoftmaxWithLoss::forward(Tensor x, Tensor target) {
  const bool single = target.dim() == 0;
  TD_CHECK(
      x.dim() == target.dim() + 1 && target.dim() <= 1, Shape,
      "AdaptiveLogSoftmaxWithLoss expects x [n, in] and target [n], or x [in] and a 0-d target; "
      "x is {}, target is {}",
      x.shape().to_string(), target.shape().to_string());
  TD_CHECK(single || dims_equal(x.shape(0), target.shape(0)), Shape, "x is {}, target is {}",
           x.shape().to_string(), target.shape().to_string());
  if (!target.is_symbolic() && target.numel() > 0) {
    const auto low = min(target).item<int64_t>(), high = max(target).item<int64_t>();
    TD_CHECK(low >= 0 && high < n_classes, Value,
             "targets must be in 0..{}, they are between {} and {}", n_classes - 1, low, high);
  }
  if (single) {
    x = unsqueeze(std::move(x), 0);
    target = unsqueeze(std::move(target), 0);
  }
  const Tensor output = target_log_prob(x, target.to(DType::i64));
  const Tensor loss = -mean(output);
  return {single ? squeeze(output, 0) : output, loss};
}
AdaptiveLogSoftmaxResult AdaptiveLogSoftmaxWithLoss::operator()(Tensor x, Tensor target,
                                                                SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(target)); });
}

Tensor AdaptiveLogSoftmaxWithLoss::full_log_prob(const Tensor& x) {
  const Tensor top = log_softmax(head(x), 1);
  std::vector<Tensor> parts{narrow(top, 1, 0, cutoffs[0])};
  for (size_t i = 0; i < tail.size(); ++i)
    parts.push_back(log_softmax(tail[i](x), 1) +
                    narrow(top, 1, cutoffs[0] + static_cast<int64_t>(i), 1));
  return cat(parts, 1);
}
Tensor AdaptiveLogSoftmaxWithLoss::log_prob(const Tensor& x, SourceLocation loc) {
  return scoped(loc, [&] { return full_log_prob(x); });
}
Tensor AdaptiveLogSoftmaxWithLoss::predict(const Tensor& x, SourceLocation loc) {
  return scoped(loc, [&] { return argmax(full_log_prob(x), 1); });
}

LinearCrossEntropyLoss::LinearCrossEntropyLoss(Dim in, Dim classes, LinearCrossEntropyOptions o)
    : linear(in, classes * o.out_features.numel(), {.bias = o.bias, .dtype = o.dtype}),
      num_classes(classes.value()),
      options(std::move(o)) {
  TD_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, Value,
           "LinearCrossEntropyLoss expects label_smoothing in 0..1, got {}",
           options.label_smoothing);
  TD_REGISTER(linear);
}
Tensor LinearCrossEntropyLoss::forward(Tensor x, Tensor target) {
  Shape outputs(num_classes);
  for (Dim d : options.out_features) outputs.push_back(d);
  Shape weights = outputs;
  weights.push_back(linear.in_features);
  LinearCrossEntropyArguments a;
  if (linear.bias.defined()) a.linear_bias = reshape(linear.bias, outputs);
  a.weight = options.weight;
  a.reduction = options.reduction;
  a.ignore_index = options.ignore_index;
  a.label_smoothing = options.label_smoothing;
  return linear_cross_entropy(x, reshape(linear.weight, weights), target, a);
}
Tensor LinearCrossEntropyLoss::operator()(Tensor x, Tensor target, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(target)); });
}

}  // namespace tandem::nn
