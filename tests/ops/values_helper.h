// SPDX-License-Identifier: Apache-2.0
// Shared by the hand-checked tests of the ops: values as a list of doubles, error texts.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/parallel.h"
#include "tandem/grad/transforms.h"
#include "tandem/graph/trace.h"
#include "tandem/init.h"
#include "tandem/ops/ops.h"

namespace tandem::testing_ops {

using Values = std::vector<double>;

class OpsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { init(); }
};

inline Values values(const Tensor& t) { return t.to_vector<double>(); }

/// Shape and values at once.
inline void expect_tensor(const Tensor& t, const Shape& shape, const Values& want) {
  EXPECT_EQ(t.shape().to_string(), shape.to_string());
  EXPECT_EQ(values(t), want);
}

/// f must throw `kind` with `text` in its message.
template <class F>
void expect_error(ErrorKind kind, const std::string& text, F&& f) {
  try {
    f();
    ADD_FAILURE() << "nothing was thrown; wanted: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos)
        << "wanted: " << text << "\ngot: " << e.what();
  }
}

/// 0, 1, 2, ... as f32 (or another dtype) of a shape.
inline Tensor count(const Shape& shape, DType dtype = DType::f32) {
  return arange(shape.numel().value(), dtype).reshape(shape);
}

/// vmap(f) gives what f gives for each slice of dimension 0.
template <class F, class... X>
void expect_vmap(F f, const X&... x) {
  const Tensor got = vmap(f)(x...);
  std::vector<Tensor> want;
  const int64_t n = std::get<0>(std::tie(x...)).size(0);
  for (int64_t i = 0; i < n; ++i) want.push_back(f(x[i]...));
  const Tensor all = stack(want);
  expect_tensor(got, all.shape(), values(all));
}

}  // namespace tandem::testing_ops
