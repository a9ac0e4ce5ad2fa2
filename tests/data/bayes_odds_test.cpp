// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/bayes_odds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

TEST(BayesOdds, FeaturesAreSets) {
  const std::vector<std::string> words = {"a", "bc", "a", "bc", "a"};
  EXPECT_EQ(word_set(words), (FeatureSet{"a", "bc"}));
  EXPECT_EQ(word_pairs(words), (FeatureSet{"a bc", "bc a"}));
  EXPECT_EQ(character_grams({"bc", "bc"}, 3, 5), (FeatureSet{"<bc", "bc>", "<bc>"}));
  EXPECT_EQ(character_grams({"a"}, 4, 5), FeatureSet{});
  EXPECT_EQ(word_pairs({"a"}), FeatureSet{});
}

// Counts 2 and 0 for good, 1 and 1 for film, 0 and 1 for bad: five occurrences, three features.
TEST(BayesOdds, OddsByHand) {
  BayesOdds bayes(2);
  bayes.add({"good", "film"}, 1);
  bayes.add({"good"}, 1);
  bayes.add({"bad", "film"}, 0);
  const auto odds = [&](const FeatureSet& f) {
    const Tensor t = bayes.odds(f);
    return t[1].item<float>() - t[0].item<float>();
  };
  const double good = std::log(3.0 / 6.0) - std::log(1.0 / 5.0),
               film = std::log(2.0 / 6.0) - std::log(2.0 / 5.0);
  EXPECT_NEAR(odds({"good"}), good, 1e-6);
  EXPECT_NEAR(odds({"good", "film", "never seen"}), good + film, 1e-6);
  EXPECT_EQ(odds({}), 0);
  bayes.add({"bad", "film"}, 0, -1);
  EXPECT_EQ(odds({"bad"}), 0) << "taken away: not known any more";
}

TEST(BayesOdds, CrossFittedWithoutTheSampleItself) {
  std::vector<FeatureSet> samples;
  std::vector<int64_t> labels;
  for (int i = 0; i < 30; ++i) {
    samples.push_back({i % 2 ? "odd" : "even", "own" + std::to_string(i)});
    labels.push_back(i % 2);
  }
  const Tensor odds = cross_fitted_odds(samples, labels, 2, 5, 7);
  ASSERT_EQ(odds.shape(), (Shape{30, 2}));
  for (int64_t i = 0; i < 30; ++i) {
    const float own = odds[i][labels[static_cast<size_t>(i)]].item<float>();
    EXPECT_GT(own, 0) << i;
  }
  // Words that no other sample has carry no information: all even samples of a fold are alike.
  const Tensor again = cross_fitted_odds(samples, labels, 2, 5, 7);
  EXPECT_TRUE(equal(odds, again));
  std::vector<float> seen;
  for (int64_t i = 0; i < 30; i += 2) seen.push_back(odds[i][0].item<float>());
  std::sort(seen.begin(), seen.end());
  EXPECT_LE(std::unique(seen.begin(), seen.end()) - seen.begin(), 5);
}

TEST(BayesOdds, SaysWhatIsWrong) {
  EXPECT_THROW(BayesOdds(1), Error);
  EXPECT_THROW(BayesOdds(2, 0), Error);
  BayesOdds bayes(2);
  EXPECT_THROW(bayes.add({"a"}, 2), Error);
  EXPECT_THROW(cross_fitted_odds({{"a"}}, {0, 1}, 2, 5, 0), Error);
  EXPECT_THROW(cross_fitted_odds({{"a"}}, {0}, 2, 1, 0), Error);
}

}  // namespace
}  // namespace tandem::data
