// SPDX-License-Identifier: Apache-2.0
// Data sets of recipes that are more than rows with a class: planetoid (graphs), speech (WAV files
// as mel spectrograms), voc (pictures with boxes), image_mask (pictures with masks). Pictures of
// both take `transforms` and `test_transforms`; boxes and masks move along.
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
  const bool skip = o.flag("skip_damaged", false);
  int64_t classes = 0;
  std::vector<std::function<int64_t()>> damaged;
  auto read = [&](bool test) {
    data::WavFolder files(root,
                          {.length = length,
                           .filter = [&](const std::string& stem) { return is_test(stem) == test; },
                           .skip_damaged = skip});
    if (skip) damaged.push_back(damaged_in(files));
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
  RecipeData d = batches(o, seed,
                         {.train = samples(std::move(train), seed),
                          .test = samples(std::move(test), seed),
                          .val_part = 0.1,
                          .damaged = damaged});
  d.info["classes"] = classes;
  return d;
}

/// Pictures of one size with their boxes, all in memory.
struct Boxed {
  struct Sample {
    Tensor x, boxes, labels;
  };
  std::vector<Sample> samples;
  int64_t most = 1;  ///< boxes of a picture
  int64_t size() const { return static_cast<int64_t>(samples.size()); }
  Sample get(int64_t i) const { return samples[static_cast<size_t>(i)]; }
};

Boxed read_boxed(const data::VOCDetection& files, int64_t h, int64_t w) {
  Boxed out;
  for (int64_t i = 0; i < files.size(); ++i) {
    data::Vision v;
    const data::Detection one = files.get(i);
    v.image = one.image;
    v.boxes = one.boxes;
    v.labels = one.labels;
    v = data::Resize({h, w})(std::move(v));
    v = data::SanitizeBoundingBoxes()(std::move(v));
    out.most = std::max(out.most, v.labels.size(0));
    out.samples.push_back({v.image, v.boxes, v.labels});
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
  static const io::Yaml kUsual = io::parse_yaml(
      "[{type: RandomHorizontalFlip}, {type: RandomVerticalFlip}, "
      "{type: ColorJitter, brightness: 0.2, contrast: 0.2}]");
  // Boxes that a chain cut down to nothing are left out; then all pictures get as many rows.
  auto through = [](std::optional<data::Transform> chain, int64_t most) {
    return [=](const Boxed::Sample& s) {
      data::Vision v = transformed(chain, {s.x, s.boxes, s.labels, {}});
      if (chain) v = data::SanitizeBoundingBoxes()(std::move(v));
      const int64_t rest = most - v.labels.size(0);
      return Boxed::Sample{v.image, cat({v.boxes, zeros({rest, 4})}, 0),
                           cat({v.labels, full({rest}, -1, DType::i64)}, 0)};
    };
  };
  const auto chain = transform_chain(o, "transforms", &kUsual);
  const auto test_chain = transform_chain(o, "test_transforms");
  const bool skip = o.flag("skip_damaged", false);
  std::vector<std::function<int64_t()>> damaged;
  auto read = [&](const std::string& set) {
    const data::VOCDetection files(root,
                                   {.image_set = set, .classes = classes, .skip_damaged = skip});
    classes = files.classes();
    if (skip) damaged.push_back(damaged_in(files));
    return read_boxed(files, h, w);
  };
  const Boxed first = read(train);
  auto all = data::pipeline(first, {.seed = seed}, "voc");
  RecipeData d{all.shuffle().map(through(chain, first.most)).batch(batch), {}, {}, {}};
  auto judged = [&](const std::string& set) {
    const Boxed part = read(set);
    return data::pipeline(part, {.seed = seed}, "voc")
        .map(through(test_chain, part.most))
        .batch(eval_batch);
  };
  if (!val.empty()) d.val = judged(val);
  if (!test.empty()) d.test = judged(test);
  d.info = {{"classes", static_cast<int64_t>(classes.size())}, {"channels", 3}};
  d.damaged = sum_of(damaged);
  return d;
}

/// A picture u8, its mask u8 [1, h, w], and the mean and deviation of the whole picture as 0..1.
struct Masked {
  Tensor x, mask, figures;
};

/// Pictures and masks; training sees `crops` random pieces of each picture in an epoch.
RecipeData image_mask(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "membrane");
  const int64_t crop = o.whole("crop", 128), crops = o.whole("crops", 16),
                margin = o.whole("margin", 0), batch = o.whole("batch", 8);
  const int64_t held = o.whole("test_samples", 6);
  data::ImageMaskOptions options{.image = o.text("image", "image"),
                                 .mask = o.text("mask", "label")};
  options.mode = image_mode(o, "gray");
  options.threshold = o.whole("threshold", options.threshold);
  options.skip_damaged = o.flag("skip_damaged", false);
  const int64_t classes = o.whole("classes", 2);
  const bool normalize = choice(o, "normalize", {"none", "picture"}, "none") == "picture";
  data::ImageMaskFolder files(root, options);
  if (held < 1 || held >= files.size())
    o.fail("test_samples", fmt::format("wants 1 to {}", files.size() - 1));
  if (crop < 1 || crops < 1) o.fail("crop", "wants 1 or more, and crops too");
  if (margin < 0) o.fail("margin", "wants 0 or more pixels");
  static const io::Yaml kUsual =
      io::parse_yaml("[{type: RandomHorizontalFlip}, {type: RandomVerticalFlip}]");
  const auto chain = transform_chain(o, "transforms", &kUsual);
  const auto test_chain = transform_chain(o, "test_transforms");
  auto read = [=](const Example& e) {
    const Tensor values = e.x.to(DType::f32) / 255.0;
    return Masked{e.x, e.y.to(DType::u8).unsqueeze(0),
                  stack({values.mean(), clamp_min(values.std(), 1e-6)})};
  };
  // What a rotation or an elastic move draws in from outside is the picture itself: a piece is cut
  // out larger by the margin on all sides (mirrored at the picture's edge), and its middle is kept.
  auto wider = [=](const Masked& s) {
    auto edge = [=](const Tensor& t) {
      return data::pad_image(t, {margin}, {0}, data::PaddingMode::reflect);
    };
    return margin > 0 ? Masked{edge(s.x), edge(s.mask), s.figures} : s;
  };
  auto ready = [=](const data::Vision& v, const Tensor& figures) {
    const Tensor x = normalize ? (v.image - figures[0]) / figures[1] : v.image;
    return Example{x, v.mask.squeeze(0).to(DType::i64)};
  };
  const data::Transform cut = data::RandomCrop({crop + 2 * margin}),
                        middle = data::CenterCrop({crop});
  auto piece = [=](const Masked& s) {
    data::Vision v = transformed(chain, cut({s.x, {}, {}, s.mask}));
    return ready(margin > 0 ? middle(std::move(v)) : v, s.figures);
  };
  auto whole = [=](const Masked& s) {
    return ready(transformed(test_chain, {s.x, {}, {}, s.mask}), s.figures);
  };
  const auto all = data::pipeline(files, {.seed = seed}).map(read);
  const int64_t n = files.size() - held;
  RecipeData d{
      all.take(n).map(wider).cache().repeat(crops).shuffle().map(piece).batch(batch), {}, {}, {}};
  d.test = all.skip(n).cache().map(whole).batch(1);
  if (options.skip_damaged) d.damaged = damaged_in(files);
  d.info = {{"classes", classes}, {"channels", options.mode == io::ImageMode::gray ? 1 : 3}};
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
