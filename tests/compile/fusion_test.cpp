// SPDX-License-Identifier: Apache-2.0
// Fusion around matmuls: epilogues, derivatives stored by the forward loop, parallel loops. Results
// have the bits of eager code at every size and thread count.
#include <gtest/gtest.h>

#include "tandem/base/parallel.h"
#include "tandem/compile/run/executable.h"
#include "tandem/tandem.h"
#include "tests/support/bits.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

int count_inside(const Executable& e) {
  int n = 0;
  for (const compiler::Step& s : e.lowered().steps) n += s.inside;
  return n;
}
int count_scalar(const Executable& e, ScalarOp op) {
  int n = 0;
  for (const compiler::Step& s : e.lowered().steps)
    for (size_t k = 0; s.program && k < s.program->code.size(); ++k)
      n += s.program->code[k].op == op;
  return n;
}

struct ThreadCount {
  explicit ThreadCount(int n) { set_num_threads(n); }
  ~ThreadCount() { set_num_threads(0); }
};

using Fn = std::function<Tensor(std::vector<Tensor>)>;
struct EpilogueCase {
  const char* name;
  Fn fn;  ///< of x [m, k], w [n, k], b [n], r [m, n], c [m, 1]
  int inside;
};

const std::vector<EpilogueCase>& epilogue_cases() {
  static const std::vector<EpilogueCase> cases = {
      {"relu", [](auto t) { return relu(linear(t[0], t[1], t[2])); }, 1},
      {"gelu", [](auto t) { return gelu(linear(t[0], t[1], t[2])); }, 1},
      {"residual", [](auto t) { return t[3] + linear(t[0], t[1], t[2]); }, 1},
      {"chain", [](auto t) { return (t[3] * tanh(linear(t[0], t[1])) - 0.5) * t[2]; }, 1},
      {"bias_apart", [](auto t) { return relu(matmul(t[0], t[1].transpose(0, 1)) + t[2]); }, 1},
      {"scale", [](auto t) { return matmul(t[0], t[1].transpose(0, 1)) * 3.0; }, 1},
      {"column", [](auto t) { return sigmoid(linear(t[0], t[1]) * t[4]); }, 1},
      {"two_products", [](auto t) { return linear(t[0], t[1]) * linear(t[0] + 1, t[1], t[2]); }, 1},
      {"both_read",
       [](auto t) {
         Tensor y = linear(t[0], t[1], t[2]);
         return relu(y) + matmul(y, matmul(y.transpose(0, 1), t[3]));
       },
       1},
      {"batched", [](auto t) { return relu(linear(t[0].unsqueeze(0), t[1], t[2])) + 1; }, 1},
  };
  return cases;
}

TEST(Epilogue, EagerBitsAtAnySize) {
  const int64_t sizes[][3] = {{768, 128, 512}, {97, 300, 203}, {1, 700, 777},
                              {515, 65, 31},   {64, 784, 128}, {33, 513, 10},
                              {7, 3, 5},       {130, 260, 1},  {61, 270, 2100}};
  for (int threads : {1, 2, 8}) {
    ThreadCount guard(threads);
    for (const auto& s : sizes) {
      manual_seed(static_cast<uint64_t>(s[0]));
      std::vector<Tensor> t{randn({s[0], s[1]}), randn({s[2], s[1]}), randn({s[2]}),
                            randn({s[0], s[2]}), randn({s[0], 1})};
      for (const EpilogueCase& c : epilogue_cases()) {
        auto f = compile([&](std::vector<Tensor> x) { return c.fn(x); });
        for (int i = 0; i < 3; ++i)
          EXPECT_TRUE(same_bits(c.fn(t), f(t)))
              << c.name << " " << s[0] << " " << s[1] << " " << s[2] << " " << threads;
        if (s[0] == 768) {
          EXPECT_EQ(count_inside(*f.executable()), c.inside) << c.name << "\n"
                                                             << f.executable()->to_string();
        }
      }
    }
  }
}

TEST(Epilogue, WhatGoesInIsNotOverwritten) {
  // The residual is the matmul's own operand, dead after the sum: its bytes are still read.
  manual_seed(1);
  Tensor x = randn({512, 512}), w = randn({512, 512});
  const auto fn = [](Tensor x, Tensor w) {
    x = x * 2;
    for (int i = 0; i < 3; ++i) x = relu(x + matmul(x, w)) * 0.01;
    return x;
  };
  auto f = compile(fn);
  EXPECT_TRUE(same_bits(fn(x, w), f(x, w)));
  EXPECT_EQ(count_inside(*f.executable()), 3);
  EXPECT_TRUE(same_bits(fn(x, w), f(x, w)));
}

TEST(Epilogue, SymbolicBatch) {
  manual_seed(2);
  nn::Linear l(130, 257);
  const auto fn = [&](Tensor x) { return gelu(l(x)); };
  auto f = compile(fn, {.dynamic = {{0, "batch"}}});
  for (int64_t n : {600, 1, 33, 600}) {
    Tensor x = randn({n, 130});
    EXPECT_TRUE(same_bits(fn(x), f(x))) << n;
  }
  EXPECT_EQ(f.stats().traces, 1);
}

struct Two : nn::Module {
  nn::Linear a{200, 300}, b{300, 200};
  Two() { TD_REGISTER(a, b); }
  Tensor forward(Tensor x) { return b(gelu(a(x))); }
};

// A residual block: what follows convolutions and batch norms runs on their fresh results.
struct Residual : nn::Module {
  nn::Conv2d a{32, 32, 3, {.padding = 1}}, b{32, 32, 3, {.padding = 1}};
  nn::BatchNorm2d na{32}, nb{32};
  Residual() { TD_REGISTER(a, b, na, nb); }
  Tensor forward(Tensor x) { return relu(x + nb(b(relu(na(a(x)))))); }
};

TEST(Epilogue, ConvolutionsAndBatchNorms) {
  for (int threads : {1, 2, 8}) {
    ThreadCount guard(threads);
    for (int64_t n : {1, 4, 17}) {
      for (bool last : {false, true}) {
        SCOPED_TRACE(fmt::format("{} threads, {} samples, channels last {}", threads, n, last));
        manual_seed(3);
        Residual eager, compiled = clone(eager);
        Tensor x = randn({n, 32, 14, 14});
        if (last) x = x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
        const auto body = [&](Residual& net, const Tensor& t) {
          net.zero_grad();
          Tensor y = net(relu(net(t)) * 0.5);
          (y * y).mean().backward();
          return y;
        };
        auto step = compile([&](Tensor t) { return body(compiled, t); }, {.keep_grads = true});
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(body(eager, x), step(x)));
        const auto p = eager.parameters(), q = compiled.parameters();
        for (size_t i = 0; i < p.size(); ++i)
          EXPECT_TRUE(same_bits(p[i].grad(), q[i].grad())) << eager.named_parameters()[i].first;
        // Forward relu and x + ... of both calls at least, with oneDNN those of the gradients too.
        EXPECT_GE(count_inside(*step.executable()), 4) << step.executable()->to_string();
      }
    }
  }
}

// One step of `optim` in eager and compiled, on `loss` of the net.
template <class Optim, class Options, class Loss>
int compare_steps(Options options, Loss loss, CompileOptions how = {}, double clip = 0) {
  manual_seed(4);
  Two eager, compiled = clone(eager);
  Optim opt_e(eager.parameters(), options), opt_c(compiled.parameters(), options);
  Tensor x = randn({256, 200});
  const auto body = [&](Two& net, auto& opt, const Tensor& x) {
    opt.zero_grad();
    Tensor l = loss(net, x);
    l.backward();
    if (clip > 0) optim::clip_grad_norm_(net.parameters(), clip);
    opt.step();
    return l;
  };
  auto step = compile([&](Tensor x) { return body(compiled, opt_c, x); }, how);
  Tensor snapshot = compiled.a.weight.value(), before = snapshot.clone();
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(same_bits(body(eager, opt_e, x), step(x))) << "loss of step " << i;
  EXPECT_TRUE(same_bits(snapshot, before));
  auto want = eager.state_dict(), have = compiled.state_dict();
  for (auto& [name, value] : want) EXPECT_TRUE(same_bits(value, have.at(name))) << name;
  return count_inside(*step.executable());
}

TEST(Epilogue, UpdatesOfWeights) {
  const auto plain = [](Two& net, const Tensor& x) { return net(x).sum(); };
  // gelu with its derivative, g * derivative, and the updates of both weights.
  EXPECT_EQ((compare_steps<optim::AdamW>(optim::AdamWOptions{}, plain)), 4);
  EXPECT_EQ((compare_steps<optim::SGD>(optim::SGDOptions{.lr = 0.01}, plain)), 4);
  EXPECT_EQ((compare_steps<optim::SGD>(optim::SGDOptions{.lr = 0.01, .momentum = 0.9}, plain)), 4);
  compare_steps<optim::AdamW>(optim::AdamWOptions{}, plain, {.keep_grads = true});
  // The updates wait for the norm of all gradients.
  compare_steps<optim::AdamW>(optim::AdamWOptions{}, plain, {}, 0.5);
  // A weight that is read again after its gradient is known, and one that is used twice.
  compare_steps<optim::SGD>(optim::SGDOptions{.lr = 0.01}, [](Two& net, const Tensor& x) {
    return (net(x) + matmul(x, net.a.weight.value().transpose(0, 1)).sum()).sum() +
           net.b.weight.value().square().sum();
  });
}

TEST(Slopes, CostlyFunctionsOnce) {
  struct Case {
    const char* name;
    Tensor (*fn)(Tensor);
    ScalarOp op;
  };
  const Case cases[] = {
      {"gelu", [](Tensor x) { return gelu(x); }, ScalarOp::erf},
      {"gelu_tanh", [](Tensor x) { return gelu(x, "tanh"); }, ScalarOp::tanh},
      {"silu", [](Tensor x) { return silu(x); }, ScalarOp::sigmoid},
      {"sin", [](Tensor x) { return sin(x); }, ScalarOp::cos},
      {"relu", [](Tensor x) { return relu(x); }, ScalarOp::erf},
      {"tanh", [](Tensor x) { return tanh(x); }, ScalarOp::tanh},
  };
  for (DType t : {DType::f32, DType::f64}) {
    for (const Case& c : cases) {
      manual_seed(5);
      Tensor x = randn({40, 30}).to(t), w = randn({30, 50}).to(t), g = randn({40, 50}).to(t);
      const auto fn = [&](Tensor x, Tensor w, Tensor g) {
        w.requires_grad_();
        return grad((c.fn(matmul(x, w)) * g).sum(), w);
      };
      auto f = compile(fn);
      EXPECT_TRUE(same_bits(fn(x, w, g), f(x, w, g))) << c.name;
      EXPECT_LE(count_scalar(*f.executable(), c.op), 1) << c.name << "\n"
                                                        << f.executable()->program().to_string();
    }
  }
}

TEST(Slopes, NotWhereTheInputLivesOn) {
  manual_seed(6);
  Tensor x = randn({64, 64});
  const auto fn = [](Tensor x) {
    x = x * 2;
    x.requires_grad_();
    Tensor y = gelu(x);
    Tensor g = grad((y * y).sum(), x);
    return g + x;
  };
  auto f = compile(fn);
  EXPECT_TRUE(same_bits(fn(x), f(x)));
}

// Long chains of single elements are separate loops; short ones are fused into the loops that read
// them.
TEST(Fusion, NormOfManyGradients) {
  constexpr int kParts = 40;
  const auto make = [] {
    std::vector<Param> p;
    manual_seed(7);
    for (int i = 0; i < kParts; ++i) p.emplace_back(randn({3, i + 1}));
    return p;
  };
  std::vector<Param> eager = make(), compiled = make();
  optim::AdamW opt_e(eager, {.lr = 0.1}), opt_c(compiled, {.lr = 0.1});
  const auto body = [](std::vector<Param>& p, optim::AdamW& opt, const Tensor& x) {
    opt.zero_grad();
    Tensor loss = (p[0] * x).square().sum();
    for (int i = 1; i < kParts; ++i) loss = loss + (p[static_cast<size_t>(i)] * x).square().mean();
    loss.backward();
    Tensor norm = optim::clip_grad_norm_(p, 0.1);
    opt.step();
    return std::pair(loss, norm);
  };
  auto step = compile([&](Tensor x) { return body(compiled, opt_c, x); });
  for (int i = 0; i < 3; ++i) {
    Tensor x = full({3, 1}, 1.0 + i);
    auto [loss, norm] = body(eager, opt_e, x);
    auto [loss_c, norm_c] = step(x);
    EXPECT_TRUE(same_bits(loss, loss_c)) << i;
    EXPECT_TRUE(same_bits(norm, norm_c)) << i;
  }
  for (size_t i = 0; i < kParts; ++i) EXPECT_TRUE(same_bits(eager[i], compiled[i])) << i;
}

// Large operands of a loop with different layouts: one of them is copied first, in any rank. Large
// operands whose order differs from the first are copied to it, small ones are gathered.
TEST(Fusion, OperandsInDifferentOrders) {
  manual_seed(7);
  const struct {
    Shape shape;
    int copies;
  } cases[] = {{{4, 32, 12, 12}, 1}, {{2, 3, 5, 7}, 0}, {{8, 40, 60}, 1}};
  for (const auto& c : cases) {
    Tensor x = randn(c.shape), w = transpose(randn(c.shape), 1, -1).contiguous();
    const auto body = [&](const Tensor& a, const Tensor& b) {
      const Tensor turned = transpose(b, 1, -1);
      return std::pair(relu(a) * turned + 1, turned - a);
    };
    auto f = compile([&](Tensor a, Tensor b) { return body(a, b); });
    const auto [y, z] = body(x, w);
    for (int threads : {1, 2, 8}) {
      ThreadCount count(threads);
      const auto [yc, zc] = f(x, w);
      int copies = 0;
      for (const compiler::Step& s : f.executable()->lowered().steps) copies += s.op == &op::copy;
      EXPECT_EQ(copies, c.copies) << f.executable()->to_string();
      EXPECT_TRUE(same_bits(y, yc)) << c.shape.to_string() << f.executable()->to_string();
      EXPECT_TRUE(same_bits(z, zc)) << c.shape.to_string();
    }
  }
}

TEST(Fusion, NarrowDtypesAreOneLoop) {
  manual_seed(5);
  Tensor x = randn({37, 65}) * 40, w = randn({37, 65});
  for (DType t : {DType::bf16, DType::f16, DType::i32, DType::i16, DType::u8}) {
    const auto body = [&](const Tensor& a, const Tensor& b) {
      Tensor h = a.to(t), g = b.to(t);
      h = h * g + h;
      h = where(h > 3, h * h, h - 5);
      return std::pair(h, h.to(float32) * 0.1);
    };
    auto f = compile([&](Tensor a, Tensor b) { return body(a, b); });
    const auto [h, y] = body(x, w);
    for (int i = 0; i < 4; ++i) {
      auto [hc, yc] = f(x, w);
      EXPECT_TRUE(same_bits(h, hc)) << to_string(t) << " " << i;
      EXPECT_TRUE(same_bits(y, yc)) << to_string(t) << " " << i;
      wait_for_jit();
    }
    EXPECT_EQ(f.executable()->lowered().steps.size(), 1u) << f.executable()->to_string();
  }
}

// The bounds of a clamp are constants of its loop, so that its codes need no second clamp.
TEST(Fusion, CodesBetweenBounds) {
  manual_seed(6);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const Tensor edges = tensor({nan, inf, -inf, 3e9f, -3e9f, 255.5f, -0.5f, -0.0f, 127.5f, -128.5f});
  const Tensor x = cat({edges, randn({2000}) * 300}, 0);
  const double bounds[][2] = {{0, 255}, {-128, 127}, {-3e9, 3e9}, {0.5, 0.25}, {nan, 200}};
  const auto body = [&](const Tensor& v) {
    std::vector<Tensor> all;
    for (const auto& [low, high] : bounds)
      for (const DType from : {DType::f32, DType::f64, DType::f16})
        for (const DType to : {DType::u8, DType::i8, DType::i32, DType::i64}) {
          all.push_back(clamp(round(v.to(from)) + 3., low, high).to(to));
          all.push_back((all.back().to(float32) - 3.) * 0.5);
        }
    return all;
  };
  auto f = compile([&](Tensor v) { return body(v); });
  const std::vector<Tensor> want = body(x);
  for (int i = 0; i < 3; ++i) {
    const std::vector<Tensor> got = f(x);
    for (size_t k = 0; k < want.size(); ++k)
      EXPECT_TRUE(same_bits(want[k], got.at(k))) << i << " " << k;
    wait_for_jit();
  }
}

}  // namespace
}  // namespace tandem
