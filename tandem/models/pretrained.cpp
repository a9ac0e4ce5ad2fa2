// SPDX-License-Identifier: Apache-2.0
// Loads Hugging Face folders: the family by model_type, the weights by their names.
#include "tandem/models/pretrained.h"

#include <algorithm>
#include <set>

#include "tandem/io/safetensors.h"
#include "tandem/models/text/attention_internal.h"

namespace tandem::models {
namespace {

struct Family {
  const char* model_type;
  std::unique_ptr<PretrainedModel> (*make)(const ModelConfig&);
  const char* prefix;  // prefix of the headless model inside the one with a head
};
constexpr Family kFamilies[] = {
    {"bert", detail::make_bert, "bert."},
    {"distilbert", detail::make_distilbert, "distilbert."},
    {"roberta", detail::make_roberta, "roberta."},
    {"gpt2", detail::make_gpt2, "transformer."},
    {"llama", detail::make_llama, "model."},
    {"vit", detail::make_hf_vit, "vit."},
    {"t5", detail::make_t5, ""},
};

const Family& family_of(const ModelConfig& c) {
  std::string known;
  for (const Family& f : kFamilies) {
    if (c.model_type() == f.model_type) return f;
    known += (known.empty() ? "" : ", ") + std::string(f.model_type);
  }
  TD_FAIL(Unsupported, "models of type '{}' are not supported (supported: {})", c.model_type(),
          known);
}

StateDict load_weights_of(const std::string& folder) {
  const std::string one = folder + "/model.safetensors", index = one + ".index.json";
  if (file_exists(one) || !file_exists(index)) return load(one);
  const io::Json json = io::parse_json(read_file(index, size_t{1} << 28), index);
  const io::Json* map = json.find("weight_map");
  TD_CHECK(map && map->as_object(), Format, "{}: there is no object 'weight_map'", index);
  std::set<std::string> files;
  for (const auto& [name, file] : *map->as_object()) {
    const std::string* f = file.as_string();
    TD_CHECK(f && !f->empty() && (*f)[0] != '.' && f->find('/') == f->npos &&
                 f->find('\\') == f->npos && f->find('\0') == f->npos,
             Format, "{}: the file of {} must be a name in the same folder", index,
             io::quote_json(name));
    files.insert(*f);
  }
  StateDict all;
  for (const std::string& f : files)
    for (const auto& [name, t] : load(folder + "/" + f)) {
      TD_CHECK(!all.contains(name), Format, "{}: {} is in two files", index, name);
      all[name] = t;
    }
  return all;
}

// The names as the model has them: the prefix of a model with a head may be missing, and old files
// call the parameters of a norm gamma and beta.
StateDict renamed(const StateDict& files, const std::string& prefix) {
  const bool bare = !prefix.empty() && std::none_of(files.begin(), files.end(), [&](const auto& e) {
    return e.first.compare(0, prefix.size(), prefix) == 0;
  });
  StateDict out;
  for (const auto& [name, t] : files) {
    std::string n = bare ? prefix + name : name;
    for (const auto& [from, to] : {std::pair(".gamma", ".weight"), std::pair(".beta", ".bias")})
      if (detail::ends_with(n, from)) n = n.substr(0, n.size() - std::string(from).size()) + to;
    if (!out.contains(n)) out[n] = t;
  }
  return out;
}

// The sizes a config claims must be backed by the files before memory is allocated for them.
void check_claims(const ModelConfig& c, const StateDict& files) {
  int64_t have = 0;
  for (const auto& [name, t] : files) have += t.numel();
  const auto first = [&](std::initializer_list<const char*> keys) {
    for (const char* k : keys)
      if (const int64_t v = c.integer(k, 0, 0); v > 0) return static_cast<double>(v);
    return 0.0;
  };
  const double width = first({"hidden_size", "n_embd", "dim", "d_model"});
  const double claimed =
      width * (first({"vocab_size"}) + first({"max_position_embeddings", "n_positions"}) *
                                           (c.model_type() == "llama" ? 0 : 1)) +
      first({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}) * width *
          (width + first({"intermediate_size", "n_inner", "hidden_dim", "d_ff"}));
  if (claimed > 1.5 * static_cast<double>(have) + 1e6)
    c.fail(fmt::format("it describes at least {:.0f} numbers, the files hold {}", claimed, have));
}

}  // namespace

DecodeState PretrainedModel::start_decoding(int64_t, int64_t) {
  TD_FAIL(Unsupported, "models of type '{}' do not generate text", config.model_type());
}
Tensor PretrainedModel::decode(const Tensor&, DecodeState&) {
  TD_FAIL(Unsupported, "models of type '{}' do not generate text", config.model_type());
}

std::unique_ptr<PretrainedModel> from_config(const ModelConfig& config) {
  return family_of(config).make(config);
}

std::unique_ptr<PretrainedModel> from_pretrained(const FilePath& folder) {
  const ModelConfig config = ModelConfig::from_file(folder.str() + "/config.json");
  const Family& family = family_of(config);
  StateDict files = renamed(load_weights_of(folder.str()), family.prefix);
  check_claims(config, files);
  auto model = family.make(config);
  try {
    nn::LoadReport report = model->module().load_state_dict(files, false);
    if (!report.missing.empty())
      config.fail(fmt::format("{} of the model's parameters are not in the files, the first is {}",
                              report.missing.size(), report.missing[0]));
    model->unexpected = std::move(report.unexpected);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Shape) throw;
    config.fail(e.text());
  }
  model->module().eval();
  return model;
}

}  // namespace tandem::models
