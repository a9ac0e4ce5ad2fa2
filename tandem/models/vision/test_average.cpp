// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/test_average.h"

#include "tandem/base/error.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

struct View {
  bool turned, left_right, up_down;
};

Tensor mirrored(Tensor x, const View& v) {
  if (v.left_right) x = flip(x, {3});
  if (v.up_down) x = flip(x, {2});
  return x;
}
Tensor shown(const Tensor& x, const View& v) {
  return mirrored(v.turned ? transpose(x, 2, 3) : x, v);
}
Tensor turned_back(const Tensor& y, const View& v) {
  if (y.dim() != 4) return y;
  const Tensor x = mirrored(y, v);
  return v.turned ? transpose(x, 2, 3) : x;
}

}  // namespace

TestAverage test_average_of(const std::string& name) {
  if (name == "none") return TestAverage::none;
  if (name == "flip") return TestAverage::flip;
  if (name == "flips") return TestAverage::flips;
  if (name == "turns") return TestAverage::turns;
  TD_FAIL(Value, "test_average must be none, flip, flips or turns, not '{}'", name);
}

Tensor average_of_views(const std::function<Tensor(const Tensor&)>& net, const Tensor& x,
                        TestAverage views) {
  if (views == TestAverage::none) return net(x);
  TD_CHECK(x.dim() == 4, Shape, "test_average: images are [n, c, h, w], got {}",
           x.shape().to_string());
  const int n = views == TestAverage::flip ? 2 : views == TestAverage::flips ? 4 : 8;
  Tensor sum;
  for (int i = 0; i < n; ++i) {
    const View v{(i & 4) != 0, (i & 1) != 0, (i & 2) != 0};
    const Tensor y = turned_back(net(shown(x, v)), v);
    sum = sum.defined() ? sum + y : y;
  }
  return sum / static_cast<double>(n);
}

}  // namespace tandem::models
