// SPDX-License-Identifier: Apache-2.0
// Image ops and layers beyond the row driver: layouts, gradients per sample, detection in a trace,
// what pooling and unpooling undo.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/graph/trace.h"
#include "tandem/tandem.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

double largest_difference(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape())) return INFINITY;
  std::vector<double> x = a.to_vector<double>(), y = b.to_vector<double>();
  double d = 0;
  for (size_t i = 0; i < x.size(); ++i) d = std::max(d, std::abs(x[i] - y[i]));
  return d;
}

Tensor channels_last(const Tensor& x) {
  return x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
}
bool is_channels_last(const Tensor& x) { return x.permute({0, 2, 3, 1}).is_contiguous(); }

TEST(Images, ChannelsLastStays) {
  manual_seed(1);
  Tensor x = randn({3, 6, 9, 7});
  for (const char* mode : {"nearest", "bilinear", "bicubic"}) {
    InterpolateOptions o{.size = {5, 11}, .mode = mode};
    Tensor want = interpolate(x, o), got = interpolate(channels_last(x), o);
    EXPECT_TRUE(is_channels_last(got)) << mode;
    EXPECT_LT(largest_difference(got, want), 1e-6) << mode;
    Tensor leaf = channels_last(x).requires_grad_(), plain = x.detach().requires_grad_();
    Tensor g = randn({3, 6, 5, 11});
    interpolate(leaf, o).backward(channels_last(g));
    interpolate(plain, o).backward(g);
    EXPECT_LT(largest_difference(leaf.grad(), plain.grad()), 1e-5) << mode;
  }
  nn::Conv2d conv(6, 8, 3, {.padding = "same"});
  nn::MaxPool2d pool(2);
  nn::AvgPool2d mean(2);
  Tensor y = conv(channels_last(x));
  EXPECT_LT(largest_difference(y, conv(x)), 1e-5);
  EXPECT_TRUE(is_channels_last(pool(channels_last(x))));
  EXPECT_TRUE(is_channels_last(mean(channels_last(x))));
  nn::ConvTranspose2d up(6, 4, 3, {.stride = 2});
  EXPECT_LT(largest_difference(up(channels_last(x)), up(x)), 1e-5);
}

// Gradients of the layer's parameters, one per sample, by vmap(grad) and by a loop.
template <class M>
void per_sample(M layer, const Tensor& x) {
  layer.to(float64);
  Tensor seed = randn(layer(x.slice(0, 0, 1)).shape(), float64);
  for (auto& [name, p] : layer.named_parameters()) {
    Tensor value = p.value().detach();
    auto loss = [&, p = p](Tensor w, Tensor one) {
      Tensor out;
      functional_call({{p, w}}, [&]() -> Tensors {
        out = (layer(one.unsqueeze(0)).tanh() * seed).sum();
        return {out};
      });
      return out;
    };
    Tensor together = vmap(grad(loss), {kNoBatchDim, 0})(value, x);
    for (int64_t i = 0; i < x.size(0); ++i) {
      Tensor one = grad(loss)(value, x[i]);
      EXPECT_LT(largest_difference(together.select(0, i), one), 1e-10)
          << layer.type() << "." << name;
    }
  }
}

TEST(Images, GradientsPerSample) {
  manual_seed(2);
  Tensor x = randn({3, 4, 5, 6}, float64);
  per_sample(nn::Conv2d(4, 6, 3, {.padding = 1, .groups = 2}), x);
  per_sample(nn::Conv2d(4, 2, 3, {.padding = 1, .padding_mode = "circular"}), x);
  per_sample(nn::Conv1d(4, 3, 3, {.stride = 2}), x.select(3, 0).contiguous());
  per_sample(nn::ConvTranspose2d(4, 6, 3, {.stride = 2, .padding = 1, .groups = 2}), x);
  per_sample(nn::GroupNorm(2, 4), x);
  per_sample(nn::InstanceNorm2d(4, {.affine = true}), x);
  per_sample(nn::LayerNorm({5, 6}), x);
}

TEST(Images, UnpoolingUndoesPooling) {
  manual_seed(3);
  Tensor x = randn({2, 3, 6, 7}) + 3;
  auto [y, at] = nn::MaxPool2d(2).forward_with_indices(x);
  Tensor back = nn::MaxUnpool2d(2)(y, at, {6, 7});
  EXPECT_EQ(largest_difference(max_pool2d(back, 2), y), 0);
  EXPECT_EQ(count_nonzero(back).item<int64_t>(), y.numel());
  EXPECT_LT(largest_difference(back.sum(), y.sum()), 1e-3);
}

TEST(Images, FractionalWindowsCoverTheInput) {
  manual_seed(4);
  Tensor x = randn({2, 3, 9, 8});
  auto [y, at] = nn::FractionalMaxPool2d(2, {.output_ratio = {0.6, 0.5}}).forward_with_indices(x);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 5, 4}));
  EXPECT_EQ(largest_difference(gather(x.flatten(2), 2, at.flatten(2)), y.flatten(2)), 0);
  // The last window ends at the last element.
  Tensor rising = arange(72.0).reshape({1, 1, 9, 8});
  Tensor top = fractional_max_pool2d(rising, 2, {.output_size = 3});
  EXPECT_EQ(top.amax().item<float>(), 71);
}

TEST(Images, FoldCountsPatches) {
  Tensor x = ones({1, 2, 5, 4});
  Tensor counts = fold(im2col(x, 3, {1}, {1}), {5, 4}, 3, {1}, {1});
  EXPECT_EQ(counts.amin().item<float>(), 4);
  EXPECT_EQ(counts.amax().item<float>(), 9);
}

TEST(Images, IdentityGridGivesTheImage) {
  manual_seed(5);
  Tensor x = randn({2, 3, 5, 6}), theta = tensor({{1.f, 0.f, 0.f}, {0.f, 1.f, 0.f}});
  for (bool corners : {false, true})
    for (const char* mode : {"bilinear", "nearest", "bicubic"}) {
      Tensor grid = affine_grid(stack({theta, theta}), {2, 3, 5, 6}, corners);
      EXPECT_LT(largest_difference(grid_sample(x, grid, mode, "border", corners), x), 1e-5) << mode;
    }
}

// Many channels are read beside each other; the sums are those of each channel alone.
TEST(Images, GridSampleOfManyChannelsIsThatOfEach) {
  manual_seed(5);
  Tensor grid = (rand({2, 9, 10, 2}) * 3 - 1.5).requires_grad_();
  const auto equal = [](const Tensor& a, const Tensor& b) {
    return a.to_vector<float>() == b.to_vector<float>();
  };
  for (const char* mode : {"nearest", "bilinear", "bicubic"})
    for (const int64_t channels : {8, 19})
      for (const bool last : {false, true}) {
        Tensor x = randn({2, channels, 7, 6});
        if (last) x = x.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
        x = x.detach().requires_grad_();
        const Tensor weight = randn({2, channels, 9, 10});
        grid.zero_grad();
        const Tensor all = grid_sample(x, grid, mode);
        (all * weight).sum().backward();
        const Tensor by_grid = grid.grad().clone(), by_x = x.grad().clone();
        grid.zero_grad();
        for (int64_t c = 0; c < channels; ++c) {
          Tensor one = narrow(x.detach(), 1, c, 1).clone().requires_grad_();
          const Tensor y = grid_sample(one, grid, mode);
          EXPECT_TRUE(equal(y, narrow(all.detach(), 1, c, 1))) << mode;
          (y * narrow(weight, 1, c, 1)).sum().backward();
          EXPECT_TRUE(equal(one.grad(), narrow(by_x, 1, c, 1))) << mode;
        }
        EXPECT_LT(largest_difference(by_grid, grid.grad()), 1e-3) << mode;
      }
}

TEST(Images, PositionsThatAreNoNumbers) {
  Tensor x = ones({1, 1, 3, 3}), grid = full({1, 1, 2, 2}, NAN);
  for (const char* mode : {"bilinear", "nearest", "bicubic"})
    for (const char* padding : {"zeros", "border", "reflection"}) {
      Tensor leaf = x.detach().requires_grad_(), g = grid.detach().requires_grad_();
      Tensor y = grid_sample(leaf, g, mode, padding);
      EXPECT_EQ(largest_difference(y, zeros({1, 1, 1, 2})), 0) << mode << " " << padding;
      y.sum().backward();
      EXPECT_EQ(largest_difference(leaf.grad(), zeros_like(x)), 0);
      EXPECT_EQ(largest_difference(g.grad(), zeros_like(grid)), 0);
    }
}

TEST(Images, NmsOfAFixedSizeRunsInATrace) {
  Tensor boxes = tensor({{0.f, 0.f, 2.f, 2.f}, {0.f, 0.f, 2.f, 1.9f}, {5.f, 5.f, 6.f, 6.f}});
  Tensor scores = tensor({0.5f, 0.9f, 0.1f});
  EXPECT_EQ(nms(boxes, scores, 0.5).to_vector<int64_t>(), (std::vector<int64_t>{1, 2}));
  std::vector<Spec> specs = {spec_of(boxes), spec_of(scores)};
  Ref<Graph> g = trace(
      [](std::span<const Tensor> in) { return std::vector<Tensor>{nms(in[0], in[1], 0.5, 3, -1)}; },
      specs, Captures::refuse);
  std::vector<Tensor> in = {boxes, scores};
  EXPECT_EQ(run(*g, in)[0].to_vector<int64_t>(), (std::vector<int64_t>{1, 2, -1}));
  Tensor classes = tensor({0, 1, 0});
  EXPECT_EQ(batched_nms(boxes, scores, classes, 0.5).to_vector<int64_t>(),
            (std::vector<int64_t>{1, 0, 2}));
  EXPECT_EQ(nms(zeros({0, 4}), zeros({0}), 0.5).size(0), 0);
}

TEST(Images, BoxesPerImage) {
  manual_seed(6);
  Tensor x = randn({2, 3, 8, 8});
  Tensor a = tensor({{1.f, 1.f, 5.f, 6.f}}),
         b = tensor({{0.f, 2.f, 7.f, 7.f}, {3.f, 3.f, 4.f, 5.f}});
  Tensor joined =
      tensor({{0.f, 1.f, 1.f, 5.f, 6.f}, {1.f, 0.f, 2.f, 7.f, 7.f}, {1.f, 3.f, 3.f, 4.f, 5.f}});
  std::vector<Tensor> list = {a, b};
  EXPECT_EQ(largest_difference(roi_align(x, list, 2), roi_align(x, joined, 2)), 0);
  EXPECT_EQ(largest_difference(roi_pool(x, list, 2), roi_pool(x, joined, 2)), 0);
  EXPECT_EQ(roi_align(x, zeros({0, 5}), {2, 3}).shape(), (Shape{0, 3, 2, 3}));
}

TEST(Images, StateDictKeys) {
  auto keys = [](const nn::Module& m) {
    std::string s;
    for (const auto& [name, value] : m.state_dict()) s += name + value.shape().to_string() + " ";
    return s;
  };
  EXPECT_EQ(keys(nn::ConvTranspose3d(4, 6, {1, 2, 3}, {.groups = 2})),
            "weight[4, 3, 1, 2, 3] bias[6] ");
  EXPECT_EQ(keys(nn::GroupNorm(2, 4)), "weight[4] bias[4] ");
  EXPECT_EQ(keys(nn::InstanceNorm1d(4)), "");
  EXPECT_EQ(keys(nn::InstanceNorm3d(4, {.affine = true, .track_running_stats = true})),
            "weight[4] bias[4] running_mean[4] running_var[4] num_batches_tracked[] ");
  EXPECT_EQ(keys(nn::Upsample({.scale_factor = 2})), "");
}

// A literal 0 is a number, not the absence of a bound.
TEST(Images, ClampAtZero) {
  Tensor x = tensor({-2.f, 0.5f, 3.f});
  EXPECT_EQ(clamp(x, 0, 1).to_vector<float>(), (std::vector<float>{0, 0.5f, 1}));
  EXPECT_EQ(clamp(x, -1, 0).to_vector<float>(), (std::vector<float>{-1, 0, 0}));
  EXPECT_EQ(clamp(x, nullptr, 0).to_vector<float>(), (std::vector<float>{-2, 0, 0}));
  EXPECT_EQ(clamp(x, 0, nullptr).to_vector<float>(), (std::vector<float>{0, 0.5f, 3}));
}

}  // namespace
}  // namespace tandem
