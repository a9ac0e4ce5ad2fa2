// SPDX-License-Identifier: Apache-2.0
// The models that recipes may name: those of this file and every name of models::list().
#include <algorithm>
#include <deque>

#include "tandem/models/generative/dcgan.h"
#include "tandem/models/generative/ddpm.h"
#include "tandem/models/generative/vae.h"
#include "tandem/models/graph_nets.h"
#include "tandem/models/mlp.h"
#include "tandem/models/registry.h"
#include "tandem/models/speech_cnn.h"
#include "tandem/models/text/char_rnn.h"
#include "tandem/models/text/gpt.h"
#include "tandem/models/text/text_cnn.h"
#include "tandem/models/text/text_encoder.h"
#include "tandem/models/vision/detector.h"
#include "tandem/models/vision/image_nets.h"
#include "tandem/models/vision/unet.h"
#include "tandem/recipe/components/components_internal.h"

namespace tandem::recipe {
namespace {

using train::Batch;
using train::StepOutput;
using Info = DataInfo;

int64_t info_of(const Info& info, const char* key, const Options& o) {
  const auto it = info.find(key);
  if (it == info.end())
    o.fail("type", fmt::format("this model asks the data for its '{}', which data of this type "
                               "does not have: it is made for other data",
                               key));
  return it->second;
}

// output = net(batch[0]), target = batch[1].
template <class Net>
RecipeModel supervised(std::shared_ptr<Net> net) {
  RecipeModel m{net,
                [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0]), b[1]); }};
  m.predict = [net](const Batch& b) { return (*net)(b[0]); };
  return m;
}
// The same of nets over a graph: (x, edges, labels).
template <class Net>
RecipeModel on_graph(std::shared_ptr<Net> net) {
  RecipeModel m{
      net, [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0], b[1]), b[2]); }};
  m.predict = [net](const Batch& b) { return (*net)(b[0], b[1]); };
  m.predict_fields = {"x", "edge_index"};
  m.open = {{"nodes"}, {{}, "edges"}};
  return m;
}
// One row per character: the loss and the metrics see [n * t, vocabulary].
template <class Net>
RecipeModel by_letter(std::shared_ptr<Net> net, int64_t context) {
  RecipeModel m{net, [net](const Batch& b) {
                  return std::pair<Tensor, Tensor>((*net)(b[0]).flatten(0, 1), b[1].flatten());
                }};
  m.predict = [net](const Batch& b) { return (*net)(b[0]); };
  m.open = {{"batch", "length"}};
  m.generate = character_generator([net](const Tensor& ids) { return (*net)(ids); }, context);
  return m;
}

RecipeModel gpt(models::GPTOptions g, const Options& o, const Info& info) {
  g.vocabulary = info_of(info, "vocabulary", o);
  g.context = info_of(info, "context", o);
  return by_letter(std::make_shared<models::GPT>(g), g.context);
}

RecipeModel char_rnn(models::CharRNNOptions c, const Options& o, const Info& info) {
  c.vocabulary = info_of(info, "vocabulary", o);
  return by_letter(std::make_shared<models::CharRNN>(c), info_of(info, "context", o));
}

RecipeModel text_cnn(models::TextCNNOptions t, const Options& o, const Info& info) {
  t.vocabulary = info_of(info, "vocabulary", o);
  t.classes = info_of(info, "classes", o);
  if (!info.count("odds")) {
    RecipeModel plain = supervised(std::make_shared<models::TextCNN>(t));
    plain.open = {{"batch", "length"}};
    return plain;
  }
  t.odds = info.at("odds");
  auto net = std::make_shared<models::TextCNN>(t);
  RecipeModel made{
      net, [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0], b[1]), b[2]); }};
  made.predict = [net](const Batch& b) { return (*net)(b[0], b[1]); };
  made.predict_fields = {"x", "odds"};
  made.open = {{"batch", "length"}, {"batch"}};
  return made;
}

RecipeModel text_encoder(models::TextEncoderOptions t, const Options& o, const Info& info) {
  if (t.width % t.heads != 0)
    o.fail("heads", fmt::format("{} heads do not divide a width of {}", t.heads, t.width));
  t.vocabulary = info_of(info, "vocabulary", o);
  t.classes = info_of(info, "classes", o);
  RecipeModel m = supervised(std::make_shared<models::TextEncoder>(t));
  m.open = {{"batch", "length"}};
  return m;
}

struct MlpModel {
  std::vector<int64_t> hidden = {128};
  double dropout = 0;

  template <class V>
  void fields(V& v) {
    v("hidden", hidden, {.doc = "widths of the hidden layers", .at_least = 1});
    v("dropout", dropout,
      {.doc = "share of values that training drops", .at_least = 0, .below = 1});
  }
};
RecipeModel mlp(const MlpModel& m, const Options& o, const Info& info) {
  std::vector<int64_t> sizes{info_of(info, "features", o)};
  sizes.insert(sizes.end(), m.hidden.begin(), m.hidden.end());
  sizes.push_back(info_of(info, "classes", o));
  return supervised(std::make_shared<models::MLP>(sizes, m.dropout));
}

struct NoOptions {
  template <class V>
  void fields(V&) {}
};
RecipeModel keras_convnet(const NoOptions&, const Options& o, const Info& info) {
  return supervised(std::make_shared<models::KerasConvNet>(info_of(info, "classes", o),
                                                           info_of(info, "size", o)));
}

struct DigitsCNNModel {
  int64_t width = 16;
  template <class V>
  void fields(V& v) {
    v("width", width, {.doc = "channels of the first convolution; doubled once", .at_least = 1});
  }
};
RecipeModel digits_cnn(const DigitsCNNModel& d, const Options& o, const Info& info) {
  return supervised(std::make_shared<models::DigitsCNN>(info_of(info, "classes", o), d.width));
}

RecipeModel speech_cnn(models::SpeechCNNOptions s, const Options& o, const Info& info) {
  s.classes = info_of(info, "classes", o);
  RecipeModel m = supervised(std::make_shared<models::SpeechCNN>(s));
  m.open = {{"batch", {}, {}, "frames"}};
  return m;
}

RecipeModel unet(models::UNetOptions u, const Options& o, const Info& info) {
  u.n_channels = info_of(info, "channels", o);
  u.n_classes = info_of(info, "classes", o);
  RecipeModel m = supervised(std::make_shared<models::UNet>(u));
  m.open = {models::image_dims(true)};
  // The likeliest class of each pixel: black and white of two, else its number.
  m.image = [](const Tensor& output) {
    const Tensor mask = argmax(output, 1);
    return (output.size(1) == 2 ? mask * 255 : mask).to(DType::u8);
  };
  return m;
}

template <class Net, class NetOptions>
RecipeModel node_model(NetOptions n, const Options& o, const Info& info) {
  n.features = info_of(info, "features", o);
  n.classes = info_of(info, "classes", o);
  return on_graph(std::make_shared<Net>(n));
}

RecipeModel vae(models::VAEOptions v, const Options& o, const Info& info) {
  v.features = info_of(info, "features", o);
  auto net = std::make_shared<models::VAE>(v);
  RecipeModel m{.module = net};
  m.step = [net](const Batch& b) { return StepOutput{net->loss(b[0]), {}, {}}; };
  m.predict = [net](const Batch& b) {  // the pixels of the most likely code
    return sigmoid(net->decode(net->mean(relu(net->fc1(flatten(b[0], 1)))))).reshape(b[0].shape());
  };
  std::vector<int64_t> sample{net->fc4.weight.size(0)};
  if (const auto side = info.find("size"); side != info.end())
    sample = {info_of(info, "channels", o), side->second, side->second};
  if (sample.size() == 3)
    m.image = [](const Tensor& output) { return round(output.squeeze(0) * 255.0).to(DType::u8); };
  m.generate = prior_generator([net, sample](int64_t n) {
    std::vector<int64_t> shape{n};
    shape.insert(shape.end(), sample.begin(), sample.end());
    return net->sample(n).reshape(shape);
  });
  return m;
}

struct DDPMModel {
  models::DDPMOptions net = {};
  int64_t samples = 200, sampler_steps = 50;

  template <class V>
  void fields(V& v) {
    net.fields(v);
    v("samples", samples, {.doc = "drawn to evaluate the model by", .at_least = 1});
    v("sampler_steps", sampler_steps, {.doc = "steps of the sampler", .at_least = 1});
  }
};
RecipeModel ddpm(DDPMModel d, const Options& o, const Info& info) {
  d.net.classes = info_of(info, "classes", o);
  d.net.size = info_of(info, "size", o);
  auto net = std::make_shared<models::DDPM>(d.net);
  RecipeModel m{.module = net};
  m.step = [net](const Batch& b) { return StepOutput{net->loss(b[0], b[1]), {}, {}}; };
  m.evaluate = [=](data::AnyPipeline test) {
    return evaluate_digits(*net, std::move(test), d.samples, d.sampler_steps);
  };
  m.generate = ddpm_generator(net, d.sampler_steps);
  return m;
}

struct DCGANModel {
  models::DCGANOptions net = {};
  int64_t samples = 1000;

  template <class V>
  void fields(V& v) {
    net.fields(v);
    v("samples", samples, {.doc = "drawn to evaluate the model by", .at_least = 1});
  }
};
RecipeModel dcgan(DCGANModel d, const Options& o, const Info& info) {
  d.net.channels = info_of(info, "channels", o);
  d.net.size = info_of(info, "size", o);
  auto net = std::make_shared<models::DCGAN>(d.net);
  RecipeModel m{.module = net};
  m.updates = [net](const Batch& b, train::Updates& update) {
    const Tensor x = b[0] * 2.0 - 1.0, drawn = (*net)(net->noise_like(x));
    const Tensor real = net->score(x), fake = net->score(drawn.detach());
    update("discriminator", models::DCGAN::discriminator_loss(real, fake));
    update("generator", models::DCGAN::generator_loss(net->score(drawn)));
    StepOutput out;
    out.figures = {{"real", sigmoid(real.detach()).mean()},
                   {"fake", sigmoid(fake.detach()).mean()}};
    return out;
  };
  m.step = train::sum_of_losses(m.updates);
  m.optimizers = {{"discriminator", &net->discriminator}, {"generator", &net->generator}};
  m.figures = {"real", "fake"};
  const auto classes = info.find("classes");
  if (d.net.size == 28 && classes != info.end())
    m.evaluate = [net, d, classes = classes->second](data::AnyPipeline test) {
      return evaluate_drawn([&](int64_t n) { return net->sample(n); }, std::move(test), d.samples,
                            classes);
    };
  m.generate = prior_generator([net](int64_t n) { return net->sample(n); });
  return m;
}

RecipeModel detector(models::DetectorOptions d, const Options& o, const Info& info) {
  d.classes = info_of(info, "classes", o);
  auto net = std::make_shared<models::Detector>(d);
  RecipeModel m{.module = net};
  m.step = [net](const Batch& b) {
    return StepOutput{net->loss((*net)(b[0]), b[1], b[2]), {}, {}};
  };
  m.evaluate = [net](data::AnyPipeline test) { return evaluate_boxes(*net, std::move(test)); };
  m.predict = [net](const Batch& b) { return (*net)(b[0]); };  // what decode() reads boxes from
  m.open = {models::image_dims(true)};
  m.boxes = [net](const Tensor& output, double score) {
    const models::Detections d = net->decode(output.squeeze(0), {.score = score});
    return FoundBoxes{d.boxes, d.scores, d.labels};
  };
  m.candidates = [net](const Tensor& output) {
    const auto all = net->candidates(output.squeeze(0));
    return std::vector<Tensor>{all.boxes, all.scores};
  };
  return m;
}

/// Of models by name; what is not given is as the data and the model have it.
struct NamedModel {
  std::optional<int64_t> classes = {}, in_channels = {}, image_size = {};
  std::optional<double> dropout = {};

  template <class V>
  void fields(V& v) {
    v("classes", classes, {.doc = "of the last layer; none: those of the data", .at_least = 1});
    v("in_channels", in_channels,
      {.doc = "of the images; none: those of the data", .at_least = 1, .none = 0});
    v("image_size", image_size,
      {.doc = "side that positions are learned for; none: the model's", .at_least = 1, .none = 0});
    v("dropout", dropout,
      {.doc = "share of values that training drops; none: the model's",
       .at_least = 0,
       .at_most = 1});
  }
};
RecipeModel by_name(const ModelRow& row, const void* options, const Options& o, const Info& info) {
  const auto& n = *static_cast<const NamedModel*>(options);
  models::ModelOptions m{.num_classes = n.classes ? *n.classes : info_of(info, "classes", o),
                         .in_channels = n.in_channels,
                         .image_size = n.image_size,
                         .dropout = n.dropout};
  const auto channels = info.find("channels");
  if (!m.in_channels && channels != info.end() &&
      channels->second != models::info(row.name).input[0])
    m.in_channels = channels->second;
  auto net = std::make_shared<nn::AnyModule>(models::make(row.name, m));
  RecipeModel made{std::shared_ptr<nn::Module>(net, &net->module()),
                   [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0]), b[1]); }};
  made.predict = [net](const Batch& b) { return (*net)(b[0]); };
  made.open = {models::image_dims(models::info(row.name).any_size)};
  return made;
}

constexpr ModelRow kModels[] = {
    model_row<MlpModel, mlp>("mlp", "Linear layers with ReLU and dropout, for rows of numbers.",
                             "{type: mlp, hidden: [32, 16], dropout: 0.1}"),
    model_row<DigitsCNNModel, digits_cnn>("digits_cnn", "Two convolutions, for images of 8 x 8.",
                                          "{type: digits_cnn, width: 8}"),
    model_row<NoOptions, keras_convnet>("keras_convnet", "The convnet of keras.io's MNIST example.",
                                        "{type: keras_convnet}"),
    model_row<models::SpeechCNNOptions, speech_cnn>(
        "speech_cnn", "Convolutions over mel spectrograms, for single words.",
        "{type: speech_cnn, width: 4}"),
    model_row<models::GPTOptions, gpt>("gpt", "GPT-2's decoder, for text.",
                                       "{type: gpt, layers: 1, heads: 2, width: 16}"),
    model_row<models::CharRNNOptions, char_rnn>(
        "char_rnn", "A recurrent net over characters.",
        "{type: char_rnn, cell: gru, embedding: 8, width: 16}"),
    model_row<models::TextCNNOptions, text_cnn>(
        "text_cnn", "Convolutions over word vectors (Kim 2014), for classes of texts.",
        "{type: text_cnn, width: 16, filters: 8}"),
    model_row<models::TextEncoderOptions, text_encoder>(
        "text_encoder", "A small BERT (Devlin et al. 2019), for classes of texts.",
        "{type: text_encoder, layers: 1, heads: 2, width: 16, hidden: 32, longest: 64}"),
    model_row<models::GCNOptions, node_model<models::GCN, models::GCNOptions>>(
        "gcn", "Graph convolutions (Kipf and Welling 2017), for classes of nodes.",
        "{type: gcn, hidden: 8}"),
    model_row<models::GATOptions, node_model<models::GAT, models::GATOptions>>(
        "gat", "Graph attention (Velickovic et al. 2018), for classes of nodes.",
        "{type: gat, hidden: 4, heads: 2}"),
    model_row<models::UNetOptions, unet>("unet", "U-Net (Ronneberger et al. 2015), for masks.",
                                         "{type: unet, base: 2}"),
    model_row<models::VAEOptions, vae>(
        "vae", "A variational autoencoder (Kingma and Welling 2014); it has a loss of its own.",
        "{type: vae, hidden: 16, latent: 4}"),
    model_row<DDPMModel, ddpm>(
        "ddpm",
        "Denoising diffusion of images asked for by class (Ho et al. 2020); it has a loss of its "
        "own.",
        "{type: ddpm, width: 4, steps: 8, samples: 4, sampler_steps: 2}"),
    model_row<DCGANModel, dcgan>(
        "dcgan",
        "A generator and a discriminator of images (Radford et al. 2016), each with an optimizer; "
        "it has losses of its own.",
        "{type: dcgan, latent: 8, width: 4, samples: 8}"),
    model_row<models::DetectorOptions, detector>("detector",
                                                 "Boxes without anchors; it has a loss of its own.",
                                                 "{type: detector, width: 4}"),
};

/// The texts of a row for one of models::list(), whose names are not literals.
struct NamedTexts {
  std::string name, example;
};

}  // namespace

std::vector<ModelRow> model_rows() {
  static std::deque<NamedTexts> texts;
  std::vector<ModelRow> all(std::begin(kModels), std::end(kModels));
  for (const models::ModelInfo& known : models::list()) {
    const bool own_row = std::any_of(std::begin(kModels), std::end(kModels),
                                     [&](const ModelRow& r) { return r.name == known.name; });
    if (own_row) continue;  // unet: its row has more options
    const NamedTexts& text =
        texts.emplace_back(NamedTexts{known.name, "{type: " + known.name + "}"});
    all.push_back({{text.name.c_str(), "An image model of models::list().", text.example.c_str(),
                    &kFieldsType<NamedModel>},
                   by_name});
  }
  return all;
}

}  // namespace tandem::recipe
