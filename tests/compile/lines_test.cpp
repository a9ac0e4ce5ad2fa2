// SPDX-License-Identifier: Apache-2.0
// Convolutions of lines [n, c, l] in programs without gradients.
#include "tandem/ops/matmul/packed.h"
#include "tests/compile/inference_helper.h"

namespace tandem::test {
namespace {

// Convolutions of lines are those of images one pixel wide.
TEST(Lines, AreConvolvedPacked) {
  manual_seed(17);
  struct Case {
    int64_t n, c, l, o, kernel, stride, padding, groups;
    const OpDef* row;
  };
  const OpDef *conv = &op::packed_conv, *deep = &op::depthwise_conv, *plain = &op::conv,
              *product = &op::packed_matmul;
  for (const Case& k : {Case{1, 1, 640, 258, 256, 128, 0, 1, conv},
                        {1, 129, 4, 128, 3, 1, 1, 1, conv},
                        {2, 40, 101, 64, 5, 2, 2, 1, conv},
                        {3, 24, 50, 33, 1, 1, 0, 1, product},
                        {1, 24, 50, 33, 1, 3, 0, 1, conv},
                        {2, 40, 101, 40, 9, 1, 4, 40, deep},
                        {1, 40, 101, 40, 9, 2, 4, 40, deep},
                        {1, 64, 30, 1, 8, 1, 0, 1, conv},
                        {1, 16, 40, 16, 3, 1, 1, 4, plain}}) {
    const Tensor x = randn({k.n, k.c, k.l}), b = randn({k.o});
    const Tensor w = randn({k.o, k.c / k.groups, k.kernel}) * 0.2;
    const std::string what = fmt::format("{} [{}] -> {}, kernel {}, stride {}, groups {}", k.c, k.l,
                                         k.o, k.kernel, k.stride, k.groups);
    const auto f = [&](Tensor v) {
      return conv1d(v, fixed(w), fixed(b), {k.stride}, {k.padding}, {1}, k.groups);
    };
    EXPECT_EQ(count_ops(expect_same([&](Tensor v) { return relu(f(v)); }, x, what), *k.row), 1)
        << what;
    expect_same([&](Tensor v) { return silu(f(v) + fixed(b).reshape({k.o, 1})) * 2; }, x, what);
    const Tensor r = randn(f(x).shape());
    expect_same([&](Tensor v) { return tanh(f(v)) + fixed(r); }, x, what);
    // A line beside images: it broadcasts over their rows and is none of them.
    const Tensor images = randn({2, k.n, k.o, r.size(2)});
    expect_same([&](Tensor v) { return f(v) + fixed(images); }, x, what);
  }
}

TEST(Lines, StayChannelsLast) {
  manual_seed(18);
  auto weight = [](Shape s) { return randn(s) * 0.1; };
  const Tensor stem = weight({16, 3, 5}), w1 = weight({32, 16, 3}), dw = weight({32, 1, 7}),
               down = weight({8, 32, 1}), up = weight({32, 8, 1}), w2 = weight({24, 64, 3}),
               b = weight({32});
  auto block = [&](Tensor x) {
    x = relu(conv1d(x, fixed(stem), {}, {2}, {2}));
    x = relu(conv1d(pad(x, {1, 1}), fixed(w1), fixed(b)));
    x = max_pool1d(x, 3, 2, 1);
    Tensor z = silu(conv1d(x, fixed(dw), fixed(b), {1}, {3}, {1}, 32));
    Tensor gate = mean(z, {2}, true);
    gate = sigmoid(conv1d(silu(conv1d(gate, fixed(down))), fixed(up)));
    x = conv1d(cat({z * gate, x}, 1), fixed(w2), {}, {1}, {1});
    return mean(x, {2});
  };
  for (int64_t n : {1, 3}) {
    auto e = expect_same(block, randn({n, 3, 200}), fmt::format("batch {}", n));
    for (const compiler::Step& s : e->lowered().steps) EXPECT_NE(s.op, &op::copy) << e->to_string();
  }
}

}  // namespace
}  // namespace tandem::test
