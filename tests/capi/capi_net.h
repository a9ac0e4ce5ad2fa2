// SPDX-License-Identifier: Apache-2.0
// The net that tests of tandem_c.h run, as an ONNX file: y = tanh((table[ids] + x) w), and the
// largest of each row.
#pragma once

#include "tests/serve/serve_helper.h"

namespace tandem {

/// ids int64[n], x float32[n, 3] -> y float32[n, 2], top int64[n]; n -1: open.
inline std::string capi_net(int64_t n = 4) {
  using namespace onnx;
  constexpr int kFloat = 1, kInt64 = 7;
  std::vector<float> table, w;
  for (int i = 0; i < 27; ++i) table.push_back(static_cast<float>(i * 7 % 11) * 0.125F - 0.5F);
  for (int i = 0; i < 6; ++i) w.push_back(static_cast<float>(i * 5 % 7) * 0.25F - 0.75F);
  using serve::sized_port;
  return model(
      {{node("Gather", {"table", "ids"}, {"row"}), node("Add", {"row", "x"}, {"sum"}),
        node("MatMul", {"sum", "w"}, {"product"}), node("Tanh", {"product"}, {"y"}),
        node("ArgMax", {"y"}, {"top"}, {int_attribute("axis", 1), int_attribute("keepdims", 0)})},
       {floats("table", {9, 3}, table), floats("w", {3, 2}, w)},
       {sized_port("ids", kInt64, {n}), sized_port("x", kFloat, {n, 3})},
       {sized_port("y", kFloat, {n, 2}), sized_port("top", kInt64, {n})}});
}

}  // namespace tandem
