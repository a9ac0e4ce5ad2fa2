// SPDX-License-Identifier: Apache-2.0
// Data sets of recipes that are more than rows with a class: planetoid (graphs), speech (WAV files
// as mel spectrograms), voc (pictures with boxes), image_mask (pictures with masks).
#include <algorithm>

#include "cli/recipe_internal.h"
#include "tandem/data/audio.h"
#include "tandem/data/transforms.h"
#include "tandem/data/vision_datasets.h"
#include "tandem/ops/ops.h"

namespace tandem::cli {
namespace {

using data::Example;
using data::Pipeline;
using train::Options;
using train::RecipeData;

/// One graph and the labels of one part of its nodes, -100 elsewhere: an epoch of one step.
struct GraphPart {
  struct Sample {
    Tensor x, edges, y;
  };
  Sample sample;
  int64_t size() const { return 1; }
  Sample get(int64_t) const { return sample; }
};

RecipeData planetoid(Options& o, uint64_t seed) {
  const std::string name = o.text("name", "cora"), root = root_of(o, name.c_str());
  data::Planetoid g = data::load_planetoid(root, name);
  if (o.flag("normalize", true)) g.x = g.x / clamp_min(g.x.sum({1}, true), 1.0);
  auto part = [&](const Tensor& mask) {
    return data::pipeline(GraphPart{{g.x, g.edge_index, masked_fill(g.y, ~mask, -100)}},
                          {.seed = seed}, "graph");
  };
  RecipeData d{part(g.train_mask), part(g.val_mask), part(g.test_mask), {}};
  d.info = {{"classes", g.num_classes}, {"features", g.x.size(1)}, {"nodes", g.x.size(0)}};
  return d;
}

/// Files "<class>_<speaker>_<take>.wav"; the takes below `test_takes` are the test.
RecipeData speech(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "fsdd");
  const int64_t length = o.whole("length", 8000), test_takes = o.whole("test_takes", 5);
  data::MelOptions mel{.sample_rate = o.whole("sample_rate", 8000)};
  mel.spectrogram.n_fft = o.whole("n_fft", 256);
  mel.spectrogram.hop_length = o.whole("hop", 128);
  mel.n_mels = o.whole("mels", 40);
  auto is_test = [&](const std::string& stem) {
    const size_t at = stem.rfind('_');
    return at != stem.npos && std::atoll(stem.c_str() + at + 1) < test_takes;
  };
  int64_t classes = 0;
  auto read = [&](bool test) {
    data::WavFolder files(root, {.length = length, .filter = [&](const std::string& stem) {
                                   return is_test(stem) == test;
                                 }});
    classes = static_cast<int64_t>(files.classes().size());
    std::vector<Tensor> x, y;
    for (int64_t i = 0; i < files.size(); ++i) {
      const Example e = files.get(i);
      const Tensor db = data::amplitude_to_DB(data::mel_spectrogram(e.x, mel), {.top_db = 80});
      x.push_back((db - db.mean()) / 20.0);
      y.push_back(e.y);
    }
    return data::TensorDataset(stack(x), stack(y));
  };
  data::TensorDataset train = read(false), test = read(true);
  const int64_t bins = train.x().size(2), frames = train.x().size(3);
  RecipeData d = table_batches(o, seed, std::move(train), std::move(test), 0.1);
  d.info = {{"classes", classes}, {"features", bins * frames}, {"channels", 1}};
  return d;
}

/// Pictures of one size with their boxes, all in memory; labels -1 where there are fewer boxes.
struct Boxed {
  struct Sample {
    Tensor x, boxes, labels;
  };
  std::vector<Sample> samples;
  int64_t size() const { return static_cast<int64_t>(samples.size()); }
  Sample get(int64_t i) const { return samples[static_cast<size_t>(i)]; }
};

Boxed read_boxed(const std::string& root, const std::string& set, int64_t h, int64_t w,
                 std::vector<std::string>& classes) {
  data::VOCDetection files(root, {.image_set = set, .classes = classes});
  classes = files.classes();
  int64_t most = 1;
  Boxed out;
  for (int64_t i = 0; i < files.size(); ++i) {
    data::Vision v;
    const data::Detection one = files.get(i);
    v.image = one.image;
    v.boxes = one.boxes;
    v.labels = one.labels;
    v = data::Resize({h, w})(std::move(v));
    v = data::SanitizeBoundingBoxes()(std::move(v));
    most = std::max(most, v.labels.size(0));
    out.samples.push_back({v.image, v.boxes, v.labels});
  }
  for (Boxed::Sample& s : out.samples) {
    const int64_t rest = most - s.labels.size(0);
    s.boxes = cat({s.boxes, zeros({rest, 4})}, 0);
    s.labels = cat({s.labels, full({rest}, -1, DType::i64)}, 0);
  }
  return out;
}

RecipeData voc(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "bccd");
  const auto sides = o.numbers("size", std::vector<double>{256, 320});
  if (sides.size() != 2) o.fail("size", "wants height and width");
  const auto h = static_cast<int64_t>(sides[0]), w = static_cast<int64_t>(sides[1]);
  std::vector<std::string> classes = o.texts("classes", {});
  const std::string train = o.text("train", "train"), val = o.text("val", "val"),
                    test = o.text("test", "test");
  const int64_t batch = o.whole("batch", 8), eval_batch = o.whole("eval_batch", 8);
  const double flip = o.number("flip", 0.5), colour = o.number("colour", 0.2);
  const data::Transform augment =
      data::Compose({data::RandomHorizontalFlip(flip), data::RandomVerticalFlip(flip),
                     data::ColorJitter({.brightness = {1 - colour, 1 + colour},
                                        .contrast = {1 - colour, 1 + colour}})});
  auto ready = [](Boxed::Sample s) {
    s.x = s.x.to(DType::f32) / 255.0;
    return s;
  };
  auto moved = [=](const Boxed::Sample& s) {
    data::Vision v;
    v.image = s.x;
    v.boxes = s.boxes;
    v = augment(std::move(v));
    return ready({v.image, v.boxes, s.labels});
  };
  auto all = data::pipeline(read_boxed(root, train, h, w, classes), {.seed = seed}, "voc");
  RecipeData d{all.shuffle().map(moved).batch(batch), {}, {}, {}};
  auto plain = [&](const std::string& set) {
    return data::pipeline(read_boxed(root, set, h, w, classes), {.seed = seed}, "voc")
        .map(ready)
        .batch(eval_batch);
  };
  if (!val.empty()) d.val = plain(val);
  if (!test.empty()) d.test = plain(test);
  d.info = {{"classes", static_cast<int64_t>(classes.size())}, {"channels", 3}};
  return d;
}

/// Pictures and masks; training sees `crops` random pieces of each picture in an epoch.
RecipeData image_mask(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "membrane");
  const int64_t crop = o.whole("crop", 128), crops = o.whole("crops", 16),
                batch = o.whole("batch", 8);
  const int64_t held = o.whole("test_samples", 6);
  data::ImageMaskFolder files(root,
                              {.image = o.text("image", "image"), .mask = o.text("mask", "label")});
  if (held < 1 || held >= files.size())
    o.fail("test_samples", fmt::format("wants 1 to {}", files.size() - 1));
  const data::Transform pieces = data::Compose(
      {data::RandomCrop({crop}), data::RandomHorizontalFlip(), data::RandomVerticalFlip()});
  auto ready = [](const Example& e) { return Example{e.x.to(DType::f32) / 255.0, e.y}; };
  auto piece = [=](const Example& e) {
    data::Vision v;
    v.image = e.x;
    v.mask = e.y.to(DType::u8).unsqueeze(0);
    v = pieces(std::move(v));
    return ready({v.image, v.mask.squeeze(0).to(DType::i64)});
  };
  const auto all = data::pipeline(files, {.seed = seed}).cache();
  const int64_t n = files.size() - held;
  RecipeData d{all.take(n).repeat(crops).shuffle().map(piece).batch(batch), {}, {}, {}};
  d.test = all.skip(n).map(ready).batch(1);
  d.info = {{"classes", 2}, {"channels", 1}};
  return d;
}

}  // namespace

void add_media_components(train::Registry& r) {
  r.data["planetoid"] = planetoid;
  r.data["speech"] = speech;
  r.data["voc"] = voc;
  r.data["image_mask"] = image_mask;
}

}  // namespace tandem::cli
