// SPDX-License-Identifier: Apache-2.0
// A model together with the preparation of its samples: what takes a camera's pixels or a
// microphone's numbers, as one function that can be traced, compiled and written as C.
#pragma once

#include <string>

#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

/// How samples become the inputs of a model: as those of a run's test set; else, of a model that
/// takes images of a known size, as torchvision's evaluation prepares them (the shorter side
/// resized to 8/7 of the model's size, the middle cut out, ImageNet's means and deviations). Throws
/// Unsupported, and Value for a model that takes no such images.
TD_API Preparation preparation_of(const LoadedModel& model);

struct SampleModel {
  /// Takes one decoded sample: "image", u8 [c, h, w], or "sound", f32 [1, n]. Gives what the model
  /// gives; of a detector "boxes" f32 [k, 4] (x1, y1, x2, y2 in pixels of that image) and "scores"
  /// f32 [k, classes], 0 where there is no peak: overlapping ones are left to the caller.
  LoadedModel model;
  SampleForm form;
};
/// `shapes` as set_shapes() takes them, for images of any size ("image:3x240x320"). Throws what
/// preparation_of() throws; Unsupported where samples are not tensors; Value for open sizes.
TD_API SampleModel with_preparation(LoadedModel model, const std::string& shapes = "");

}  // namespace tandem::recipe
