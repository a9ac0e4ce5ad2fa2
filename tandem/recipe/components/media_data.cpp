// SPDX-License-Identifier: Apache-2.0
// Data sets of recipes that are more than rows with a class: planetoid (graphs), speech (WAV files
// as mel spectrograms), voc (images with boxes), image_mask (images with masks). Images of
// both take `transforms` and `test_transforms`; boxes and masks move along.
#include <algorithm>

#include "tandem/data/audio.h"
#include "tandem/data/sets/vision_datasets.h"
#include "tandem/data/transforms/transforms.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/components/source_fields_internal.h"

namespace tandem::recipe {
namespace {

using data::Example;
using data::Pipeline;

/// One graph and the labels of one part of its nodes, -100 elsewhere: an epoch of one step.
struct GraphPart {
  struct Sample {
    Tensor x, edges, y;
  };
  Sample sample;
  int64_t size() const { return 1; }
  Sample get(int64_t) const { return sample; }
};

struct PlanetoidSource {
  std::string name = "cora", root = {};
  bool normalize = true;

  template <class V>
  void fields(V& v) {
    v("name", name, {.doc = "the graph: cora, citeseer or pubmed"});
    root_field(v, root, "folder of ind.<name>.*; default: TANDEM_DATA's folder of that name");
    v("normalize", normalize, {.doc = "features of a node sum to 1"});
  }
};
RecipeData planetoid(const PlanetoidSource& p, const Options& o, uint64_t seed) {
  data::Planetoid g = data::load_planetoid(root_of(o, p.root, p.name), p.name);
  if (p.normalize) g.x = g.x / clamp_min(g.x.sum({1}, true), 1.0);
  auto part = [&](const Tensor& mask) {
    return data::pipeline(GraphPart{{g.x, g.edge_index, masked_fill(g.y, ~mask, -100)}},
                          {.seed = seed}, "graph");
  };
  RecipeData d{part(g.train_mask), part(g.val_mask), part(g.test_mask), {}};
  d.info = {{"classes", g.num_classes}, {"features", g.x.size(1)}, {"nodes", g.x.size(0)}};
  return d;
}

struct SpeechSource {
  std::string root = {};
  int64_t length = 8000, test_takes = 5, sample_rate = 8000, n_fft = 256, hop = 128, mels = 40;
  bool skip_damaged = false;
  BatchOptions batches = {};

  template <class V>
  void fields(V& v) {
    root_field(v, root, "folder of <class>_<speaker>_<take>.wav; default: TANDEM_DATA's fsdd");
    v("length", length,
      {.doc = "samples of a recording; cut or filled with silence", .at_least = 1});
    v("test_takes", test_takes, {.doc = "takes below this number are the test"});
    v("sample_rate", sample_rate, {.doc = "of the recordings", .unit = "hertz", .at_least = 1});
    v("n_fft", n_fft, {.doc = "samples of a window", .at_least = 2});
    v("hop", hop, {.doc = "samples between windows", .at_least = 1});
    v("mels", mels, {.doc = "bands of the mel scale", .at_least = 1});
    skip_field(v, skip_damaged);
    batches.fields(v);
  }
  data::MelOptions mel() const {
    data::MelOptions m{.sample_rate = sample_rate};
    m.spectrogram.n_fft = n_fft;
    m.spectrogram.hop_length = hop;
    m.n_mels = mels;
    return m;
  }
  Tensor features(const Tensor& waveform) const {
    const Tensor db = data::amplitude_to_DB(data::mel_spectrogram(waveform, mel()), {.top_db = 80});
    return (db - db.mean()) / 20.0;
  }
};
Preparation spoken(const SpeechSource& s, const Options&, const RunData&) {
  auto inputs = [s](const Tensor& sound) {
    return std::vector<Tensor>{batch_of_one(s.features(sound))};
  };
  return {SampleKind::sound,
          [s, inputs](std::string_view bytes, const std::string& name) {
            const io::Audio sound = io::decode_audio(bytes, {}, name);
            TD_CHECK(sound.sample_rate == s.sample_rate, Value,
                     "'{}' has {} samples a second, the model was trained on {}", name,
                     sound.sample_rate, s.sample_rate);
            return PreparedBatch{inputs(data::fixed_length(sound.waveform, s.length))};
          },
          inputs,
          {DType::f32, {1, s.length}, s.sample_rate}};
}
RecipeData speech(const SpeechSource& s, const Options& o, uint64_t seed) {
  const std::string root = root_of(o, s.root, "fsdd");
  auto is_test = [&](const std::string& stem) {
    const size_t at = stem.rfind('_');
    return at != stem.npos && std::atoll(stem.c_str() + at + 1) < s.test_takes;
  };
  const bool skip = s.skip_damaged;
  std::vector<std::string> classes;
  std::vector<std::function<int64_t()>> damaged;
  auto read = [&](bool test) {
    data::WavFolder files(root,
                          {.length = s.length,
                           .filter = [&](const std::string& stem) { return is_test(stem) == test; },
                           .skip_damaged = skip});
    if (skip) damaged.push_back(damaged_in(files));
    classes = files.classes();
    std::vector<Tensor> x, y;
    for (int64_t i = 0; i < files.size(); ++i) {
      const Example e = files.get(i);
      x.push_back(s.features(e.x));
      y.push_back(e.y);
    }
    return data::TensorDataset(stack(x), stack(y));
  };
  data::TensorDataset train = read(false), test = read(true);
  RecipeData d = batches(s.batches, seed,
                         {.train = samples(std::move(train), seed),
                          .test = samples(std::move(test), seed),
                          .damaged = damaged});
  d.info["classes"] = static_cast<int64_t>(classes.size());
  d.facts.classes = classes;
  return d;
}

/// Images of one size with their boxes, all in memory.
struct Boxed {
  struct Sample {
    Tensor x, boxes, labels;
  };
  std::vector<Sample> samples;
  int64_t most = 1;  ///< boxes of an image
  int64_t size() const { return static_cast<int64_t>(samples.size()); }
  Sample get(int64_t i) const { return samples[static_cast<size_t>(i)]; }
};

struct VocSource {
  std::string root = {};
  std::vector<int64_t> size = {256, 320};
  std::vector<std::string> classes = {};
  std::string train = "train", val = "val", test = "test";
  int64_t batch = 8, eval_batch = 8;
  bool skip_damaged = false;
  ImageChains chains = {
      .transforms = transforms_of("[{type: RandomHorizontalFlip}, {type: RandomVerticalFlip}, "
                                  "{type: ColorJitter, brightness: 0.2, contrast: 0.2}]")};

  template <class V>
  void fields(V& v) {
    root_field(v, root, "folder in Pascal VOC's form; default: TANDEM_DATA's bccd");
    v("size", size,
      {.doc = "height and width that images are brought to",
       .unit = "pixels",
       .at_least = 1,
       .counts = counts(2)});
    chains.fields(v);
    v("classes", classes, {.doc = "their names in order; none: those that occur, sorted"});
    v("train", train, {.doc = "list of the training images, in ImageSets/Main"});
    v("val", val, {.doc = "list of the validation's; empty: none"});
    v("test", test, {.doc = "list of the test's; empty: none"});
    v("batch", batch, {.doc = "samples of a training batch", .at_least = 1});
    v("eval_batch", eval_batch,
      {.doc = "samples of a batch in validation and test", .at_least = 1});
    skip_field(v, skip_damaged);
  }
};

/// How voc brings images to one size, and those that are evaluated to the model.
struct BoxedOptions {
  int64_t h, w;
  std::optional<data::Transform> evaluated;
  data::Vision sized(data::Vision v) const { return data::Resize({h, w})(std::move(v)); }
};
BoxedOptions boxed_options(const VocSource& s) {
  return {s.size[0], s.size[1], transform_chain(s.chains.test_transforms)};
}

// A small box on its way through tells where pixels come from, unless it is cut.
Preparation boxed_images(const VocSource& s, const Options&, const RunData&) {
  const BoxedOptions options = boxed_options(s);
  return {SampleKind::image,
          [options](std::string_view bytes, const std::string& name) {
            const Tensor x = io::decode_image(bytes, {}, name);
            const auto w = static_cast<float>(x.size(2)), h = static_cast<float>(x.size(1));
            const std::array<float, 4> from{w * 0.4F, h * 0.4F, w * 0.5F, h * 0.5F};
            const data::Vision v = transformed(
                options.evaluated,
                options.sized({x,
                               tensor(std::vector<float>(from.begin(), from.end()), {1, 4}),
                               tensor(std::vector<int64_t>{0}),
                               {}}));
            PreparedBatch out{{batch_of_one(v.image)}};
            const auto to = v.boxes.to_vector<float>();
            if (to.size() != 4 || to[2] <= to[0] || to[3] <= to[1]) return out;
            const double sx = (from[2] - from[0]) / (to[2] - to[0]),
                         sy = (from[3] - from[1]) / (to[3] - to[1]);
            out.origin = {sx, from[0] - to[0] * sx, sy, from[1] - to[1] * sy};
            return out;
          },
          [evaluated = options.evaluated](const Tensor& x) {
            return std::vector<Tensor>{batch_of_one(transformed(evaluated, {x, {}, {}, {}}).image)};
          },
          {DType::u8, {3, options.h, options.w}}};
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

RecipeData voc(const VocSource& s, const Options& o, uint64_t seed) {
  const std::string root = root_of(o, s.root, "bccd");
  const BoxedOptions options = boxed_options(s);
  std::vector<std::string> classes = s.classes;
  // Boxes that a chain cut down to nothing are left out; then all images get as many rows.
  auto through = [](std::optional<data::Transform> chain, int64_t most) {
    return [=](const Boxed::Sample& one) {
      data::Vision v = transformed(chain, {one.x, one.boxes, one.labels, {}});
      if (chain) v = data::SanitizeBoundingBoxes()(std::move(v));
      const int64_t rest = most - v.labels.size(0);
      return Boxed::Sample{v.image, cat({v.boxes, zeros({rest, 4})}, 0),
                           cat({v.labels, full({rest}, -1, DType::i64)}, 0)};
    };
  };
  const auto chain = transform_chain(s.chains.transforms);
  const bool skip = s.skip_damaged;
  std::vector<std::function<int64_t()>> damaged;
  auto read = [&](const std::string& set) {
    const data::VOCDetection files(root,
                                   {.image_set = set, .classes = classes, .skip_damaged = skip});
    classes = files.classes();
    if (skip) damaged.push_back(damaged_in(files));
    return read_boxed(files, options);
  };
  const Boxed first = read(s.train);
  auto all = data::pipeline(first, {.seed = seed}, "voc");
  RecipeData d{all.shuffle().map(through(chain, first.most)).batch(s.batch), {}, {}, {}};
  auto evaluated = [&](const std::string& set) {
    const Boxed part = read(set);
    return data::pipeline(part, {.seed = seed}, "voc")
        .map(through(options.evaluated, part.most))
        .batch(s.eval_batch);
  };
  if (!s.val.empty()) d.val = evaluated(s.val);
  if (!s.test.empty()) d.test = evaluated(s.test);
  d.info = {{"classes", static_cast<int64_t>(classes.size())}, {"channels", 3}};
  d.facts.classes = classes;
  d.damaged = sum_of(damaged);
  return d;
}

/// An image u8, its mask u8 [1, h, w], and the mean and deviation of the whole image as 0..1.
struct Masked {
  Tensor x, mask, figures;
};

/// How image_mask reads images and brings whole ones to the model.
struct MaskedOptions {
  io::ImageMode mode;
  bool normalize;
  std::optional<data::Transform> evaluated;

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
    return ready(transformed(evaluated, {s.x, {}, {}, s.mask}), s.figures);
  }
};
enum class Normalization : uint8_t { none, image };
constexpr const char* field_names(Normalization) { return "none image"; }

struct ImageMaskSource {
  std::string root = {}, image = "image", mask = "label";
  int64_t crop = 128, crops = 16, margin = 0, batch = 8, test_samples = 6;
  ImageColor mode = ImageColor::gray;
  Normalization normalize = Normalization::none;
  int64_t threshold = data::ImageMaskOptions().threshold, classes = 2;
  bool skip_damaged = false;
  ImageChains chains = {
      .transforms = transforms_of("[{type: RandomHorizontalFlip}, {type: RandomVerticalFlip}]")};

  template <class V>
  void fields(V& v) {
    root_field(v, root,
               "folder of the two folders of images and masks; default: TANDEM_DATA's membrane");
    v("image", image, {.doc = "folder of the images"});
    v("mask", mask, {.doc = "folder of the masks, of the same names"});
    v("crop", crop, {.doc = "side of a training piece", .unit = "pixels", .at_least = 1});
    v("crops", crops, {.doc = "pieces of each image in an epoch", .at_least = 1});
    v("margin", margin,
      {.doc = "cut pieces larger by so much, mirrored at the image's edge, and keep their middle "
              "after the transforms",
       .unit = "pixels",
       .at_least = 0});
    v("batch", batch, {.doc = "pieces of a training batch"});
    v("test_samples", test_samples,
      {.doc = "whole images at the end that are the test", .at_least = 1});
    v("mode", mode, {.doc = "how images are read"});
    v("normalize", normalize,
      {.doc = "image: take each whole image's mean from its pixels and divide by its deviation"});
    v("threshold", threshold, {.doc = "mask values from here on are 1; 0: values as they are"});
    v("classes", classes, {.doc = "of the mask's values", .at_least = 1});
    skip_field(v, skip_damaged);
    chains.fields(v);
  }
};
MaskedOptions masked_options(const ImageMaskSource& s) {
  return {mode_of(s.mode), s.normalize == Normalization::image,
          transform_chain(s.chains.test_transforms)};
}

Preparation masked_images(const ImageMaskSource& s, const Options&, const RunData&) {
  const MaskedOptions options = masked_options(s);
  return prepared_images(
      {s.mode == ImageColor::gray ? 1 : 3, -1, -1},
      [options](std::string_view bytes, const std::string& name) {
        return io::decode_image(bytes, {.mode = options.mode}, name);
      },
      [options](const Tensor& x) {
        const Tensor none = zeros({x.size(1), x.size(2)}, DType::i64);
        return options.whole(MaskedOptions::read({x, none})).x;
      });
}

/// Images and masks; training sees `crops` random pieces of each image in an epoch.
RecipeData image_mask(const ImageMaskSource& m, const Options& o, uint64_t seed) {
  const int64_t crop = m.crop, margin = m.margin;
  const MaskedOptions ways = masked_options(m);
  const data::ImageMaskOptions options{.image = m.image,
                                       .mask = m.mask,
                                       .mode = ways.mode,
                                       .threshold = m.threshold,
                                       .skip_damaged = m.skip_damaged};
  data::ImageMaskFolder files(root_of(o, m.root, "membrane"), options);
  if (m.test_samples >= files.size())
    o.fail("test_samples", fmt::format("expected 1 to {}", files.size() - 1));
  const auto chain = transform_chain(m.chains.transforms);
  // What a rotation or an elastic move draws in from outside is the image itself: a piece is cut
  // out larger by the margin on all sides (mirrored at the image's edge), and its middle is kept.
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
  const int64_t n = files.size() - m.test_samples;
  RecipeData d{all.take(n).map(wider).cache().repeat(m.crops).shuffle().map(piece).batch(m.batch),
               {},
               {},
               {}};
  d.test = all.skip(n).cache().map(whole).batch(1);
  if (options.skip_damaged) d.damaged = damaged_in(files);
  d.info = {{"classes", m.classes}, {"channels", options.mode == io::ImageMode::gray ? 1 : 3}};
  return d;
}

}  // namespace

std::span<const DataRow> media_sources() {
  static constexpr DataRow kRows[] = {
      data_row<PlanetoidSource, planetoid>(
          "planetoid", "A citation graph with its fixed split: classes of nodes.",
          "{type: planetoid, name: cora}"),
      prepared_row<SpeechSource, speech, spoken>(
          "speech", "Recorded words, WAV or FLAC files, as mel spectrograms.",
          "{type: speech, root: words, length: 4000, batch: 4}"),
      prepared_row<VocSource, voc, boxed_images>(
          "voc", "Images with boxes in Pascal VOC's form.",
          "{type: voc, root: boxes, size: [64, 64], batch: 2}"),
      prepared_row<ImageMaskSource, image_mask, masked_images>(
          "image_mask",
          "Images with masks: random pieces of each to train on, whole ones to evaluate by.",
          "{type: image_mask, root: masks, crop: 32, crops: 2, test_samples: 1}"),
  };
  return kRows;
}

}  // namespace tandem::recipe
