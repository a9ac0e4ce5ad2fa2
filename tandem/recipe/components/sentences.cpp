// SPDX-License-Identifier: Apache-2.0
// The data set "sentences": a label and words a line.
#include <algorithm>
#include <map>

#include "tandem/base/ascii.h"
#include "tandem/data/bayes_odds.h"
#include "tandem/data/sets/text_datasets.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/source_fields_internal.h"

namespace tandem::recipe {
namespace {

using data::FeatureSet;
using Words = std::vector<std::string>;

Words words_of(std::string_view line) {
  Words out;
  for (size_t at = 0; at < line.size();) {
    const size_t end = std::min(line.find(' ', at), line.size());
    if (end > at) out.push_back(ascii_lower(line.substr(at, end - at)));
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
             "'{}' line {} expects a label and words, got label '{}'", lines.path(),
             lines.number(i), label);
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
  explicit Vocabulary(const io::Json& words) {
    TD_CHECK(words.as_array(), Format, "data.json: \"words\" expects a list");
    for (const io::Json& w : *words.as_array())
      ids.emplace(w.as_string() ? *w.as_string() : "", size());
  }
  /// In the order of their ids.
  io::Json to_json() const {
    io::Json::Array words(ids.size());
    for (const auto& [word, id] : ids) words[static_cast<size_t>(id - 2)] = word;
    return words;
  }
  int64_t size() const { return static_cast<int64_t>(ids.size()) + 2; }
  /// [rows, words], `least` or more words wide.
  Tensor operator()(const Part& part, size_t pad, size_t least = 8) const {
    size_t longest = least;
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
      {"words", data::word_set},
      {"pairs", data::word_pairs},
      {"characters", [](const Words& w) { return data::character_grams(w, 3, 5); }}};
  return kinds;
}

std::vector<FeatureSet> sets_of(const Part& part, const std::string& kind) {
  std::vector<FeatureSet> out;
  for (const Words& w : part.words) out.push_back(kinds_of_odds().at(kind)(w));
  return out;
}

/// Columns of naive Bayes, one a kind and class, in deviations of the training set's.
class Odds {
 public:
  /// Counts the training set. `scales`: the deviations, [1, classes] a kind; without them they are
  /// those of own_columns().
  Odds(std::vector<std::string> kinds, const Part& train, int64_t classes,
       std::vector<Tensor> scales = {})
      : kinds_(std::move(kinds)), scales_(std::move(scales)), classes_(classes) {
    for (const std::string& kind : kinds_) {
      data::BayesOdds bayes(classes);
      const std::vector<FeatureSet> seen = sets_of(train, kind);
      for (size_t i = 0; i < seen.size(); ++i) bayes.add(seen[i], train.labels[i]);
      bayes_.push_back(std::move(bayes));
    }
  }
  /// Of the training set, each sample by the other folds.
  Tensor own_columns(const Part& train, int folds, uint64_t seed) {
    std::vector<Tensor> columns;
    for (const std::string& kind : kinds_) {
      const Tensor own =
          data::cross_fitted_odds(sets_of(train, kind), train.labels, classes_, folds, seed);
      scales_.push_back(clamp_min(own.std(IntList{0}, 0, true), 1e-6));
      columns.push_back(own / scales_.back());
    }
    return cat(columns, 1);
  }
  /// Of other samples.
  Tensor operator()(const Part& part) const {
    std::vector<Tensor> columns;
    for (size_t k = 0; k < kinds_.size(); ++k) {
      std::vector<Tensor> rows;
      for (const FeatureSet& s : sets_of(part, kinds_[k])) rows.push_back(bayes_[k].odds(s));
      columns.push_back(stack(rows) / scales_[k]);
    }
    return cat(columns, 1);
  }
  const std::vector<Tensor>& scales() const { return scales_; }

 private:
  std::vector<std::string> kinds_;
  std::vector<data::BayesOdds> bayes_;
  std::vector<Tensor> scales_;
  int64_t classes_;
};

/// Sentences with their odds.
struct Evaluated {
  struct Sample {
    Tensor x, odds, y;
  };
  Sample all;
  int64_t size() const { return all.y.size(0); }
  Sample get(int64_t i) const {
    return {all.x.select(0, i), all.odds.select(0, i), all.y.select(0, i)};
  }
};

struct SentencesSource {
  std::string root = {}, train = {}, val = {}, test = {};
  int64_t pad = 4, folds = 10;
  std::vector<std::string> odds = {};
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    root_field(v, root, "folder of the files; default: TANDEM_DATA's sentences");
    v("train", train, {.doc = "file to train on", .required = true});
    v("val", val, {.doc = "file for validation"});
    v("test", test, {.doc = "file for the test"});
    v("pad", pad, {.doc = "zeros at both ends of a text", .at_least = 0});
    v("odds", odds,
      {.doc = "what naive Bayes counts for the net's last layer: words, pairs of words, groups of "
              "characters",
       .one_of = "words pairs characters"});
    v("folds", folds, {.doc = "parts of the training set that evaluate each other", .at_least = 2});
    batches.fields(v);
  }
};

RecipeData with_odds(const SentencesSource& s, uint64_t seed, const std::vector<Tensor>& ids,
                     const std::vector<Part>& parts, const std::vector<Tensor>& columns) {
  const auto pipeline = [&](size_t i) {
    return data::pipeline(Evaluated{{ids[i], columns[i], tensor(parts[i].labels)}}, {.seed = seed},
                          "sentences");
  };
  RecipeData d{pipeline(0).shuffle().batch(s.batches.batch), {}, {}, {}};
  d.info = {{"odds", columns[0].size(1)}};
  for (size_t i = 1; i < parts.size(); ++i) {
    auto plain = pipeline(i).batch(s.batches.eval_batch);
    if (i + 1 == parts.size() && !s.test.empty())
      d.test = plain;
    else
      d.val = plain;
  }
  return d;
}

RecipeData sentences(const SentencesSource& s, const Options& o, uint64_t seed) {
  const std::string root = root_of(o, s.root, "sentences") + "/";
  const std::string names[] = {s.train, s.val, s.test};
  const auto pad = static_cast<size_t>(s.pad);
  Numbers labels;
  std::vector<Part> parts;
  for (const std::string& name : names)
    if (!name.empty()) parts.push_back(read(root + name, labels, parts.empty()));
  const Vocabulary vocabulary(parts[0]);
  std::vector<Tensor> ids;
  for (const Part& p : parts) ids.push_back(vocabulary(p, pad));
  const auto classes = static_cast<int64_t>(labels.size());
  io::Json::Object kept{{"words", vocabulary.to_json()}, {"length", ids.back().size(1)}};
  const auto told = [&](RecipeData d) {
    d.info["vocabulary"] = vocabulary.size();
    d.info["classes"] = classes;
    d.facts.classes.resize(labels.size());
    for (const auto& [label, i] : labels) d.facts.classes[static_cast<size_t>(i)] = label;
    d.facts.kept = std::move(kept);
    return d;
  };
  if (!s.odds.empty()) {
    Odds odds(s.odds, parts[0], classes);
    std::vector<Tensor> columns{odds.own_columns(parts[0], static_cast<int>(s.folds), seed)};
    for (size_t i = 1; i < parts.size(); ++i) columns.push_back(odds(parts[i]));
    io::Json::Array scales;
    for (const float v : cat(odds.scales(), 1).to_vector<float>())
      scales.emplace_back(static_cast<double>(v));
    kept.emplace_back("odds_scales", std::move(scales));
    return told(with_odds(s, seed, ids, parts, columns));
  }
  size_t next = 0;
  const auto rows = [&] {
    const size_t i = next++;
    return samples(data::TensorDataset(ids[i], tensor(parts[i].labels)), seed);
  };
  Rows all{.train = rows()};
  if (!names[1].empty()) all.val = rows();
  if (!names[2].empty()) all.test = rows();
  return told(batches(s.batches, seed, std::move(all)));
}

// The odds of a run that was trained with them, counted in its training sentences again: they are
// more than a run keeps.
std::optional<Odds> odds_of(const SentencesSource& s, const Options& o, const RunData& run) {
  const std::vector<std::string>& kinds = s.odds;
  if (kinds.empty()) return {};
  Numbers labels;
  const Part train = read(root_of(o, s.root, "sentences") + "/" + s.train, labels, true);
  std::vector<float> values;
  const io::Json& scales = kept(run, "odds_scales");
  for (const io::Json& v : scales.as_array() ? *scales.as_array() : io::Json::Array())
    values.push_back(static_cast<float>(v.as_double() ? *v.as_double()
                                        : v.as_int()  ? static_cast<double>(*v.as_int())
                                                      : 1.0));
  const auto n = static_cast<int64_t>(kinds.size()), classes = static_cast<int64_t>(labels.size());
  TD_CHECK(static_cast<int64_t>(values.size()) == n * classes, Format,
           "data.json: \"odds_scales\" expects {} numbers, has {}", n * classes, values.size());
  const Tensor all = tensor(values);
  std::vector<Tensor> of_kinds;
  for (int64_t k = 0; k < n; ++k)
    of_kinds.push_back(all.narrow(0, k * classes, classes).reshape({1, classes}));
  return Odds(kinds, train, classes, std::move(of_kinds));
}

// Lines with a text each, without a label.
Preparation asked_sentences(const SentencesSource& s, const Options& o, const RunData& run) {
  const auto pad = static_cast<size_t>(s.pad);
  const io::Json& length = kept(run, "length");
  const size_t least = length.as_int() ? static_cast<size_t>(*length.as_int()) : 8;
  return {SampleKind::text,
          [=, vocabulary = Vocabulary(kept(run, "words")), odds = odds_of(s, o, run)](
              std::string_view bytes, const std::string& name) {
            Part part;
            for (size_t at = 0; at < bytes.size();) {
              const size_t end = std::min(bytes.find('\n', at), bytes.size());
              std::string_view line = bytes.substr(at, end - at);
              if (line.ends_with('\r')) line.remove_suffix(1);
              if (Words words = words_of(line); !words.empty())
                part.words.push_back(std::move(words));
              at = end + 1;
            }
            TD_CHECK(!part.words.empty(), Value, "'{}' holds no words", name);
            PreparedBatch out{{vocabulary(part, pad, least)}};
            if (odds) out.fields.push_back((*odds)(part));
            return out;
          }};
}

}  // namespace

std::span<const DataRow> text_sources() {
  static constexpr DataRow kRows[] = {
      prepared_row<SentencesSource, sentences, asked_sentences>(
          "sentences", "A label and words a line, as ids of the training set's words.",
          "{type: sentences, root: ., train: sentences.txt, batch: 4}"),
  };
  return kRows;
}

}  // namespace tandem::recipe
