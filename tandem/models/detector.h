// SPDX-License-Identifier: Apache-2.0
// Detector: boxes without anchors, from one map of a picture's eighths. The centre of an object is
// a peak of its class's map (Zhou et al., "Objects as points"), the cells about it say how far its
// four sides are (Tian et al., "FCOS").
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct DetectorOptions {
  int64_t classes = 3;
  int64_t width = 16;  ///< channels of the first stage
};
/// What was found in one picture, best first.
struct Detections {
  Tensor boxes;   ///< f32 [k, 4]: x1, y1, x2, y2 in pixels
  Tensor scores;  ///< f32 [k] in 0..1
  Tensor labels;  ///< i64 [k]
};
struct DetectOptions {
  double score = 0.05;   ///< least
  double overlap = 0.5;  ///< of boxes of one class, above which the lower score goes
  int64_t most = 100;
};

class TD_API Detector : public nn::Module {
 public:
  static constexpr int64_t kStride = 8;
  explicit Detector(DetectorOptions options = {});
  /// x [n, 3, h, w], both multiples of 32 -> [n, classes + 4, h / 8, w / 8]: logits of the centres
  /// and the logarithms of the distances to the sides, in cells.
  Tensor forward(Tensor x);
  /// Focal loss of the centres and generalised overlap of the boxes. boxes f32 [n, m, 4] in pixels,
  /// labels i64 [n, m], -1 where a picture has fewer than m.
  Tensor loss(const Tensor& output, const Tensor& boxes, const Tensor& labels) const;
  /// The peaks of one picture's output [classes + 4, h / 8, w / 8].
  Detections decode(const Tensor& output, DetectOptions options = {}) const;

  /// Two convolutions and a way past them; the first halves the size.
  struct TD_API Stage : nn::Module {
    Stage(int64_t in, int64_t out);
    Tensor forward(Tensor x);
    nn::Conv2d conv1, conv2, skip;
    nn::BatchNorm2d norm1, norm2, norm_skip;
  };

 private:
  DetectorOptions o_;
  nn::Conv2d stem_;
  nn::BatchNorm2d stem_norm_;
  Stage stage1_, stage2_, stage3_, stage4_;
  nn::Conv2d side2_, side3_, side4_, mix_, head_;
  nn::BatchNorm2d mix_norm_;
};

}  // namespace tandem::models
