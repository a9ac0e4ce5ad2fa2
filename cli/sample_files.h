// SPDX-License-Identifier: Apache-2.0
// Files of what a model made or drew: pictures as PNG, arrays as .npy, .npz and .safetensors.
#pragma once

#include <string>

#include "tandem/train/recipe.h"

namespace tandem::cli {

/// Is it a PNG file, by its ending?
bool is_png(const std::string& file);
/// Pictures [n, c, h, w] of 0..1 beside and below each other as u8; columns 0: as many as rows.
Tensor picture_grid(const Tensor& pictures, int64_t columns = 0);
/// Samples by the file's ending: a grid of pictures, or "samples" and, of classes, "labels". Throws
/// Value for another ending and where they are no pictures.
void check_samples_file(const std::string& file);
void write_samples(const train::RecipeSamples& samples, const std::string& file, int64_t columns);

}  // namespace tandem::cli
