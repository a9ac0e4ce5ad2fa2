// SPDX-License-Identifier: Apache-2.0
// recipe::write_onnx: which dimensions of a model stay open, by default and as asked.
#include <gtest/gtest.h>

#include "tandem/onnx/onnx.h"
#include "tandem/recipe/model_files.h"
#include "tandem/tandem.h"
#include "tests/io/io_helper.h"

namespace tandem::recipe {
namespace {

using Texts = std::vector<std::string>;

Texts open_dims(const std::string& model, const Texts& dynamic, const std::string& path) {
  write_onnx({.model = model}, path,
             {.shapes = "x:1x" + std::string(model == "lenet" ? "1x28x28" : "3x64x64"),
              .dynamic = dynamic});
  return onnx::OnnxModel::load(path).inputs()[0].type.dim_names;
}

TEST(WriteOnnx, LeavesDimensionsOpen) {
  init();
  const TempFolder folder;
  struct Case {
    const char* model;
    Texts dynamic, want;
  };
  for (const Case& c : std::vector<Case>{
           {"lenet", {}, {"batch", "", "", ""}},
           {"lenet", {"all"}, {"batch", "", "", ""}},
           {"lenet", {"none"}, {"", "", "", ""}},
           {"lenet", {"x:0=n"}, {"n", "", "", ""}},
           {"lenet", {"0,-1"}, {"batch", "", "", "x_3"}},
           {"shufflenet_v2_x0_5", {}, {"batch", "", "", ""}},
           {"shufflenet_v2_x0_5", {"all"}, {"batch", "", "height", "width"}},
           {"shufflenet_v2_x0_5", {"x:2,3=w"}, {"", "", "height", "w"}},
       }) {
    SCOPED_TRACE(std::string(c.model) + " " + (c.dynamic.empty() ? "" : c.dynamic[0]));
    EXPECT_EQ(open_dims(c.model, c.dynamic, folder / "m.onnx"), c.want);
  }
}

TEST(WriteOnnx, SaysWhichDimensionsThereAre) {
  init();
  const TempFolder folder;
  const std::pair<const char*, const char*> cases[] = {
      {"y:0=n", "there is no input 'y'"},
      {"x:4=n", "'x' has 4 dimensions, 4 is none of them"},
      {"x:a=n", "names no dimensions"},
      {"x:0=", "Write x:0=batch,2=height, or all, or none"},
  };
  for (const auto& [text, error] : cases) {
    const std::string got = error_of([&, t = text] { open_dims("lenet", {t}, folder / "m.onnx"); });
    EXPECT_NE(got.find(error), std::string::npos) << text << ": " << got;
  }
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace tandem::recipe
