// SPDX-License-Identifier: Apache-2.0
// Loads Hugging Face folders: the family by model_type, the weights by their names.
#include "tandem/models/pretrained.h"

#include <algorithm>
#include <set>

#include "tandem/base/budget.h"
#include "tandem/base/log.h"
#include "tandem/io/safetensors.h"
#include "tandem/models/codes.h"
#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

struct Family {
  const char* model_type;
  detail::MakeModel* make;
  const char* prefix;                       // of the headless model inside the one with a head
  StateDict (*adapt)(StateDict) = nullptr;  // from the files' names to the model's
};
constexpr Family kFamilies[] = {
    {"bert", detail::make_text_encoder, "bert."},
    {"distilbert", detail::make_text_encoder, "distilbert."},
    {"roberta", detail::make_text_encoder, "roberta."},
    {"xlm-roberta", detail::make_text_encoder, "roberta."},
    {"camembert", detail::make_text_encoder, "roberta."},
    {"gpt2", detail::make_gpt2, "transformer."},
    {"llama", detail::make_decoder, "model."},
    {"mistral", detail::make_decoder, "model."},
    {"qwen2", detail::make_decoder, "model."},
    {"qwen3", detail::make_decoder, "model."},
    {"gemma", detail::make_decoder, "model."},
    {"gemma2", detail::make_decoder, "model."},
    {"gemma3_text", detail::make_decoder, "model."},
    {"phi3", detail::make_decoder, "model."},
    {"mixtral", detail::make_decoder, "model.", detail::stacked_experts},
    {"vit", detail::make_vision_encoder, "vit."},
    {"vit_mae", detail::make_vision_encoder, "vit.", detail::mae_names},
    {"dinov2", detail::make_vision_encoder, "dinov2."},
    {"t5", detail::make_t5, ""},
    {"bart", detail::make_encoder_decoder, "model."},
    {"whisper", detail::make_encoder_decoder, "model."},
    {"swin", detail::make_swin, "swin."},
    {"convnext", detail::make_hf_convnext, "convnext."},
    {"detr", detail::make_detr, "model.", detail::detr_names},
    {"sam", detail::make_sam, ""},
    {"sam_vision_model", detail::make_sam, "vision_encoder."},
    {"clip", detail::make_image_text, ""},
    {"clip_text_model", detail::make_image_text, "text_model."},
    {"clip_vision_model", detail::make_image_text, "vision_model."},
    {"siglip", detail::make_image_text, ""},
    {"siglip_text_model", detail::make_image_text, "text_model."},
    {"siglip_vision_model", detail::make_image_text, "vision_model."},
};

std::string supported_types() {
  std::string known;
  for (const Family& f : kFamilies)
    known += (known.empty() ? "" : ", ") + std::string(f.model_type);
  return known;
}
const Family& family_of(const ModelConfig& c) {
  for (const Family& f : kFamilies)
    if (c.model_type() == f.model_type) return f;
  TD_FAIL(Unsupported, "models of type '{}' are not supported (supported: {})", c.model_type(),
          supported_types());
}

// Old files call the parameters of a norm gamma and beta.
std::string renamed_norm(std::string name) {
  for (const auto& [from, to] : {std::pair(".gamma", ".weight"), std::pair(".beta", ".bias")})
    if (detail::ends_with(name, from))
      return name.substr(0, name.size() - std::string_view(from).size()) + to;
  return name;
}

// The names as the model has them: the prefix of a model with a head may be missing.
StateDict renamed(const StateDict& files, const Family& family) {
  const std::string prefix = family.prefix;
  const bool bare = !prefix.empty() && std::none_of(files.begin(), files.end(), [&](const auto& e) {
    return e.first.compare(0, prefix.size(), prefix) == 0;
  });
  StateDict out;
  for (const auto& [name, t] : files) {
    const std::string n = renamed_norm(bare ? prefix + name : name);
    if (!out.contains(n)) out[n] = t;
  }
  return family.adapt ? family.adapt(std::move(out)) : out;
}

// How many numbers files hold; words of 32 bits with codes stand for several.
int64_t numbers_in(const ModelConfig& c, const StateDict& files) {
  int64_t each = 1, all = 0;
  if (c.object("quantization_config")) {
    const ModelConfig q = c.part("quantization_config");
    each = 32 / std::clamp<int64_t>(q.integer("bits", q.integer("w_bit", 4)), 1, 32);
  }
  for (const auto& [name, t] : files)
    all += t.numel() * (detail::ends_with(name, ".qweight") ? each : 1);
  return all;
}

// The sizes a config claims must be backed by the files before memory is allocated for them.
void check_claims(const ModelConfig& c, const StateDict& files) {
  const int64_t have = numbers_in(c, files);
  const auto first = [&](std::initializer_list<const char*> keys) {
    for (const char* k : keys)
      if (const int64_t v = c.integer(k, 0, 0); v > 0) return static_cast<double>(v);
    return 0.0;
  };
  const double width = first({"hidden_size", "n_embd", "dim", "d_model"});
  const double claimed =
      width *
          (first({"vocab_size"}) + first({"max_position_embeddings", "n_positions"}) *
                                       (c.object("rope_parameters") || c.object("rope_scaling") ||
                                                c.number("rope_theta", 0) > 0
                                            ? 0
                                            : 1)) +
      first({"num_hidden_layers", "n_layer", "n_layers", "num_layers"}) * width *
          (width + first({"intermediate_size", "n_inner", "hidden_dim", "d_ff"}));
  if (claimed > 1.5 * static_cast<double>(have) + 1e6)
    c.fail(fmt::format("it describes at least {:.0f} numbers, the files hold {}", claimed, have));
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 8;
  std::string out;
  for (size_t i = 0; i < names.size() && i < kShown; ++i) out += (i ? ", " : "") + names[i];
  return out + (names.size() > kShown ? fmt::format(" ... ({})", names.size()) : "");
}

void load_into(PretrainedModel& model, const StateDict& files) {
  const ModelConfig& config = model.config;
  try {
    nn::LoadReport report = model.module().load_state_dict(files, false);
    if (!report.missing.empty())
      config.fail(fmt::format("{} of the model's parameters are not in the files: {}",
                              report.missing.size(), listed(report.missing)));
    model.unexpected = std::move(report.unexpected);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Shape) throw;
    config.fail(e.text());
  }
  model.unknown_keys = config.unread();
  if (!model.unexpected.empty())
    log_warning("{} of the weights are not used: {}", model.unexpected.size(),
                listed(model.unexpected));
  if (!model.unknown_keys.empty())
    log_warning("config.json: not used: {}", listed(model.unknown_keys));
}

}  // namespace

Tensor& ModelInputs::at(std::string_view name) {
  const std::pair<const char*, Tensor*> all[] = {{"input_ids", &input_ids},
                                                 {"attention_mask", &attention_mask},
                                                 {"token_type_ids", &token_type_ids},
                                                 {"decoder_input_ids", &decoder_input_ids},
                                                 {"pixel_values", &pixel_values},
                                                 {"input_features", &input_features},
                                                 {"noise", &noise}};
  std::string known;
  for (const auto& [key, tensor] : all) {
    if (name == key) return *tensor;
    known += (known.empty() ? "" : ", ") + std::string(key);
  }
  TD_FAIL(Value, "there is no input '{}'\nThere are {}.", name, known);
}

namespace {
struct Suffix {
  detail::Head head;
  const char* text;
};
constexpr Suffix kSuffixes[] = {
    {detail::Head::none, "Model"},
    {detail::Head::causal, "ForCausalLM"},
    {detail::Head::causal, "LMHeadModel"},
    {detail::Head::masked, "ForMaskedLM"},
    {detail::Head::sequence, "ForSequenceClassification"},
    {detail::Head::token, "ForTokenClassification"},
    {detail::Head::question, "ForQuestionAnswering"},
    {detail::Head::choice, "ForMultipleChoice"},
    {detail::Head::image, "ForImageClassification"},
    {detail::Head::generation, "ForConditionalGeneration"},
    {detail::Head::detection, "ForObjectDetection"},
    {detail::Head::pretraining, "ForPreTraining"},
    {detail::Head::encoder, "EncoderModel"},
    {detail::Head::text, "TextModel"},
    {detail::Head::vision, "VisionModel"},
    {detail::Head::text_embedding, "TextModelWithProjection"},
    {detail::Head::image_embedding, "VisionModelWithProjection"},
};
}  // namespace

detail::Head detail::head_of(const ModelConfig& c, std::string_view prefix,
                             std::initializer_list<Head> known) {
  const std::string& name = c.architecture();
  if (name.empty()) return *known.begin();
  std::string there;
  for (const Suffix& s : kSuffixes) {
    if (s.head != Head::none && std::find(known.begin(), known.end(), s.head) == known.end())
      continue;
    if (name == std::string(prefix) + s.text) return s.head;
    there += (there.empty() ? "" : ", ") + std::string(prefix) + s.text;
  }
  TD_FAIL(Unsupported, "models of class '{}' are not supported (of type '{}' there are {})", name,
          c.model_type(), there);
}

DecodeState PretrainedModel::start_decoding(int64_t, int64_t) {
  TD_FAIL(Unsupported, "models of type '{}' do not generate text", config.model_type());
}
Tensor PretrainedModel::decode(const Tensor&, DecodeState&) {
  TD_FAIL(Unsupported, "models of type '{}' do not generate text", config.model_type());
}
PagedCache PretrainedModel::start_paged(int64_t, int64_t) {
  TD_FAIL(Unsupported, "models of type '{}' do not decode texts together", config.model_type());
}
Tensor PretrainedModel::decode_paged(const PagedStep&, PagedCache&) {
  TD_FAIL(Unsupported, "models of type '{}' do not decode texts together", config.model_type());
}

Tensor PretrainedModel::start(const ModelInputs& prompt, DecodeState& state) {
  return decode(prompt.input_ids, state);
}
Tensor PretrainedModel::first_tokens(const ModelInputs& prompt, int64_t n) const {
  if (prompt.decoder_input_ids.defined()) return prompt.decoder_input_ids;
  return full({n, 1}, config.integer("decoder_start_token_id", 0, 0), DType::i64);
}

std::unique_ptr<PretrainedModel> from_config(const ModelConfig& config) {
  detail::check_codes_config(config);
  return family_of(config).make(config, detail::FileNames());
}

StateDict detail::load_weights_of(const std::string& folder) {
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

std::unique_ptr<PretrainedModel> from_pretrained(const FilePath& folder) {
  if (file_exists(folder.str() + "/modules.json")) return detail::load_sentence_model(folder);
  return detail::load_family(folder.str());
}

std::unique_ptr<PretrainedModel> detail::load_family(const std::string& folder) {
  const std::string path = folder + "/config.json";
  const ModelConfig config = ModelConfig::from_file(path);
  detail::check_codes_config(config);
  const Family& family = family_of(config);
  StateDict files = renamed(load_weights_of(folder), family);
  check_claims(config, files);
  uint64_t given = 0;
  for (const auto& [name, t] : files)
    given += static_cast<uint64_t>(t.numel()) * size_of(t.dtype());
  // What a config asks for is limited by what the files hold.
  const Budget budget(path, given);
  auto model = family.make(config, detail::FileNames(&files));
  detail::take_codes(*model, files);
  load_into(*model, files);
  model->module().eval();
  return model;
}

}  // namespace tandem::models
