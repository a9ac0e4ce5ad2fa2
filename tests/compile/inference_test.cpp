// SPDX-License-Identifier: Apache-2.0
// Programs without gradients whose weights are constants: what is folded, packed, converted to
// channels-last and fused, and that results equal eager code at any thread count.
#include "tandem/compile/run/derived.h"
#include "tandem/ops/matmul/packed.h"
#include "tandem/ops/nn/attention.h"
#include "tandem/ops/stored.h"
#include "tests/compile/inference_helper.h"

namespace tandem::test {
namespace {

int loops(const Ref<Executable>& e) {
  int n = 0;
  for (const compiler::Instr& i : e->program().instrs) n += !i.op;
  return n;
}

TEST(Inference, ConstantsAreFolded) {
  const Tensor w = randn({6, 4}), scale = rand({6, 1});
  auto f = fast_compile([&](Tensor x) {
    Tensor v = (fixed(w) * fixed(scale)).exp().t();
    return x * v.sum() + 1;
  });
  NoGradGuard no_grad;
  const Tensor x = randn({3});
  EXPECT_LE(distance(f(x), x * (w * scale).exp().t().sum() + 1), 1e-6);
  EXPECT_EQ(f.executable()->num_steps(), 1u);
  // Results much larger than their weights are left to the run, what is derived from them is not.
  auto grown = fast_compile([&](Tensor x) {
    return x.sum() * fixed(scale).expand({6, 400000}).exp();
  });
  grown(x);
  EXPECT_GT(grown.executable()->num_steps(), 1u);
  auto small = fast_compile([&](Tensor x) {
    return x + fixed(scale).expand({6, 400000}).exp().sum();
  });
  EXPECT_LE(distance(small(x), x + scale.expand({6, 400000}).exp().sum()), 1e-6);
  EXPECT_EQ(small.executable()->num_steps(), 1u);
}

TEST(Inference, TrainingStaysAsItWas) {
  const Tensor w = randn({64, 64}) * 0.1;
  Param p(randn({8, 64}));
  auto g = fast_compile([&]() {
    Tensor y = linear(p, fixed(w)).relu().sum();
    y.backward();
    return y;
  });
  g();
  EXPECT_EQ(count_ops(g.executable(), op::packed_matmul), 0);
}

TEST(Inference, Products) {
  manual_seed(1);
  struct Case {
    Shape x;
    int64_t out;
    bool bias;
  };
  for (const Case& k : {Case{{1, 96}, 64, true},
                        {{3, 64}, 65, false},
                        {{128, 96}, 200, true},
                        {{2, 49, 300}, 33, true},
                        {{700, 64}, 96, false},
                        {{5, 512}, 1000, true},
                        {{197, 1024}, 96, true}}) {
    const int64_t in = k.x[k.x.rank() - 1].value();
    const Tensor x = randn(k.x), w = randn({k.out, in}), wt = w.t().contiguous(),
                 b = randn({k.out}), r = randn([&] {
                                       Shape s = k.x;
                                       s[s.rank() - 1] = k.out;
                                       return s;
                                     }());
    const std::string what = fmt::format("{} -> {}", k.x.to_string(), k.out);
    const Tensor none;
    auto e = expect_same(
        [&](Tensor v) { return linear(v, fixed(w), k.bias ? fixed(b) : none).relu(); }, x, what);
    EXPECT_EQ(count_ops(e, op::packed_matmul), 1) << what;
    EXPECT_EQ(loops(e), 0) << what;
    expect_same([&](Tensor v) { return matmul(v, fixed(wt)) + fixed(b); }, x, what);
    e = expect_same(
        [&](Tensor v) {
          return sigmoid(matmul(v, fixed(w), {false, true}) * 0.3 + fixed(r)) * 2.0;
        },
        x, what);
    EXPECT_EQ(loops(e), 0) << what;
    e = expect_same(
        [&](Tensor v) { return (linear(v, fixed(w)) + fixed(b) + fixed(r)).clamp(-1, 2); }, x,
        what);
    EXPECT_EQ(loops(e), 0) << what;
  }
}

TEST(Inference, TailsAreThoseOfEager) {
  manual_seed(2);
  const Tensor x = randn({40, 80}) * 3, w = randn({70, 80}), b = randn({70});
  const Tensor none = zeros({1}), three = full({1}, 3), six = full({1}, 6);
  const double inf = INFINITY;
  const std::vector<std::pair<const char*, std::function<Tensor(Tensor)>>> epilogues = {
      {"relu", [](Tensor y) { return relu(y); }},
      {"relu6", [](Tensor y) { return relu6(y); }},
      {"clamp", [](Tensor y) { return y.clamp(-2, 1.5); }},
      {"bounds", [](Tensor y) { return minimum(maximum(y, -1), 3); }},
      {"crossed bounds", [](Tensor y) { return maximum(minimum(y, -1), 3); }},
      {"sigmoid", [](Tensor y) { return sigmoid(y); }},
      {"silu", [](Tensor y) { return silu(y); }},
      {"y sigmoid(y)", [](Tensor y) { return sigmoid(y) * y; }},
      {"gelu", [](Tensor y) { return gelu(y); }},
      {"erf", [](Tensor y) { return (erf(y / std::sqrt(2.0)) + 1) * y * 0.5; }},
      {"hardswish", [](Tensor y) { return hardswish(y); }},
      {"y clamp(y + 3, 0, 6) / 6", [](Tensor y) { return y * (y + 3.0).clamp(0, 6) / 6.0; }},
      {"hardswish by tensors of one element",
       [=](Tensor y) {
         return y * minimum(maximum(y + fixed(three), fixed(none)), fixed(six)) / fixed(six);
       }},
      {"scale", [](Tensor y) { return -0.3 * y; }},
      {"shift, clamp", [](Tensor y) { return (1.7 + y).clamp(0, 1); }},
      {"scale, shift", [](Tensor y) { return relu(y * 0.3 + 1.7); }},
      {"numbers around", [](Tensor y) { return hardswish(y * -0.7 + 0.4) * 1.3 + -0.2; }},
      {"numbers after", [=](Tensor y) { return sigmoid(y) * fixed(three); }},
      {"scale twice", [](Tensor y) { return y * 0.5 * 0.7 + 0.1; }},
  };
  for (const auto& [name, epilogue] : epilogues) {
    const auto& t = epilogue;
    auto e = expect_same([&](Tensor v) { return t(linear(v, fixed(w), fixed(b))); }, x, name, 2e-6);
    EXPECT_EQ(loops(e), 0) << name;
    // NaN and infinities take the same path.
    const Tensor odd =
        cat({full({1, 80}, std::nan("")), full({1, 80}, inf), full({1, 80}, 1e30), x}, 0);
    NoGradGuard no_grad;
    auto fast = fast_compile([&](Tensor v) { return t(linear(v, fixed(w))); });
    const auto got = values(fast(odd)), want = values(t(linear(odd, w)));
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_TRUE(std::isnan(want[i]) ? std::isnan(got[i])
                                      : got[i] == want[i] || std::abs(got[i] - want[i]) <=
                                                                 1e-4 * std::abs(want[i]) + 1e-4)
          << name << " element " << i << ": " << got[i] << " and " << want[i];
  }
  // Readers of the matmul other than the epilogue prevent its fusion.
  expect_same(
      [&](Tensor v) {
        Tensor y = linear(v, fixed(w));
        return relu(y) + y.sum() + sigmoid(y);
      },
      x, "several readers");
}

TEST(Inference, Convolutions) {
  manual_seed(3);
  struct Case {
    int64_t n, c, h, w, o, kernel, stride, padding, groups;
    const OpDef* row;
  };
  const OpDef *product = &op::packed_matmul, *conv = &op::packed_conv, *deep = &op::depthwise_conv,
              *fast = &op::winograd_conv, *plain = &op::conv;
  for (const Case& k :
       {Case{1, 3, 32, 30, 24, 7, 2, 3, 1, conv},
        {1, 16, 20, 20, 40, 1, 1, 0, 1, product},
        {2, 24, 13, 11, 70, 1, 2, 0, 1, conv},
        {1, 32, 24, 24, 64, 3, 1, 1, 1, fast},
        {1, 40, 15, 16, 33, 3, 1, 1, 1, fast},
        {2, 64, 14, 14, 48, 3, 1, 1, 1, fast},
        {1, 64, 16, 16, 64, 3, 1, 0, 1, fast},
        {1, 64, 7, 7, 160, 3, 1, 1, 1, conv},
        {1, 16, 9, 33, 20, 3, 2, 1, 1, conv},
        {1, 8, 12, 12, 16, 5, 1, 2, 1, conv},
        {1, 32, 17, 19, 32, 3, 1, 1, 32, deep},
        {2, 20, 16, 15, 20, 5, 2, 2, 20, deep},
        {1, 33, 9, 9, 33, 7, 1, 3, 33, deep},
        {1, 16, 5, 3, 16, 5, 1, 2, 16, deep},
        {1, 16, 9, 9, 16, 4, 3, 1, 16, deep},
        {1, 32, 9, 1, 512, 1, 5, 2, 1, conv},  // strides end before the padding does
        {1, 16, 9, 9, 32, 3, 1, 1, 4, plain}}) {
    const Tensor x = randn({k.n, k.c, k.h, k.w});
    const Tensor w = randn({k.o, k.c / k.groups, k.kernel, k.kernel}) * 0.2, b = randn({k.o});
    const std::string what =
        fmt::format("{} [{}x{}] -> {}, kernel {}, stride {}, padding {}, groups {}", k.c, k.h, k.w,
                    k.o, k.kernel, k.stride, k.padding, k.groups);
    auto e = expect_same(
        [&](Tensor v) {
          return relu(conv2d(v, fixed(w), fixed(b), {k.stride}, {k.padding}, {1}, k.groups));
        },
        x, what);
    EXPECT_EQ(count_ops(e, *k.row), 1) << what;
    expect_same(
        [&](Tensor v) {
          Tensor y = conv2d(v, fixed(w), {}, {k.stride}, {k.padding}, {1}, k.groups);
          return silu(y + fixed(b).reshape({k.o, 1, 1})) + tanh(y);
        },
        x, what);
  }
}

// Kernels one pixel wide, few outputs, and small weights over many pixels.
TEST(Inference, NarrowConvolutions) {
  manual_seed(13);
  struct Case {
    int64_t n, c, h, w, o, kernel_h, kernel_w, stride_h, stride_w, padding_h, padding_w, groups;
    const OpDef* row;
  };
  const OpDef *conv = &op::packed_conv, *deep = &op::depthwise_conv, *plain = &op::conv;
  for (const Case& k : {Case{1, 24, 60, 1, 40, 5, 1, 1, 1, 0, 0, 1, conv},
                        {2, 24, 61, 1, 40, 5, 1, 2, 1, 2, 0, 1, conv},
                        {1, 16, 30, 7, 40, 3, 1, 1, 1, 1, 0, 1, conv},
                        {1, 16, 30, 7, 40, 3, 1, 2, 1, 0, 0, 1, conv},
                        {1, 16, 9, 12, 24, 3, 1, 1, 3, 1, 0, 1, conv},
                        {1, 130, 301, 1, 300, 5, 1, 1, 1, 2, 0, 1, conv},  // a large weight
                        {1, 1, 1, 8000, 1, 1, 64, 1, 2, 0, 0, 1, conv},
                        {1, 1, 3, 300, 36, 1, 64, 1, 5, 0, 0, 1, conv},
                        {2, 8, 40, 31, 1, 5, 5, 1, 1, 2, 2, 1, conv},
                        {1, 33, 30, 40, 3, 3, 3, 1, 2, 1, 1, 1, conv},
                        {1, 20, 400, 7, 2, 3, 1, 1, 1, 1, 0, 1, conv},
                        {1, 8, 64, 64, 8, 3, 3, 1, 1, 1, 1, 8, deep},
                        {1, 8, 4, 4, 8, 3, 3, 1, 1, 1, 1, 8, plain}}) {
    const Tensor x = randn({k.n, k.c, k.h, k.w}), b = randn({k.o});
    const Tensor w = randn({k.o, k.c / k.groups, k.kernel_h, k.kernel_w}) * 0.2;
    const std::string what =
        fmt::format("{} [{}x{}] -> {}, kernel {}x{}, stride {}x{}, groups {}", k.c, k.h, k.w, k.o,
                    k.kernel_h, k.kernel_w, k.stride_h, k.stride_w, k.groups);
    const auto f = [&](Tensor v) {
      return conv2d(v, fixed(w), fixed(b), {k.stride_h, k.stride_w}, {k.padding_h, k.padding_w},
                    {1}, k.groups);
    };
    EXPECT_EQ(count_ops(expect_same([&](Tensor v) { return relu(f(v)); }, x, what), *k.row), 1)
        << what;
    expect_same([&](Tensor v) { return sin(f(v)) + f(v) * 2; }, x, what);
    const Tensor r = randn(f(x).shape());
    expect_same([&](Tensor v) { return sigmoid(f(v) + fixed(r)); }, x, what);
  }
}

// Windows that neither overlap nor leave gaps; numbers that multiply and are added.
TEST(Inference, TransposedAndScaledConvolutions) {
  manual_seed(14);
  const Tensor x = randn({2, 24, 9, 11}), up = randn({24, 7, 2, 3}), bias = randn({7});
  auto e = expect_same(
      [&](Tensor v) {
        return relu(conv_transpose2d(v, fixed(up), fixed(bias), {2, 3}));
      },
      x, "blocks");
  EXPECT_EQ(count_ops(e, op::packed_matmul), 1);
  EXPECT_EQ(count_ops(e, op::conv_backward_input), 0);
  e = expect_same(
      [&](Tensor v) {
        return conv_transpose2d(v, fixed(up), {}, {1, 3});
      },
      x, "windows that overlap");
  EXPECT_EQ(count_ops(e, op::conv_backward_input), 1);
  const Tensor w = randn({40, 24, 3, 3}) * 0.2, b = randn({40}), half = full({1}, 0.5);
  for (const bool with_bias : {false, true}) {
    e = expect_same(
        [&](Tensor v) {
          const Tensor y = conv2d(v, fixed(w), with_bias ? fixed(b) : Tensor(), {1}, {1});
          return hardswish(y * fixed(half) + 0.25) * 2;
        },
        x, "scaled");
    EXPECT_EQ(loops(e), 0);
    EXPECT_EQ(count_ops(e, op::mul), 0);
  }
}

// What becomes integers is summed without rounding: Winograd's transforms would round.
TEST(Inference, WholeNumbersStayExact) {
  manual_seed(16);
  const Tensor x = round(rand({1, 48, 16, 16}) * 255) - 120, w = round(randn({64, 48, 3, 3}) * 30);
  const auto f = [&](Tensor v, DType t) {
    return conv2d(v.to(t), fixed(w.to(t)), {}, {1}, {1}).to(DType::i32);
  };
  NoGradGuard no_grad;
  auto fast = fast_compile([&](Tensor v) { return f(v, DType::f32); });
  EXPECT_TRUE(same_bits(fast(x), f(x, DType::f64)));
  EXPECT_EQ(count_ops(fast.executable(), op::packed_conv), 1);
  auto other = fast_compile([&](Tensor v) { return conv2d(v, fixed(w), {}, {1}, {1}); });
  other(x);
  EXPECT_EQ(count_ops(other.executable(), op::winograd_conv), 1);
}

TEST(Inference, PaddingAndResizingStayChannelsLast) {
  manual_seed(15);
  const Tensor stem = randn({16, 3, 3, 3}) * 0.2, w = randn({24, 16, 3, 3}) * 0.1;
  const auto f = [&](Tensor x) {
    x = relu(conv2d(x, fixed(stem), {}, {1}, {1}));
    const Tensor y = max_pool2d(pad(x, {0, 1, 0, 1}, "constant", -1e30), 2, 1);
    x = conv2d(x * fixed(full({1}, 2.0)) + y, fixed(w), {}, {2}, {1});
    return mean(interpolate(x, {.scale_factor = 2.0}), {2, 3});
  };
  auto e = expect_same(f, randn({1, 3, 24, 20}), "resized");
  for (const compiler::Step& s : e->lowered().steps) EXPECT_NE(s.op, &op::copy) << e->to_string();
}

TEST(Inference, BlocksStayChannelsLast) {
  manual_seed(4);
  auto weight = [](Shape s) { return randn(s) * 0.1; };
  const Tensor stem = weight({16, 3, 3, 3}), w1 = weight({32, 16, 3, 3}),
               w2 = weight({32, 32, 3, 3}), w3 = weight({32, 16, 1, 1}),
               down = weight({8, 32, 1, 1}), up = weight({32, 8, 1, 1}), dw = weight({32, 1, 3, 3}),
               b = weight({32});
  auto block = [&](Tensor x) {
    x = relu(conv2d(x, fixed(stem), {}, {1}, {1}));
    Tensor y = relu(conv2d(x, fixed(w1), fixed(b), {1}, {1}));
    y = relu(conv2d(y, fixed(w2), {}, {1}, {1}) + conv2d(x, fixed(w3)));
    y = max_pool2d(y, 3, 2, 1);
    Tensor z = silu(conv2d(y, fixed(dw), fixed(b), {1}, {1}, {1}, 32));
    Tensor gate = mean(z, {2, 3}, true);
    gate = sigmoid(conv2d(silu(conv2d(gate, fixed(down))), fixed(up)));
    y = conv2d(z * gate, fixed(w2), {}, {2}, {1}) * 2;
    y = cat({y, avg_pool2d(y, 3, 1, 1)}, 1);
    return mean(y, {2, 3}).flatten(1);
  };
  for (int64_t n : {1, 3}) {
    auto e = expect_same(block, randn({n, 3, 24, 24}), fmt::format("batch {}", n));
    // Between the input and the answer nothing is copied or transposed.
    for (const compiler::Step& s : e->lowered().steps) EXPECT_NE(s.op, &op::copy) << e->to_string();
  }
}

TEST(Inference, AttentionIsFound) {
  manual_seed(5);
  const int64_t b = 2, h = 3, l = 17, d = 8;
  const Tensor mask = where(rand({1, 1, 1, l}) > 0.3, 0.0, -1e4).to(DType::f32);
  const Tensor nothing = mask * 0;
  const Tensor wq = randn({24, 24}), wk = randn({24, 24}), wv = randn({24, 24});
  auto heads = [&](Tensor x) { return x.reshape({-1, l, h, d}).permute({0, 2, 1, 3}); };
  for (int kind = 0; kind < 5; ++kind) {
    auto e = expect_same(
        [&](Tensor x) {
          Tensor q = heads(linear(x, fixed(wq))), k = heads(linear(x, fixed(wk)));
          Tensor v = heads(linear(x, fixed(wv)));
          Tensor s;
          if (kind == 0) s = matmul(q, k.transpose(-2, -1)) / std::sqrt(8.0);
          if (kind == 1) s = matmul(q * 0.5, k.transpose(-2, -1) * 0.7) + fixed(mask);
          if (kind == 2) s = fixed(mask) + matmul(q, k, {false, true}) * 0.3 + fixed(nothing);
          if (kind == 3) s = matmul(q, k.transpose(-2, -1));
          if (kind == 4) s = matmul(q, k.transpose(-2, -1)) * x.sum();  // no number
          Tensor y = matmul(softmax(s, -1), v);
          return y.permute({0, 2, 1, 3}).reshape({b, l, h * d});
        },
        randn({b, l, 24}), fmt::format("form {}", kind));
    EXPECT_EQ(count_ops(e, op::attention), kind < 4) << kind;
    EXPECT_EQ(count_ops(e, op::softmax), kind == 4) << kind;
  }
}

struct Small : nn::Module {
  nn::Conv2d conv{3, 40, 3, {.padding = 1}};
  nn::BatchNorm2d norm{40};
  nn::Linear fc{40, 120};
  Small() { TD_REGISTER(conv, norm, fc); }
  Tensor forward(Tensor x) { return fc(mean(relu(norm(conv(x))), {2, 3})); }
};

// Queries, keys and values of one tensor.
struct Projections {
  Tensor w[3], b[3];
  explicit Projections(int64_t width, DType dtype = DType::f32) {
    for (int k = 0; k < 3; ++k) {
      w[k] = (randn({width, 96}) * 0.1).to(dtype);
      b[k] = randn({width}).to(dtype);
    }
  }
  Tensor operator()(const Tensor& x, int k, bool biased = true) const {
    return linear(x, fixed(w[k]), biased ? fixed(b[k]) : Tensor());
  }
};
Tensor heads(const Tensor& y) {
  return y.reshape({y.shape(0), y.shape(1), -1, 16}).transpose(1, 2);
}

TEST(Inference, ProjectionsOfOneTensorAreOneProduct) {
  const Projections p(96), odd(80);
  const auto attend = [](const Tensor& q, const Tensor& k, const Tensor& v) {
    return scaled_dot_product_attention(heads(q), heads(k), heads(v));
  };
  const struct {
    const char* what;
    Function f;
    int products, cats = 0;
  } rows[] = {
      {"with biases", [&](Tensor x) { return attend(p(x, 0), p(x, 1), p(x, 2)); }, 1},
      {"without", [&](Tensor x) { return attend(p(x, 0, false), p(x, 1, false), p(x, 2, false)); },
       1},
      {"as exporters write them",
       [&](Tensor x) {
         const auto y = [&](int k) { return matmul(x, fixed(p.w[k]).t()) + fixed(p.b[k]); };
         return attend(y(0), y(1), y(2));
       },
       1},
      {"one has no bias", [&](Tensor x) { return attend(p(x, 0), p(x, 1, false), p(x, 2)); }, 2},
      {"of two tensors",
       [&](Tensor x) {
         const Tensor z = x.sin();
         return attend(p(x, 0), p(z, 1), p(z, 2));
       },
       2},
      {"read by arithmetic", [&](Tensor x) { return p(x, 0) * p(x, 1) + p(x, 2).exp(); }, 3},
      {"one is a result as well",
       [&](Tensor x) {
         const Tensor v = p(x, 2);
         return cat({attend(p(x, 0), p(x, 1), v).transpose(1, 2).reshape(v.shape()), v}, 1);
       },
       2, 1},
      {"not whole panels", [&](Tensor x) { return attend(odd(x, 0), odd(x, 1), odd(x, 2)); }, 3},
  };
  for (const auto& r : rows) {
    const Ref<Executable> e = expect_same(r.f, randn({2, 9, 96}), r.what);
    EXPECT_EQ(count_ops(e, op::packed_matmul), r.products) << r.what;
    EXPECT_EQ(count_ops(e, op::cat) + count_ops(e, op::pack_matrix), r.cats)
        << r.what << ": the weights are concatenated in every call";
  }
}

TEST(Inference, ModulesInEvalModeReadPackedWeights) {
  manual_seed(6);
  NoGradGuard no_grad;
  Small net;
  net.norm.running_var.assign_(rand({40}) + 0.5);
  net.norm.running_mean.assign_(randn({40}));
  const Tensor x = randn({2, 3, 12, 12}), wide = randn({1, 3, 20, 9});
  auto f = fast_compile([&](Tensor v) { return net(v); });
  // In training the weights change all the time.
  f(x);
  EXPECT_EQ(count_ops(f.executable(), op::packed_matmul), 0);
  net.eval();
  const auto same = [&](const Tensor& v) { EXPECT_LE(distance(f(v), net(v)), 2e-5); };
  same(x);
  Ref<Executable> e = f.executable();
  EXPECT_EQ(count_ops(e, op::packed_matmul), 1);
  EXPECT_EQ(count_ops(e, op::packed_conv), 1);
  EXPECT_EQ(count_ops(e, op::batch_norm_infer), 0);
  const auto computed = [](const Ref<Executable>& of) {
    std::vector<int64_t> n;
    for (const auto& d : of->program().derived) n.push_back(d->computed());
    return n;
  };
  // The filter with the norm folded in, its bias, the matrix; another call and another shape share
  // them.
  const size_t values = e->program().derived.size();
  EXPECT_EQ(values, 3u);
  same(x);
  same(wide);
  EXPECT_NE(f.executable().get(), e.get());
  EXPECT_EQ(f.executable()->program().derived, e->program().derived);
  EXPECT_EQ(computed(e), std::vector<int64_t>(values, 1));
  // Another function over the same module too.
  auto other = fast_compile([&](Tensor v) { return net(v) * 2; });
  other(x);
  EXPECT_EQ(computed(e), std::vector<int64_t>(values, 1));
  // A weight that is written is repacked, and only that one.
  net.fc.weight.assign_(randn({120, 40}));
  same(x);
  same(wide);
  std::vector<int64_t> after = computed(e);
  std::sort(after.begin(), after.end());
  EXPECT_EQ(after, (std::vector<int64_t>{1, 1, 2}));
  net.load_state_dict(Small().state_dict());
  same(x);
  net.train();
  f(x);
  EXPECT_EQ(count_ops(f.executable(), op::packed_matmul), 0);
}

TEST(Inference, ConstantsArePackedOnceForAllPrograms) {
  manual_seed(7);
  NoGradGuard no_grad;
  const Tensor w = randn({96, 64});
  auto f = fast_compile([&](Tensor x) { return linear(x, fixed(w)); });
  auto g = fast_compile([&](Tensor x) { return linear(x, fixed(w)) + 1; });
  f(randn({3, 64}));
  const Ref<Executable> first = f.executable();
  f(randn({5, 64}));
  g(randn({5, 64}));
  ASSERT_EQ(first->program().shared.size(), 1u);
  EXPECT_EQ(f.executable()->program().shared, first->program().shared);
  EXPECT_EQ(g.executable()->program().shared, first->program().shared);
  EXPECT_EQ(first->program().shared[0]->computed(), 1);
}

TEST(Inference, StoredWeights) {
  manual_seed(8);
  NoGradGuard no_grad;
  for (const int64_t columns : {70, 700}) {  // a small one is folded, a large one packed from bytes
    const Tensor w = randn({columns, 64}), x = randn({4, 64});
    std::string text(static_cast<size_t>(w.numel()) * 4 + 1, 0);
    std::memcpy(text.data() + 1, w.impl()->data, text.size() - 1);
    const Tensor bytes = from_blob(text.data() + 1, {w.numel() * 4}, DType::u8);
    const auto stored = [&] { return stored_constant(bytes, spec_of(w)); };
    EXPECT_TRUE(same_bits(stored(), w));
    auto f = fast_compile([&](Tensor v) { return linear(v, stored()); });
    EXPECT_LE(distance(f(x), linear(x, w)), 2e-5);
    EXPECT_EQ(count_ops(f.executable(), op::packed_matmul), 1);
    EXPECT_EQ(count_ops(f.executable(), op::read_bytes), 0);
    // Read as it is, and by something that no pass knows.
    auto g = fast_compile(
        [&](Tensor v) { return matmul(v, softmax(stored(), 1).t()) + stored()[0].sum(); });
    EXPECT_LE(distance(g(x), matmul(x, softmax(w, 1).t()) + w[0].sum()), 2e-5);
    // Gradients go through it like through any constant.
    Param p(x);
    auto step = compile([&] {
      EnableGradGuard on;
      Tensor y = linear(p, stored()).sum();
      y.backward();
      return y;
    });
    step();
    EXPECT_LE(distance(p.grad(), ones({4, 1}) * w.sum(0).reshape({1, 64})), 2e-5);
  }
}

TEST(Inference, ProductsOfHalf) {
  manual_seed(9);
  NoGradGuard no_grad;
  struct Case {
    Shape x;
    int64_t out;
  };
  for (const Case& k : {Case{{1, 96}, 64},
                        {{3, 64}, 65},
                        {{128, 96}, 200},
                        {{2, 49, 300}, 33},
                        {{700, 64}, 96},
                        {{5, 513}, 100},
                        {{197, 1024}, 160}}) {
    const int64_t in = k.x[k.x.rank() - 1].value();
    const Tensor x = randn(k.x).to(DType::bf16), w = randn({k.out, in}).to(DType::bf16),
                 b = randn({k.out}).to(DType::bf16);
    const Tensor wide = gelu(linear(x.to(DType::f32), w.to(DType::f32), b.to(DType::f32)));
    const std::string what = fmt::format("{} -> {}", k.x.to_string(), k.out);
    for (int threads : {1, 2, 3}) {
      set_num_threads(threads);
      auto f = fast_compile([&](Tensor v) { return gelu(linear(v, fixed(w), fixed(b))); });
      const Tensor y = f(x);
      EXPECT_EQ(y.dtype(), DType::bf16);
      EXPECT_LE(distance(y.to(DType::f32), wide), 4e-3) << what << ", " << threads << " threads";
      // Rounded once where the processor multiplies bf16: as accurate as bf16 can be.
      if (count_ops(f.executable(), op::packed_matmul_bf16)) {
        EXPECT_LE(distance(y.to(DType::f32), wide.to(DType::bf16).to(DType::f32)), 4e-3) << what;
        EXPECT_EQ(loops(f.executable()), 0) << what;
      }
    }
    set_num_threads(0);
    const Tensor turned = w.t().contiguous();
    auto g = fast_compile([&](Tensor v) {
      Tensor y = matmul(v, fixed(turned));
      return relu(y + y.detach() * 0 + fixed(b));
    });
    EXPECT_LE(distance(g(x).to(DType::f32),
                       relu(linear(x.to(DType::f32), w.to(DType::f32), b.to(DType::f32)))),
              1e-2)
        << what;
  }
}

}  // namespace
}  // namespace tandem::test
