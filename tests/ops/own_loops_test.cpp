// SPDX-License-Identifier: Apache-2.0
// Rows whose kernels go about it in another way than their references: against plain loops.
#include <gtest/gtest.h>

#include <cmath>

#include "tandem/tandem.h"

namespace tandem {
namespace {

// Distances and running extremes take other loops for long lines than for odd ones.
TEST(OwnLoops, DistancesEqualTheFormula) {
  manual_seed(5);
  for (const auto& [p, r, m] :
       {std::tuple<int64_t, int64_t, int64_t>{3, 1, 1}, {70, 65, 17}, {130, 64, 33}, {2, 200, 5}}) {
    const Tensor a = randn({2, p, m}), b = randn({2, r, m});
    const Tensor want = sqrt(sum(pow(unsqueeze(a, 2) - unsqueeze(b, 1), 2), {-1}));
    EXPECT_LE(max(abs(cdist(a, b) - want)).item<float>(), 1e-5f) << p << " " << r << " " << m;
    // Each distance by itself has the same bits, whatever panel it lies in.
    const Tensor all = cdist(a, b), one = cdist(a, b.narrow(1, r - 1, 1));
    EXPECT_TRUE(equal(all.narrow(2, r - 1, 1), one)) << p << " " << r << " " << m;
  }
}

TEST(OwnLoops, RunningExtremesEqualOneByOne) {
  manual_seed(6);
  const Tensor plain = randn({1, 131}), equal = round(randn({1, 131}) * 2);
  const Tensor nan = cat({randn({1, 40}), full({1, 1}, std::nan("")), randn({1, 90})}, 1);
  const Tensor x = cat({plain, equal, nan, -plain}, 0);
  for (const bool largest : {true, false}) {
    const auto [values, indices] = largest ? cummax(x, 1) : cummin(x, 1);
    const auto v = values.to_vector<float>(), from = x.to_vector<float>();
    const auto at = indices.to_vector<int64_t>();
    for (size_t line = 0; line < 4; ++line) {
      size_t best = 0;
      for (size_t i = 0; i < 131; ++i) {
        const float now = from[line * 131 + i], so_far = from[line * 131 + best];
        const bool better = largest ? now >= so_far : now <= so_far;
        if (std::isnan(now) || (better && !std::isnan(so_far))) best = i;
        ASSERT_EQ(at[line * 131 + i], static_cast<int64_t>(best)) << line << " " << i;
        ASSERT_TRUE(v[line * 131 + i] == from[line * 131 + best] ||
                    std::isnan(from[line * 131 + best]));
      }
    }
  }
}

}  // namespace
}  // namespace tandem
