// SPDX-License-Identifier: Apache-2.0
// The models that recipes may name: those of this file and every name of models::list().
#include <cmath>

#include "cli/recipe_internal.h"
#include "tandem/models/char_rnn.h"
#include "tandem/models/ddpm.h"
#include "tandem/models/detector.h"
#include "tandem/models/gpt.h"
#include "tandem/models/graph_nets.h"
#include "tandem/models/image_nets.h"
#include "tandem/models/mlp.h"
#include "tandem/models/registry.h"
#include "tandem/models/speech_cnn.h"
#include "tandem/models/text_cnn.h"
#include "tandem/models/unet.h"
#include "tandem/models/vae.h"

namespace tandem::cli {
namespace {

using train::Batch;
using train::Options;
using train::RecipeModel;
using train::StepOutput;
using Info = std::map<std::string, int64_t>;

int64_t info_of(const Info& info, const char* key, Options& o) {
  const auto it = info.find(key);
  if (it == info.end())
    o.fail("type", fmt::format("this model asks the data for its '{}', which data of this type "
                               "does not have: it is made for other data",
                               key));
  return it->second;
}

// Sizes: whole numbers above 0.
std::vector<int64_t> sizes_of(Options& o, const char* key, std::vector<double> otherwise) {
  std::vector<int64_t> out;
  for (double n : o.numbers(key, std::move(otherwise))) {
    if (!(n >= 1 && n <= 1e9 && n == std::floor(n)))
      o.fail(key, fmt::format("wants whole numbers above 0, got {}", n));
    out.push_back(static_cast<int64_t>(n));
  }
  return out;
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
  return m;
}
// One row per letter: the loss and the metrics see [n * t, vocabulary].
template <class Net>
RecipeModel by_letter(std::shared_ptr<Net> net, int64_t context) {
  RecipeModel m{net, [net](const Batch& b) {
                  return std::pair<Tensor, Tensor>((*net)(b[0]).flatten(0, 1), b[1].flatten());
                }};
  m.predict = [net](const Batch& b) { return (*net)(b[0]); };
  m.generate = letter_generator([net](const Tensor& ids) { return (*net)(ids); }, context);
  return m;
}

RecipeModel gpt(Options& o, const Info& info) {
  return by_letter(
      std::make_shared<models::GPT>(models::GPTOptions{.vocabulary = info_of(info, "vocabulary", o),
                                                       .context = info_of(info, "context", o),
                                                       .layers = o.whole("layers", 4),
                                                       .heads = o.whole("heads", 4),
                                                       .width = o.whole("width", 128),
                                                       .dropout = o.number("dropout", 0.0),
                                                       .bias = o.flag("bias", false)}),
      info_of(info, "context", o));
}

RecipeModel char_rnn(Options& o, const Info& info) {
  models::CharRNNOptions m{.vocabulary = info_of(info, "vocabulary", o),
                           .cell = o.text("cell", "lstm"),
                           .layers = o.whole("layers", 1),
                           .embedding = o.whole("embedding", 64),
                           .width = o.whole("width", 256),
                           .dropout = o.number("dropout", 0.0)};
  if (m.cell != "rnn" && m.cell != "gru" && m.cell != "lstm")
    o.fail("cell", fmt::format("wants rnn, gru or lstm, got '{}'", m.cell));
  return by_letter(std::make_shared<models::CharRNN>(m), info_of(info, "context", o));
}

RecipeModel text_cnn(Options& o, const Info& info) {
  models::TextCNNOptions m{.vocabulary = info_of(info, "vocabulary", o),
                           .classes = info_of(info, "classes", o),
                           .width = o.whole("width", 300),
                           .filters = o.whole("filters", 100),
                           .dropout = o.number("dropout", 0.5),
                           .word_dropout = o.number("word_dropout", 0.0),
                           .word_spread = o.number("word_spread", 1.0)};
  m.windows = sizes_of(o, "windows", {3, 4, 5});
  if (!info.count("odds")) return supervised(std::make_shared<models::TextCNN>(m));
  m.odds = info.at("odds");
  auto net = std::make_shared<models::TextCNN>(m);
  RecipeModel made{
      net, [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0], b[1]), b[2]); }};
  made.predict = [net](const Batch& b) { return (*net)(b[0], b[1]); };
  made.predict_fields = {"x", "odds"};
  return made;
}

RecipeModel mlp(Options& o, const Info& info) {
  std::vector<int64_t> sizes{info_of(info, "features", o)};
  for (int64_t n : sizes_of(o, "hidden", {128})) sizes.push_back(n);
  sizes.push_back(info_of(info, "classes", o));
  return supervised(std::make_shared<models::MLP>(sizes, o.number("dropout", 0.0)));
}

RecipeModel keras_convnet(Options& o, const Info& info) {
  return supervised(std::make_shared<models::KerasConvNet>(info_of(info, "classes", o),
                                                           info_of(info, "size", o)));
}
RecipeModel digits_cnn(Options& o, const Info& info) {
  return supervised(
      std::make_shared<models::DigitsCNN>(info_of(info, "classes", o), o.whole("width", 16)));
}
RecipeModel speech_cnn(Options& o, const Info& info) {
  return supervised(std::make_shared<models::SpeechCNN>(
      models::SpeechCNNOptions{.classes = info_of(info, "classes", o),
                               .width = o.whole("width", 16),
                               .dropout = o.number("dropout", 0.3)}));
}

RecipeModel unet(Options& o, const Info& info) {
  RecipeModel m = supervised(
      std::make_shared<models::UNet>(models::UNetOptions{.n_channels = info_of(info, "channels", o),
                                                         .n_classes = info_of(info, "classes", o),
                                                         .bilinear = o.flag("bilinear", false),
                                                         .base = o.whole("base", 64)}));
  // The likeliest class of each pixel: black and white of two, else its number.
  m.picture = [](const Tensor& output) {
    const Tensor mask = argmax(output, 1);
    return (output.size(1) == 2 ? mask * 255 : mask).to(DType::u8);
  };
  return m;
}

RecipeModel gcn(Options& o, const Info& info) {
  return on_graph(
      std::make_shared<models::GCN>(models::GCNOptions{.features = info_of(info, "features", o),
                                                       .classes = info_of(info, "classes", o),
                                                       .hidden = o.whole("hidden", 16),
                                                       .dropout = o.number("dropout", 0.5)}));
}
RecipeModel gat(Options& o, const Info& info) {
  return on_graph(
      std::make_shared<models::GAT>(models::GATOptions{.features = info_of(info, "features", o),
                                                       .classes = info_of(info, "classes", o),
                                                       .hidden = o.whole("hidden", 8),
                                                       .heads = o.whole("heads", 8),
                                                       .dropout = o.number("dropout", 0.6)}));
}

RecipeModel vae(Options& o, const Info& info) {
  auto net =
      std::make_shared<models::VAE>(models::VAEOptions{.features = info_of(info, "features", o),
                                                       .hidden = o.whole("hidden", 400),
                                                       .latent = o.whole("latent", 20)});
  RecipeModel m{.module = net};
  m.step = [net](const Batch& b) { return StepOutput{net->loss(b[0]), {}, {}}; };
  m.predict = [net](const Batch& b) {  // the pixels of the most likely code
    return sigmoid(net->decode(net->mean(relu(net->fc1(flatten(b[0], 1)))))).reshape(b[0].shape());
  };
  std::vector<int64_t> sample{net->fc4.weight.size(0)};
  if (const auto side = info.find("size"); side != info.end())
    sample = {info_of(info, "channels", o), side->second, side->second};
  if (sample.size() == 3)
    m.picture = [](const Tensor& output) { return round(output.squeeze(0) * 255.0).to(DType::u8); };
  m.generate = vae_generator(net, sample);
  return m;
}

RecipeModel ddpm(Options& o, const Info& info) {
  auto net =
      std::make_shared<models::DDPM>(models::DDPMOptions{.classes = info_of(info, "classes", o),
                                                         .size = info_of(info, "size", o),
                                                         .width = o.whole("width", 16),
                                                         .steps = o.whole("steps", 400)});
  const int64_t samples = o.whole("samples", 200), sampler_steps = o.whole("sampler_steps", 50);
  RecipeModel m{.module = net};
  m.step = [net](const Batch& b) { return StepOutput{net->loss(b[0], b[1]), {}, {}}; };
  m.judge = [=](data::AnyPipeline test) {
    return judge_digits(*net, std::move(test), samples, sampler_steps);
  };
  m.generate = ddpm_generator(net, sampler_steps);
  return m;
}

RecipeModel detector(Options& o, const Info& info) {
  auto net = std::make_shared<models::Detector>(models::DetectorOptions{
      .classes = info_of(info, "classes", o), .width = o.whole("width", 16)});
  RecipeModel m{.module = net};
  m.step = [net](const Batch& b) {
    return StepOutput{net->loss((*net)(b[0]), b[1], b[2]), {}, {}};
  };
  m.judge = [net](data::AnyPipeline test) { return judge_boxes(*net, std::move(test)); };
  m.predict = [net](const Batch& b) { return (*net)(b[0]); };  // what decode() reads boxes from
  m.boxes = [net](const Tensor& output, double score) {
    const models::Detections d = net->decode(output.squeeze(0), {.score = score});
    return train::FoundBoxes{d.boxes, d.scores, d.labels};
  };
  return m;
}

// One of models::list(), with as many classes as the data has.
RecipeModel by_name(const std::string& name, Options& o, const Info& info) {
  models::ModelOptions m{.num_classes = o.whole("classes", info_of(info, "classes", o))};
  const auto channels = info.find("channels");
  if (o.has("in_channels"))
    m.in_channels = o.whole("in_channels");
  else if (o.whole("in_channels", 0);
           channels != info.end() && channels->second != models::info(name).input[0])
    m.in_channels = channels->second;
  if (o.has("image_size"))
    m.image_size = o.whole("image_size");
  else
    o.whole("image_size", 0);
  if (o.has("dropout"))
    m.dropout = o.number("dropout");
  else
    o.number("dropout", 0.0);
  auto net = std::make_shared<nn::AnyModule>(models::make(name, m));
  RecipeModel made{std::shared_ptr<nn::Module>(net, &net->module()),
                   [net](const Batch& b) { return std::pair<Tensor, Tensor>((*net)(b[0]), b[1]); }};
  made.predict = [net](const Batch& b) { return (*net)(b[0]); };
  return made;
}

}  // namespace

void add_model_components(train::Registry& r) {
  for (const models::ModelInfo& known : models::list())
    r.model[known.name] = [name = known.name](Options& o, const Info& info) {
      return by_name(name, o, info);
    };
  r.model["unet"] = unet;
  r.model["mlp"] = mlp;
  r.model["keras_convnet"] = keras_convnet;
  r.model["digits_cnn"] = digits_cnn;
  r.model["speech_cnn"] = speech_cnn;
  r.model["gpt"] = gpt;
  r.model["char_rnn"] = char_rnn;
  r.model["text_cnn"] = text_cnn;
  r.model["gcn"] = gcn;
  r.model["gat"] = gat;
  r.model["vae"] = vae;
  r.model["ddpm"] = ddpm;
  r.model["detector"] = detector;
}

train::Registry recipe_registry(bool init) {
  train::Registry r = train::Registry::standard();
  add_data_components(r);
  add_image_components(r);
  add_media_components(r);
  add_file_components(r);
  add_model_components(r);
  add_fine_tuning(r, init);
  add_agent_components(r);
  add_exporters(r);
  return r;
}

}  // namespace tandem::cli
