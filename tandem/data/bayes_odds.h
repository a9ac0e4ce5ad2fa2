// SPDX-License-Identifier: Apache-2.0
// Naive Bayes as features: how strongly the words of a text indicate each class.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/tensor/tensor.h"

namespace tandem::data {

/// The features of a sample, each counted once: its words, word pairs, character n-grams.
using FeatureSet = std::vector<std::string>;

/// The words, without repeats.
TD_API FeatureSet word_set(const std::vector<std::string>& words);
/// Adjacent words as "a b", without repeats.
TD_API FeatureSet word_pairs(const std::vector<std::string>& words);
/// Character n-grams of `least` to `most` bytes of each word between '<' and '>' (Bojanowski et al.
/// 2017), without repeats.
TD_API FeatureSet character_grams(const std::vector<std::string>& words, size_t least, size_t most);

/// Multinomial naive Bayes over sets of features with `alpha` added to every count (Wang and
/// Manning 2012, "Baselines and Bigrams", section 2.1; here for any number of classes).
class TD_API BayesOdds {
 public:
  /// Throws Value for fewer than two classes or an alpha that is not above 0.
  explicit BayesOdds(int64_t classes, double alpha = 1);
  /// Counts a sample `times` times; -1 removes it again. Throws Index for an unknown class.
  void add(const FeatureSet& sample, int64_t label, int times = 1);
  /// f32 [classes]: for each class the sum of log p(f | class) over the known features f, minus the
  /// mean over the classes.
  Tensor odds(const FeatureSet& sample) const;

 private:
  double alpha_;
  std::vector<double> totals_;
  std::unordered_map<std::string, std::vector<int>> counts_;
};

/// odds() of every sample, computed from the samples of all other folds, f32 [n, classes]: safe to
/// train a model on. Sample i of the order drawn by `seed` is in fold i mod `folds`. Throws Value
/// for fewer than 2 folds and Shape where labels and samples differ in number.
TD_API Tensor cross_fitted_odds(const std::vector<FeatureSet>& samples,
                                const std::vector<int64_t>& labels, int64_t classes, int folds,
                                uint64_t seed);

}  // namespace tandem::data
