// SPDX-License-Identifier: Apache-2.0
// Losses by name: PyTorch's names with PyTorch's options, and Keras's with Keras's formulas. A new
// one is a file in losses/, included and listed here; recipes, Model::compile and the reference
// pages then know it.
#pragma once

#include "tandem/train/loss_row.h"

namespace tandem::train {

namespace loss_rows {
extern TD_API const LossRow cross_entropy, nll, multi_margin, bce_with_logits,
    sparse_categorical_crossentropy, categorical_crossentropy, binary_crossentropy;
extern TD_API const LossRow mse, l1, smooth_l1, huber, bce, soft_margin, multilabel_soft_margin,
    kl_div, poisson_nll, hinge_embedding, focal, dice, tversky;
extern TD_API const LossRow mean_squared_error, mae, mean_absolute_error, mape,
    mean_absolute_percentage_error, msle, mean_squared_logarithmic_error, log_cosh, logcosh,
    poisson, hinge, squared_hinge, kl_divergence, cosine_similarity;
}  // namespace loss_rows

/// X(row) for every loss_rows::row.
#define TD_FOR_EACH_NAMED_LOSS(X)    \
  X(cross_entropy)                   \
  X(nll)                             \
  X(mse)                             \
  X(l1)                              \
  X(smooth_l1)                       \
  X(huber)                           \
  X(bce)                             \
  X(bce_with_logits)                 \
  X(multi_margin)                    \
  X(multilabel_soft_margin)          \
  X(soft_margin)                     \
  X(hinge_embedding)                 \
  X(kl_div)                          \
  X(poisson_nll)                     \
  X(focal)                           \
  X(dice)                            \
  X(tversky)                         \
  X(sparse_categorical_crossentropy) \
  X(categorical_crossentropy)        \
  X(binary_crossentropy)             \
  X(mean_squared_error)              \
  X(mae)                             \
  X(mean_absolute_error)             \
  X(mape)                            \
  X(mean_absolute_percentage_error)  \
  X(msle)                            \
  X(mean_squared_logarithmic_error)  \
  X(log_cosh)                        \
  X(logcosh)                         \
  X(poisson)                         \
  X(hinge)                           \
  X(squared_hinge)                   \
  X(kl_divergence)                   \
  X(cosine_similarity)

/// Every loss by name; a program may add its own.
TD_API Registry<LossRow>& losses();
/// With the options of the row.
TD_API MadeLoss make_loss(const LossRow& row, const void* options);

}  // namespace tandem::train
