// SPDX-License-Identifier: Apache-2.0
// ONNX's class losses: weights, ignored labels, three reductions.
#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// Loss of log-probabilities [n, c, ...] at labels [n, ...].
Tensor nll(OnnxCall& c, const Tensor& logp, Tensor target) {
  target = target.to(DType::i64);
  const bool ignores = c.attribute("ignore_index") != nullptr;
  const int64_t ignored = c.attr("ignore_index", 0);
  const Tensor skip = ignores ? eq(target, ignored) : Tensor();
  const Tensor safe = ignores ? where(skip, 0, target) : target;
  Tensor loss = -gather(logp, 1, safe.unsqueeze(1)).squeeze(1);
  Tensor weight;
  if (c.has(2)) weight = index_select(c.x(2), 0, safe.reshape({-1})).reshape(safe.shape());
  if (ignores) {
    if (!weight.defined()) weight = ones_like(loss);
    weight = where(skip, 0, weight).to(loss.dtype());
  }
  if (weight.defined()) loss = loss * weight;
  const std::string reduction = c.attr_choice("reduction", "mean", {"mean", "sum", "none"});
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss);
  return weight.defined() ? sum(loss) / sum(weight) : mean(loss);
}

void nll_loss_of(OnnxCall& c) { c.set_like(0, nll(c, c.x(0), c.x(1))); }

void softmax_cross_entropy_of(OnnxCall& c) {
  const Tensor logp = log_softmax(c.x(0), 1);
  c.set_like(0, nll(c, logp, c.x(1)));
  c.set_like(1, logp);
}

}  // namespace

std::span<const OnnxRow> onnx_loss_rows() {
  static constexpr OnnxRow kRows[] = {
      {"",
       "NegativeLogLikelihoodLoss",
       12,
       0,
       nll_loss_of,
       {3, 1, "ignore_index reduction"},
       &op::nll_loss,
       export_nll_loss},
      {"",
       "SoftmaxCrossEntropyLoss",
       12,
       0,
       softmax_cross_entropy_of,
       {3, 2, "ignore_index reduction"},
       &op::softmax_cross_entropy,
       export_cross_entropy},
      exported(op::softmax_cross_entropy_backward, export_cross_entropy_backward),
      exported(op::nll_loss_backward, export_nll_loss_backward),
  };
  return kRows;
}

}  // namespace tandem::onnx
