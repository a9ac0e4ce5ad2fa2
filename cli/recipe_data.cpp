// SPDX-License-Identifier: Apache-2.0
// The data sets that recipes may name: digits, mnist, cifar10, image_folder, csv, chars (any text,
// letter by letter), sentences (a label and words a line), adult (UCI census).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

#include "cli/recipe_internal.h"
#include "tandem/data/image_folder.h"
#include "tandem/data/text_datasets.h"
#include "tandem/io/csv.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {
namespace {

using data::Example;
using data::Pipeline;
using train::Options;
using train::RecipeData;

}  // namespace

std::string root_of(Options& o, const char* folder) {
  const std::string given = o.text("root", "");
  if (!given.empty()) return given;
  const char* all = std::getenv("TANDEM_DATA");
  if (!all)
    o.fail("root", fmt::format("is not given, and TANDEM_DATA, the folder that holds "
                               "'{}', is not set",
                               folder));
  return std::string(all) + "/" + folder;
}

namespace {

// The usual treatment: shuffled batches to train on, plain ones to judge by. `val_part` of the
// training samples, drawn by the seed, are held out where there is no validation set.
template <class D>
RecipeData batches(Options& o, uint64_t seed, D train, std::optional<D> val, std::optional<D> test,
                   double val_part = 0) {
  const int64_t size = o.whole("batch", 64);
  const int64_t eval_size = o.whole("eval_batch", 256);
  const bool shuffle = o.flag("shuffle", true), drop_last = o.flag("drop_last", false);
  val_part = o.number("val_part", val_part);
  if (val_part < 0 || val_part >= 1) o.fail("val_part", "wants a number from 0 to below 1");
  auto all = data::pipeline(std::move(train), {.seed = seed});
  auto fit = all;
  std::optional<data::AnyPipeline> held;
  if (!val && val_part > 0) {
    // An order of its own, the same in every epoch: cut it in two.
    const auto n = all.size(), k = static_cast<int64_t>(static_cast<double>(n) * val_part);
    auto mixed = all.stage();
    struct Fixed : data::detail::Stage {
      data::detail::StageRef in;
      std::vector<int64_t> order;
      int64_t size() const override { return in->size(); }
      std::vector<int64_t> at(std::span<const int64_t> rows) const {
        std::vector<int64_t> out;
        for (int64_t i : rows) out.push_back(order[static_cast<size_t>(i)]);
        return out;
      }
      std::vector<Tensor> get(data::detail::Pass p, int64_t i) const override {
        return in->get(p, order[static_cast<size_t>(i)]);
      }
      std::vector<Tensor> many(data::detail::Pass p, std::span<const int64_t> rows) const override {
        return in->many(p, at(rows));
      }
      void origins(data::detail::Pass p, int64_t i, std::vector<int64_t>& out) const override {
        in->origins(p, order[static_cast<size_t>(i)], out);
      }
      std::string text() const override { return in->text() + " | split"; }
    };
    auto fixed = std::make_shared<Fixed>();
    fixed->in = mixed;
    fixed->order = data::shuffled_order(n, seed ^ 0x5b117, 0);
    Pipeline<Example> split(fixed, seed, all.prefetch_options());
    held = split.take(k).batch(eval_size);
    fit = split.skip(k);
  }
  RecipeData d{shuffle ? fit.shuffle().batch(size, {.drop_last = drop_last})
                       : fit.batch(size, {.drop_last = drop_last}),
               held,
               {},
               {}};
  if (val) d.val = data::pipeline(std::move(*val), {.seed = seed}).batch(eval_size);
  if (test) d.test = data::pipeline(std::move(*test), {.seed = seed}).batch(eval_size);
  return d;
}

}  // namespace

RecipeData table_batches(Options& o, uint64_t seed, data::TensorDataset train,
                         std::optional<data::TensorDataset> test, double val_part) {
  return batches<data::TensorDataset>(o, seed, std::move(train), {}, std::move(test), val_part);
}

namespace {

RecipeData digits(Options& o, uint64_t seed) {
  const auto fold = static_cast<int>(o.whole("fold", 0));
  RecipeData d = batches<data::Digits>(o, seed, data::Digits({.train = true, .fold = fold}), {},
                                       data::Digits({.train = false, .fold = fold}), 0.1);
  d.info = {{"classes", 10}, {"features", 64}, {"size", 8}, {"channels", 1}};
  return d;
}

// UCI's optdigits.tra and .tes: 64 counts 0..16 and the label.
RecipeData optdigits(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "digits");
  auto read = [&](const char* name) {
    io::Csv csv = io::Csv::read(root + "/" + name, {.header = false});
    return data::TensorDataset((csv.table(0, 64, DType::f32) / 16.0).reshape({-1, 1, 8, 8}),
                               csv.column(size_t{64}, DType::i64));
  };
  RecipeData d =
      batches<data::TensorDataset>(o, seed, read("optdigits.tra"), {}, read("optdigits.tes"), 0.1);
  d.info = {{"classes", 10}, {"features", 64}, {"size", 8}, {"channels", 1}};
  return d;
}

RecipeData mnist(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "mnist");
  RecipeData d = batches<data::MNIST>(o, seed, data::MNIST(root), {},
                                      data::MNIST(root, {.train = false}), 0.05);
  d.info = {{"classes", 10}, {"features", 784}, {"size", 28}, {"channels", 1}};
  return d;
}

RecipeData cifar10(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "cifar10");
  RecipeData d = batches<data::CIFAR10>(o, seed, data::CIFAR10(root), {},
                                        data::CIFAR10(root, {.train = false}), 0.05);
  d.info = {{"classes", 10}, {"features", 3072}, {"size", 32}, {"channels", 3}};
  return d;
}

RecipeData image_folder(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "images");
  const int64_t side = o.whole("size", 64);
  data::ImageFolderOptions options{.size = {side, side},
                                   .skip_damaged = o.flag("skip_damaged", false)};
  data::ImageFolder folder(root, options);
  const auto classes = static_cast<int64_t>(folder.classes().size());
  const std::string test = o.text("test", "");
  std::optional<data::ImageFolder> judged;
  if (!test.empty()) judged.emplace(test, options);
  RecipeData d = batches<data::ImageFolder>(o, seed, folder, {}, judged, 0.1);
  d.info = {{"classes", classes}, {"features", 3 * side * side}, {"size", side}, {"channels", 3}};
  return d;
}

RecipeData csv(Options& o, uint64_t seed) {
  const std::string root = o.text("root"), type = o.text("target_dtype", "i64");
  data::CSVOptions options{.header = o.flag("header", true), .target = o.whole("target", -1)};
  if (type != "i64" && type != "f32") o.fail("target_dtype", "wants i64 or f32");
  options.target_dtype = type == "i64" ? DType::i64 : DType::f32;
  data::CSVDataset all(root, options);
  TD_CHECK(all.size() > 0, Format, "'{}' has no lines of data", root);
  int64_t classes = 1;
  if (type == "i64") classes = all.y().amax().item<int64_t>() + 1;
  const std::string test = o.text("test", "");
  std::optional<data::CSVDataset> judged;
  if (!test.empty()) judged.emplace(test, options);
  const int64_t features = all.x().size(1);
  RecipeData d = batches<data::CSVDataset>(o, seed, all, {}, judged, 0.1);
  d.info = {{"classes", classes}, {"features", features}};
  return d;
}

// ---- text

/// Any text, letter by letter: the bytes that occur, in order, are the symbols.
RecipeData chars(Options& o, uint64_t seed) {
  const std::string path =
      o.has("file") ? o.text("file") : root_of(o, "text") + "/tinyshakespeare.txt";
  if (!o.has("file")) o.text("file", "");
  if (o.has("file")) o.text("root", "");
  const int64_t block = o.whole("block", 64), size = o.whole("batch", 12);
  const int64_t steps = o.whole("steps_per_epoch", 250);
  const double part = o.number("train_part", 0.9);
  const std::string text = read_file(path);
  std::array<int64_t, 256> id{};
  std::set<unsigned char> seen(text.begin(), text.end());
  int64_t symbols = 0;
  for (unsigned char c : seen) id[c] = symbols++;
  const auto cut = static_cast<int64_t>(static_cast<double>(text.size()) * part);
  std::vector<int64_t> ids;
  for (unsigned char c : text) ids.push_back(id[c]);
  Tensor all = tensor(ids);
  if (cut <= block || all.numel() - cut <= block)
    o.fail("block", fmt::format("'{}' is too short for {} letters", path, block));
  struct Windows {
    Tensor ids;
    int64_t block, stride, count;
    int64_t size() const { return count; }
    Example get(int64_t i) const {
      return {narrow(ids, 0, i * stride, block), narrow(ids, 0, i * stride + 1, block)};
    }
  };
  // Every window, dense, in a new order each epoch; an epoch is cut to `steps`.
  Windows train{narrow(all, 0, 0, cut), block, 1, cut - block};
  const int64_t rest = all.numel() - cut;
  Windows val{narrow(all, 0, cut, rest), block, block, (rest - 1) / block};
  RecipeData d{
      data::pipeline(train, {.seed = seed}, "chars").shuffle().take(steps * size).batch(size),
      data::pipeline(val, {.seed = seed}, "chars").batch(64),
      {},
      {}};
  d.test = d.val;
  d.info = {{"vocabulary", symbols}, {"context", block}, {"classes", symbols}};
  return d;
}

/// A label (up to the first ':' or blank) and words a line; ids by the training set's words.
struct Sentences {
  Tensor x, y;
  std::map<std::string, int64_t>* labels = nullptr;
};

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> out;
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

RecipeData sentences(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "sentences");
  const std::string names[] = {o.text("train"), o.text("val", ""), o.text("test", "")};
  const auto least = static_cast<size_t>(o.whole("pad", 4));
  std::map<std::string, int64_t> vocabulary, labels;
  auto read = [&](const std::string& name, bool learn) {
    data::TextLines lines(root + "/" + name);
    std::vector<std::vector<int64_t>> rows;
    std::vector<int64_t> y;
    size_t longest = 8;
    for (int64_t i = 0; i < lines.size(); ++i) {
      std::vector<std::string> words = words_of(lines.line(i));
      std::string label = words.empty() ? "" : words[0].substr(0, words[0].find(':'));
      if (learn) labels.emplace(label, static_cast<int64_t>(labels.size()));
      TD_CHECK(words.size() > 1 && labels.count(label), Format,
               "'{}' line {} wants a label and words, got label '{}'", lines.path(),
               lines.number(i), label);
      std::vector<int64_t> ids(least);
      for (size_t k = 1; k < words.size(); ++k) {
        if (learn) vocabulary.emplace(words[k], static_cast<int64_t>(vocabulary.size()) + 2);
        const auto found = vocabulary.find(words[k]);
        ids.push_back(found == vocabulary.end() ? 1 : found->second);  // 0: padding, 1: unknown
      }
      ids.resize(ids.size() + least);
      longest = std::max(longest, ids.size());
      rows.push_back(std::move(ids));
      y.push_back(labels.at(label));
    }
    std::vector<int64_t> flat;
    for (std::vector<int64_t>& r : rows) {
      r.resize(longest);
      flat.insert(flat.end(), r.begin(), r.end());
    }
    return data::TensorDataset(
        tensor(flat, {static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)}),
        tensor(y));
  };
  data::TensorDataset train = read(names[0], true);
  std::optional<data::TensorDataset> val, test;
  if (!names[1].empty()) val = read(names[1], false);
  if (!names[2].empty()) test = read(names[2], false);
  RecipeData d = batches<data::TensorDataset>(o, seed, train, val, test, 0.1);
  d.info = {{"vocabulary", static_cast<int64_t>(vocabulary.size()) + 2},
            {"classes", static_cast<int64_t>(labels.size())}};
  return d;
}

/// UCI Adult: numbers standardised by the training set, texts one-hot, y: more than 50K.
RecipeData adult(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "tabular");
  const io::Csv train = io::Csv::read(root + "/adult-train.csv", {.header = false}),
                test = io::Csv::read(root + "/adult-test.csv", {.header = false});
  constexpr size_t kColumns = 14;
  TD_CHECK(train.columns() == kColumns + 1 && test.columns() == kColumns + 1, Format,
           "'{}': adult wants {} columns", root, kColumns + 1);
  auto text = [](const io::Csv& t, size_t row, size_t column) {
    std::string_view f = t.field(row, column);
    while (!f.empty() && f.front() == ' ') f.remove_prefix(1);
    while (!f.empty() && (f.back() == '.' || f.back() == ' ')) f.remove_suffix(1);
    return std::string(f);
  };
  auto is_number = [](size_t c) { return c == 0 || c == 2 || c == 4 || (c >= 10 && c <= 12); };
  std::vector<std::map<std::string, size_t>> values(kColumns);
  std::vector<double> mean(kColumns), deviation(kColumns, 1);
  std::vector<size_t> first(kColumns);
  size_t width = 0;
  for (size_t c = 0; c < kColumns; ++c) {
    first[c] = width;
    const auto n = static_cast<double>(train.rows());
    double sum = 0, squares = 0;
    for (size_t r = 0; r < train.rows(); ++r) {
      const std::string f = text(train, r, c);
      if (is_number(c)) {
        // Capital gain and loss span five decades.
        double v = std::atof(f.c_str());
        if (c == 10 || c == 11) v = std::log1p(v);
        sum += v;
        squares += v * v;
      } else {
        values[c].emplace(f, values[c].size());
      }
    }
    mean[c] = sum / n;
    if (is_number(c)) deviation[c] = std::sqrt(std::max(squares / n - mean[c] * mean[c], 1e-12));
    width += is_number(c) ? 1 : values[c].size();
  }
  auto table = [&](const io::Csv& t) {
    std::vector<float> x(t.rows() * width);
    std::vector<int64_t> y;
    for (size_t r = 0; r < t.rows(); ++r) {
      for (size_t c = 0; c < kColumns; ++c) {
        const std::string f = text(t, r, c);
        float* cell = &x[r * width + first[c]];
        if (is_number(c)) {
          double v = std::atof(f.c_str());
          if (c == 10 || c == 11) v = std::log1p(v);
          *cell = static_cast<float>((v - mean[c]) / deviation[c]);
        } else if (auto it = values[c].find(f); it != values[c].end()) {
          cell[it->second] = 1;
        }
      }
      y.push_back(text(t, r, kColumns) == ">50K");
    }
    return data::TensorDataset(
        tensor(x, {static_cast<int64_t>(t.rows()), static_cast<int64_t>(width)}), tensor(y));
  };
  RecipeData d = batches<data::TensorDataset>(o, seed, table(train), {}, table(test), 0.1);
  d.info = {{"classes", 2}, {"features", static_cast<int64_t>(width)}};
  return d;
}

}  // namespace

void add_data_components(train::Registry& r) {
  r.data["digits"] = digits;
  r.data["optdigits"] = optdigits;
  r.data["mnist"] = mnist;
  r.data["cifar10"] = cifar10;
  r.data["image_folder"] = image_folder;
  r.data["csv"] = csv;
  r.data["chars"] = chars;
  r.data["sentences"] = sentences;
  r.data["adult"] = adult;
}

}  // namespace tandem::cli
