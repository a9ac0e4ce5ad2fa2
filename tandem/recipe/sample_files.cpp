// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/sample_files.h"

#include <cmath>

#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/ops/ops.h"
#include "tandem/weights/weights.h"

namespace tandem::recipe {
namespace {

constexpr int64_t kGap = 2;  // pixels between images

}  // namespace

bool is_png(const std::string& file) { return file.ends_with(".png"); }

Tensor image_grid(const Tensor& images, int64_t columns) {
  TD_CHECK(images.dim() == 4 && (images.size(1) == 1 || images.size(1) == 3), Value,
           "the samples are {}, a PNG file expects images of 1 or 3 channels\nWrite them as .npy, "
           ".npz or .safetensors.",
           images.shape().to_string());
  const int64_t n = images.size(0), c = images.size(1), h = images.size(2), w = images.size(3);
  if (columns < 1) columns = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  columns = std::min(columns, n);
  const int64_t rows = (n + columns - 1) / columns;
  // Empty places, then a gap on the right and below each.
  Tensor all = round(clamp(images, 0.0, 1.0) * 255.0).to(DType::u8);
  if (rows * columns > n) all = cat({all, zeros({rows * columns - n, c, h, w}, DType::u8)}, 0);
  all = pad(all, {0, kGap, 0, kGap}).reshape({rows, columns, c, h + kGap, w + kGap});
  all = all.permute({2, 0, 3, 1, 4}).reshape({c, rows * (h + kGap), columns * (w + kGap)});
  return pad(all, {kGap, 0, kGap, 0});
}

void check_samples_file(const std::string& file) {
  for (const char* end : {".png", ".npy", ".npz", ".safetensors"})
    if (file.ends_with(end)) return;
  TD_FAIL(Value, "'{}': samples are written as .png, .npy, .npz or .safetensors", file);
}

void write_samples(const RecipeSamples& samples, const std::string& file, int64_t columns) {
  if (is_png(file)) {
    io::save_png(image_grid(samples.values, columns), file);
  } else if (file.ends_with(".npy")) {
    io::save_npy(samples.values, file);
  } else {
    StateDict named;
    named["samples"] = samples.values;
    if (!samples.labels.empty()) named["labels"] = tensor(samples.labels);
    weights::save_weights(named, file);
  }
}

}  // namespace tandem::recipe
