// SPDX-License-Identifier: Apache-2.0
// cond, while_loop and scan: eager against plain C++ loops, compiled and traced against eager,
// derivatives to second order, vmap against a loop, and what is rejected.
#include <gtest/gtest.h>

#include "tests/compile/helpers.h"

namespace tandem {
namespace {

using test::message;

void expect_near(const Tensor& a, const Tensor& b, double tolerance = 1e-12) {
  ASSERT_EQ(a.shape().to_string(), b.shape().to_string());
  std::vector<double> x = doubles(a), y = doubles(b);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], tolerance) << i;
}
Tensor random(Shape shape, uint64_t seed, DType dtype = DType::f64) {
  manual_seed(seed);
  return randn(shape).to(dtype);
}
// A recurrent cell: h = tanh(x w + h u), y = h * h.
Tensor rnn(const Tensor& h0, const Tensor& xs, const Tensor& w, const Tensor& u, bool reverse) {
  auto [h, ys] = scan(
      [&](Tensor h, Tensor x) {
        Tensor next = tanh(matmul(x, w) + matmul(h, u));
        return std::pair(next, next * next);
      },
      h0, xs, {.reverse = reverse});
  return h.sum() + (ys * ys).sum() * 0.5;
}
Tensor rnn_loop(Tensor h, const Tensor& xs, const Tensor& w, const Tensor& u, bool reverse) {
  Tensor total;
  for (int64_t k = 0; k < xs.size(0); ++k) {
    int64_t t = reverse ? xs.size(0) - 1 - k : k;
    h = tanh(matmul(xs.select(0, t), w) + matmul(h, u));
    Tensor y = (h * h * h * h).sum() * 0.5;
    total = total.defined() ? total + y : y;
  }
  return h.sum() + total;
}

struct Rnn {
  Tensor h = random({2, 3}, 1), xs = random({4, 2, 2}, 2), w = random({2, 3}, 3) * 0.5,
         u = random({3, 3}, 4) * 0.4;
};

TEST(Scan, EagerIsALoop) {
  Rnn r;
  for (bool reverse : {false, true})
    expect_near(rnn(r.h, r.xs, r.w, r.u, reverse), rnn_loop(r.h, r.xs, r.w, r.u, reverse));
  // ys of no steps have their shape, a carry of several parts, numbers of steps without xs.
  auto [c, y] = scan([](Tensor a, Tensor x) { return std::pair(a + x, x.unsqueeze(0)); },
                     zeros({3}), zeros({0, 3}));
  EXPECT_EQ(y.shape().to_string(), "[0, 1, 3]");
  auto [ab, none] = scan(
      [](std::pair<Tensor, Tensor> p, Tensors) {
        return std::pair(std::pair(p.second, p.first + p.second), std::tuple<>());
      },
      std::pair(ones({}), ones({})), Tensors{}, {.length = 9});
  EXPECT_EQ(ab.second.item<float>(), 89);
}

TEST(Scan, CompiledEqualsEager) {
  Rnn r;
  for (bool reverse : {false, true}) {
    auto f =
        compile([&](Tensor h, Tensor xs, Tensor w, Tensor u) { return rnn(h, xs, w, u, reverse); });
    NoGradGuard no_grad;
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(doubles(f(r.h, r.xs, r.w, r.u)), doubles(rnn(r.h, r.xs, r.w, r.u, reverse)));
    int scans = 0;
    for (const Ref<Node>& n : f.graph()->nodes) scans += n->op == &op::scan;
    EXPECT_EQ(scans, 1);
  }
}

TEST(Scan, GradientsOfFirstAndSecondOrder) {
  Rnn r;
  const Tensors x = {r.h, r.xs, r.w, r.u};
  for (bool reverse : {false, true}) {
    auto plain = grad(
        [&](Tensor h, Tensor xs, Tensor w, Tensor u) { return rnn_loop(h, xs, w, u, reverse); },
        {0, 1, 2, 3});
    auto fn = [&](Tensor h, Tensor xs, Tensor w, Tensor u) { return rnn(h, xs, w, u, reverse); };
    auto scanned = compile([&](Tensor h, Tensor xs, Tensor w, Tensor u) {
      return grad(fn, {0, 1, 2, 3})(h, xs, w, u);
    });
    Tensors want = plain(r.h, r.xs, r.w, r.u), got = scanned(r.h, r.xs, r.w, r.u);
    for (size_t i = 0; i < 4; ++i) expect_near(got[i], want[i]);
    // The derivative of |grad|^2.
    const auto square = [&](auto f) {
      return [f](Tensor h, Tensor xs, Tensor w, Tensor u) mutable {
        Tensor s;
        for (const Tensor& g : grad(f, {0, 1, 2, 3})(h, xs, w, u))
          s = s.defined() ? s + (g * g).sum() : (g * g).sum();
        return s;
      };
    };
    auto loop = [&](Tensor h, Tensor xs, Tensor w, Tensor u) {
      return rnn_loop(h, xs, w, u, reverse);
    };
    auto second = compile([&](Tensor h, Tensor xs, Tensor w, Tensor u) {
      return grad(square(fn), {0, 1, 2, 3})(h, xs, w, u);
    });
    want = grad(square(loop), {0, 1, 2, 3})(r.h, r.xs, r.w, r.u);
    got = second(r.h, r.xs, r.w, r.u);
    for (size_t i = 0; i < 4; ++i) expect_near(got[i], want[i], 1e-10);
  }
  // The row itself, walked and differentiated in eager.
  Spec specs[] = {spec_of(r.h), spec_of(r.xs), spec_of(r.w), spec_of(r.u)};
  Ref<Graph> g =
      trace([](std::span<const Tensor> t) { return Tensors{rnn(t[0], t[1], t[2], t[3], false)}; },
            specs, Captures::refuse);
  EXPECT_TRUE(gradcheck([&](std::span<const Tensor> t) { return run(*g, t); }, x, {.order = 2}));
}

TEST(Scan, ATrainingStep) {
  Param w(random({2, 3}, 3, DType::f32)), u(random({3, 3}, 4, DType::f32) * 0.4);
  Param w2(w.value().clone()), u2(u.value().clone());
  optim::AdamW opt({w, u}, {.lr = 0.05}), opt2({w2, u2}, {.lr = 0.05});
  const auto body = [](Param& w, Param& u, optim::AdamW& opt) {
    return [&](Tensor h, Tensor xs) {
      opt.zero_grad();
      Tensor loss = rnn(h, xs, w, u, false);
      loss.backward();
      opt.step();
      return loss;
    };
  };
  auto step = compile(body(w, u, opt), {.dynamic = {{1, 1, "batch"}, {0, 0, "batch"}}});
  auto plain = body(w2, u2, opt2);
  for (int64_t n : {2, 3, 2}) {
    Tensor h = random({n, 3}, 1, DType::f32), xs = random({4, n, 2}, 2, DType::f32);
    expect_near(step(h, xs), plain(h, xs), 1e-5);
  }
  expect_near(w, w2, 1e-5);
  expect_near(u, u2, 1e-5);
  EXPECT_EQ(step.stats().traces, 1);
}

TEST(Scan, ForwardCompiledBackwardEager) {
  Rnn r;
  auto f = compile([](Tensor h, Tensor xs, Tensor w, Tensor u) { return rnn(h, xs, w, u, true); });
  Tensor w = r.w.clone().requires_grad_(), v = r.w.clone().requires_grad_();
  f(r.h, r.xs, w, r.u).backward();
  rnn_loop(r.h, r.xs, v, r.u, true).backward();
  expect_near(w.grad(), v.grad());
}

TEST(Scan, Vmap) {
  Rnn r;
  Tensor h = random({5, 2, 3}, 7), xs = random({5, 4, 2, 2}, 8);
  auto f = [](Tensor h, Tensor xs, Tensor w, Tensor u) { return rnn(h, xs, w, u, false); };
  for (const std::vector<int>& dims : {std::vector<int>{0, 0, kNoBatchDim, kNoBatchDim},
                                       {0, kNoBatchDim, kNoBatchDim, kNoBatchDim},
                                       {kNoBatchDim, 0, kNoBatchDim, kNoBatchDim}}) {
    Tensor a = dims[0] == 0 ? h : r.h, b = dims[1] == 0 ? xs : r.xs;
    auto mapped = vmap(f, dims);
    auto fast = compile([&](Tensor a, Tensor b, Tensor w, Tensor u) { return mapped(a, b, w, u); });
    Tensor got = mapped(a, b, r.w, r.u), quick = fast(a, b, r.w, r.u);
    for (int64_t i = 0; i < 5; ++i) {
      Tensor want =
          f(dims[0] == 0 ? h.select(0, i) : r.h, dims[1] == 0 ? xs.select(0, i) : r.xs, r.w, r.u);
      expect_near(got.select(0, i), want);
      expect_near(quick.select(0, i), want);
    }
  }
  // Per-example gradients.
  auto per_example = vmap(grad(f, 2), {0, 0, kNoBatchDim, kNoBatchDim});
  Tensor got = per_example(h, xs, r.w, r.u);
  for (int64_t i = 0; i < 5; ++i)
    expect_near(got.select(0, i), grad(f, 2)(h.select(0, i), xs.select(0, i), r.w, r.u));
}

// x -> x / 2 + 1 / x until close to sqrt(2), with a bound on the steps.
Tensor newton(const Tensor& x, const Tensor& a, WhileOptions options) {
  return while_loop([&](Tensor x) { return abs(x * x - a).sum() > 1e-9; },
                    [&](Tensor x) { return (x + a / x) * 0.5; }, x, options);
}

TEST(WhileLoop, EagerCompiledAndGradients) {
  Tensor x = full({}, 3.0, DType::f64), a = full({}, 2.0, DType::f64);
  EXPECT_NEAR(newton(x, a, {}).item<double>(), std::sqrt(2.0), 1e-10);
  auto f = compile([](Tensor x, Tensor a) { return newton(x, a, {}); });
  EXPECT_EQ(doubles(f(x, a)), doubles(newton(x, a, {})));
  EXPECT_EQ(doubles(f(x, full({}, 9.0, DType::f64))),
            doubles(newton(x, full({}, 9.0, DType::f64), {})));
  auto two = compile([](Tensor x, Tensor a) { return newton(x, a, {.max_steps = 2}); });
  EXPECT_EQ(doubles(two(x, a)), doubles(newton(x, a, {.max_steps = 2})));
  auto g = [](Tensor x, Tensor a) { return newton(x, a, {.max_steps = 20}); };
  EXPECT_NEAR(grad(g, 1)(x, a).item<double>(), 0.5 / std::sqrt(2.0), 1e-8);
  auto dg = compile([&](Tensor x, Tensor a) { return grad(g, {0, 1})(x, a); });
  Tensors got = dg(x, a), want = grad(g, {0, 1})(x, a);
  expect_near(got[0], want[0]);
  expect_near(got[1], want[1]);
  auto ddg = compile([&](Tensor x, Tensor a) { return grad(grad(g, 1), 1)(x, a); });
  expect_near(ddg(x, a), grad(grad(g, 1), 1)(x, a), 1e-10);
  // The row in eager.
  Spec specs[] = {spec_of(x), spec_of(a)};
  Ref<Graph> graph = trace([&](std::span<const Tensor> t) { return Tensors{g(t[0], t[1])}; }, specs,
                           Captures::refuse);
  EXPECT_TRUE(gradcheck([&](std::span<const Tensor> t) { return run(*graph, t); }, {x, a}));
}

TEST(WhileLoop, VmapStopsEachExampleOnItsOwn) {
  auto steps = [](Tensor x) {
    return while_loop(
               [](std::pair<Tensor, Tensor> s) { return s.first < 100.0; },
               [](std::pair<Tensor, Tensor> s) { return std::pair(s.first * 2.0, s.second + 1); },
               std::pair(x, zeros({}, DType::i64)))
        .second;
  };
  Tensor x = tensor({1.0, 30.0, 200.0, 99.0});
  Tensor got = vmap(steps)(x);
  EXPECT_EQ(got.to_vector<int64_t>(), (std::vector<int64_t>{7, 2, 0, 1}));
  auto quick = compile([&](Tensor x) { return vmap(steps)(x); });
  EXPECT_EQ(quick(x).to_vector<int64_t>(), got.to_vector<int64_t>());
}

Tensor piecewise(const Tensor& x, const Tensor& w) {
  return cond((x.sum() > 0), [&](Tensor x) { return (sqrt(x * x + 1.0) * w).sum(); },
              [](Tensor x) { return (x * x * x).sum(); }, x);
}

TEST(Cond, EagerCompiledAndGradients) {
  Tensor x = random({3}, 5), w = random({3}, 6);
  Tensor up = x + 3.0, down = x - 3.0;
  auto f = compile(piecewise);
  auto df = compile([](Tensor x, Tensor w) { return grad(piecewise, {0, 1})(x, w); });
  auto ddf = compile([](Tensor x, Tensor w) {
    return grad([](Tensor x, Tensor w) { return grad(piecewise, 0)(x, w).square().sum(); }, {0, 1})(
        x, w);
  });
  for (const Tensor& at : {up, down}) {
    EXPECT_EQ(doubles(f(at, w)), doubles(piecewise(at, w)));
    Tensors got = df(at, w), want = grad(piecewise, {0, 1})(at, w);
    expect_near(got[0], want[0]);
    expect_near(got[1], want[1]);
    got = ddf(at, w);
    want = grad([](Tensor x, Tensor w) { return grad(piecewise, 0)(x, w).square().sum(); }, {0, 1})(
        at, w);
    expect_near(got[0], want[0], 1e-10);
    expect_near(got[1], want[1], 1e-10);
    Spec specs[] = {spec_of(at), spec_of(w)};
    Ref<Graph> g = trace([](std::span<const Tensor> t) { return Tensors{piecewise(t[0], t[1])}; },
                         specs, Captures::refuse);
    EXPECT_TRUE(
        gradcheck([&](std::span<const Tensor> t) { return run(*g, t); }, {at, w}, {.order = 2}));
  }
  EXPECT_EQ(f.stats().traces, 1);
  // Only the chosen branch runs: the other one would report an index.
  auto safe = compile([](Tensor x, Tensor i) {
    return cond(
        i.reshape({}) < 3, [](Tensor x, Tensor i) { return index_select(x, 0, i); },
        [](Tensor x, Tensor) { return x.slice(0, 0, 1); }, x, i);
  });
  EXPECT_EQ(doubles(safe(x, tensor({7}, DType::i64))), (std::vector<double>{doubles(x)[0]}));
  EXPECT_EQ(doubles(safe(x, tensor({2}, DType::i64))), (std::vector<double>{doubles(x)[2]}));
}

TEST(Cond, Vmap) {
  Tensor x = random({6, 3}, 9), w = random({3}, 6);
  auto mapped = vmap(piecewise, {0, kNoBatchDim});
  auto quick = compile([&](Tensor x, Tensor w) { return mapped(x, w); });
  auto slope = vmap(grad(piecewise, 0), {0, kNoBatchDim});
  for (int64_t i = 0; i < 6; ++i) {
    expect_near(mapped(x, w).select(0, i), piecewise(x.select(0, i), w));
    expect_near(quick(x, w).select(0, i), piecewise(x.select(0, i), w));
    expect_near(slope(x, w).select(0, i), grad(piecewise, 0)(x.select(0, i), w));
  }
}

TEST(ControlFlow, NestedAndMixedDtypes) {
  auto body = [](Tensor x) {
    auto [last, ys] = scan(
        [](std::tuple<Tensor, Tensor> c, Tensor v) {
          Tensor total = std::get<0>(c), count = std::get<1>(c);
          Tensor up = cond((v > 0), [&](Tensor v) { return total + v; },
                           [&](Tensor v) { return total - v * 2.0; }, v);
          Tensor n =
              while_loop([](Tensor k) { return k < 5; }, [](Tensor k) { return k + 2; }, count % 3);
          return std::pair(std::make_tuple(up, n), std::make_tuple(up > 1.0, n, v));
        },
        std::make_tuple(zeros({}, DType::f64), zeros({}, DType::i64)), x);
    return std::make_tuple(std::get<0>(last), std::get<0>(ys), std::get<1>(ys), std::get<2>(ys));
  };
  Tensor x = random({7}, 3);
  auto [a, b, c, d] = body(x);
  auto [e, f, g, h] = compile(body)(x);
  EXPECT_EQ(doubles(a), doubles(e));
  EXPECT_EQ(doubles(b), doubles(f));
  EXPECT_EQ(doubles(c), doubles(g));
  EXPECT_EQ(doubles(d), doubles(h));
  EXPECT_EQ(f.dtype(), DType::b8);
  auto total = [&](Tensor x) { return std::get<0>(body(x)); };
  auto slope = compile([&](Tensor x) { return grad(total)(x); });
  expect_near(slope(x), grad(total)(x));
}

// `f` refuses x [3] with that text, at a line of this file: in eager and compiled.
template <class F>
void expect_refused(F f, const char* text) {
  const Tensor x = random({3}, 1, DType::f32);
  EXPECT_NE(message([&] { f(x); }).find(text), std::string::npos) << message([&] { f(x); });
  auto c = compile(f);
  EXPECT_NE(message([&] { c(x); }).find(text), std::string::npos) << message([&] { c(x); });
  EXPECT_NE(message([&] { c(x); }).find("control_flow_test.cpp"), std::string::npos);
}
// Only the compiler has to.
template <class F>
void expect_not_compiled(F f, const char* text) {
  const Tensor x = random({3}, 1, DType::f32);
  auto c = compile(f);
  EXPECT_NE(message([&] { c(x); }).find(text), std::string::npos) << message([&] { c(x); });
}

TEST(ControlFlow, Refusals) {
  expect_refused(
      [](Tensor x) {
        return scan([](Tensor c, Tensor v) { return std::pair(c.reshape({1}) + v, v); }, x.sum(), x)
            .first;
      },
      "is returned as");
  expect_refused(
      [](Tensor x) {
        return scan([](Tensor c, Tensor v) { return std::pair((c + v).to(DType::f64), v); },
                    x.sum(), x)
            .first;
      },
      "keeps its shape and dtype");
  expect_refused(
      [](Tensor x) {
        return while_loop([](Tensor c) { return c.sum() < 10; },
                          [](Tensor c) {
                            return cat({c, c});
                          },
                          x.abs())
            .sum();
      },
      "is returned as");
  expect_refused(
      [](Tensor x) {
        return while_loop([](Tensor c) { return c; }, [](Tensor c) { return c; }, x);
      },
      "expects a bool of one element");
  expect_refused(
      [](Tensor x) {
        return scan([](Tensor c, Tensor) { return std::pair(c, c); }, x, Tensor(x.sum())).first;
      },
      "no dimension");
  expect_refused(
      [](Tensor x) {
        return scan([](Tensor c, std::vector<Tensor>) { return std::pair(c, c); }, x,
                    std::vector<Tensor>{x, x.slice(0, 0, 2)})
            .first;
      },
      "has 2 slices");
  expect_refused(
      [](Tensor x) {
        return scan([](Tensor c, Tensors) { return std::pair(c, c); }, x, Tensors{}).first;
      },
      ".length = N");
  expect_refused(
      [](Tensor x) {
        return scan([](std::pair<Tensor, int64_t> c,
                       Tensor) { return std::pair(std::pair(c.first, c.second + 1), c.first); },
                    std::pair(x, int64_t{0}), x)
            .second;
      },
      "the carry changes");
  expect_refused(
      [](Tensor x) {
        return while_loop([](Tensor c) { return c.sum() < 10; }, [](Tensor c) { return c + 1; }, x,
                          {.max_steps = -1});
      },
      "max_steps");
  expect_refused(
      [](Tensor x) {
        return grad([](Tensor x) {
          return while_loop([](Tensor c) { return c.sum() < 10; }, [](Tensor c) { return c + 1; },
                            x)
              .sum();
        })(x);
      },
      ".max_steps = N");
  expect_refused(
      [](Tensor x) {
        return cond(
            x, [](Tensor a) { return a; }, [](Tensor a) { return a; }, x);
      },
      "pred expects a bool");
}

TEST(ControlFlow, RefusalsOfTheCompiler) {
  Buffer seen(zeros({3}));
  Param w(ones({3}));
  expect_not_compiled(
      [](Tensor x) {
        return cond(
            x.sum() > 0, [](Tensor a) { return a; }, [](Tensor a) { return a.sum(); }, x);
      },
      "from true_fn and");
  expect_not_compiled(
      [](Tensor x) {
        return cond(
            x.sum() > 0, [](Tensor a) { return a; }, [](Tensor a) { return a.to(DType::f64); }, x);
      },
      "from false_fn");
  expect_not_compiled(
      [](Tensor x) {
        return cond(
            x.sum() > 0, [](Tensor a) { return Tensors{a}; },
            [](Tensor a) {
              return Tensors{a, a};
            },
            x)[0];
      },
      "different structures");
  expect_not_compiled(
      [&](Tensor x) {
        return scan(
                   [&](Tensor c, Tensor v) {
                     seen.assign_(seen + v);
                     return std::pair(c + v, v);
                   },
                   x.sum(), x)
            .first;
      },
      "carries it");
  expect_not_compiled(
      [](Tensor x) {
        return vmap([](Tensor x) {
          return scan([](Tensor c, Tensor v) { return std::pair(c + v * randn({}), v); }, x.sum(),
                      x)
              .first;
        })(x.reshape({-1, 1}));
      },
      "random numbers");
  expect_not_compiled(
      [&](Tensor x) {
        return scan(
                   [&](Tensor c, Tensor v) {
                     (w * v).sum().backward();
                     return std::pair(c + v, v);
                   },
                   x.sum(), x)
            .first;
      },
      "loop body");
}

// ---- random numbers in bodies: eager, compiled and the graph's interpreter draw the same, and a
// derivative sees the draws of the first run

Tensor noisy_scan(const Tensor& x, const Tensor& w, bool reverse) {
  auto [h, ys] = scan(
      [&](Tensor h, Tensor v) {
        Tensor next = tanh(h * w + v + 0.3 * randn({3}).to(DType::f64));
        return std::pair(dropout(next, 0.4, true), next * rand({3}).to(DType::f64));
      },
      x[0], x, {.reverse = reverse});
  return (h * h).sum() + ys.sum() * 0.5;
}
// Steps until a random walk has left the circle, at most 12.
Tensor noisy_walk(const Tensor& x, const Tensor& w) {
  Tensor y = while_loop([&](Tensor c) { return (c * c).sum() + rand({}).to(DType::f64) < 4.0; },
                        [&](Tensor c) { return c * w + 0.5 * randn({3}).to(DType::f64) * c; }, x[0],
                        {.max_steps = 12});
  return (y * y).sum();
}
Tensor noisy_cond(const Tensor& x, const Tensor& w) {
  Tensor y = cond(
      rand({}) < 0.5, [&](Tensor v) { return v * w * rand({3}).to(DType::f64); },
      [](Tensor v) { return v + v * randn({3}).to(DType::f64) + randn({3}).to(DType::f64); }, x[0]);
  // A loop in a loop.
  auto [h, ys] = scan(
      [&](Tensor h, Tensor v) {
        Tensor next = while_loop([](Tensor c) { return (c * c).sum() < 3.0; },
                                 [](Tensor c) { return c * (1.5 + rand({3}).to(DType::f64)); },
                                 h + v, {.max_steps = 5});
        return std::pair(h * 0.5 + 0.1 * next, next * w);
      },
      y, x);
  return (h * h).sum() + ys.sum();
}

template <class F>
void same_draws(F f) {
  Tensor x = random({4, 3}, 11), w = random({3}, 12);
  auto value = compile([&](Tensor x, Tensor w) { return f(x, w); });
  auto both = [&](Tensor x, Tensor w) {
    auto [y, g] = value_and_grad([&](Tensor x, Tensor w) { return f(x, w); }, {0, 1})(x, w);
    return std::tuple(y, g[0], g[1], rand({2}));
  };
  auto step = compile(both);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    manual_seed(seed);
    const Tensor want = f(x, w);
    const GeneratorState after = generator_state();
    manual_seed(seed);
    expect_near(value(x, w), want);
    EXPECT_EQ(generator_state().offset, after.offset);
    manual_seed(seed);
    const auto a = both(x, w);
    manual_seed(seed);
    const auto b = step(x, w);
    manual_seed(seed);
    Tensors outs = run(*step.graph(), Tensors{x, w});
    expect_near(std::get<0>(a), want);
    expect_near(std::get<0>(b), want);
    expect_near(std::get<1>(b), std::get<1>(a));
    expect_near(std::get<2>(b), std::get<2>(a));
    expect_near(std::get<3>(b).to(DType::f64), std::get<3>(a).to(DType::f64), 0);
    for (size_t i = 0; i < 3; ++i)
      expect_near(outs[i], i == 0 ? std::get<0>(a) : i == 1 ? std::get<1>(a) : std::get<2>(a));
    // The derivative is that of the function with these draws.
    const double eps = 1e-6;
    Tensor d = ones({4, 3}, DType::f64) * eps;
    const auto at = [&](const Tensor& x) {
      manual_seed(seed);
      return f(x, w).template item<double>();
    };
    const Tensor whole = std::get<1>(a).sum();
    const double slope = doubles(whole)[0];
    EXPECT_NEAR((at(x + d) - at(x - d)) / (2 * eps), slope, 2e-4 * (1 + std::abs(slope))) << seed;
  }
}
TEST(ControlFlow, RandomScan) {
  same_draws([](Tensor x, Tensor w) { return noisy_scan(x, w, false); });
  same_draws([](Tensor x, Tensor w) { return noisy_scan(x, w, true); });
}
TEST(ControlFlow, RandomWhile) { same_draws(noisy_walk); }
TEST(ControlFlow, RandomCond) { same_draws(noisy_cond); }

TEST(ControlFlow, BodiesDrawAnew) {
  // Every step and every call draws other numbers, and the op advances the generator by one.
  auto f = compile([](Tensor x) {
    return scan([](Tensor c, Tensor v) { return std::pair(c, v + rand({2})); }, x.sum(), x).second;
  });
  manual_seed(3);
  const Tensor a = f(zeros({3, 2})), b = f(zeros({3, 2}));
  EXPECT_EQ(generator_state().offset, 2u);
  std::vector<float> seen;
  for (const Tensor& t : {a, b})
    for (float v : t.to_vector<float>()) seen.push_back(v);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(ControlFlow, EffectsOfALoopNobodyReadsHappen) {
  auto f = compile([](Tensor x) {
    scan(
        [](Tensor c, Tensor v) {
          debug_print(v, "slice");
          return std::pair(c + v, v);
        },
        x.sum(), x);
    return x * 2.0;
  });
  for (int i = 0; i < 2; ++i) {
    testing::internal::CaptureStderr();
    f(ones({3}));
    const std::string text = testing::internal::GetCapturedStderr();
    size_t n = 0;
    for (size_t at = text.find("slice"); at != std::string::npos; at = text.find("slice", at + 1))
      ++n;
    EXPECT_EQ(n, 3u) << text;
  }
  // A derivative reruns the body without repeating its effects.
  auto g = compile([](Tensor x) {
    return value_and_grad([](Tensor x) {
             return scan(
                        [](Tensor c, Tensor v) {
                          Tensor p = debug_print(c * v, "step");
                          return std::pair(p, v);
                        },
                        ones({}), x)
                 .first;
           })(x)
        .second;
  });
  testing::internal::CaptureStderr();
  EXPECT_EQ(g(full({3}, 2.0)).to_vector<float>(), (std::vector<float>{4, 4, 4}));
  const std::string text = testing::internal::GetCapturedStderr();
  size_t n = 0;
  for (size_t at = text.find("step"); at != std::string::npos; at = text.find("step", at + 1)) ++n;
  EXPECT_EQ(n, 3u) << text;
}

}  // namespace
}  // namespace tandem
