// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/gpt_folder.h"

#include <algorithm>

#include "tandem/graph/context.h"
#include "tandem/models/text/gpt.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/open_run.h"

namespace tandem::recipe {
namespace {

struct Renamed {
  const char *from, *to;
  bool turned;
};
// Of a block; GPT-2's layers keep their weights as [in, out].
constexpr Renamed kBlockNames[] = {
    {"ln_1.", "ln_1.", false},         {"ln_2.", "ln_2.", false},
    {"c_attn.", "attn.c_attn.", true}, {"c_proj.", "attn.c_proj.", true},
    {"c_fc.", "mlp.c_fc.", true},      {"mlp_proj.", "mlp.c_proj.", true},
};

// The names and shapes of GPT-2; biases that the run's model lacks stay 0.
StateDict as_gpt2(const StateDict& run) {
  StateDict out;
  for (const auto& [name, t] : run) {
    std::string to = "transformer." + name;
    Tensor value = t;
    if (name.starts_with("h.")) {
      const size_t at = name.find('.', 2) + 1;
      for (const Renamed& r : kBlockNames) {
        if (name.compare(at, std::string_view(r.from).size(), r.from) != 0) continue;
        to = "transformer." + name.substr(0, at) + r.to +
             name.substr(at + std::string_view(r.from).size());
        if (r.turned && t.dim() == 2) value = t.t().contiguous();
      }
    }
    out[to] = value;
  }
  return out;
}

io::Json config_of(const StateDict& state, int64_t heads) {
  const Tensor &wte = state.at("wte.weight"), &wpe = state.at("wpe.weight");
  int64_t layers = 0;
  while (state.contains("h." + std::to_string(layers) + ".ln_1.weight")) ++layers;
  return io::Json(io::Json::Object{{"model_type", "gpt2"},
                                   {"architectures", io::Json::Array{"GPT2LMHeadModel"}},
                                   {"vocab_size", wte.size(0)},
                                   {"n_positions", wpe.size(0)},
                                   {"n_embd", wte.size(1)},
                                   {"n_layer", layers},
                                   {"n_head", heads},
                                   {"activation_function", "gelu"},
                                   {"tie_word_embeddings", true}});
}

// A symbol for each character, and no merges. Bytes beyond ASCII are no text by themselves.
std::string tokenizer_of(const std::vector<int64_t>& characters) {
  io::Json::Object vocabulary;
  for (size_t i = 0; i < characters.size(); ++i) {
    if (characters[i] >= 128) return "";
    vocabulary.push_back({std::string(1, static_cast<char>(characters[i])), i});
  }
  if (vocabulary.empty()) return "";
  const io::Json::Object model{
      {"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", io::Json::Array{}}};
  return io::Json(io::Json::Object{{"version", "1.0"},
                                   {"added_tokens", io::Json::Array{}},
                                   {"normalizer", io::Json()},
                                   {"pre_tokenizer", io::Json()},
                                   {"post_processor", io::Json()},
                                   {"decoder", io::Json::Object{{"type", "Fuse"}}},
                                   {"model", model}})
             .dump(2) +
         "\n";
}

}  // namespace

GptFolder gpt_folder_of(const std::string& folder) {
  const OpenedRun run = open_run(folder);
  TD_CHECK(run.type == "gpt" && run.model.module->type() == "GPT", Unsupported,
           "the model of '{}' is '{}': runs of gpt alone become Hugging Face folders", folder,
           run.type);
  const int64_t heads = static_cast<models::GPT&>(*run.model.module).options().heads;
  const StateDict state = run.model.module->state_dict();
  GptFolder out;
  out.model =
      models::from_config(models::ModelConfig::from_json(config_of(state, heads).dump(), folder));
  const NoGradGuard no_grad;
  nn::Module& net = out.model->module();
  for (auto& [name, p] : net.named_parameters())
    if (name.ends_with(".bias")) p.assign_(zeros(p.shape()));
  const nn::LoadReport report = net.load_state_dict(as_gpt2(state), false);
  TD_CHECK(report.unexpected.empty(), Unsupported, "'{}' holds '{}', which GPT-2 has no place for",
           folder, report.unexpected.at(0));
  net.eval();
  out.tokenizer = tokenizer_of(run.data.facts.characters);
  return out;
}

}  // namespace tandem::recipe
