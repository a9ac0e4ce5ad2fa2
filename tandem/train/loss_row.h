// SPDX-License-Identifier: Apache-2.0
// A row of losses(): how a loss is made from its options, PyTorch's way and Keras's.
#pragma once

#include <functional>

#include "tandem/base/registry.h"
#include "tandem/data/pipeline.h"
#include "tandem/ops/nn/loss.h"

namespace tandem::train {

/// A loss, not yet averaged, and what metrics see: scores and labels or numbers of one shape.
struct LossParts {
  Tensor loss, output, target;
};

/// The mean loss of output and target. `prepare`, if there is one, sees the training data and the
/// number of its classes (0: not known) before the first step.
struct MadeLoss {
  std::function<Tensor(const Tensor& output, const Tensor& target)> function;
  std::function<void(const data::AnyPipeline& train, int64_t classes)> prepare = {};
};

/// A row of losses(): `make`, `parts` or both.
struct LossRow : Component {
  /// From the row's options; nullptr: the mean of `parts`.
  MadeLoss (*make)(const void* options) = nullptr;
  /// Keras's formula, for Model::compile; nullptr: Keras has no such name. `from_logits`: output
  /// holds scores, else probabilities.
  LossParts (*parts)(const Tensor& output, const Tensor& target, bool from_logits) = nullptr;
};

/// Keeps logarithms and quotients of Keras's losses finite.
inline constexpr double kKerasEpsilon = 1e-7;

/// y as numbers of x's shape and dtype: [n] beside [n, 1] is one column. Throws Shape.
TD_API Tensor targets_like(const Tensor& y, const Tensor& x);
/// (x - y)^2, element by element.
TD_API Tensor squared_errors(const Tensor& x, const Tensor& y);

/// A loss of numbers, PyTorch's way: f(output, target of its shape and dtype, options).
template <class P, auto f>
constexpr LossRow numbers_loss(const char* name, const char* doc, const char* example) {
  return {{name, doc, example, &kFieldsType<P>}, [](const void* options) {
            return MadeLoss{
                [o = *static_cast<const P*>(options)](const Tensor& x, const Tensor& y) -> Tensor {
                  return f(x, targets_like(y, x), o, SourceLocation::here());
                }};
          }};
}
/// A loss of numbers, Keras's way: f(output, target) gives a value for each element, or each row.
template <auto f>
constexpr LossRow keras_loss(const char* name, const char* doc, const char* example) {
  return {{name, doc, example}, nullptr, [](const Tensor& output, const Tensor& target, bool) {
            const Tensor t = targets_like(target, output);
            return LossParts{f(output, t), output, t};
          }};
}
/// PyTorch's options and Keras's formula under one name.
constexpr LossRow both(LossRow torch, const LossRow& keras) {
  torch.parts = keras.parts;
  return torch;
}

}  // namespace tandem::train
