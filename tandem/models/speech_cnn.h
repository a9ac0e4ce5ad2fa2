// SPDX-License-Identifier: Apache-2.0
// SpeechCNN: a small convolutional net over mel spectrograms, for single words.
#pragma once

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"

namespace tandem::models {

struct SpeechCNNOptions {
  int64_t classes = 10;
  int64_t width = 16;
  double dropout = 0.3;

  /// All but the classes, which the data says.
  template <class V>
  void fields(V& v) {
    v("width", width, {.doc = "channels of the first stage; doubled twice", .at_least = 1});
    v("dropout", dropout,
      {.doc = "share of values that training drops", .at_least = 0, .below = 1});
  }
};

/// x [n, 1, bins, frames], both at least 8 -> logits [n, classes]; averages over all positions, so
/// lengths may differ from batch to batch.
struct SpeechCNN : nn::Module {
  explicit SpeechCNN(const SpeechCNNOptions& o)
      : stages(stage(1, o.width), nn::MaxPool2d(2), stage(o.width, 2 * o.width), nn::MaxPool2d(2),
               stage(2 * o.width, 4 * o.width), nn::MaxPool2d(2)),
        drop(o.dropout),
        fc(4 * o.width, o.classes) {
    TD_REGISTER(stages, drop, fc);
  }
  Tensor forward(Tensor x) { return fc(drop(stages(std::move(x)).mean({2, 3}))); }
  nn::Sequential stages;
  nn::Dropout drop;
  nn::Linear fc;

 private:
  static nn::Sequential stage(int64_t in, int64_t out) {
    return nn::Sequential(nn::Conv2d(in, out, 3, {.padding = {1}, .bias = false}),
                          nn::BatchNorm2d(out), nn::ReLU());
  }
};

}  // namespace tandem::models
