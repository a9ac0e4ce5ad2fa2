// SPDX-License-Identifier: Apache-2.0
#include "cli/sample_files.h"

#include <cmath>

#include "tandem/interop/weights.h"
#include "tandem/io/image.h"
#include "tandem/io/npy.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {
namespace {

constexpr int64_t kGap = 2;  // pixels between pictures

}  // namespace

bool is_png(const std::string& file) { return file.ends_with(".png"); }

Tensor picture_grid(const Tensor& pictures, int64_t columns) {
  TD_CHECK(pictures.dim() == 4 && (pictures.size(1) == 1 || pictures.size(1) == 3), Value,
           "the samples are {}, a PNG file wants pictures of 1 or 3 channels\nWrite them as .npy, "
           ".npz or .safetensors.",
           pictures.shape().to_string());
  const int64_t n = pictures.size(0), c = pictures.size(1), h = pictures.size(2),
                w = pictures.size(3);
  if (columns < 1) columns = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  columns = std::min(columns, n);
  const int64_t rows = (n + columns - 1) / columns;
  // Empty places, then a gap on the right and below each.
  Tensor all = round(clamp(pictures, 0.0, 1.0) * 255.0).to(DType::u8);
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

void write_samples(const train::RecipeSamples& samples, const std::string& file, int64_t columns) {
  if (is_png(file)) {
    write_file(file, io::encode_png(picture_grid(samples.values, columns)));
  } else if (file.ends_with(".npy")) {
    io::save_npy(samples.values, file);
  } else {
    StateDict named;
    named["samples"] = samples.values;
    if (!samples.labels.empty()) named["labels"] = tensor(samples.labels);
    interop::save_weights(named, file);
  }
}

}  // namespace tandem::cli
