// SPDX-License-Identifier: Apache-2.0
// quantize_file() of a run that is evaluated on larger images than it was trained on, and of files
// whose sizes are open.
#include <gtest/gtest.h>

#include <filesystem>

#include "tandem/io/image.h"
#include "tandem/onnx/model.h"
#include "tandem/recipe/quantize.h"
#include "tandem/recipe/recipe.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"
#include "tests/onnx/helper.h"
#include "tests/support/errors.h"

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

/// [batch, length, 4] of floats.
std::string open_port(const std::string& name) {
  io::ProtoWriter shape, tensor, type, port;
  for (const char* size : {"batch", "length", ""}) {
    io::ProtoWriter d;
    if (*size)
      d.add_bytes(2, size);
    else
      d.add_int(1, 4);
    shape.add_message(1, d);
  }
  tensor.add_int(1, 1);
  tensor.add_message(2, shape);
  type.add_message(1, tensor);
  port.add_bytes(1, name);
  port.add_message(2, type);
  return port.str();
}

// A length is that of the data. The second file computes with the size of its batch.
TEST(QuantizeFile, LengthsOfTheData) {
  init();
  manual_seed(3);
  const TempFolder folder;
  const std::vector<float> weight = rand({4, 4}).to_vector<float>(), one(4, 1.0f);
  io::save_npy(randn({6, 7, 4}), folder / "x.npy");
  for (const bool computes : {false, true}) {
    onnx::GraphText g;
    g.inputs = {open_port("x")};
    g.outputs = {open_port("y")};
    g.initializers = {onnx::floats("w", {4, 4}, weight), onnx::floats("one", {1, 1, 4}, one)};
    g.nodes = {onnx::node("MatMul", {"x", "w"}, {"z"})};
    if (computes) {
      g.nodes.push_back(onnx::node("Shape", {"x"}, {"sizes"}));
      g.nodes.push_back(onnx::node("Expand", {"one", "sizes"}, {"ones"}));
    }
    g.nodes.push_back(onnx::node("Add", {"z", computes ? "ones" : "one"}, {"y"}));
    write_file(folder / "net.onnx", onnx::model(g));
    QuantizeFileOptions options;
    options.data = folder / "x.npy";
    const QuantizeReport r =
        quantize_file({.model = folder / "net.onnx"}, folder / "q.onnx", options);
    EXPECT_EQ(r.score.samples, 6);
    EXPECT_GT(r.score.sqnr, 30);
    EXPECT_EQ(r.fixed.empty(), !computes) << r.fixed;
    const int64_t batch = computes ? 1 : 5;
    const Tensor x = io::load_npy(folder / "x.npy").narrow(0, 0, batch);
    const Tensor y = onnx::OnnxModel::load(folder / "q.onnx")({x})[0];
    const Tensor want = onnx::OnnxModel::load(folder / "net.onnx")({x})[0];
    EXPECT_EQ(y.shape(), Shape(batch, 7, 4));
    EXPECT_LT(amax(abs(y - want)).item<double>(), 0.2);
  }
}

// Where each call finds its own ranges, all that a file leaves open stays open, under its names.
// The second file computes with its batch; then sizes have to be given.
TEST(QuantizeFile, DynamicKeepsOpenSizes) {
  init();
  manual_seed(4);
  const TempFolder folder;
  const std::vector<float> weight = rand({4, 4}).to_vector<float>(), one(4, 1.0f);
  io::save_npy(randn({6, 7, 4}), folder / "x.npy");
  const struct Case {
    bool computes;
    const char *data, *shapes;
    std::vector<int64_t> open;  ///< of the result; empty: an error
  } kCases[] = {{false, "", "", {-1, -1, 4}},      {false, "", "x:2x5x4", {-1, -1, 4}},
                {false, "x.npy", "", {-1, -1, 4}}, {true, "", "", {}},
                {true, "", "x:1x5x4", {1, 5, 4}},  {true, "x.npy", "", {1, 7, 4}}};
  for (const Case& c : kCases) {
    onnx::GraphText g;
    g.inputs = {open_port("x")};
    g.outputs = {open_port("y")};
    g.initializers = {onnx::floats("w", {4, 4}, weight), onnx::floats("one", {1, 1, 4}, one)};
    g.nodes = {onnx::node("MatMul", {"x", "w"}, {"z"})};
    if (c.computes) {
      g.nodes.push_back(onnx::node("Shape", {"x"}, {"sizes"}));
      g.nodes.push_back(onnx::node("Expand", {"one", "sizes"}, {"ones"}));
    }
    g.nodes.push_back(onnx::node("Add", {"z", c.computes ? "ones" : "one"}, {"y"}));
    write_file(folder / "net.onnx", onnx::model(g));
    QuantizeFileOptions options;
    options.quant.dynamic = true;
    options.onnx.shapes = c.shapes;
    if (*c.data) options.data = folder / c.data;
    const auto quantised = [&] {
      return quantize_file({.model = folder / "net.onnx"}, folder / "q.onnx", options);
    };
    if (c.open.empty()) {
      EXPECT_TRUE(
          has(thrown(quantised, ErrorKind::Value), "dimension 1 of 'x' is open in the file"));
      continue;
    }
    const QuantizeReport r = quantised();
    EXPECT_EQ(r.fixed.empty(), !c.computes) << r.fixed;
    const onnx::OnnxModel q = onnx::OnnxModel::load(folder / "q.onnx");
    const onnx::OnnxTypeSpec& type = q.inputs()[0].type;
    EXPECT_EQ(type.dims, c.open);
    if (c.computes) continue;
    EXPECT_EQ(type.dim_names, (std::vector<std::string>{"batch", "length", ""}));
    for (const int64_t length : {1, 9}) {
      const Tensor x = randn({3, length, 4}),
                   want = onnx::OnnxModel::load(folder / "net.onnx")({x})[0];
      EXPECT_LT(amax(abs(q({x})[0] - want)).item<double>(), 0.2);
    }
  }
}

}  // namespace
}  // namespace tandem::recipe
