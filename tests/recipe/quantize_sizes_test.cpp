// SPDX-License-Identifier: Apache-2.0
// quantize_file() of a run that is evaluated on larger images than it was trained on.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/io/image.h"
#include "tandem/onnx/model.h"
#include "tandem/recipe/quantize.h"
#include "tandem/recipe/recipe.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"

namespace tandem::recipe {
namespace {

TEST(QuantizeFile, WholeImagesAfterPieces) {
  init();
  const TempFolder folder;
  for (const char* part : {"image", "label"}) std::filesystem::create_directories(folder / part);
  for (int i = 0; i < 3; ++i) {
    manual_seed(static_cast<uint64_t>(i));
    const std::string name = "/" + std::to_string(i) + ".png";
    io::save_png((rand({1, 64, 64}) * 255.0).to(DType::u8), folder / ("image" + name));
    io::save_png(((rand({1, 64, 64}) > 0.5).to(DType::u8) * 255).to(DType::u8),
                 folder / ("label" + name));
  }
  write_file(folder / "net.yaml",
             "recipe: net\nseed: 0\ndata: {type: image_mask, root: " + folder.path().string() +
                 ", crop: 32, crops: 1, batch: 2, test_samples: 1}\nmodel: {type: unet, base: 2}\n"
                 "loss: {type: cross_entropy}\noptim: {type: adamw, lr: 1e-3}\n"
                 "trainer: {epochs: 1, metrics: [accuracy]}\n");
  run_recipe(Recipe::load(folder / "net.yaml"), Registry::standard(), folder / "run", false);
  const QuantizeReport r = quantize_file({.model = folder / "run"}, folder / "q.onnx", {});
  EXPECT_TRUE(r.score.before);
  EXPECT_EQ(r.score.samples, 1);
  const onnx::OnnxModel q = onnx::OnnxModel::load(folder / "q.onnx");
  for (const int64_t size : {32, 64, 96})
    EXPECT_EQ(q({rand({1, 1, size, size})})[0].shape(), Shape(1, 2, size, size));
}

}  // namespace
}  // namespace tandem::recipe
