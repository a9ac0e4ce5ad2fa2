// SPDX-License-Identifier: Apache-2.0
// AdaRound and SmoothQuant: less error where rounding to the nearest code, or inputs that are far
// larger than others, cost much; the function in floating point stays.
#include <gtest/gtest.h>

#include "tandem/quant/adaround.h"
#include "tandem/quant/smooth.h"
#include "tandem/tandem.h"
#include "tests/quant/network_helper.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::quant {
namespace {

// Inputs of few directions, so that errors of one weight can be made up for by others.
Tensor correlated(int64_t rows, int64_t inputs) {
  manual_seed(11);
  const Tensor directions = randn({6, inputs});
  return matmul(randn({rows, 6}), directions) + randn({rows, inputs}) * 0.05;
}

struct Case {
  Forward f;
  std::vector<Tensor> batches;
  Network network() const { return Network(f, std::vector<Spec>{spec_of(batches[0])}); }
  Batches data() const { return batches_of(batches); }
  Tensor want() const {
    const NoGradGuard no_grad;
    return f({&batches[0], 1})[0];
  }
  double decibels_with(const QuantizeOptions& options, int* smoothed = nullptr) const {
    Network net = network();
    if (options.smooth > 0) {
      const int n = smooth(net, data(), options.smooth);
      if (smoothed) *smoothed = n;
    }
    const Calibrated c(net, data(), options);
    return decibels(want(), c.quantised()({&batches[0], 1})[0]);
  }
};

Case two_layers() {
  manual_seed(5);
  const Tensor a = randn({24, 32}), b = randn({10, 24}), bias = randn({24});
  return {[=](std::span<const Tensor> x) {
            return std::vector<Tensor>{linear(relu(linear(x[0], a, bias)), b)};
          },
          {correlated(64, 32), correlated(64, 32) * 0.9}};
}

TEST(QuantRounding, AdaRoundLosesLessThanTheNearestCode) {
  const Case net = two_layers();
  for (const int64_t bits : {3, 4, 8}) {
    QuantizeOptions nearest, adapted;
    nearest.weight_bits = adapted.weight_bits = bits;
    adapted.adaround = 400;
    const double before = net.decibels_with(nearest), after = net.decibels_with(adapted);
    EXPECT_GT(after, before + (bits < 8 ? 4 : 1)) << bits;
  }
}

// Every kind of layer: what is minimised is what the layer's row computes.
TEST(QuantRounding, ItsCostIsThatOfTheLayer) {
  manual_seed(7);
  const Tensor image = randn({3, 8, 9, 7}), rows = randn({5, 4, 6});
  const auto conv = [](Tensor w, int64_t groups, IntList stride, IntList padding,
                       IntList dilation) {
    return [=](std::span<const Tensor> x) {
      return std::vector<Tensor>{conv2d(x[0], w, {}, stride, padding, dilation, groups)};
    };
  };
  const Tensor w = randn({6, 12});
  const std::vector<std::pair<Forward, Tensor>> kinds = {
      {conv(randn({4, 8, 3, 3}), 1, {1}, {1}, {1}), image},
      {conv(randn({4, 4, 3, 2}), 2, {2, 1}, {0, 2}, {2, 1}), image},
      {conv(randn({8, 1, 3, 3}), 8, {1}, {0}, {1}), image},
      {[=](std::span<const Tensor> x) { return std::vector<Tensor>{matmul(x[0], w)}; }, rows},
      {[=](std::span<const Tensor> x) { return std::vector<Tensor>{linear(x[0], w.t())}; }, rows}};
  for (const auto& [f, x] : kinds) {
    Network net(f, std::vector<Spec>{spec_of(x)});
    Layer& l = net.layers()[0];
    const Tensor rounded = x + randn(x.shape().to_vector()) * 0.1;
    LayerSums sums;
    sums.add(l, x, rounded);
    const Tensor v = l.weight + randn(l.weight.shape().to_vector()) * 0.2;
    const Tensor want = Walk(net).run({&x, 1})[0];
    l.weight = v;
    const Tensor got = Walk(net).run({&rounded, 1})[0];
    l.weight = v - (v - l.weight);
    Network again(f, std::vector<Spec>{spec_of(x)});
    const Tensor lost = mean_error(again.layers()[0], v, sums);
    const int axis = want.dim() == 4 ? 1 : want.dim() - 1;
    IntList others;
    for (int d = 0; d < want.dim(); ++d)
      if (d != axis) others.push_back(d);
    EXPECT_LT(amax(abs(lost - mean(want - got, others))).item<double>(), 1e-4);
    EXPECT_EQ(sums.rows, want.numel() / want.size(axis));
  }
}

// A norm with three channels of large weights, read by two layers, and one after a gelu.
Case with_outliers(bool norm) {
  manual_seed(9);
  const Tensor gain = where(remainder(arange(32), 11) == 3, 60.0, 1.0), shift = randn({32});
  const Tensor q = randn({16, 32}) / (abs(gain)), k = randn({16, 32}) / (abs(gain)),
               out = randn({8, 16});
  return {[=](std::span<const Tensor> x) {
            const Tensor y = norm ? layer_norm(x[0], {32}, gain, shift) : x[0] * gain;
            return std::vector<Tensor>{linear(gelu(linear(y, q) + linear(y, k)), out)};
          },
          {randn({64, 32}), randn({64, 32})}};
}

TEST(QuantRounding, SmoothQuantGivesSmallChannelsTheirCodes) {
  for (const bool norm : {true, false}) {
    const Case net = with_outliers(norm);
    QuantizeOptions plain, smoothed;
    plain.method = smoothed.method = Method::min_max;
    smoothed.smooth = 0.5;
    int count = 0;
    const double before = net.decibels_with(plain), after = net.decibels_with(smoothed, &count);
    EXPECT_GT(after, before + 10) << before;
    EXPECT_EQ(count, 2);
    Network same = net.network();
    smooth(same, net.data(), 0.5);
    EXPECT_GT(decibels(net.want(), Walk(same).run({&net.batches[0], 1})[0]), 100);
    // The norm has taken the factor; without one x is multiplied.
    const ValueId read = value_of(same.layers()[0].node->in[0]);
    EXPECT_EQ(same.input_scale(read).defined(), !norm);
  }
}

TEST(QuantRounding, SmoothingLeavesOtherReadersTheirValue) {
  manual_seed(3);
  const Tensor w = randn({32, 32}), v = randn({8, 32});
  const Case net{[=](std::span<const Tensor> x) {
                   const Tensor y = relu(linear(x[0], w));
                   return std::vector<Tensor>{linear(y + linear(y, w), v)};
                 },
                 {randn({16, 32})}};
  Network smoothed = net.network();
  EXPECT_EQ(smooth(smoothed, net.data(), 0.5), 2);  // the input and the sum, not y
  EXPECT_GT(decibels(net.want(), Walk(smoothed).run({&net.batches[0], 1})[0]), 100);
}

TEST(QuantRounding, SaysWhatItWants) {
  const Case net = two_layers();
  const auto refused = [](const char* text, auto f) {
    const std::string got = error_of(f);
    EXPECT_TRUE(has(got, text)) << got;
  };
  refused("smoothing by 1.5 was asked for", [&] {
    Network n = net.network();
    smooth(n, net.data(), 1.5);
  });
  QuantizeOptions options;
  options.weight_bits = 9;
  refused("weights of 9 bits were asked for", [&] { net.decibels_with(options); });
  options.weight_bits = 8;
  options.adaround = -1;
  refused("-1 steps of AdaRound", [&] { net.decibels_with(options); });
}

}  // namespace
}  // namespace tandem::quant
