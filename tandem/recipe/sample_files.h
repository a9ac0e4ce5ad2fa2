// SPDX-License-Identifier: Apache-2.0
// Files of what a model made or drew: images as PNG, arrays as .npy, .npz and .safetensors.
#pragma once

#include <string>

#include "tandem/recipe/recipe.h"

namespace tandem::recipe {

/// Is it a PNG file, by its ending?
TD_API bool is_png(const std::string& file);
/// Images [n, c, h, w] of 0..1 beside and below each other as u8; columns 0: as many as rows.
TD_API Tensor image_grid(const Tensor& images, int64_t columns = 0);
/// Samples by the file's ending: a grid of images, or "samples" and, of classes, "labels". Throws
/// Value for another ending and where they are not images.
TD_API void check_samples_file(const std::string& file);
TD_API void write_samples(const RecipeSamples& samples, const std::string& file, int64_t columns);

}  // namespace tandem::recipe
