// SPDX-License-Identifier: Apache-2.0
// CompileOptions::same_bits: what inference gains without another rounding.
#include "tests/compile/helpers.h"

#include "tandem/ops/matmul/packed.h"

namespace tandem::test {
namespace {

/// A weight that stays.
Tensor held(const Tensor& w) { return is_tracing() ? constant(w) : w; }

// What compile() may do by default: pack matmuls, whose sums keep their order, and nothing else.
TEST(SameBits, MatmulsOfF32ArePackedAndNothingElse) {
  manual_seed(11);
  NoGradGuard no_grad;
  const Tensor b = randn({130}), filter = randn({64, 32, 3, 3}), image = randn({2, 32, 12, 12});
  struct Case {
    const char* what;
    std::function<Tensor(Tensor y, Tensor x)> behind;
  };
  const std::vector<Case> cases{
      {"alone", [](Tensor y, Tensor) { return y; }},
      {"clamp", [](Tensor y, Tensor) { return relu6(y); }},
      {"numbers", [](Tensor y, Tensor) { return relu(y * 0.3 + 1) * 2; }},
      {"residual",
       [](Tensor y, Tensor x) {
         return relu(y + x.sum(1, true).expand({-1, 130}).contiguous());
       }},
      {"a bias after", [&](Tensor y, Tensor) { return y + held(b); }},
      {"gelu", [](Tensor y, Tensor) { return gelu(y); }},
      {"hardswish", [](Tensor y, Tensor) { return hardswish(y * 1.5); }},
  };
  for (const Case& k : cases)
    for (const int64_t depth : {64, 255, 256, 257, 1100}) {
      const Tensor w = randn({130, depth});
      for (const int64_t rows : {1, 5, 64, 300}) {
        const std::string what = fmt::format("{}, [{}, {}]", k.what, rows, depth);
        const Tensor x = cat({zeros({1, depth}), randn({rows - 1, depth})}, 0);
        const auto f = [&](Tensor v) { return k.behind(linear(v, held(w), held(b)), v); };
        auto compiled = compile(f);
        EXPECT_TRUE(same_bits(compiled(x), f(x))) << what;
        EXPECT_EQ(count_ops(compiled.executable(), op::packed_matmul), 1) << what;
      }
    }
  auto image_net = compile([&](Tensor v) { return conv2d(v, held(filter), {}, {1}, {1}); });
  EXPECT_TRUE(same_bits(image_net(image), conv2d(image, filter, {}, {1}, {1})));
  EXPECT_EQ(count_ops(image_net.executable(), op::packed_conv), 0);
  EXPECT_EQ(count_ops(image_net.executable(), op::winograd_conv), 0);
}

}  // namespace
}  // namespace tandem::test
