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
using train::DataFacts;
using train::Options;
using train::PreparedPicture;
using train::PreparePicture;
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

/// How voc brings pictures to one size, and those that are judged to the model.
struct BoxedOptions {
  int64_t h, w;
  std::optional<data::Transform> judged;
  data::Vision sized(data::Vision v) const { return data::Resize({h, w})(std::move(v)); }
};
BoxedOptions boxed_options(Options& o) {
  const auto sides = o.numbers("size", std::vector<double>{256, 320});
  if (sides.size() != 2) o.fail("size", "wants height and width");
  return {static_cast<int64_t>(sides[0]), static_cast<int64_t>(sides[1]),
          transform_chain(o, "test_transforms")};
}

// A small box on its way through tells where pixels come from, unless it is cut.
PreparePicture boxed_pictures(Options& o, const DataFacts&) {
  return [options = boxed_options(o)](const FilePath& file) {
    const Tensor x = io::read_image(file);
    const auto w = static_cast<float>(x.size(2)), h = static_cast<float>(x.size(1));
    const std::array<float, 4> from{w * 0.4F, h * 0.4F, w * 0.5F, h * 0.5F};
    const data::Vision v = transformed(
        options.judged, options.sized({x,
                                       tensor(std::vector<float>(from.begin(), from.end()), {1, 4}),
                                       tensor(std::vector<int64_t>{0}),
                                       {}}));
    PreparedPicture out{v.image};
    const auto to = v.boxes.to_vector<float>();
    if (to.size() != 4 || to[2] <= to[0] || to[3] <= to[1]) return out;
    const double sx = (from[2] - from[0]) / (to[2] - to[0]),
                 sy = (from[3] - from[1]) / (to[3] - to[1]);
    out.origin = {sx, from[0] - to[0] * sx, sy, from[1] - to[1] * sy};
    return out;
  };
}

Boxed read_boxed(const data::VOCDetection& files, const BoxedOptions& options) {
  Boxed out;
  for (int64_t i = 0; i < files.size(); ++i) {
    data::Vision v;
    const data::Detection one = files.get(i);
    v.image = one.image;
    v.boxes = one.boxes;
    v.labels = one.labels;
    v = data::SanitizeBoundingBoxes()(options.sized(std::move(v)));
    out.most = std::max(out.most, v.labels.size(0));
    out.samples.push_back({v.image, v.boxes, v.labels});
  }
  return out;
}

RecipeData voc(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "bccd");
  const BoxedOptions options = boxed_options(o);
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
  const bool skip = o.flag("skip_damaged", false);
  std::vector<std::function<int64_t()>> damaged;
  auto read = [&](const std::string& set) {
    const data::VOCDetection files(root,
                                   {.image_set = set, .classes = classes, .skip_damaged = skip});
    classes = files.classes();
    if (skip) damaged.push_back(damaged_in(files));
    return read_boxed(files, options);
  };
  const Boxed first = read(train);
  auto all = data::pipeline(first, {.seed = seed}, "voc");
  RecipeData d{all.shuffle().map(through(chain, first.most)).batch(batch), {}, {}, {}};
  auto judged = [&](const std::string& set) {
    const Boxed part = read(set);
    return data::pipeline(part, {.seed = seed}, "voc")
        .map(through(options.judged, part.most))
        .batch(eval_batch);
  };
  if (!val.empty()) d.val = judged(val);
  if (!test.empty()) d.test = judged(test);
  d.info = {{"classes", static_cast<int64_t>(classes.size())}, {"channels", 3}};
  d.facts.classes = classes;
  d.damaged = sum_of(damaged);
  return d;
}

/// A picture u8, its mask u8 [1, h, w], and the mean and deviation of the whole picture as 0..1.
struct Masked {
  Tensor x, mask, figures;
};

/// How image_mask reads pictures and brings whole ones to the model.
struct MaskedOptions {
  io::ImageMode mode;
  bool normalize;
  std::optional<data::Transform> judged;

  static Masked read(const Example& e) {
    const Tensor values = e.x.to(DType::f32) / 255.0;
    return {e.x, e.y.to(DType::u8).unsqueeze(0),
            stack({values.mean(), clamp_min(values.std(), 1e-6)})};
  }
  Example ready(const data::Vision& v, const Tensor& figures) const {
    const Tensor x = normalize ? (v.image - figures[0]) / figures[1] : v.image;
    return {x, v.mask.squeeze(0).to(DType::i64)};
  }
  Example whole(const Masked& s) const {
    return ready(transformed(judged, {s.x, {}, {}, s.mask}), s.figures);
  }
};
MaskedOptions masked_options(Options& o) {
  return {image_mode(o, "gray"), choice(o, "normalize", {"none", "picture"}, "none") == "picture",
          transform_chain(o, "test_transforms")};
}

PreparePicture masked_pictures(Options& o, const DataFacts&) {
  return [options = masked_options(o)](const FilePath& file) {
    const Tensor x = io::read_image(file, {.mode = options.mode});
    const Tensor none = zeros({x.size(1), x.size(2)}, DType::i64);
    return PreparedPicture{options.whole(MaskedOptions::read({x, none})).x};
  };
}

/// Pictures and masks; training sees `crops` random pieces of each picture in an epoch.
RecipeData image_mask(Options& o, uint64_t seed) {
  const std::string root = root_of(o, "membrane");
  const int64_t crop = o.whole("crop", 128), crops = o.whole("crops", 16),
                margin = o.whole("margin", 0), batch = o.whole("batch", 8);
  const int64_t held = o.whole("test_samples", 6);
  const MaskedOptions ways = masked_options(o);
  data::ImageMaskOptions options{
      .image = o.text("image", "image"), .mask = o.text("mask", "label"), .mode = ways.mode};
  options.threshold = o.whole("threshold", options.threshold);
  options.skip_damaged = o.flag("skip_damaged", false);
  const int64_t classes = o.whole("classes", 2);
  data::ImageMaskFolder files(root, options);
  if (held < 1 || held >= files.size())
    o.fail("test_samples", fmt::format("wants 1 to {}", files.size() - 1));
  if (crop < 1 || crops < 1) o.fail("crop", "wants 1 or more, and crops too");
  if (margin < 0) o.fail("margin", "wants 0 or more pixels");
  static const io::Yaml kUsual =
      io::parse_yaml("[{type: RandomHorizontalFlip}, {type: RandomVerticalFlip}]");
  const auto chain = transform_chain(o, "transforms", &kUsual);
  // What a rotation or an elastic move draws in from outside is the picture itself: a piece is cut
  // out larger by the margin on all sides (mirrored at the picture's edge), and its middle is kept.
  auto wider = [=](const Masked& s) {
    auto edge = [=](const Tensor& t) {
      return data::pad_image(t, {margin}, {0}, data::PaddingMode::reflect);
    };
    return margin > 0 ? Masked{edge(s.x), edge(s.mask), s.figures} : s;
  };
  const data::Transform cut = data::RandomCrop({crop + 2 * margin}),
                        middle = data::CenterCrop({crop});
  auto piece = [=](const Masked& s) {
    data::Vision v = transformed(chain, cut({s.x, {}, {}, s.mask}));
    return ways.ready(margin > 0 ? middle(std::move(v)) : v, s.figures);
  };
  auto whole = [=](const Masked& s) { return ways.whole(s); };
  const auto all = data::pipeline(files, {.seed = seed}).map(MaskedOptions::read);
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
  r.picture["voc"] = boxed_pictures;
  r.picture["image_mask"] = masked_pictures;
}

}  // namespace tandem::cli
