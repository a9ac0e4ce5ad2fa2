// SPDX-License-Identifier: Apache-2.0
// Detector: anchor-free boxes from one map at 1/8 of the image's size. The centre of an object is a
// peak in its class's map (Zhou et al., "Objects as points"); the cells around it predict the
// distances to its four sides (Tian et al., "FCOS").
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct DetectorOptions {
  int64_t classes = 3;
  int64_t width = 16;

  /// All but the classes, which the data says.
  template <class V>
  void fields(V& v) {
    v("width", width, {.doc = "channels of the first stage", .at_least = 1});
  }
};
/// Objects found in one image, best first.
struct Detections {
  Tensor boxes;   ///< f32 [k, 4]: x1, y1, x2, y2 in pixels
  Tensor scores;  ///< f32 [k] in 0..1
  Tensor labels;  ///< i64 [k]
};
struct DetectOptions {
  double score = 0.05;   ///< lowest score kept
  double overlap = 0.5;  ///< overlap of boxes of one class above which the lower score is dropped
  int64_t most = 100;
};

class TD_API Detector : public nn::Module {
 public:
  static constexpr int64_t kStride = 8;
  explicit Detector(DetectorOptions options = {});
  /// x [n, 3, h, w], both multiples of 32 -> [n, classes + 4, h / 8, w / 8]: logits of the centres
  /// and the logarithms of the distances to the sides, in cells.
  Tensor forward(Tensor x);
  /// Focal loss of the centres and generalised IoU loss of the boxes. boxes f32 [n, m, 4] in
  /// pixels, labels i64 [n, m], -1 where an image has fewer than m.
  Tensor loss(const Tensor& output, const Tensor& boxes, const Tensor& labels) const;
  /// Every cell of one image's output [classes + 4, h / 8, w / 8]: its box, x1, y1, x2, y2 in
  /// pixels, f32 [cells, 4], and scores f32 [cells, classes], 0 where it is no peak. Of ops alone.
  struct Candidates {
    Tensor boxes, scores;
  };
  Candidates candidates(const Tensor& output) const;
  /// The best of them, those of one class that overlap left out.
  Detections decode(const Tensor& output, DetectOptions options = {}) const;

  /// Two convolutions and a shortcut; the first halves the size.
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
