// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/losses.h"

#include "tandem/base/error.h"
#include "tandem/ops/ops.h"
#include "tandem/train/trainer.h"

namespace tandem::train {
namespace {

constexpr const LossRow* kLosses[] = {
#define X(row) &loss_rows::row,
    TD_FOR_EACH_NAMED_LOSS(X)
#undef X
};

}  // namespace

Registry<LossRow>& losses() {
  static Registry<LossRow> all("loss", std::span<const LossRow* const>(kLosses));
  return all;
}

MadeLoss make_loss(const LossRow& row, const void* options) {
  if (row.make) return row.make(options);
  return {[parts = row.parts](const Tensor& x, const Tensor& y) {
    return mean_loss(parts(x, y, true).loss, {});
  }};
}

Tensor targets_like(const Tensor& y, const Tensor& x) {
  Tensor t = y.to(x.dtype());
  if (t.shape() != x.shape() && t.numel() == x.numel()) t = t.reshape(x.shape());
  TD_CHECK(t.shape() == x.shape(), Shape,
           "the loss expects targets of the output's shape {}, got {}", x.shape().to_string(),
           y.shape().to_string());
  return t;
}

}  // namespace tandem::train
