// SPDX-License-Identifier: Apache-2.0
// How recipes make batches of rows, and the data sets of rows that they may name: digits,
// optdigits, csv, chars (any text, letter by letter), adult (UCI census).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

#include "cli/recipe_internal.h"
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

/// The samples of another stage in an order of its own, the same in every epoch: to cut in two.
struct Reordered : data::detail::Stage {
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

Rows::Samples mapped(const Rows::Samples& in, const Rows::Map& map) {
  return map ? in.map(map) : in;
}

// What models may ask of samples of this form.
void describe(RecipeData& d, const Example& sample) {
  const Tensor& x = sample.x;
  if (x.dim() == 3) {
    d.info["channels"] = x.size(0);
    if (x.size(1) == x.size(2)) d.info["size"] = x.size(1);
  }
  if (x.dim() == 3 || (x.dim() == 1 && is_floating(x.dtype()))) d.info["features"] = x.numel();
}

}  // namespace

RecipeData batches(Options& o, uint64_t seed, Rows rows) {
  const int64_t size = o.whole("batch", 64);
  const int64_t eval_size = o.whole("eval_batch", 256);
  const bool shuffle = o.flag("shuffle", true), drop_last = o.flag("drop_last", false);
  const double val_part = o.number("val_part", rows.val_part);
  if (val_part < 0 || val_part >= 1) o.fail("val_part", "wants a number from 0 to below 1");
  Rows::Samples fit = rows.train;
  if (!rows.val && val_part > 0) {
    const auto n = fit.size(), k = static_cast<int64_t>(static_cast<double>(n) * val_part);
    auto fixed = std::make_shared<Reordered>();
    fixed->in = fit.stage();
    fixed->order = data::shuffled_order(n, seed ^ 0x5b117, 0);
    const Rows::Samples split(fixed, seed, fit.prefetch_options());
    rows.val = split.take(k);
    fit = split.skip(k);
  }
  if (shuffle) fit = fit.shuffle();
  fit = mapped(fit, rows.on_train);
  RecipeData d{mapped(fit.batch(size, {.drop_last = drop_last}), rows.on_batch), {}, {}, {}};
  if (rows.val) d.val = mapped(*rows.val, rows.on_judged).batch(eval_size);
  if (rows.test) d.test = mapped(*rows.test, rows.on_judged).batch(eval_size);
  if (fit.size() > 0) describe(d, fit.get(0));
  d.damaged = sum_of(rows.damaged);
  return d;
}

std::function<int64_t()> sum_of(const std::vector<std::function<int64_t()>>& counts) {
  if (counts.empty()) return {};
  return [counts] {
    int64_t n = 0;
    for (const auto& count : counts) n += count();
    return n;
  };
}

namespace {

RecipeData digits(Options& o, uint64_t seed) {
  const auto fold = static_cast<int>(o.whole("fold", 0));
  return array_batches(o, seed,
                       {.train = samples(data::Digits({.train = true, .fold = fold}), seed),
                        .test = samples(data::Digits({.train = false, .fold = fold}), seed),
                        .val_part = 0.1},
                       10);
}

// UCI's optdigits.tra and .tes: 64 counts 0..16 and the label. Where TANDEM_DATA has none, the
// embedded digits (the .tes file of that set, cut in two) stand in.
RecipeData optdigits(Options& o, uint64_t seed) {
  const char* all = std::getenv("TANDEM_DATA");
  if (!o.has("root") && !(all && file_exists(std::string(all) + "/digits/optdigits.tra"))) {
    fmt::print(stderr,
               "optdigits: TANDEM_DATA has no digits/optdigits.tra: the 1,797 digits that "
               "the library carries stand in\n");
    o.text("root", "");
    return digits(o, seed);
  }
  const std::string root = root_of(o, "digits");
  auto read = [&](const char* name) {
    io::Csv csv = io::Csv::read(root + "/" + name, {.header = false});
    return samples(data::TensorDataset((csv.table(0, 64, DType::f32) / 16.0).reshape({-1, 1, 8, 8}),
                                       csv.column(size_t{64}, DType::i64)),
                   seed);
  };
  return array_batches(
      o, seed, {.train = read("optdigits.tra"), .test = read("optdigits.tes"), .val_part = 0.1},
      10);
}

RecipeData csv(Options& o, uint64_t seed) {
  const std::string root = o.text("root");
  data::CSVOptions options{.header = o.flag("header", true), .target = o.whole("target", -1)};
  options.target_dtype = dtype_option(o, "target_dtype", DType::i64);
  if (options.target_dtype != DType::i64 && options.target_dtype != DType::f32)
    o.fail("target_dtype", "wants int64 or float32");
  data::CSVDataset all(root, options);
  TD_CHECK(all.size() > 0, Format, "'{}' has no lines of data", root);
  int64_t classes = 1;
  if (options.target_dtype == DType::i64) classes = all.y().amax().item<int64_t>() + 1;
  const std::string test = o.text("test", "");
  Rows rows{.train = samples(all, seed), .val_part = 0.1};
  if (!test.empty()) rows.test = samples(data::CSVDataset(test, options), seed);
  RecipeData d = batches(o, seed, std::move(rows));
  d.info["classes"] = classes;
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
  d.facts.letters.assign(seen.begin(), seen.end());
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
  RecipeData d = batches(
      o, seed,
      {.train = samples(table(train), seed), .test = samples(table(test), seed), .val_part = 0.1});
  d.info["classes"] = 2;
  return d;
}

}  // namespace

void add_data_components(train::Registry& r) {
  r.data["digits"] = digits;
  r.data["optdigits"] = optdigits;
  r.data["csv"] = csv;
  r.data["chars"] = chars;
  for (const char* type : {"digits", "optdigits"}) r.picture[type] = array_pictures;
  add_sentences(r);
  r.data["adult"] = adult;
}

}  // namespace tandem::cli
