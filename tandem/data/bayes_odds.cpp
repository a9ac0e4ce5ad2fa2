// SPDX-License-Identifier: Apache-2.0
#include "tandem/data/bayes_odds.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "tandem/data/sampler.h"
#include "tandem/ops/ops.h"

namespace tandem::data {
namespace {

// Keeps the first of equal strings.
class Once {
 public:
  void add(std::string text) {
    if (seen_.insert(text).second) out_.push_back(std::move(text));
  }
  FeatureSet take() { return std::move(out_); }

 private:
  std::unordered_set<std::string> seen_;
  FeatureSet out_;
};

}  // namespace

FeatureSet word_set(const std::vector<std::string>& words) {
  Once out;
  for (const std::string& word : words) out.add(word);
  return out.take();
}

FeatureSet word_pairs(const std::vector<std::string>& words) {
  Once out;
  for (size_t i = 1; i < words.size(); ++i) out.add(words[i - 1] + ' ' + words[i]);
  return out.take();
}

FeatureSet character_grams(const std::vector<std::string>& words, size_t least, size_t most) {
  Once out;
  for (const std::string& word : words) {
    const std::string marked = '<' + word + '>';
    for (size_t length = least; length <= most && length <= marked.size(); ++length)
      for (size_t at = 0; at + length <= marked.size(); ++at) out.add(marked.substr(at, length));
  }
  return out.take();
}

BayesOdds::BayesOdds(int64_t classes, double alpha) : alpha_(alpha) {
  TD_CHECK(classes >= 2 && alpha > 0, Value,
           "BayesOdds expects at least two classes and an alpha above 0, got {} and {}", classes,
           alpha);
  totals_.resize(static_cast<size_t>(classes));
}

void BayesOdds::add(const FeatureSet& sample, int64_t label, int times) {
  const auto classes = static_cast<int64_t>(totals_.size());
  TD_CHECK(label >= 0 && label < classes, Index, "BayesOdds: class {} of {}", label, classes);
  for (const std::string& feature : sample) {
    std::vector<int>& counts = counts_.try_emplace(feature, classes).first->second;
    counts[static_cast<size_t>(label)] += times;
    totals_[static_cast<size_t>(label)] += times;
  }
}

Tensor BayesOdds::odds(const FeatureSet& sample) const {
  const size_t classes = totals_.size();
  std::vector<double> sums(classes), norms(classes);
  for (size_t c = 0; c < classes; ++c)
    norms[c] = std::log(totals_[c] + alpha_ * static_cast<double>(counts_.size()));
  double mean = 0;
  for (const std::string& feature : sample) {
    const auto found = counts_.find(feature);
    if (found == counts_.end() ||
        std::all_of(found->second.begin(), found->second.end(), [](int n) { return n == 0; }))
      continue;
    for (size_t c = 0; c < classes; ++c) sums[c] += std::log(found->second[c] + alpha_) - norms[c];
  }
  for (double s : sums) mean += s / static_cast<double>(classes);
  std::vector<float> out;
  for (double s : sums) out.push_back(static_cast<float>(s - mean));
  return tensor(out);
}

Tensor cross_fitted_odds(const std::vector<FeatureSet>& samples, const std::vector<int64_t>& labels,
                         int64_t classes, int folds, uint64_t seed) {
  const auto n = static_cast<int64_t>(samples.size());
  TD_CHECK(samples.size() == labels.size(), Shape, "{} samples with {} labels", n, labels.size());
  TD_CHECK(folds >= 2, Value, "cross_fitted_odds expects at least 2 folds, got {}", folds);
  BayesOdds bayes(classes);
  for (size_t i = 0; i < samples.size(); ++i) bayes.add(samples[i], labels[i]);
  const std::vector<int64_t> order = shuffled_order(n, seed, 0);
  std::vector<Tensor> out(samples.size());
  const auto each = [&](int64_t fold, auto&& f) {
    for (int64_t k = fold; k < n; k += folds) f(static_cast<size_t>(order[static_cast<size_t>(k)]));
  };
  for (int64_t fold = 0; fold < std::min<int64_t>(folds, n); ++fold) {
    each(fold, [&](size_t i) { bayes.add(samples[i], labels[i], -1); });
    each(fold, [&](size_t i) { out[i] = bayes.odds(samples[i]); });
    each(fold, [&](size_t i) { bayes.add(samples[i], labels[i]); });
  }
  return n ? stack(out) : zeros({0, classes});
}

}  // namespace tandem::data
