// SPDX-License-Identifier: Apache-2.0
// Attention: PyTorch's cases, lines without keys, shared heads, derivatives, vmap, error texts.
#include <cmath>

#include "contraction_helper.h"

namespace tandem {
namespace {

using namespace testing;

class AttentionTest : public ::testing::Test {
 protected:
  void SetUp() override { init_once(); }
};

constexpr auto attend = scaled_dot_product_attention;

Tensor drawn(const Shape& shape, uint64_t seed, DType dtype) {
  const GeneratorGuard random({seed, 0});
  return randn(shape).to(dtype);
}

TEST_F(AttentionTest, HandValues) {
  Tensor q = tensor({{1., 0.}}), k = tensor({{0., 1.}, {0., 2.}}), v = tensor({{2.}, {4.}});
  expect_close(attend(q, k, v, {}, 0, false, 0, false, SourceLocation::here()), tensor({{3.}}));
  Tensor seen = tensor({{false, true}});
  expect_close(scaled_dot_product_attention(q, k, v, seen), tensor({{4.}}));
}

TEST_F(AttentionTest, ALineWithoutKeysIsZero) {
  Tensor q = ramp({2, 3}).requires_grad_(), k = ramp({4, 3}), v = ramp({4, 2});
  Tensor mask = tensor({{true, false, true, true}, {false, false, false, false}});
  Tensor y = scaled_dot_product_attention(q, k, v, mask);
  expect_close(y.select(0, 1).detach(), zeros({2}, float64));
  y.square().sum().backward();
  EXPECT_TRUE(isfinite(q.grad()).all().item<bool>());
}

TEST_F(AttentionTest, SharedHeadsEqualRepeatedOnes) {
  Tensor q = ramp({1, 4, 3, 2}), k = ramp({1, 2, 5, 2}, .7), v = ramp({1, 2, 5, 2}, .4);
  Tensor want =
      scaled_dot_product_attention(q, repeat_interleave(k, 2, 1), repeat_interleave(v, 2, 1));
  expect_close(scaled_dot_product_attention(q, k, v, {}, 0, false, 0, true), want);
}

// In dtypes that kernels take; the derivatives of shared keys and values are sums over their heads.
TEST_F(AttentionTest, GradientsOfSharedHeadsEqualThoseOfRepeatedOnes) {
  struct Row {
    Shape q, kv;
    bool causal;
  };
  const Row rows[] = {
      {{2, 4, 8, 4}, {2, 1, 8, 4}, true},        // one head for all
      {{2, 4, 8, 4}, {2, 1, 8, 4}, false},       //
      {{2, 4, 8, 4}, {2, 2, 8, 4}, true},        // pairs
      {{1, 6, 70, 20}, {1, 1, 300, 20}, false},  // several blocks of queries and of keys
      {{4, 8, 4}, {1, 8, 4}, true},              // the last leading dimension counts as heads
      {{3, 4, 8, 4}, {1, 1, 8, 4}, true},        // shared by the rows of the batch, too
  };
  for (const Row& row : rows)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(
          fmt::format("{} {} {}", row.q.to_string(), row.kv.to_string(), to_string(dtype)));
      const auto gradients = [&](bool repeated) {
        Param q(drawn(row.q, 1, dtype)), k(drawn(row.kv, 2, dtype)), v(drawn(row.kv, 3, dtype));
        const int64_t n = row.q[row.q.rank() - 3].value() / row.kv[row.kv.rank() - 3].value();
        const auto heads = [&](const Param& p) {
          return repeated ? repeat_interleave(p.value(), n, -3) : p.value();
        };
        const Tensor y =
            scaled_dot_product_attention(q.value(), heads(k), heads(v), {}, 0, row.causal, 0, true);
        (y.to(DType::f32) * drawn(row.q, 4, DType::f32)).sum().backward();
        return Tensors{q.grad(), k.grad(), v.grad()};
      };
      const Tensors shared = gradients(false), want = gradients(true);
      const double near = dtype == DType::f32 ? 1e-4 : 6e-2;
      for (size_t i = 0; i < shared.size(); ++i)
        EXPECT_TRUE(allclose(shared[i].to(DType::f32), want[i].to(DType::f32), near, near)) << i;
    }
}

TEST_F(AttentionTest, Gradients) {
  Tensor q = ramp({2, 3, 2}), k = ramp({2, 4, 2}, .8), v = ramp({2, 4, 3}, .6);
  auto plain = [](std::span<const Tensor> x) {
    return Tensors{scaled_dot_product_attention(x[0], x[1], x[2])};
  };
  expect_gradients(plain, {q, k, v});
  auto bias = [](std::span<const Tensor> x) {
    return Tensors{scaled_dot_product_attention(x[0], x[1], x[2], x[3])};
  };
  expect_gradients(bias, {q, k, v, ramp({3, 4})});
  auto causal = [](std::span<const Tensor> x) {
    return Tensors{scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, true, 0, true)};
  };
  expect_gradients(causal, {ramp({2, 3, 2}), ramp({1, 3, 2}, .8), ramp({1, 3, 2}, .6)});
  auto shared = [](std::span<const Tensor> x) {
    return Tensors{scaled_dot_product_attention(x[0], x[1], x[2], {}, 0, false, 0.5, true)};
  };
  expect_gradients(shared, {ramp({4, 2, 2}), ramp({2, 3, 2}, .8), ramp({2, 3, 2}, .6)}, 1);
}

TEST_F(AttentionTest, Vmap) {
  Tensor q = ramp({3, 2, 4, 2}), k = ramp({3, 2, 5, 2}, .8), v = ramp({3, 2, 5, 2}, .6);
  auto f = [](std::span<const Tensor> x) { return scaled_dot_product_attention(x[0], x[1], x[2]); };
  expect_vmap(f, {q, k, v}, {true, true, true});
  expect_vmap(f, {q, k.select(0, 0), v.select(0, 0)}, {true, false, false});
  auto g = [](std::span<const Tensor> x) {
    auto one = [&](const Tensor& u) {
      return scaled_dot_product_attention(x[0], u, x[2]).square().sum();
    };
    return grad(one)(x[1]);
  };
  expect_vmap(g, {q, k, v}, {true, true, true});
  expect_vmap(g, {q, k.select(0, 0), v.select(0, 0)}, {true, false, false});
}

TEST_F(AttentionTest, DropoutKeepsTheMean) {
  manual_seed(3);
  Tensor q = zeros({1, 8}), k = zeros({4000, 8}), v = ones({4000, 1});
  float y = scaled_dot_product_attention(q, k, v, {}, 0.25).item<float>();
  EXPECT_NEAR(y, 1.0f, 0.05f);
  EXPECT_NE(y, 1.0f);
}

TEST_F(AttentionTest, Errors) {
  Tensor q = zeros({2, 3, 4});
  expect_error(ErrorKind::Shape, "query [2, 3, 4] has 4 features, key [2, 3, 5] has 5", [=] {
    scaled_dot_product_attention(q, zeros({2, 3, 5}), q);
  });
  expect_error(ErrorKind::Shape, "key [2, 3, 4] has 3 positions, value [2, 6, 4] has 6", [=] {
    scaled_dot_product_attention(q, q, zeros({2, 6, 4}));
  });
  expect_error(ErrorKind::Value, "is_causal excludes a mask", [=] {
    scaled_dot_product_attention(q, q, q, zeros({3, 3}), 0, true);
  });
  expect_error(ErrorKind::Shape, "mask is [5, 3], the scores are [2, 3, 3]", [=] {
    scaled_dot_product_attention(q, q, q, zeros({5, 3}));
  });
  expect_error(ErrorKind::Value, "dropout_p is 1",
               [=] { scaled_dot_product_attention(q, q, q, {}, 1.0); });
  expect_error(ErrorKind::Shape, "Set enable_gqa", [] {
    scaled_dot_product_attention(zeros({4, 3, 2}), zeros({2, 3, 2}), zeros({2, 3, 2}));
  });
  expect_error(ErrorKind::DType, "expected one floating dtype",
               [=] { scaled_dot_product_attention(q, q.to(float64), q); });
}

TEST_F(AttentionTest, Golden) {
  std::map<std::string, GoldenFn> t;
  t["scaled_dot_product_attention"] = [](const Golden& g) {
    return Tensors{scaled_dot_product_attention(g.at(0), g.at(1), g.at(2), g.at(3), 0,
                                                g.flag("is_causal", false), g.number("scale", 0),
                                                g.flag("enable_gqa", false))};
  };
  EXPECT_GE(run_golden("contraction", t), 12);
}

}  // namespace
}  // namespace tandem
