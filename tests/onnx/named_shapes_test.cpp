// SPDX-License-Identifier: Apache-2.0
// Sizes of inputs as the tool's --shapes takes them.
#include "tandem/onnx/named_shapes.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem::onnx {
namespace {

using Sizes = std::vector<std::vector<int64_t>>;

TEST(NamedShapes, ByNameOrInOrder) {
  const struct {
    const char* text;
    std::vector<std::string> inputs;
    Sizes want;
  } rows[] = {
      {"", {"x", "mask"}, {{}, {}}},
      {"1x3x8x8", {"x", "mask"}, {{1, 3, 8, 8}, {}}},
      {"2x4,2x5", {"x", "mask"}, {{2, 4}, {2, 5}}},
      {"mask:1x77", {"x", "mask"}, {{}, {1, 77}}},
      {"mask:1x77,x:7", {"x", "mask"}, {{7}, {1, 77}}},
      {"mask:1x77,2x3", {"x", "mask"}, {{2, 3}, {1, 77}}},
      {"a:b:4x4", {"a:b", "b"}, {{4, 4}, {}}},
      {"anything:3x3", {"x"}, {{3, 3}}},
  };
  for (const auto& r : rows) EXPECT_EQ(named_shapes(r.text, r.inputs), r.want) << r.text;
}

TEST(NamedShapes, WhatIsWrongIsNamed) {
  const struct {
    const char *text, *says;
  } rows[] = {
      {"imgae:1x3", "Did you mean 'image'?"},
      {"q:1x3", "The model has image, mask."},
      {"1x2,3x4,5x6", "gives 3 shapes, the model takes 2 inputs"},
      {"1x", "'1x' is not a shape"},
      {"image:", "'' is not a shape"},
      {"image:0x4", "'0x4' is not a shape"},
      {"image:-1x4", "is not a shape"},
      {"image:1x99999999999999999999", "is not a shape"},
      {",1x2", "'' is not a shape"},
  };
  for (const auto& r : rows) {
    try {
      named_shapes(r.text, {"image", "mask"});
      ADD_FAILURE() << r.text << " is taken";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(r.says), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace tandem::onnx
