// SPDX-License-Identifier: Apache-2.0
// Files of samples that recipes may name: jsonl, lines (each line a text), tokens, npy (.npy and
// .npz), tfrecord, webdataset. The types of tandem/data read them.
#include <algorithm>
#include <array>

#include "cli/recipe_internal.h"
#include "tandem/data/npy_dataset.h"
#include "tandem/data/record_datasets.h"
#include "tandem/data/text_datasets.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {
namespace {

using data::Example;
using train::Options;
using train::RecipeData;

// `classes` of the recipe, else what integer labels ask for: one more than the largest.
template <class D>
int64_t classes_of(Options& o, const D& d) {
  const int64_t given = o.whole("classes", 0);
  if (given < 0) o.fail("classes", "wants their number, or 0 to count them");
  if (given > 0) return given;
  int64_t most = 0;
  for (int64_t i = 0; i < d.size(); ++i) {
    const Tensor y = d.get(i).y;
    if (is_floating(y.dtype())) return y.numel();
    most = std::max(most, y.numel() > 0 ? y.amax().template item<int64_t>() : 0);
  }
  return most + 1;
}

RecipeData jsonl(Options& o, uint64_t seed) {
  const std::string root = o.text("root"), test = o.text("test", "");
  data::JsonLinesOptions options;
  options.x = o.text("x", options.x);
  options.y = o.text("y", options.y);
  options.x_dtype = dtype_option(o, "x_dtype", options.x_dtype);
  options.y_dtype = dtype_option(o, "y_dtype", options.y_dtype);
  const data::JsonLines all(root, options);
  const int64_t classes = classes_of(o, all);
  Rows rows{.train = samples(all, seed), .val_part = 0.1};
  if (!test.empty()) rows.test = samples(data::JsonLines(test, options), seed);
  RecipeData d = batches(o, seed, std::move(rows));
  d.info["classes"] = classes;
  return d;
}

/// Each line as letters: x is 0 and the line, y the line and 0; what is left is filled with 0 in x
/// and -100, which losses ignore, in y. Letters count from 1.
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

RecipeData lines(Options& o, uint64_t seed) {
  const std::string root = o.text("root"), test = o.text("test", "");
  int64_t length = o.whole("length", 0);
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
  if (length < 2) o.fail("length", "wants 2 or more (letters of a line, and its end), or 0");
  std::array<int64_t, 256> id{};
  std::vector<int64_t> letters{-1};
  for (size_t c = 0; c < 256; ++c)
    if (seen[c]) {
      id[c] = static_cast<int64_t>(letters.size());
      letters.push_back(static_cast<int64_t>(c));
    }
  const auto symbols = static_cast<int64_t>(letters.size());
  Rows rows{.train = data::pipeline(Lines{files[0], id, length}, {.seed = seed}, "lines"),
            .val_part = 0.1};
  if (!test.empty())
    rows.test = data::pipeline(Lines{files[1], id, length}, {.seed = seed}, "lines");
  RecipeData d = batches(o, seed, std::move(rows));
  d.info = {{"vocabulary", symbols}, {"context", length}, {"classes", symbols}};
  d.facts.letters = std::move(letters);
  return d;
}

RecipeData tokens(Options& o, uint64_t seed) {
  const std::string root = o.text("root"), test = o.text("test", "");
  const int64_t block = o.whole("block", 64), size = o.whole("batch", 12),
                eval_size = o.whole("eval_batch", 64), steps = o.whole("steps_per_epoch", 250);
  const double part = o.number("train_part", 0.9);
  const DType dtype = dtype_option(o, "dtype", DType::i16);
  int64_t vocabulary = o.whole("vocabulary", 0);
  if (!(part > 0 && part < 1)) o.fail("train_part", "wants a share between 0 and 1");
  if (steps < 1) o.fail("steps_per_epoch", "wants 1 or more");
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

// Pictures take transforms, other rows do not.
RecipeData rows_or_pictures(Options& o, uint64_t seed, Rows rows, int64_t classes) {
  if (rows.train.size() > 0 && rows.train.get(0).x.dim() == 3)
    return picture_batches(o, seed, std::move(rows), classes);
  RecipeData d = batches(o, seed, std::move(rows));
  d.info["classes"] = classes;
  return d;
}

RecipeData npy(Options& o, uint64_t seed) {
  const std::string root = o.text("root");
  const data::NpyOptions options{.x = o.text("x", "x"),
                                 .y = o.text("y", "y"),
                                 .channels_last = o.flag("channels_last", false)};
  data::NpyOptions judged = options;
  judged.x = o.text("test_x", "");
  judged.y = o.text("test_y", "");
  if (judged.x.empty() != judged.y.empty())
    o.fail(judged.x.empty() ? "test_x" : "test_y", "is missing: test_x and test_y go together");
  const data::NpyDataset all(root, options);
  Rows rows{.train = samples(all, seed), .val_part = 0.1};
  if (!judged.x.empty()) rows.test = samples(data::NpyDataset(root, judged), seed);
  const int64_t classes = classes_of(o, all);
  RecipeData d = rows_or_pictures(o, seed, std::move(rows), classes);
  // Numbers of another range have no file of a picture.
  const Tensor x = all.get(0).x, stored = all.x();
  const bool unit =
      stored.dtype() == DType::u8 ||
      (is_floating(stored.dtype()) && stored.amin().to(DType::f32).item<float>() >= 0 &&
       stored.amax().to(DType::f32).item<float>() <= 1);
  if (x.dim() == 3 && unit) d.facts.picture = {x.size(0), x.size(1), x.size(2)};
  return d;
}

// ---- files of many samples

// `size`: pictures are brought to this side before anything else; 0: they stay as they are.
int64_t side_of(Options& o) {
  const int64_t side = o.whole("size", 0);
  if (side < 0) o.fail("size", "wants a side in pixels, or 0");
  return side;
}
Tensor sized(const Tensor& x, int64_t side) {
  return side > 0 && x.dim() == 3 ? data::resize_image(x, side, side) : x;
}
// Where no transform makes them f32, u8 pictures become 0..1 here.
Tensor as_numbers(const Tensor& x) {
  if (x.dtype() != DType::u8) return x;
  return x.dim() == 3 ? data::to_dtype_image(x, DType::f32, true) : x.to(DType::f32) / 255.0;
}

template <class D>
Rows::Samples records(Options& o, uint64_t seed, D dataset) {
  const int64_t side = side_of(o);
  Rows::Samples all = samples(std::move(dataset), seed);
  if (side > 0) all = all.map([side](const Example& e) { return Example{sized(e.x, side), e.y}; });
  return all.map([](const Example& e) { return Example{as_numbers(e.x), e.y}; });
}

train::PreparePicture record_pictures(Options& o, const train::DataFacts&) {
  TD_CHECK(!o.has("x_raw"), Unsupported,
           "the run's records are numbers (x_raw), no pictures\nGive an .npy file.");
  return [mode = image_mode(o, "rgb"), side = side_of(o),
          judged = judged_pictures(o)](const FilePath& file) {
    const Tensor x = io::read_image(file, {.mode = mode});
    return train::PreparedPicture{as_judged(judged, as_numbers(sized(x, side)))};
  };
}

template <class Make>
RecipeData record_files(Options& o, uint64_t seed, const Make& make) {
  const std::string root = o.text("root"), test = o.text("test", "");
  const int64_t classes = o.whole("classes");
  const bool skip = o.flag("skip_damaged", false);
  std::vector<std::function<int64_t()>> damaged;
  auto read = [&](const std::string& files) {
    const auto all = make(files, skip);
    if (skip) damaged.push_back(damaged_in(all));
    return records(o, seed, all);
  };
  Rows rows{.train = read(root), .val_part = 0.1};
  if (!test.empty()) rows.test = read(test);
  rows.damaged = damaged;
  return rows_or_pictures(o, seed, std::move(rows), classes);
}

RecipeData tfrecord(Options& o, uint64_t seed) {
  data::TFRecordOptions options;
  options.x = o.text("x", options.x);
  options.y = o.text("y", options.y);
  if (o.has("x_raw"))
    options.x_raw = dtype_option(o, "x_raw", DType::f32);
  else
    o.text("x_raw", "");
  for (double n : o.numbers("x_shape", std::vector<double>{}))
    options.x_shape.push_back(static_cast<int64_t>(n));
  options.mode = image_mode(o, "rgb");
  return record_files(o, seed, [&](const std::string& files, bool skip) {
    options.skip_damaged = skip;
    return data::TFRecordDataset({files}, options);
  });
}

RecipeData webdataset(Options& o, uint64_t seed) {
  data::WebDatasetOptions options;
  options.x = o.text("x", options.x);
  options.y = o.text("y", options.y);
  options.mode = image_mode(o, "rgb");
  return record_files(o, seed, [&](const std::string& shards, bool skip) {
    options.skip_damaged = skip;
    return data::WebDataset({shards}, options);
  });
}

}  // namespace

void add_file_components(train::Registry& r) {
  r.data["jsonl"] = jsonl;
  r.data["lines"] = lines;
  r.data["tokens"] = tokens;
  r.data["npy"] = npy;
  r.data["tfrecord"] = tfrecord;
  r.data["webdataset"] = webdataset;
  r.picture["npy"] = array_pictures;
  for (const char* type : {"tfrecord", "webdataset"}) r.picture[type] = record_pictures;
}

}  // namespace tandem::cli
