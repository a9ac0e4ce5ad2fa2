// SPDX-License-Identifier: Apache-2.0
// recipe::quantize_file: a model by name and its own file, with arrays and with a recipe as data.
#include "tandem/recipe/quantize.h"

#include <gtest/gtest.h>

#include "tandem/io/npy.h"
#include "tandem/onnx/onnx.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"

namespace tandem::recipe {
namespace {

// The last layer kept, and everything a page shows.
QuantizeReport with_page(const TempFolder& folder, QuantizeFileOptions options) {
  options.page = true;
  const ModelSource source{.model = folder / "f32.onnx"};
  options.quant.keep_float = {quantize_file(source, folder / "p.onnx", options).layers.back().name};
  return quantize_file(source, folder / "p.onnx", options);
}

TEST(QuantizeFile, ArraysAsData) {
  init();
  manual_seed(6);
  const TempFolder folder;
  io::save_npy(rand({40, 1, 28, 28}), folder / "x.npy");
  QuantizeFileOptions options;
  options.data = folder / "x.npy";
  options.samples = 20;
  options.onnx.shapes = "x:1x1x28x28";
  write_onnx({.model = "lenet"}, folder / "f32.onnx", {.shapes = options.onnx.shapes});
  const QuantizeReport r =
      quantize_file({.model = folder / "f32.onnx"}, folder / "q.onnx", options);
  EXPECT_EQ(r.layers.size(), 5u);
  EXPECT_EQ(r.score.samples, 40);
  EXPECT_FALSE(r.score.before);
  EXPECT_GT(r.score.sqnr, 25);
  EXPECT_GT(r.score.agreement, 0.9);
  EXPECT_LT(r.weight_bytes_after, 0.265 * static_cast<double>(r.weight_bytes_before));
  options.evaluated = 7;
  EXPECT_EQ(quantize_file({.model = folder / "f32.onnx"}, folder / "q.onnx", options).score.samples,
            7);
  options.evaluated = 0;
  const std::string text = r.to_string();
  EXPECT_NE(text.find("conv"), std::string::npos) << text;
  EXPECT_EQ(r.to_json().find("layers")->as_array()->size(), 5u);
  EXPECT_TRUE(r.ranges.empty());
  const QuantizeReport page = with_page(folder, options);
  EXPECT_EQ(page.ranges.size(), 4u);  // of the five layers one stays in floating point
  EXPECT_EQ(page.why.at(4), "asked for");
  EXPECT_EQ(*page.to_json().find("layers")->as_array()->at(4).find("why")->as_string(),
            "asked for");
  for (const quant::RangeFigures& f : page.ranges) {
    EXPECT_EQ(f.counts.size(), 128u);
    EXPECT_GE(f.seen.high, f.range.high - 1e-3);
  }
  for (const char* part : {"asked for", "range of the codes", "layers on codes", "4 of 5"})
    EXPECT_NE(page.html().find(part), std::string::npos) << part;
  const onnx::OnnxModel q = onnx::OnnxModel::load(folder / "q.onnx");
  EXPECT_EQ(q({rand({7, 1, 28, 28})})[0].shape(), Shape(7, 10));
  options.max_loss = 0.5;
  const auto again = [&](const char* model, const std::string& out) {
    return error_of([&] { quantize_file({.model = model}, out, options); });
  };
  const std::string labels = again("lenet", folder / "l.onnx");
  EXPECT_NE(labels.find("the data has no labels"), std::string::npos) << labels;
  options.data = "";
  for (const double loss : {-1.0, 101.0, std::nan("")}) {
    options.max_loss = loss;
    EXPECT_NE(again("lenet", folder / "l.onnx").find("expected a number from 0 to 100"),
              std::string::npos)
        << loss;
  }
  options.max_loss = {};
  const std::string itself = again((folder / "f32.onnx").c_str(), folder / "f32.onnx");
  EXPECT_NE(itself.find("is the model itself"), std::string::npos) << itself;
  const std::string none = again("lenet", folder / "l.onnx");
  EXPECT_NE(none.find("brings no data to calibrate with"), std::string::npos) << none;
  const std::string ending = again("lenet", folder / "l.tflite");
  EXPECT_NE(ending.find("the result is an ONNX file"), std::string::npos) << ending;
}

}  // namespace
}  // namespace tandem::recipe
