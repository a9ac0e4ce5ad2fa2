// SPDX-License-Identifier: Apache-2.0
// Folders of sentence-transformers (Reimers and Gurevych 2019): an encoder of text whose values are
// pooled to one embedding for each text.
#include <cmath>

#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

// In the order in which their results are concatenated.
enum class Pooled : uint8_t { first, most, mean, root_mean, weighted, last };
constexpr std::pair<Pooled, const char*> kPoolings[] = {
    {Pooled::first, "pooling_mode_cls_token"},
    {Pooled::most, "pooling_mode_max_tokens"},
    {Pooled::mean, "pooling_mode_mean_tokens"},
    {Pooled::root_mean, "pooling_mode_mean_sqrt_len_tokens"},
    {Pooled::weighted, "pooling_mode_weightedmean_tokens"},
    {Pooled::last, "pooling_mode_lasttoken"}};

// x [n, l, width], mask [n, l] of 1 and 0.
Tensor pool(Pooled how, const Tensor& x, const Tensor& mask) {
  const Tensor seen = mask.to(x.dtype()).unsqueeze(2);
  const Dim n = x.shape(0), length = x.shape(1);
  switch (how) {
    case Pooled::first:
      return x.select(1, 0);
    case Pooled::most:
      return amax(where(seen > 0, x, -1e9F), {1});
    case Pooled::last: {
      const Tensor places = arange_dim(length).reshape({1, length}) * (mask != 0).to(DType::i64);
      const Tensor at = argmax(places, 1).reshape({n, 1, 1}).expand({n, 1, x.size(2)});
      return gather(x, 1, at).squeeze(1);
    }
    default:
      break;
  }
  Tensor weight = seen;
  if (how == Pooled::weighted)
    weight = weight * (arange_dim(length) + 1).to(x.dtype()).reshape({1, length, 1});
  const Tensor total = maximum(weight.sum({1}), full({}, 1e-9));
  return (x * weight).sum({1}) / (how == Pooled::root_mean ? sqrt(total) : total);
}

// What follows the pooling: a linear layer with an activation, or a division by the length.
struct Step {
  std::optional<size_t> dense;
  Activation act = nullptr;
};

class SentenceNet : public nn::Module {
 public:
  explicit SentenceNet(std::unique_ptr<PretrainedModel> m) : encoder(std::move(m)) {
    TD_REGISTER(dense);
    state().members.push_back(
        {"encoder",
         reinterpret_cast<char*>(&encoder) - reinterpret_cast<char*>(static_cast<Module*>(this)),
         [](void* p, const std::string&, nn::MemberVisitor& v) {
           nn::Module& m = (*static_cast<std::shared_ptr<PretrainedModel>*>(p))->module();
           v.hidden(m);
           m.visit_members(v);
         }});
  }
  std::vector<nn::Linear> dense;
  std::shared_ptr<PretrainedModel> encoder;
};

class SentenceModel : public PretrainedModel {
 public:
  explicit SentenceModel(std::unique_ptr<PretrainedModel> m)
      : PretrainedModel(m->config), net_(std::move(m)) {
    unexpected = net_.encoder->unexpected;
    unknown_keys = net_.encoder->unknown_keys;
    const std::vector<std::string> names = net_.encoder->output_names();
    if (names[0] != "last_hidden_state")
      config.fail("a model of sentences expects hidden values, '" + config.architecture() +
                  "' gives " + names[0]);
  }
  nn::Module& module() override { return net_; }
  int64_t max_positions() const override { return net_.encoder->max_positions(); }
  std::vector<ModelPort> inputs() const override { return net_.encoder->inputs(); }
  std::vector<std::string> output_names() const override {
    return {"sentence_embedding", "token_embeddings"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    const Tensor tokens = net_.encoder->run(in).at(0);
    const Tensor mask = in.attention_mask.defined() ? in.attention_mask : ones_like(in.input_ids);
    std::vector<Tensor> parts;
    for (const Pooled how : pooled_) parts.push_back(pool(how, tokens, mask));
    Tensor y = parts.size() == 1 ? parts[0] : cat(parts, 1);
    for (const Step& s : steps_) {
      if (s.dense)
        y = s.act(net_.dense[*s.dense](y));
      else
        y = y / maximum(sqrt(square(y).sum({1}, true)), full({}, 1e-12));
    }
    return {y, tokens};
  }

  void add_pooling(const ModelConfig& c) {
    if (!pooled_.empty()) c.fail("there are two poolings");
    const std::string mode = c.text("pooling_mode", "");  // newer files name one
    for (const auto& [how, key] : kPoolings) {
      const bool named = !mode.empty() && std::string(key) == "pooling_mode_" + mode + "_tokens";
      if (c.flag(key, false) || named || (mode == "cls" && how == Pooled::first) ||
          (mode == "lasttoken" && how == Pooled::last))
        pooled_.push_back(how);
    }
    if (pooled_.empty()) c.fail("no pooling is chosen");
    c.integer("word_embedding_dimension", 1);
    c.integer("embedding_dimension", 1);
    c.only("include_prompt", true);
    note_unknown(c);
  }
  void add_normalize() { steps_.push_back({}); }
  void add_dense(const ModelConfig& c, const StateDict& files) {
    const int64_t in = c.integer("in_features", 0), out = c.integer("out_features", 0);
    const bool bias = c.flag("bias", true);
    std::string act = c.text("activation_function", "torch.nn.modules.activation.Tanh");
    act = act.substr(act.rfind('.') + 1);
    Step s{.dense = net_.dense.size()};
    if (act == "Identity")
      s.act = [](Tensor x) { return x; };
    else if (act == "Tanh" || act == "ReLU" || act == "GELU" || act == "SiLU")
      s.act = activation(c, act == "Tanh"   ? "tanh"
                            : act == "ReLU" ? "relu"
                            : act == "GELU" ? "gelu"
                                            : "silu");
    else
      c.fail("'activation_function': '" + act + "' is not supported");
    net_.dense.emplace_back(in, out, nn::LinearOptions{.bias = bias});
    nn::Linear& layer = net_.dense.back();
    const auto take = [&](const char* name, Param& p) {
      const Tensor* t = files.find(name);
      if (!t || !(t->shape() == p.shape()))
        c.fail(std::string(name) + " must be " + p.shape().to_string());
      p.assign_(t->to(p.dtype()));
    };
    take("linear.weight", layer.weight);
    if (bias) take("linear.bias", layer.bias);
    for (const auto& [name, t] : files)
      if (name != "linear.weight" && (name != "linear.bias" || !bias)) unexpected.push_back(name);
    steps_.push_back(s);
    note_unknown(c);
  }
  void check() const {
    if (pooled_.empty()) config.fail("modules.json lists no pooling");
  }

 private:
  void note_unknown(const ModelConfig& c) {
    for (std::string& key : c.unread()) unknown_keys.push_back(std::move(key));
  }
  SentenceNet net_;
  std::vector<Pooled> pooled_;
  std::vector<Step> steps_;
};

std::string text_of_member(const io::Json& j, const char* key, const std::string& what) {
  const io::Json* v = j.find(key);
  TD_CHECK(v && v->as_string(), Format, "{}: an entry expects '{}' as a string", what, key);
  return *v->as_string();
}

}  // namespace

std::unique_ptr<PretrainedModel> detail::load_sentence_model(const FilePath& folder) {
  const std::string what = folder.str() + "/modules.json";
  const io::Json list = io::parse_json(read_file(what, size_t{1} << 20), what);
  TD_CHECK(list.as_array() && !list.as_array()->empty(), Format, "{}: must be a list", what);
  std::unique_ptr<SentenceModel> model;
  for (const io::Json& j : *list.as_array()) {
    const std::string path = text_of_member(j, "path", what);
    std::string type = text_of_member(j, "type", what);
    type = type.substr(type.rfind('.') + 1);
    TD_CHECK(path.find("..") == path.npos && path.find('\\') == path.npos &&
                 path.find('\0') == path.npos && (path.empty() || path[0] != '/'),
             Format, "{}: the path {} must lie in the folder", what, io::quote_json(path));
    const std::string own = path.empty() ? folder.str() : folder.str() + "/" + path;
    if (type == "Transformer") {
      TD_CHECK(!model, Format, "{}: there are two encoders", what);
      model = std::make_unique<SentenceModel>(load_family(own));
      continue;
    }
    TD_CHECK(model, Format, "{}: the first entry must be a Transformer, is {}", what, type);
    if (type == "Normalize") {
      model->add_normalize();
      continue;
    }
    TD_CHECK(type == "Pooling" || type == "Dense", Unsupported,
             "{}: entries of type '{}' are not supported (Transformer, Pooling, Dense, Normalize)",
             what, type);
    const ModelConfig c = ModelConfig::from_file(own + "/config.json", false);
    if (type == "Pooling")
      model->add_pooling(c);
    else
      model->add_dense(c, load_weights_of(own));
  }
  model->check();
  model->module().eval();
  return model;
}

}  // namespace tandem::models
