// SPDX-License-Identifier: Apache-2.0
// Weights as codes in groups: the nearest code, GPTQ, AWQ's scales.
#include "tandem/quant/weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem::quant {
namespace {

double largest(const Tensor& t) { return max(abs(t)).item<double>(); }

// Inputs of which a few are large, and which depend on each other.
InputSums some_inputs(int64_t k, int64_t rows) {
  Tensor x = matmul(randn({rows, k / 4}), randn({k / 4, k})) + randn({rows, k}) * 0.3;
  x = x * where(rand({k}) < 0.05, 20.0, 1.0);
  InputSums sums;
  sums.add(x.narrow(0, 0, rows / 2));
  sums.add(x.narrow(0, rows / 2, rows - rows / 2).unsqueeze(0));
  EXPECT_EQ(sums.rows, rows);
  EXPECT_LT(largest(sums.products - matmul(x.t(), x)), 1e-3 * largest(sums.products));
  EXPECT_LT(largest(sums.magnitudes - sum(abs(x), {0})), 1e-3 * largest(sums.magnitudes));
  return sums;
}

TEST(Weights, NearestCodesAreHalfAStepAway) {
  manual_seed(1);
  const Tensor w = randn({6, 72}) + 0.7;
  for (const int64_t bits : {2, 4, 8})
    for (const bool symmetric : {false, true}) {
      const PackedCodes q = round_weight(w, {.bits = bits, .group = 32, .symmetric = symmetric});
      EXPECT_EQ(q.scale.shape(), Shape(6, 3));
      EXPECT_EQ(q.zero.defined(), !symmetric);
      EXPECT_EQ(q.scale.to(float16).to(float32).to_vector<float>(), q.scale.to_vector<float>());
      const Tensor back = dequantize_codes(q).narrow(1, 0, 72);
      const Tensor step = repeat_interleave(q.scale, 32, 1).narrow(1, 0, 72);
      // The scale is rounded to 11 bits; a symmetric grid reaches half a step less far up.
      const double allowed =
          symmetric ? 1.01 : 0.5 * (1 + std::ldexp(1.0, static_cast<int>(bits) - 9));
      EXPECT_LT(largest((back - w) / step), allowed) << bits << symmetric;
    }
  const PackedCodes none = round_weight(zeros({2, 32}), {.group = 32});
  EXPECT_EQ(largest(dequantize_codes(none)), 0);
}

TEST(Weights, GptqIsNearestForInputsThatDoNotDependOnEachOther) {
  manual_seed(2);
  const Tensor w = randn({5, 160});
  InputSums sums;
  sums.add(diag_embed(rand({160}) + 0.5));
  for (const bool act_order : {false, true}) {
    const WeightOptions o{.group = 32, .act_order = act_order};
    EXPECT_EQ(gptq_weight(w, sums, o).codes.to_vector<int>(),
              round_weight(w, o).codes.to_vector<int>());
  }
}

TEST(Weights, GptqLosesLessThanTheNearestCodes) {
  manual_seed(3);
  const Tensor w = randn({24, 256});
  const InputSums sums = some_inputs(256, 1000);
  const auto lost = [&](const PackedCodes& q) {
    return output_error(w, dequantize_codes(q).narrow(1, 0, 256), sums);
  };
  for (const int64_t bits : {2, 4})
    for (const bool act_order : {false, true}) {
      const WeightOptions o{.bits = bits, .group = 64, .act_order = act_order};
      EXPECT_LT(lost(gptq_weight(w, sums, o)), 0.6 * lost(round_weight(w, o))) << bits << act_order;
    }
}

TEST(Weights, AwqScalesLoseLess) {
  manual_seed(4);
  const Tensor w = randn({24, 256}), v = randn({8, 256});
  const InputSums sums = some_inputs(256, 1000);
  const WeightOptions o{.group = 128};
  const Tensor s = awq_scales({w, v}, sums, o);
  const auto lost = [&](const Tensor& scales) {
    const Tensor back = dequantize_codes(round_weight(w * scales, o)) / scales;
    return output_error(w, back, sums);
  };
  EXPECT_LT(lost(s), 0.8 * lost(ones({256})));
}

TEST(Weights, RefusesWhatHasNoCodes) {
  const auto refused = [](const char* text, auto f) {
    const std::string got = thrown(f);
    EXPECT_TRUE(has(got, text)) << got;
  };
  const Tensor w = ones({2, 32});
  refused("codes of 3 bits", [&] { round_weight(w, {.bits = 3}); });
  refused("groups of 0", [&] { round_weight(w, {.group = 0}); });
  refused("the weight holds inf", [&] { round_weight(w / 0.0); });
  refused("expected a weight [n, k]", [&] { round_weight(ones({3})); });
  refused("there are sums of 0 rows", [&] { gptq_weight(w, {}); });
  refused("not a method of rounding weights", [] { weight_method_of("best"); });
}

}  // namespace
}  // namespace tandem::quant
