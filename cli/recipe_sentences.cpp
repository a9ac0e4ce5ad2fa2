// SPDX-License-Identifier: Apache-2.0
// The data set "sentences": a label and words a line.
#include <algorithm>
#include <map>

#include "cli/recipe_internal.h"
#include "tandem/data/bayes_odds.h"
#include "tandem/data/text_datasets.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {
namespace {

using data::FeatureSet;
using train::Options;
using train::RecipeData;
using Words = std::vector<std::string>;

Words words_of(std::string_view line) {
  Words out;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) {
      std::string word(line.substr(at, end - at));
      std::transform(word.begin(), word.end(), word.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      out.push_back(std::move(word));
    }
    at = end + 1;
  }
  return out;
}

/// The lines of one file: words, and labels by the order in which the training set shows them.
struct Part {
  std::vector<Words> words;
  std::vector<int64_t> labels;
};
using Numbers = std::map<std::string, int64_t>;

// A label goes up to the first ':' or blank.
Part read(const std::string& path, Numbers& labels, bool learn) {
  data::TextLines lines(path);
  Part part;
  for (int64_t i = 0; i < lines.size(); ++i) {
    Words words = words_of(lines.line(i));
    const std::string label = words.empty() ? "" : words[0].substr(0, words[0].find(':'));
    if (learn) labels.emplace(label, static_cast<int64_t>(labels.size()));
    TD_CHECK(words.size() > 1 && labels.count(label), Format,
             "'{}' line {} wants a label and words, got label '{}'", lines.path(), lines.number(i),
             label);
    part.labels.push_back(labels.at(label));
    words.erase(words.begin());
    part.words.push_back(std::move(words));
  }
  return part;
}

/// Ids by the training set's words: 0 is padding, 1 an unknown word; `pad` times 0 at both ends.
struct Vocabulary {
  Numbers ids;

  explicit Vocabulary(const Part& part) {
    for (const Words& words : part.words)
      for (const std::string& w : words) ids.emplace(w, size());
  }
  int64_t size() const { return static_cast<int64_t>(ids.size()) + 2; }
  Tensor operator()(const Part& part, size_t pad) const {
    size_t longest = 8;
    for (const Words& w : part.words) longest = std::max(longest, w.size() + 2 * pad);
    std::vector<int64_t> flat(part.words.size() * longest);
    for (size_t r = 0; r < part.words.size(); ++r)
      for (size_t k = 0; k < part.words[r].size(); ++k) {
        const auto found = ids.find(part.words[r][k]);
        flat[r * longest + pad + k] = found == ids.end() ? 1 : found->second;
      }
    return tensor(flat, {static_cast<int64_t>(part.words.size()), static_cast<int64_t>(longest)});
  }
};

// What of a text naive Bayes may count.
const std::map<std::string, std::function<FeatureSet(const Words&)>>& kinds_of_odds() {
  static const std::map<std::string, std::function<FeatureSet(const Words&)>> kinds = {
      {"words", data::word_set}, {"pairs", data::word_pairs}, {"letters", [](const Words& w) {
                                                                 return data::letter_grams(w, 3, 5);
                                                               }}};
  return kinds;
}

/// Columns of naive Bayes, one a kind and class, in deviations of the training set's.
struct Odds {
  std::vector<std::string> kinds;
  int64_t classes;
  int folds;
  uint64_t seed;

  std::vector<FeatureSet> sets(const Part& part, const std::string& kind) const {
    std::vector<FeatureSet> out;
    for (const Words& w : part.words) out.push_back(kinds_of_odds().at(kind)(w));
    return out;
  }
  // For every part; the first is the training set, whose samples are judged by the other folds.
  std::vector<Tensor> operator()(const std::vector<const Part*>& parts) const {
    std::vector<std::vector<Tensor>> columns(parts.size());
    for (const std::string& kind : kinds) {
      const std::vector<FeatureSet> seen = sets(*parts[0], kind);
      const Tensor own = data::cross_fitted_odds(seen, parts[0]->labels, classes, folds, seed);
      const Tensor scale = clamp_min(own.std(IntList{0}, 0, true), 1e-6);
      columns[0].push_back(own / scale);
      data::BayesOdds bayes(classes);
      for (size_t i = 0; i < seen.size(); ++i) bayes.add(seen[i], parts[0]->labels[i]);
      for (size_t p = 1; p < parts.size(); ++p) {
        std::vector<Tensor> rows;
        for (const FeatureSet& s : sets(*parts[p], kind)) rows.push_back(bayes.odds(s));
        columns[p].push_back(stack(rows) / scale);
      }
    }
    std::vector<Tensor> out;
    for (const std::vector<Tensor>& c : columns) out.push_back(cat(c, 1));
    return out;
  }
};

/// Sentences with their odds.
struct Judged {
  struct Sample {
    Tensor x, odds, y;
  };
  Sample all;
  int64_t size() const { return all.y.size(0); }
  Sample get(int64_t i) const {
    return {all.x.select(0, i), all.odds.select(0, i), all.y.select(0, i)};
  }
};

RecipeData with_odds(Options& o, uint64_t seed, const std::vector<Tensor>& ids,
                     const std::vector<const Part*>& parts, const Odds& odds) {
  const std::vector<Tensor> columns = odds(parts);
  const int64_t batch = o.whole("batch", 64), eval_batch = o.whole("eval_batch", 256);
  const auto pipeline = [&](size_t i) {
    return data::pipeline(Judged{{ids[i], columns[i], tensor(parts[i]->labels)}}, {.seed = seed},
                          "sentences");
  };
  RecipeData d{pipeline(0).shuffle().batch(batch), {}, {}, {}};
  d.info = {{"odds", columns[0].size(1)}};
  for (size_t i = 1; i < parts.size(); ++i) {
    auto plain = pipeline(i).batch(eval_batch);
    if (parts[i] == parts.back() && o.has("test"))
      d.test = plain;
    else
      d.val = plain;
  }
  return d;
}

RecipeData sentences(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "sentences") + "/";
  const std::string names[] = {o.text("train"), o.text("val", ""), o.text("test", "")};
  const auto pad = static_cast<size_t>(o.whole("pad", 4));
  const std::vector<std::string> kinds = o.texts("odds", {});
  const auto folds = static_cast<int>(o.whole("folds", 10));
  for (const std::string& k : kinds)
    if (!kinds_of_odds().count(k))
      o.fail("odds", fmt::format("knows words, pairs and letters, got '{}'", k));
  Numbers labels;
  std::vector<Part> parts;
  for (const std::string& name : names)
    if (!name.empty()) parts.push_back(read(root + name, labels, parts.empty()));
  const Vocabulary vocabulary(parts[0]);
  std::vector<Tensor> ids;
  for (const Part& p : parts) ids.push_back(vocabulary(p, pad));
  const auto classes = static_cast<int64_t>(labels.size());
  const auto told = [&](RecipeData d) {
    d.info["vocabulary"] = vocabulary.size();
    d.info["classes"] = classes;
    return d;
  };
  if (!kinds.empty()) {
    std::vector<const Part*> all;
    for (const Part& p : parts) all.push_back(&p);
    return told(with_odds(o, seed, ids, all, {kinds, classes, folds, seed}));
  }
  size_t next = 0;
  const auto rows = [&] {
    const size_t i = next++;
    return samples(data::TensorDataset(ids[i], tensor(parts[i].labels)), seed);
  };
  Rows all{.train = rows(), .val_part = 0.1};
  if (!names[1].empty()) all.val = rows();
  if (!names[2].empty()) all.test = rows();
  return told(batches(o, seed, std::move(all)));
}

}  // namespace

void add_sentences(train::Registry& r) { r.data["sentences"] = sentences; }

}  // namespace tandem::cli
