// SPDX-License-Identifier: Apache-2.0
// Losses: hand values, PyTorch's cases, derivatives to order two, vmap, labels and error texts.
#include <cmath>

#include "contraction_helper.h"

namespace tandem {
namespace {

using namespace testing;

class LossTest : public ::testing::Test {
 protected:
  void SetUp() override { init_once(); }
};

Reduction reduction_of(const Golden& g) {
  std::string r = g.text("reduction", "mean");
  return r == "mean"   ? Reduction::mean
         : r == "sum"  ? Reduction::sum
         : r == "none" ? Reduction::none
                       : Reduction::batchmean;
}

TEST_F(LossTest, HandValues) {
  Tensor x = tensor({{0., std::log(3.)}, {0., 0.}}, float64), y = tensor({1, 0});
  double a = -std::log(0.75), b = std::log(2.);
  expect_close(cross_entropy(x, y), tensor((a + b) / 2, float64));
  expect_close(cross_entropy(x, y, {.reduction = Reduction::none}), tensor({a, b}, float64));
  expect_close(cross_entropy(x, y, {.weight = tensor({3., 1.}, float64)}),
               tensor((a + 3 * b) / 4, float64));
  expect_close(cross_entropy(x, y, {.ignore_index = 0}), tensor(a, float64));
  expect_close(mse_loss(tensor({1., 2.}), tensor({0., 4.})), tensor(2.5));
  expect_close(l1_loss(tensor({1., 2.}), tensor({0., 4.}), {.reduction = Reduction::sum}),
               tensor(3.));
}

TEST_F(LossTest, LargeLogitsStayFinite) {
  Tensor x = tensor({{1000., 0.}, {-1000., 0.}});
  expect_close(cross_entropy(x, tensor({1, 1}), {.reduction = Reduction::none}),
               tensor({1000., 0.}));
  expect_close(binary_cross_entropy_with_logits(tensor({200., -200.}), tensor({0., 1.})),
               tensor(200.));
}

// More than a piece of the kernel's: its numbers, the bounds of its logarithms, and what is
// refused.
TEST_F(LossTest, BinaryCrossEntropyOfMany) {
  manual_seed(3);
  for (const DType t : {DType::f32, DType::f64}) {
    Tensor x = rand({9001}).to(t), y = rand({9001}).to(t);
    x = where(arange(9001) % 1000 == 7, (arange(9001) % 2).to(t), x);
    const Tensor a = x.to(DType::f64), b = y.to(DType::f64);
    const Tensor want = (b - 1) * clamp_min(log1p(-a), -100.) - b * clamp_min(log(a), -100.);
    const Tensor got = binary_cross_entropy(x, y, {.reduction = Reduction::none});
    EXPECT_LT(((got.to(DType::f64) - want).abs() / (1 + want.abs())).amax().item<double>(), 1e-6);
    for (const int64_t at : {0, 4500, 9000})
      for (const double wrong : {-0.1, 1.1, static_cast<double>(NAN)})
        EXPECT_THROW(binary_cross_entropy(where(arange(9001) == at, full(Shape(), wrong, t), x), y),
                     Error)
            << at << " " << wrong;
  }
}

TEST_F(LossTest, Gradients) {
  Tensor y = tensor({2, 0, 1}), w = ramp({3}, .3, 1);
  for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    auto plain = [=](std::span<const Tensor> v) {
      return Tensors{cross_entropy(v[0], y, {.reduction = r}).square()};
    };
    expect_gradients(plain, {ramp({3, 3})});
    auto full = [=](std::span<const Tensor> v) {
      return Tensors{
          cross_entropy(v[0], y,
                        {.weight = w, .ignore_index = 0, .reduction = r, .label_smoothing = 0.2})
              .square()};
    };
    expect_gradients(full, {ramp({3, 3})});
    auto nll = [=](std::span<const Tensor> v) {
      return Tensors{nll_loss(v[0], y, {.weight = w, .reduction = r}).square()};
    };
    expect_gradients(nll, {ramp({3, 3})});
  }
  Tensor image = tensor({0, 2, 1, 1}).reshape({2, 2});
  auto spatial = [=](std::span<const Tensor> v) { return Tensors{cross_entropy(v[0], image)}; };
  expect_gradients(spatial, {ramp({2, 3, 2})});
  auto prob = [](std::span<const Tensor> v) {
    return Tensors{cross_entropy(v[0], softmax(v[1], 1), {.label_smoothing = 0.1})};
  };
  expect_gradients(prob, {ramp({2, 3}), ramp({2, 3}, .7)});
  auto bce = [](std::span<const Tensor> v) {
    return Tensors{binary_cross_entropy(v[0].sigmoid(), v[1].sigmoid()),
                   binary_cross_entropy_with_logits(v[0], v[1].sigmoid())};
  };
  expect_gradients(bce, {ramp({4}), ramp({4}, .6)});
  auto pairs = [](std::span<const Tensor> v) {
    return Tensors{smooth_l1_loss(v[0], v[1], {.beta = 0.3}), huber_loss(v[0], v[1]),
                   cosine_similarity(v[0], v[1]), pairwise_distance(v[0], v[1])};
  };
  expect_gradients(pairs, {ramp({2, 3}), ramp({2, 3}, .6, .2)});
}

TEST_F(LossTest, Vmap) {
  Tensor x = ramp({2, 3, 4}), y = tensor({{0, 1, 3}, {2, 2, 0}}), w = ramp({4}, .3, 1);
  for (Reduction r : {Reduction::mean, Reduction::sum, Reduction::none}) {
    auto f = [=](std::span<const Tensor> v) {
      return cross_entropy(v[0], v[1], {.weight = w, .ignore_index = 3, .reduction = r});
    };
    expect_vmap(f, {x, y}, {true, true});
    auto g = [=](std::span<const Tensor> v) {
      auto one = [&](const Tensor& u) {
        return cross_entropy(u, v[1], {.weight = w, .reduction = r}).square().sum();
      };
      return grad(one)(v[0]);
    };
    expect_vmap(g, {x, y}, {true, true});
    expect_vmap(g, {x, y.select(0, 0)}, {true, false});
    auto n = [=](std::span<const Tensor> v) {
      auto one = [&](const Tensor& u) { return nll_loss(u, v[1], {.reduction = r}).sum(); };
      return grad(one)(v[0]);
    };
    expect_vmap(n, {x, y}, {true, true});
  }
}

TEST_F(LossTest, EmptyBatch) {
  expect_error(ErrorKind::Value, "cross_entropy: x is [0, 10]: an empty batch has no mean", [] {
    cross_entropy(zeros({0, 10}), zeros({0}, int64));
  });
  expect_close(cross_entropy(zeros({0, 10}), zeros({0}, int64), {.reduction = Reduction::sum}),
               tensor(0.0f));
  EXPECT_EQ(
      cross_entropy(zeros({0, 10}), zeros({0}, int64), {.reduction = Reduction::none}).shape(),
      Shape(0));
}

TEST_F(LossTest, Errors) {
  Tensor x = zeros({2, 3});
  expect_error(ErrorKind::Value, "label 3 is out of range", [=] {
    cross_entropy(x, tensor({0, 3}));
  });
  expect_error(ErrorKind::Value, "label -1 is out of range", [=] { nll_loss(x, tensor({-1, 0})); });
  expect_error(ErrorKind::Shape, "target is [3], x is [2, 3]: expected one label per sample, [2]",
               [=] {
                 cross_entropy(x, tensor({0, 1, 2}));
               });
  expect_error(ErrorKind::Shape, "holds probabilities [2], x is [2, 3]",
               [=] { cross_entropy(x, zeros({2})); });
  expect_error(ErrorKind::DType, "target is bool, expected integer labels",
               [=] { cross_entropy(x, zeros({2}, boolean)); });
  expect_error(ErrorKind::Shape, "weight is [4], expected one factor per class, [3]", [=] {
    cross_entropy(x, tensor({0, 1}), {.weight = zeros({4})});
  });
  expect_error(ErrorKind::Value, "label_smoothing is 2", [=] {
    cross_entropy(x, tensor({0, 1}), {.label_smoothing = 2});
  });
  expect_error(ErrorKind::Shape, "mse_loss: x is [2], target is [2, 1]: they must have one shape",
               [] {
                 mse_loss(zeros({2}), zeros({2, 1}));
               });
  expect_error(ErrorKind::Value, "batchmean is for kl_div", [=] {
    cross_entropy(x, tensor({0, 1}), {.reduction = Reduction::batchmean});
  });
  expect_error(ErrorKind::Value, "delta is 0",
               [] { huber_loss(zeros({2}), zeros({2}), {.delta = 0}); });
}

std::map<std::string, GoldenFn> class_cases() {
  std::map<std::string, GoldenFn> t;
  t["cross_entropy"] = [](const Golden& g) {
    return Tensors{cross_entropy(g.at(0), g.at(1),
                                 {.weight = g.at(2),
                                  .ignore_index = g.integer("ignore_index", -100),
                                  .reduction = reduction_of(g),
                                  .label_smoothing = g.number("label_smoothing", 0)})};
  };
  t["nll_loss"] = [](const Golden& g) {
    return Tensors{nll_loss(g.at(0), g.at(1),
                            {.weight = g.at(2),
                             .ignore_index = g.integer("ignore_index", -100),
                             .reduction = reduction_of(g)})};
  };
  return t;
}

std::map<std::string, GoldenFn> value_cases() {
  std::map<std::string, GoldenFn> t;
  t["mse_loss"] = [](const Golden& g) {
    return Tensors{mse_loss(g.at(0), g.at(1), {reduction_of(g)})};
  };
  t["l1_loss"] = [](const Golden& g) {
    return Tensors{l1_loss(g.at(0), g.at(1), {reduction_of(g)})};
  };
  t["smooth_l1_loss"] = [](const Golden& g) {
    return Tensors{smooth_l1_loss(g.at(0), g.at(1), {reduction_of(g), g.number("beta", 1)})};
  };
  t["huber_loss"] = [](const Golden& g) {
    return Tensors{huber_loss(g.at(0), g.at(1), {reduction_of(g), g.number("delta", 1)})};
  };
  t["binary_cross_entropy"] = [](const Golden& g) {
    return Tensors{binary_cross_entropy(g.at(0), g.at(1), {g.at(2), reduction_of(g)})};
  };
  t["binary_cross_entropy_with_logits"] = [](const Golden& g) {
    return Tensors{
        binary_cross_entropy_with_logits(g.at(0), g.at(1), {g.at(2), reduction_of(g), g.at(3)})};
  };
  t["kl_div"] = [](const Golden& g) {
    return Tensors{kl_div(g.at(0), g.at(1), {reduction_of(g), g.flag("log_target", false)})};
  };
  t["poisson_nll_loss"] = [](const Golden& g) {
    return Tensors{poisson_nll_loss(g.at(0), g.at(1), {.reduction = reduction_of(g)})};
  };
  t["gaussian_nll_loss"] = [](const Golden& g) {
    return Tensors{gaussian_nll_loss(g.at(0), g.at(1), g.at(2), {.reduction = reduction_of(g)})};
  };
  t["hinge_embedding_loss"] = [](const Golden& g) {
    return Tensors{hinge_embedding_loss(g.at(0), g.at(1), {.reduction = reduction_of(g)})};
  };
  t["soft_margin_loss"] = [](const Golden& g) {
    return Tensors{soft_margin_loss(g.at(0), g.at(1), {reduction_of(g)})};
  };
  t["margin_ranking_loss"] = [](const Golden& g) {
    return Tensors{
        margin_ranking_loss(g.at(0), g.at(1), g.at(2), {g.number("margin", 0), reduction_of(g)})};
  };
  t["cosine_embedding_loss"] = [](const Golden& g) {
    return Tensors{
        cosine_embedding_loss(g.at(0), g.at(1), g.at(2), {g.number("margin", 0), reduction_of(g)})};
  };
  t["triplet_margin_loss"] = [](const Golden& g) {
    return Tensors{triplet_margin_loss(g.at(0), g.at(1), g.at(2), {.reduction = reduction_of(g)})};
  };
  t["cosine_similarity"] = [](const Golden& g) {
    return Tensors{cosine_similarity(g.at(0), g.at(1), g.integer("dim", 1))};
  };
  t["pairwise_distance"] = [](const Golden& g) {
    return Tensors{pairwise_distance(g.at(0), g.at(1))};
  };
  return t;
}

TEST_F(LossTest, GoldenClasses) { EXPECT_GE(run_golden("norm_loss", class_cases()), 50); }
TEST_F(LossTest, GoldenValues) { EXPECT_GE(run_golden("norm_loss", value_cases()), 50); }

}  // namespace
}  // namespace tandem
