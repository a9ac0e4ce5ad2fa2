// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/adapters.h"

#include <cmath>
#include <map>

#include "tandem/base/error.h"
#include "tandem/graph/context.h"
#include "tandem/io/safetensors.h"
#include "tandem/models/pretrained/projection_internal.h"
#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

// ---- the layers of a model

struct AdaptedLayer {
  nn::Module* module = nullptr;
  Param weight;             ///< undefined where the layer holds codes
  bool transposed = false;  ///< GPT-2's [in, out]
  int64_t in = 0, out = 0;
};

std::map<std::string, AdaptedLayer> layers_to_adapt(PretrainedModel& model) {
  std::map<std::string, AdaptedLayer> out;
  for (const auto& [path, module] : model.module().named_modules())
    if (const detail::ProjectionKind* kind = detail::projection_kind_of(*module)) {
      AdaptedLayer& l = out[path] = {module, {}, kind->turned};
      if (const detail::CodedWeight& coded = kind->coded(*module); coded.defined()) {
        l.in = coded.columns;
        l.out = coded.codes.size(0);
      }
    } else if (module->type() == "Linear") {
      out[path] = {module};
    }
  const std::string end = ".weight";
  for (const auto& [name, p] : model.module().named_parameters()) {
    if (!detail::ends_with(name, end)) continue;
    const auto at = out.find(name.substr(0, name.size() - end.size()));
    if (at == out.end() || !p.defined()) continue;
    AdaptedLayer& l = at->second;
    l.weight = p;
    l.in = p.size(l.transposed ? 0 : 1);
    l.out = p.size(l.transposed ? 1 : 0);
  }
  return out;
}

// ---- adapter_config.json

/// What would change the result if it were left out.
void check_plain_lora(const ModelConfig& c) {
  const std::string type = c.text("peft_type", "LORA");
  TD_CHECK(type == "LORA", Unsupported, "adapters of type '{}' are not supported: LORA is", type);
  for (const char* key : {"use_dora", "use_qalora", "use_bdlora", "lora_bias"})
    TD_CHECK(!c.flag(key, false), Unsupported, "adapters with '{}' are not supported", key);
  for (const char* key : {"modules_to_save", "trainable_token_indices", "target_parameters",
                          "layer_replication", "alora_invocation_tokens", "arrow_config",
                          "kasa_config", "monteclora_config", "velora_config"}) {
    const io::Json* v = c.json().find(key);
    const bool none = !v || v->is_null() || (v->as_array() && v->as_array()->empty());
    TD_CHECK(none, Unsupported, "adapters with '{}' are not supported: {}", key, v->dump());
  }
  const std::string bias = c.text("bias", "none");
  TD_CHECK(bias == "none", Unsupported,
           "adapters that change biases are not supported ('bias': {})", io::quote_json(bias));
  // Some ways to begin change the weights that the adapter is for.
  if (const io::Json* begin = c.json().find("init_lora_weights"); begin && begin->as_string())
    for (const char* own : {"pissa", "olora", "loftq", "corda", "lora_ga"})
      TD_CHECK(!begin->as_string()->starts_with(own), Unsupported,
               "adapters that change the model's own weights are not supported "
               "('init_lora_weights': {})\nSave it as a plain LoRA.",
               io::quote_json(*begin->as_string()));
}

/// A number for each layer: that of the first pattern that fits, else the common one.
class LayerNumbers {
 public:
  LayerNumbers(const ModelConfig& c, const char* key, const char* patterns, double otherwise)
      : common_(c.number(key, otherwise)) {
    const io::Json* own = c.object(patterns);
    if (!own) return;
    for (const auto& [name, value] : *own->as_object()) {
      TD_CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789_.") == name.npos,
               Unsupported, "'{}' with regular expressions is not supported: {}", patterns,
               io::quote_json(name));
      const double n = io::number_of(&value);
      if (!(n > 0)) c.fail(fmt::format("'{}' expects numbers above 0, got {}", patterns, n));
      own_.emplace_back(name, n);
    }
  }
  double of(const std::string& path) const {
    for (const auto& [name, n] : own_)
      if (path == name || detail::ends_with(path, "." + name)) return n;
    return common_;
  }

 private:
  double common_;
  std::vector<std::pair<std::string, double>> own_;
};

// ---- adapter_model.safetensors

struct LayerFiles {
  Tensor a, b;
  Tensor base;  ///< the layer's own weight, which peft saves of some heads, too
};

// The matrices by the path of their layer, "model.layers.0.self_attn.q_proj".
std::map<std::string, LayerFiles> matrices_of(const StateDict& files, const std::string& file) {
  std::map<std::string, LayerFiles> out;
  const std::string begin = "base_model.model.", a = ".lora_A.weight", b = ".lora_B.weight",
                    base = ".base_layer.weight";
  for (const auto& [name, t] : files) {
    const bool is_a = detail::ends_with(name, a), is_base = detail::ends_with(name, base);
    TD_CHECK(is_a || is_base || detail::ends_with(name, b), Unsupported,
             "{}: '{}' is not supported: an adapter has lora_A and lora_B of linear layers alone",
             file, name);
    TD_CHECK(t.dim() == 2 && is_floating(t.dtype()), Format,
             "{}: '{}' expects a matrix of floating point numbers, got {}", file, name,
             t.shape().to_string());
    std::string path = name.substr(0, name.size() - (is_base ? base : a).size());
    if (path.starts_with(begin)) path.erase(0, begin.size());
    LayerFiles& m = out[path];
    (is_a ? m.a : is_base ? m.base : m.b) = t.to(DType::f32).contiguous();
  }
  TD_CHECK(!out.empty(), Format, "{} holds no matrices", file);
  return out;
}

// The layer of that name; a model without its head has shorter names.
std::string layer_named(const std::map<std::string, AdaptedLayer>& layers, const std::string& path,
                        const std::string& file) {
  if (layers.count(path)) return path;
  std::string found;
  for (const auto& [name, layer] : layers) {
    if (!detail::ends_with(name, "." + path)) continue;
    TD_CHECK(found.empty(), Format, "{}: '{}' may be '{}' or '{}'", file, path, found, name);
    found = name;
  }
  TD_CHECK(!found.empty(), Format, "{}: the model has no linear layer '{}'", file, path);
  return found;
}

// Every name of a list of targets stands for a layer that is there.
void check_targets(const ModelConfig& c, const std::map<std::string, LayerFiles>& matrices) {
  const io::Json* targets = c.json().find("target_modules");
  if (!targets || !targets->as_array()) return;
  for (const std::string& target : c.texts("target_modules")) {
    bool any = false;
    for (const auto& [path, m] : matrices)
      any = any || path == target || detail::ends_with(path, "." + target);
    if (!any) c.fail(fmt::format("'target_modules' names '{}', which the files lack", target));
  }
}

}  // namespace

Adapter load_adapter(const FilePath& folder, PretrainedModel& model) {
  const NoGradGuard no_grad;
  const std::string file = folder.str() + "/adapter_model.safetensors";
  const ModelConfig c = ModelConfig::from_file(folder.str() + "/adapter_config.json", false);
  check_plain_lora(c);
  const bool rooted = c.flag("use_rslora", false);
  const LayerNumbers alphas(c, "lora_alpha", "alpha_pattern", 8);
  const LayerNumbers ranks(c, "r", "rank_pattern", 8);
  const auto matrices = matrices_of(load(file), file);
  check_targets(c, matrices);
  const auto layers = layers_to_adapt(model);
  Adapter out;
  for (const auto& [path, m] : matrices) {
    TD_CHECK(m.a.defined() && m.b.defined(), Format, "{}: '{}' has {} alone", file, path,
             m.a.defined() ? "lora_A" : "lora_B");
    const std::string name = layer_named(layers, path, file);
    const AdaptedLayer& layer = layers.at(name);
    const int64_t r = m.a.size(0);
    TD_CHECK(r > 0 && static_cast<double>(r) == ranks.of(path), Format,
             "{}: '{}' has rank {}, its config says {}", file, path, r, ranks.of(path));
    TD_CHECK(m.b.size(1) == r && m.a.size(1) == layer.in && m.b.size(0) == layer.out, Format,
             "{}: '{}' expects lora_A [{}, {}] and lora_B [{}, {}], got {} and {}", file, path, r,
             layer.in, layer.out, r, m.a.shape().to_string(), m.b.shape().to_string());
    TD_CHECK(!m.base.defined() ||
                 (layer.weight.defined() && m.base.shape() == layer.weight.value().shape() &&
                  equal(m.base.to(layer.weight.dtype()), layer.weight.value())),
             Unsupported, "{}: '{}' has another weight than the model", file, path);
    const double rank = static_cast<double>(r);
    const double scale = alphas.of(path) / (rooted ? std::sqrt(rank) : rank);
    out.layers.push_back({name, layer.transposed, m.a, m.b * scale});
  }
  return out;
}

void merge_adapter(PretrainedModel& model, const Adapter& adapter) {
  const NoGradGuard no_grad;
  const auto layers = layers_to_adapt(model);
  for (const AdapterLayer& l : adapter.layers)
    TD_CHECK(layers.count(l.path), Value, "the model has no linear layer '{}'", l.path);
  for (const AdapterLayer& l : adapter.layers)
    TD_CHECK(layers.at(l.path).weight.defined(), Unsupported,
             "'{}' holds codes, which no update can be added to\nApply the adapter at run time "
             "(AdapterSet, or `adapters` of a served model).",
             l.path);
  for (const AdapterLayer& l : adapter.layers) {
    Param weight = layers.at(l.path).weight;
    const Tensor update = matmul(l.b, l.a);
    const Tensor whole =
        weight.value().to(DType::f32) + (l.transposed ? update.transpose(0, 1) : update);
    weight.assign_(whole.to(weight.dtype()));
  }
}

// ---- at run time

namespace {
thread_local const AdapterSet::Use* adapters_in_use = nullptr;
}  // namespace

AdapterSet::Use::Use(const AdapterSet& set, int64_t adapter)
    : set_(set), adapter_(adapter), before_(adapters_in_use) {
  TD_CHECK(adapter >= 0 && adapter <= set.count(), Value, "there is no adapter {} of {}", adapter,
           set.count());
  adapters_in_use = this;
}
AdapterSet::Use::Use(const AdapterSet& set, Tensor rows)
    : set_(set), rows_(std::move(rows)), before_(adapters_in_use) {
  TD_CHECK(rows_.dim() == 1 && is_integral(rows_.dtype()), Value,
           "the adapters of rows expect integers [n], got {}", rows_.shape().to_string());
  adapters_in_use = this;
}
AdapterSet::Use::~Use() { adapters_in_use = before_; }

AdapterSet::AdapterSet(PretrainedModel& model, const std::vector<Adapter>& adapters)
    : count_(static_cast<int64_t>(adapters.size())) {
  const NoGradGuard no_grad;
  const auto layers = layers_to_adapt(model);
  std::map<std::string, int64_t> ranks;  // the largest of each layer's
  for (const Adapter& adapter : adapters)
    for (const AdapterLayer& l : adapter.layers) {
      TD_CHECK(layers.count(l.path), Value, "the model has no linear layer '{}'", l.path);
      ranks[l.path] = std::max(ranks[l.path], l.a.size(0));
    }
  for (const auto& [path, rank] : ranks) {
    const AdaptedLayer& layer = layers.at(path);
    std::vector<Tensor> a = {zeros({rank, layer.in})}, b = {zeros({rank, layer.out})};
    for (const Adapter& adapter : adapters) {
      a.push_back(a[0]);
      b.push_back(b[0]);
      for (const AdapterLayer& l : adapter.layers) {
        if (l.path != path) continue;
        const int64_t less = rank - l.a.size(0);
        a.back() = cat({l.a, zeros({less, layer.in})}, 0);
        b.back() = cat({l.b.transpose(0, 1), zeros({less, layer.out})}, 0);
      }
    }
    layers_.push_back({layer.module, 0, Buffer(stack(a, 0)), Buffer(stack(b, 0))});
  }
  for (Layer& layer : layers_)
    layer.hook = layer.module->register_forward_hook(
        [this, l = &layer](nn::Module&, const Tensor& in, const Tensor& out) {
          const bool used = adapters_in_use && &adapters_in_use->set_ == this;
          return used ? add_update(*l, in, out) : Tensor();
        });
}

AdapterSet::~AdapterSet() {
  for (const Layer& layer : layers_) layer.module->remove_hook(layer.hook);
}

Tensor AdapterSet::add_update(const Layer& layer, const Tensor& in, const Tensor& out) const {
  const auto chosen = [use = adapters_in_use](const Buffer& all) {
    return use->rows_.defined() ? index_select(all, 0, use->rows_)
                                : all.value().narrow(0, use->adapter_, 1);
  };
  const Tensor a = chosen(layer.a), b = chosen(layer.b);
  const Tensor x = in.to(DType::f32).reshape({a.size(0), -1, a.size(2)});
  const Tensor y = matmul(matmul(x, a.transpose(1, 2)), b);
  return (out.to(DType::f32) + y.reshape(out.shape())).to(out.dtype());
}

}  // namespace tandem::models
