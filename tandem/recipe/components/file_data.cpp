// SPDX-License-Identifier: Apache-2.0
// Files of samples that recipes may name: jsonl, lines (each line a text), tokens, npy (.npy and
// .npz), tfrecord, webdataset. The types of tandem/data read them.
#include <algorithm>
#include <array>

#include "tandem/data/sets/npy_dataset.h"
#include "tandem/data/sets/record_datasets.h"
#include "tandem/data/sets/text_datasets.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/characters_internal.h"
#include "tandem/recipe/components/source_fields_internal.h"

namespace tandem::recipe {
namespace {

using data::Example;

// `classes` of the recipe, else what integer labels ask for: one more than the largest.
template <class D>
int64_t classes_of(int64_t given, const D& d) {
  if (given > 0) return given;
  int64_t most = 0;
  for (int64_t i = 0; i < d.size(); ++i) {
    const Tensor y = d.get(i).y;
    if (is_floating(y.dtype())) return y.numel();
    most = std::max(most, y.numel() > 0 ? y.amax().template item<int64_t>() : 0);
  }
  return most + 1;
}

template <class V>
void classes_field(V& v, int64_t& classes) {
  v("classes", classes, {.doc = "their number; 0: counted", .at_least = 0});
}

struct JsonlSource {
  std::string root = {}, test = {}, x = "x", y = "y", x_dtype = "float32", y_dtype = "int64";
  int64_t classes = 0;
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    path_field(v, root, "a file with a JSON object a line");
    test_field(v, test);
    v("x", x,
      {.doc = "member of each object that is the input: numbers, nested as deep as it has "
              "dimensions"});
    v("y", y, {.doc = "member that is the target"});
    dtype_field(v, "x_dtype", x_dtype, "dtype of the input");
    dtype_field(v, "y_dtype", y_dtype, "dtype of the target");
    classes_field(v, classes);
    batches.fields(v);
  }
};
RecipeData jsonl(const JsonlSource& j, const Options& o, uint64_t seed) {
  const data::JsonLinesOptions options{.x = j.x,
                                       .y = j.y,
                                       .x_dtype = dtype_at(o, "x_dtype", j.x_dtype),
                                       .y_dtype = dtype_at(o, "y_dtype", j.y_dtype)};
  const data::JsonLines all(j.root, options);
  const int64_t classes = classes_of(j.classes, all);
  Rows rows{.train = samples(all, seed)};
  if (!j.test.empty()) rows.test = samples(data::JsonLines(j.test, options), seed);
  RecipeData d = batches(j.batches, seed, std::move(rows));
  d.info["classes"] = classes;
  return d;
}

/// Each line as characters: x is 0 and the line, y the line and 0; what is left is filled with 0 in
/// x and -100, which losses ignore, in y. Characters count from 1.
struct Lines {
  data::TextLines text;
  std::array<int64_t, 256> id;
  int64_t length;
  int64_t size() const { return text.size(); }
  Example get(int64_t i) const {
    const std::string_view line = text.line(i).substr(0, static_cast<size_t>(length) - 1);
    std::vector<int64_t> x(static_cast<size_t>(length)), y(x.size(), -100);
    for (size_t k = 0; k < line.size(); ++k)
      x[k + 1] = y[k] = id[static_cast<unsigned char>(line[k])];
    y[line.size()] = 0;
    return {tensor(x), tensor(y)};
  }
};

struct LinesSource {
  std::string root = {}, test = {};
  int64_t length = 0;
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    path_field(v, root, "a file with a text a line");
    test_field(v, test);
    v("length", length,
      {.doc = "bytes of a line with its end; longer lines are cut; 0: the longest line's"});
    batches.fields(v);
  }
};
RecipeData lines(const LinesSource& l, const Options& o, uint64_t seed) {
  const std::string &root = l.root, &test = l.test;
  int64_t length = l.length;
  std::vector<data::TextLines> files{data::TextLines(root)};
  if (!test.empty()) files.emplace_back(test);
  std::array<bool, 256> seen{};
  int64_t longest = 0;
  for (const data::TextLines& file : files)
    for (int64_t i = 0; i < file.size(); ++i) {
      const std::string_view line = file.line(i);
      longest = std::max(longest, static_cast<int64_t>(line.size()));
      for (const char c : line) seen[static_cast<unsigned char>(c)] = true;
    }
  if (length == 0) length = longest + 1;
  if (length < 2)
    o.fail("length", "expected 2 or more (the characters of a line and its end), or 0");
  std::array<int64_t, 256> id{};
  std::vector<int64_t> characters{-1};
  for (size_t c = 0; c < 256; ++c)
    if (seen[c]) {
      id[c] = static_cast<int64_t>(characters.size());
      characters.push_back(static_cast<int64_t>(c));
    }
  const auto symbols = static_cast<int64_t>(characters.size());
  Rows rows{.train = data::pipeline(Lines{files[0], id, length}, {.seed = seed}, "lines")};
  if (!test.empty())
    rows.test = data::pipeline(Lines{files[1], id, length}, {.seed = seed}, "lines");
  RecipeData d = batches(l.batches, seed, std::move(rows));
  d.info = {{"vocabulary", symbols}, {"context", length}, {"classes", symbols}};
  d.facts.characters = std::move(characters);
  return d;
}

Preparation prepared_lines(const LinesSource&, const Options&, const RunData& run) {
  return prepared_characters(run);
}

struct TokensSource {
  std::string root = {}, test = {}, dtype = "int16";
  int64_t block = 64, batch = 12, eval_batch = 64, steps_per_epoch = 250;
  double train_part = 0.9;
  int64_t vocabulary = 0;

  template <class V>
  void fields(V& v) {
    path_field(v, root, "a file of token ids, little-endian without any head");
    test_field(v, test);
    v("block", block, {.doc = "tokens of a sample", .at_least = 1});
    v("batch", batch, {.doc = "samples of a training batch", .at_least = 1});
    v("eval_batch", eval_batch,
      {.doc = "samples of a batch in validation and test", .at_least = 1});
    v("steps_per_epoch", steps_per_epoch, {.doc = "batches of an epoch", .at_least = 1});
    v("train_part", train_part,
      {.doc = "share of the file to train on; the rest validates", .above = 0, .below = 1});
    dtype_field(v, "dtype", dtype, "of an id in the file: int16, int32 or uint8");
    v("vocabulary", vocabulary,
      {.doc = "number of ids; 0: found by a pass over the file", .at_least = 0});
  }
};
RecipeData tokens(const TokensSource& t, const Options& o, uint64_t seed) {
  const std::string &root = t.root, &test = t.test;
  const int64_t block = t.block, size = t.batch, eval_size = t.eval_batch,
                steps = t.steps_per_epoch;
  const double part = t.train_part;
  const DType dtype = dtype_at(o, "dtype", t.dtype);
  int64_t vocabulary = t.vocabulary;
  auto file = [&](const std::string& path, int64_t stride, double from, double to) {
    return data::TokenFile(
        path, {.dtype = dtype, .block = block, .stride = stride, .from = from, .to = to});
  };
  if (vocabulary == 0 && dtype == DType::u8) vocabulary = 256;
  if (vocabulary == 0) {
    const data::TokenFile all = file(root, block, 0, 1);
    for (int64_t i = 0; i < all.size(); ++i) {
      const Example e = all.get(i);
      vocabulary =
          std::max({vocabulary, e.x.amax().item<int64_t>() + 1, e.y.amax().item<int64_t>() + 1});
    }
  }
  // Every window in a new order each epoch; an epoch is cut to `steps`.
  RecipeData d{samples(file(root, 1, 0, part), seed).shuffle().take(steps * size).batch(size),
               samples(file(root, block, part, 1), seed).batch(eval_size),
               {},
               {}};
  d.test = test.empty() ? d.val : samples(file(test, block, 0, 1), seed).batch(eval_size);
  d.info = {{"vocabulary", vocabulary}, {"context", block}, {"classes", vocabulary}};
  return d;
}

// Images take transforms, other rows do not.
RecipeData rows_or_images(const BatchOptions& options, const AugmentOptions& augment,
                          const Options& o, uint64_t seed, Rows rows, int64_t classes) {
  if (rows.train.size() > 0 && rows.train.get(0).x.dim() == 3)
    return image_batches(options, augment, seed, std::move(rows), classes);
  const char* given = !augment.chains.transforms.empty()        ? "transforms"
                      : !augment.chains.test_transforms.empty() ? "test_transforms"
                      : augment.mixup > 0                       ? "mixup"
                      : augment.cutmix > 0                      ? "cutmix"
                                                                : nullptr;
  if (given) o.fail(given, "is for images, and the samples are none");
  RecipeData d = batches(options, seed, std::move(rows));
  d.info["classes"] = classes;
  return d;
}

struct NpySource {
  std::string root = {}, x = "x", y = "y", test_x = {}, test_y = {};
  bool channels_last = false;
  int64_t classes = 0;
  AugmentOptions augment = {};
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    path_field(v, root, "an .npz file, or a folder of .npy files");
    v("x", x, {.doc = "array of the inputs; u8 is taken for images"});
    v("y", y, {.doc = "array of the targets"});
    v("channels_last", channels_last, {.doc = "images are [n, h, w, c], as Keras has them"});
    v("test_x", test_x, {.doc = "array of the test's inputs"});
    v("test_y", test_y, {.doc = "array of the test's targets"});
    classes_field(v, classes);
    augment.fields(v);
    batches.fields(v);
  }
};
RecipeData npy(const NpySource& n, const Options& o, uint64_t seed) {
  const data::NpyOptions options{.x = n.x, .y = n.y, .channels_last = n.channels_last};
  data::NpyOptions evaluated = options;
  evaluated.x = n.test_x;
  evaluated.y = n.test_y;
  if (evaluated.x.empty() != evaluated.y.empty())
    o.fail(evaluated.x.empty() ? "test_x" : "test_y", "is missing: test_x and test_y go together");
  const data::NpyDataset all(n.root, options);
  Rows rows{.train = samples(all, seed)};
  if (!evaluated.x.empty()) rows.test = samples(data::NpyDataset(n.root, evaluated), seed);
  const int64_t classes = classes_of(n.classes, all);
  RecipeData d = rows_or_images(n.batches, n.augment, o, seed, std::move(rows), classes);
  // Numbers of another range have no file of an image.
  const Tensor x = all.get(0).x, stored = all.x();
  const bool unit =
      stored.dtype() == DType::u8 ||
      (is_floating(stored.dtype()) && stored.amin().to(DType::f32).item<float>() >= 0 &&
       stored.amax().to(DType::f32).item<float>() <= 1);
  if (x.dim() == 3 && unit) d.facts.image = {x.size(0), x.size(1), x.size(2)};
  return d;
}
Preparation npy_images(const NpySource& n, const Options&, const RunData& run) {
  return array_images(n.augment.chains, run);
}

// ---- files of many samples

/// Files that hold many images, or rows, with a class.
struct RecordSource {
  std::string root = {}, test = {}, x = {}, y = {};
  int64_t classes = 0, size = 0;
  ImageColor mode = ImageColor::rgb;
  bool skip_damaged = false;
  AugmentOptions augment = {};
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    path_field(v, root, "files; a pattern such as train-{000..015}.tar names several");
    test_field(v, test, "other files for the test");
    v("classes", classes, {.doc = "their number", .at_least = 0, .required = true});
    v("mode", mode, {.doc = "how images are read"});
    v("size", size,
      {.doc = "side that images are brought to; 0: they stay as they are",
       .unit = "pixels",
       .at_least = 0});
    skip_field(v, skip_damaged);
    augment.fields(v);
    batches.fields(v);
  }
};
struct TFRecordSource : RecordSource {
  std::optional<std::string> x_raw = {};
  std::vector<int64_t> x_shape = {};
  TFRecordSource() {
    x = data::TFRecordOptions().x;
    y = data::TFRecordOptions().y;
  }

  template <class V>
  void fields(V& v) {
    v("x", x, {.doc = "feature that is the input: an image's file or, with x_raw, numbers"});
    v("y", y, {.doc = "feature that is the target"});
    v("x_raw", x_raw, {.doc = "dtype of the numbers in x; none: an image"});
    v("x_shape", x_shape, {.doc = "their shape; empty: a row", .at_least = 0});
    RecordSource::fields(v);
  }
};
struct WebDatasetSource : RecordSource {
  WebDatasetSource() {
    x = data::WebDatasetOptions().x;
    y = data::WebDatasetOptions().y;
  }

  template <class V>
  void fields(V& v) {
    v("x", x,
      {.doc = "ending of the entries that are images; several, by ';', are tried in order"});
    v("y", y, {.doc = "ending of the entries that hold the class as text"});
    RecordSource::fields(v);
  }
};

Tensor sized(const Tensor& x, int64_t side) {
  return side > 0 && x.dim() == 3 ? data::resize_image(x, side, side) : x;
}
// Where no transform makes them f32, u8 images become 0..1 here.
Tensor as_numbers(const Tensor& x) {
  if (x.dtype() != DType::u8) return x;
  return x.dim() == 3 ? data::to_dtype_image(x, DType::f32, true) : x.to(DType::f32) / 255.0;
}

template <class D>
Rows::Samples records(int64_t side, uint64_t seed, D dataset) {
  Rows::Samples all = samples(std::move(dataset), seed);
  if (side > 0) all = all.map([side](const Example& e) { return Example{sized(e.x, side), e.y}; });
  return all.map([](const Example& e) { return Example{as_numbers(e.x), e.y}; });
}

Preparation record_images(const RecordSource& r, const Options& o, const RunData&) {
  TD_CHECK(!o.has("x_raw") || o.is_null("x_raw"), Unsupported,
           "the run's records are numbers (x_raw), no images\nGive an .npy file.");
  const int64_t side = r.size > 0 ? r.size : -1;
  return prepared_images(
      {r.mode == ImageColor::gray ? 1 : 3, side, side},
      [mode = mode_of(r.mode), side = r.size](std::string_view bytes, const std::string& name) {
        return sized(io::decode_image(bytes, {.mode = mode}, name), side);
      },
      [evaluated = evaluated_images(r.augment.chains)](const Tensor& x) {
        return as_evaluated(evaluated, as_numbers(x));
      });
}

template <class Make>
RecipeData record_files(const RecordSource& r, const Options& o, uint64_t seed, const Make& make) {
  std::vector<std::function<int64_t()>> damaged;
  auto read = [&](const std::string& files) {
    const auto all = make(files);
    if (r.skip_damaged) damaged.push_back(damaged_in(all));
    return records(r.size, seed, all);
  };
  Rows rows{.train = read(r.root)};
  if (!r.test.empty()) rows.test = read(r.test);
  rows.damaged = damaged;
  return rows_or_images(r.batches, r.augment, o, seed, std::move(rows), r.classes);
}

RecipeData tfrecord(const TFRecordSource& t, const Options& o, uint64_t seed) {
  data::TFRecordOptions options{
      .x = t.x, .y = t.y, .mode = mode_of(t.mode), .skip_damaged = t.skip_damaged};
  if (t.x_raw && !t.x_raw->empty()) options.x_raw = dtype_at(o, "x_raw", *t.x_raw);
  for (const int64_t n : t.x_shape) options.x_shape.push_back(n);
  return record_files(t, o, seed, [&](const std::string& files) {
    return data::TFRecordDataset({files}, options);
  });
}

RecipeData webdataset(const WebDatasetSource& w, const Options& o, uint64_t seed) {
  const data::WebDatasetOptions options{
      .x = w.x, .y = w.y, .mode = mode_of(w.mode), .skip_damaged = w.skip_damaged};
  return record_files(
      w, o, seed, [&](const std::string& shards) { return data::WebDataset({shards}, options); });
}

}  // namespace

std::span<const DataRow> file_sources() {
  static constexpr DataRow kRows[] = {
      data_row<JsonlSource, jsonl>("jsonl", "One JSON object a line, with the members x and y.",
                                   "{type: jsonl, root: rows.jsonl, batch: 16}"),
      prepared_row<LinesSource, lines, prepared_lines>(
          "lines",
          "A text a line, byte by byte, for language models of names and "
          "the like.",
          "{type: lines, root: lines.txt, batch: 4}"),
      data_row<TokensSource, tokens>(
          "tokens", "Ids of a tokenizer, as nanoGPT's .bin files hold them.",
          "{type: tokens, root: tokens.bin, block: 8, steps_per_epoch: 5}"),
      prepared_row<NpySource, npy, npy_images>(
          "npy", "NumPy's arrays: an .npz file, or .npy files in a folder.",
          "{type: npy, root: arrays.npz, batch: 16}"),
      prepared_row<TFRecordSource, tfrecord, record_images>(
          "tfrecord", "TFRecord files of tf.train.Example.",
          "{type: tfrecord, root: images.tfrecord, classes: 2, batch: 4}"),
      prepared_row<WebDatasetSource, webdataset, record_images>(
          "webdataset", "WebDataset's tar shards.",
          "{type: webdataset, root: \"shard-{0..1}.tar\", classes: 2, batch: 4}"),
  };
  return kRows;
}

}  // namespace tandem::recipe
