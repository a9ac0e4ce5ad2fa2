// SPDX-License-Identifier: Apache-2.0
// How recipes make batches of rows, and the data sets of rows that they may name: digits,
// optdigits, csv, chars (any text, byte by byte).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>

#include "tandem/data/sets/text_datasets.h"
#include "tandem/io/csv.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/characters_internal.h"
#include "tandem/recipe/components/source_fields_internal.h"

namespace tandem::recipe {
namespace {

using data::Example;
using data::Pipeline;

}  // namespace

std::string root_of(const Options& o, const std::string& given, const std::string& folder) {
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

RecipeData batches(const BatchOptions& options, uint64_t seed, Rows rows) {
  const double val_part = options.val_part;
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
  if (options.shuffle) fit = fit.shuffle();
  fit = mapped(fit, rows.on_train);
  RecipeData d{mapped(fit.batch(options.batch, {.drop_last = options.drop_last}), rows.on_batch),
               {},
               {},
               {}};
  if (rows.val) d.val = mapped(*rows.val, rows.on_evaluated).batch(options.eval_batch);
  if (rows.test) d.test = mapped(*rows.test, rows.on_evaluated).batch(options.eval_batch);
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

/// Images of 8 x 8 digits.
struct DigitsSource {
  std::string root = {};
  int64_t fold = 0;
  AugmentOptions augment = {};
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    v("fold", fold, {.doc = "which of five parts is the test", .at_least = 0, .at_most = 4});
    augment.fields(v);
    batches.fields(v);
  }
};
RecipeData digits(const DigitsSource& d, const Options&, uint64_t seed) {
  const auto fold = static_cast<int>(d.fold);
  return array_batches(d.batches, d.augment, seed,
                       {.train = samples(data::Digits({.train = true, .fold = fold}), seed),
                        .test = samples(data::Digits({.train = false, .fold = fold}), seed)},
                       10);
}
Preparation digit_images(const DigitsSource& d, const Options&, const RunData& run) {
  return array_images(d.augment.chains, run);
}

struct OptDigitsSource : DigitsSource {
  template <class V>
  void fields(V& v) {
    root_field(v, root, "folder of optdigits.tra and optdigits.tes; default: TANDEM_DATA's digits");
    DigitsSource::fields(v);
  }
};
// UCI's optdigits.tra and .tes: 64 counts 0..16 and the label. Where TANDEM_DATA has none, the
// embedded digits (the .tes file of that set, cut in two) stand in.
RecipeData optdigits(const OptDigitsSource& d, const Options& o, uint64_t seed) {
  const char* all = std::getenv("TANDEM_DATA");
  if (d.root.empty() && !(all && file_exists(std::string(all) + "/digits/optdigits.tra"))) {
    fmt::print(stderr,
               "optdigits: TANDEM_DATA has no digits/optdigits.tra: the 1,797 digits that "
               "the library carries stand in\n");
    return digits(d, o, seed);
  }
  const std::string root = root_of(o, d.root, "digits");
  auto read = [&](const char* name) {
    io::Csv csv = io::Csv::read(root + "/" + name, {.header = false});
    return samples(data::TensorDataset((csv.table(0, 64, DType::f32) / 16.0).reshape({-1, 1, 8, 8}),
                                       csv.column(size_t{64}, DType::i64)),
                   seed);
  };
  return array_batches(d.batches, d.augment, seed,
                       {.train = read("optdigits.tra"), .test = read("optdigits.tes")}, 10);
}

struct CsvSource {
  std::string root = {}, test = {}, target_dtype = "int64";
  bool header = true;
  int64_t target = -1;
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    path_field(v, root, "a table of numbers, plain or gzip");
    test_field(v, test);
    v("header", header, {.doc = "the first line names the columns"});
    v("target", target, {.doc = "column of the target; negative: from the end"});
    v("target_dtype", target_dtype,
      {.doc = "int64 for classes, float32 for numbers", .one_of = "int64 float32 i64 f32"});
    batches.fields(v);
  }
};
bool is_number(std::string_view text) {
  const std::string word(text);
  char* end = nullptr;
  std::strtod(word.c_str(), &end);
  return end != word.c_str();
}

RecipeData csv(const CsvSource& c, const Options& o, uint64_t seed) {
  const data::CSVOptions options{.header = c.header,
                                 .target = c.target,
                                 .target_dtype = dtype_at(o, "target_dtype", c.target_dtype)};
  data::CSVDataset all(c.root, options);
  TD_CHECK(all.size() > 0, Format, "'{}' has no lines of data", c.root);
  int64_t classes = 1;
  if (options.target_dtype == DType::i64) classes = all.y().amax().item<int64_t>() + 1;
  Rows rows{.train = samples(all, seed)};
  if (!c.test.empty()) rows.test = samples(data::CSVDataset(c.test, options), seed);
  RecipeData d = batches(c.batches, seed, std::move(rows));
  d.info["classes"] = classes;
  return d;
}

// Lines with the columns of x, or with that of the target as well. A first line without numbers
// holds names.
Preparation csv_rows(const CsvSource& c, const Options&, const RunData& run) {
  const int64_t features = run.info.at("features"), target = c.target;
  return {
      SampleKind::table, [=](std::string_view bytes, const std::string& name) {
        io::Csv rows = io::Csv::parse(std::string(bytes), {.header = false}, name);
        const auto columns = static_cast<int64_t>(rows.columns());
        TD_CHECK(columns == features || columns == features + 1, Value,
                 "'{}' has {} columns, the model takes {}", name, columns, features);
        if (rows.rows() > 0 && !is_number(rows.field(0, 0)))
          rows = io::Csv::parse(std::string(bytes), {.header = true}, name);
        const int64_t left_out = columns == features ? -1 : target < 0 ? target + columns : target;
        std::vector<Tensor> parts;
        for (int64_t c = 0; c < columns; ++c)
          if (c != left_out)
            parts.push_back(rows.column(static_cast<size_t>(c), DType::f32).unsqueeze(1));
        return PreparedBatch{{cat(parts, 1).contiguous()}};
      }};
}

// ---- text

/// Any text, byte by byte: the bytes that occur, in order, are the symbols.
struct CharsSource {
  std::string file = {}, root = {};
  int64_t block = 64, batch = 12, steps_per_epoch = 250;
  double train_part = 0.9;

  template <class V>
  void fields(V& v) {
    v("file", file, {.doc = "any text; default: tinyshakespeare.txt under root"});
    root_field(v, root, "folder of tinyshakespeare.txt; default: TANDEM_DATA's text");
    v("block", block, {.doc = "bytes of a sample", .at_least = 1});
    v("batch", batch, {.doc = "samples of a training batch"});
    v("steps_per_epoch", steps_per_epoch, {.doc = "batches of an epoch", .at_least = 1});
    v("train_part", train_part,
      {.doc = "share of the text to train on; the rest evaluates", .above = 0, .below = 1});
  }
};
RecipeData chars(const CharsSource& c, const Options& o, uint64_t seed) {
  const std::string path =
      !c.file.empty() ? c.file : root_of(o, c.root, "text") + "/tinyshakespeare.txt";
  const int64_t block = c.block, size = c.batch, steps = c.steps_per_epoch;
  const double part = c.train_part;
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
    o.fail("block", fmt::format("'{}' is too short for {} characters", path, block));
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
  d.facts.characters.assign(seen.begin(), seen.end());
  return d;
}

Preparation prepared_chars(const CharsSource&, const Options&, const RunData& run) {
  return prepared_characters(run);
}

}  // namespace

std::span<const DataRow> row_sources() {
  static constexpr DataRow kRows[] = {
      prepared_row<DigitsSource, digits, digit_images>(
          "digits", "The 1,797 digits of 8 x 8 pixels that the library carries.",
          "{type: digits, batch: 32, transforms: [{type: RandomCrop, size: 8, padding: 1}]}"),
      prepared_row<OptDigitsSource, optdigits, digit_images>(
          "optdigits",
          "UCI's 5,620 digits of 8 x 8 pixels; where TANDEM_DATA has none of them, those that the "
          "library carries.",
          "{type: optdigits, val_part: 0}"),
      prepared_row<CsvSource, csv, csv_rows>("csv", "Rows of numbers with a target column.",
                                             "{type: csv, root: table.csv, target: 2, batch: 16}"),
      prepared_row<CharsSource, chars, prepared_chars>(
          "chars", "A text byte by byte, for language models.",
          "{type: chars, file: text.txt, block: 16, steps_per_epoch: 5}"),
  };
  return kRows;
}

}  // namespace tandem::recipe
