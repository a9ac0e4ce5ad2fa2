// SPDX-License-Identifier: Apache-2.0
#include "tandem/plan/jobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/files/file.h"
#include "tandem/base/files/folder.h"
#include "tandem/graph/trace.h"
#include "tandem/models/pretrained.h"
#include "tandem/models/registry.h"
#include "tandem/ops/ops.h"
#include "tandem/plan/jobs_internal.h"
#include "tandem/plan/names_internal.h"

namespace tandem::plan {
namespace {

// Sizes as published, in the words of Hugging Face's config.json.
struct FamilyRow {
  const char* family;
  const char* size;
  const char* config;
};
#define GPT2(width, layers, heads, vocab, positions)                                    \
  "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"n_embd\":" #width \
  ",\"n_layer\":" #layers ",\"n_head\":" #heads ",\"vocab_size\":" #vocab               \
  ",\"n_positions\":" #positions ",\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0}"
#define LLAMA(width, inner, layers, heads, kv, vocab, positions, tied)                         \
  "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":" #width \
  ",\"intermediate_size\":" #inner ",\"num_hidden_layers\":" #layers                           \
  ",\"num_attention_heads\":" #heads ",\"num_key_value_heads\":" #kv ",\"vocab_size\":" #vocab \
  ",\"max_position_embeddings\":" #positions ",\"tie_word_embeddings\":" #tied "}"
#define BERT(type, head, width, inner, layers, heads, vocab)                              \
  "{\"model_type\":\"" type "\",\"architectures\":[\"" head "\"],\"hidden_size\":" #width \
  ",\"intermediate_size\":" #inner ",\"num_hidden_layers\":" #layers                      \
  ",\"num_attention_heads\":" #heads ",\"vocab_size\":" #vocab                            \
  ",\"hidden_dropout_prob\":0.1,\"attention_probs_dropout_prob\":0.1}"
#define VIT(width, inner, layers, heads, patch)                                         \
  "{\"model_type\":\"vit\",\"architectures\":[\"ViTForImageClassification\"],\"hidden_" \
  "size\":" #width ",\"intermediate_size\":" #inner ",\"num_hidden_layers\":" #layers   \
  ",\"num_attention_heads\":" #heads ",\"patch_size\":" #patch ",\"num_labels\":1000}"
#define T5(width, inner, kv, layers, heads)                                                       \
  "{\"model_type\":\"t5\",\"architectures\":[\"T5ForConditionalGeneration\"],\"d_model\":" #width \
  ",\"d_ff\":" #inner ",\"d_kv\":" #kv ",\"num_layers\":" #layers ",\"num_heads\":" #heads        \
  ",\"vocab_size\":32128,\"dropout_rate\":0}"
constexpr FamilyRow kFamilies[] = {
    {"gpt2", "124m", GPT2(768, 12, 12, 50257, 1024)},
    {"gpt2", "medium", GPT2(1024, 24, 16, 50257, 1024)},
    {"gpt2", "large", GPT2(1280, 36, 20, 50257, 1024)},
    {"gpt2", "xl", GPT2(1600, 48, 25, 50257, 1024)},
    {"mpt", "125m", GPT2(768, 12, 12, 50432, 65536)},
    {"mpt", "350m", GPT2(1024, 24, 16, 50432, 65536)},
    {"mpt", "760m", GPT2(1536, 24, 12, 50432, 65536)},
    {"mpt", "1b", GPT2(2048, 24, 16, 50432, 65536)},
    {"mpt", "3b", GPT2(2560, 32, 20, 50432, 65536)},
    {"mpt", "7b", GPT2(4096, 32, 32, 50432, 65536)},
    {"mpt", "13b", GPT2(5120, 40, 40, 50432, 65536)},
    {"mpt", "30b", GPT2(7168, 48, 56, 50432, 65536)},
    {"mpt", "70b", GPT2(8192, 80, 64, 50432, 65536)},
    {"llama", "7b", LLAMA(4096, 11008, 32, 32, 32, 32000, 4096, false)},
    {"llama", "13b", LLAMA(5120, 13824, 40, 40, 40, 32000, 4096, false)},
    {"llama", "70b", LLAMA(8192, 28672, 80, 64, 8, 32000, 4096, false)},
    {"llama3", "1b", LLAMA(2048, 8192, 16, 32, 8, 128256, 131072, true)},
    {"llama3", "3b", LLAMA(3072, 8192, 28, 24, 8, 128256, 131072, true)},
    {"llama3", "8b", LLAMA(4096, 14336, 32, 32, 8, 128256, 131072, false)},
    {"llama3", "70b", LLAMA(8192, 28672, 80, 64, 8, 128256, 131072, false)},
    {"llama3", "405b", LLAMA(16384, 53248, 126, 128, 8, 128256, 131072, false)},
    {"mistral", "7b", LLAMA(4096, 14336, 32, 32, 8, 32000, 32768, false)},
    {"tinyllama", "1.1b", LLAMA(2048, 5632, 22, 32, 4, 32000, 2048, false)},
    {"smollm", "135m", LLAMA(576, 1536, 30, 9, 3, 49152, 2048, true)},
    {"bert", "base", BERT("bert", "BertForMaskedLM", 768, 3072, 12, 12, 30522)},
    {"bert", "large", BERT("bert", "BertForMaskedLM", 1024, 4096, 24, 16, 30522)},
    {"roberta", "base", BERT("roberta", "RobertaForMaskedLM", 768, 3072, 12, 12, 50265)},
    {"vit", "base", VIT(768, 3072, 12, 12, 16)},
    {"vit", "large", VIT(1024, 4096, 24, 16, 16)},
    {"t5", "small", T5(512, 2048, 64, 6, 8)},
    {"t5", "base", T5(768, 3072, 64, 12, 12)},
    {"t5", "large", T5(1024, 4096, 64, 24, 16)},
};

// One decoded sample costs a core about this long (measured by `tandem bench --machine` where it
// ran): a photo of 500 x 375 pixels to 224 x 224, by the area that is decoded.
constexpr double kPhotoSeconds = 1.0 / 325;
constexpr double kPhotoBytes = 110e3;

void gather(nn::Module& m, JobModel& out) {
  out.parameters = m.parameters();
  out.buffers = m.buffers();
}

Job vision_job(const std::string& name, const JobOptions& o) {
  models::ModelInfo info = models::info(name);
  std::vector<int64_t> sample = info.input;
  if (o.image_size) sample[1] = sample[2] = *o.image_size;
  Job job;
  job.name = name;
  job.unit = "images";
  const double area = static_cast<double>(sample[1] * sample[2]) / (224.0 * 224.0);
  if (sample[0] == 3) {
    job.sample_bytes = kPhotoBytes;
    job.files = true;
    job.decode_seconds = kPhotoSeconds * std::max(1.0, area);
    job.sample_from = "a JPEG photo of ImageNet's mean size; 325 photos a second and core (FFCV)";
  } else {
    job.sample_bytes = static_cast<double>(sample[0] * sample[1] * sample[2]);
    job.sample_from = "one byte per pixel, as it lies in the file";
  }
  job.make = [name, sample, o](int64_t batch) {
    models::ModelOptions mo;
    mo.num_classes = o.classes;
    if (o.image_size && name.starts_with("vit")) mo.image_size = *o.image_size;
    auto net = std::make_shared<nn::AnyModule>(models::make(name, mo));
    auto m = std::make_shared<JobModel>();
    gather(*net, *m);
    Tensor x = empty({batch, sample[0], sample[1], sample[2]}, DType::f32);
    m->inputs = {x};
    m->to = [net](DType d) { net->to(d); };
    m->train = [net](bool on) { net->train(on); };
    m->forward = [net](const std::vector<Tensor>& in) { return (*net)(in[0]); };
    // A model that keeps the image's size classifies pixels.
    const bool pixels = name.starts_with("unet");
    m->inputs.push_back(pixels ? zeros({batch, sample[1], sample[2]}, DType::i64)
                               : zeros({batch}, DType::i64));
    m->loss = [net, o](const std::vector<Tensor>& in) {
      return class_loss((*net)(in[0]), in[1], o);
    };
    return m;
  };
  return job;
}

Job config_job(const models::ModelConfig& config, const std::string& name, const JobOptions& o) {
  const std::string type = config.model_type();
  Job job;
  job.name = name;
  const bool vision = type == "vit" || config.json().find("image_size");
  job.unit = vision ? "images" : "tokens";
  int64_t longest = 0;
  for (const char* key : {"n_positions", "max_position_embeddings"})
    longest = std::max(longest, config.integer(key, 0, 0));
  for (const char* key : {"n_layer", "num_hidden_layers", "num_layers", "n_layers"})
    job.transformer_layers = std::max(job.transformer_layers, config.integer(key, 0, 0));
  for (const char* key : {"n_embd", "hidden_size", "d_model", "dim"})
    job.width = std::max(job.width, config.integer(key, 0, 0));
  for (const char* key : {"attn_pdrop", "attention_dropout", "attention_probs_dropout_prob"})
    job.attention_dropout = std::max(job.attention_dropout, config.number(key, 0));
  if (longest == 0) longest = type == "gpt2" ? 1024 : 2048;
  const bool encoder = type == "bert" || type == "roberta" || type == "xlm-roberta" ||
                       type == "camembert" || type == "distilbert" || type == "t5" ||
                       type == "bart";
  const int64_t length = o.sequence.value_or(std::min<int64_t>(longest, encoder          ? 512
                                                                        : type == "gpt2" ? 1024
                                                                                         : 2048));
  TD_CHECK(length > 0, Value, "the sequence is {} tokens long\nGive 1 or more.", length);
  const bool learned =
      encoder ? type != "t5" : type == "gpt2";  // positions, of which there is an end
  TD_CHECK(vision || !learned || length <= std::max<int64_t>(longest, 512), Value,
           "{} has {} positions, a sequence of {} was asked for", name, longest, length);
  if (vision) {
    // Each image is a number of patches and a token for the whole.
    const int64_t side = o.image_size.value_or(config.first_integer("image_size", 224)) /
                         std::max<int64_t>(1, config.first_integer("patch_size", 16));
    job.width *= side * side + 1;
    job.sample_bytes = kPhotoBytes;
    job.files = true;
    job.decode_seconds = kPhotoSeconds;
    job.sample_from = "a JPEG photo of ImageNet's mean size; 325 photos a second and core (FFCV)";
  } else {
    job.units_per_sample = static_cast<double>(length);
    job.sample_bytes = static_cast<double>(length) * 2;
    job.sample_from = "tokens of two bytes each, made beforehand";
  }
  job.make = [config, length, vision, o](int64_t batch) {
    std::shared_ptr<models::PretrainedModel> net = models::from_config(config);
    auto m = std::make_shared<JobModel>();
    gather(net->module(), *m);
    m->to = [net](DType d) { net->module().to(d); };
    m->train = [net](bool on) { net->module().train(on); };
    models::ModelInputs named;
    if (vision) {
      const int64_t side = o.image_size.value_or(config.first_integer("image_size", 224));
      m->inputs = {empty({batch, config.integer("num_channels", 3), side, side}, DType::f32),
                   zeros({batch}, DType::i64)};
    } else {
      m->inputs = {zeros({batch, length}, DType::i64), zeros({batch, length}, DType::i64)};
    }
    const std::vector<models::ModelPort> ports = net->inputs();
    const bool pair = std::any_of(ports.begin(), ports.end(), [](const models::ModelPort& p) {
      return p.name == "decoder_input_ids";
    });
    const auto call = [net, vision, pair](const std::vector<Tensor>& in) {
      models::ModelInputs named;
      (vision ? named.pixel_values : named.input_ids) = in[0];
      if (pair) named.decoder_input_ids = in[1];
      return net->forward(named);
    };
    m->forward = call;
    m->loss = [call, o](const std::vector<Tensor>& in) {
      Tensor y = call(in);
      const Tensor target = y.dim() == 2 && in[1].dim() == 2 ? in[1].select(1, 0) : in[1];
      return class_loss(std::move(y), target, o);
    };
    return m;
  };
  return job;
}

}  // namespace

Tensor class_loss(Tensor logits, const Tensor& target, const JobOptions& o) {
  // What is compiled widens inside its kernels and keeps no logarithms, in PyTorch as here.
  const bool composed = o.framework == Framework::pytorch && !is_tracing();
  if (o.f32_loss && !is_tracing()) logits = logits.to(DType::f32);
  Tensor classes = target;
  if (logits.dim() == 3) {  // [n, c, h, w] and [n, h, w] stay as they are
    logits = logits.reshape({-1, logits.size(-1)});
    classes = target.reshape({-1});
  }
  if (!composed) return cross_entropy(std::move(logits), classes);
  return nll_loss(log_softmax(std::move(logits), 1), classes);
}

std::vector<std::string> job_names() {
  std::vector<std::string> all;
  for (const models::ModelInfo& i : models::list()) all.push_back(i.name);
  for (const FamilyRow& r : kFamilies) all.push_back(std::string(r.family) + ":" + r.size);
  return all;
}

Job job_of_config(const std::string& json, const std::string& name, const JobOptions& o) {
  return config_job(models::ModelConfig::from_json(json, name), name, o);
}

Job find_job(const std::string& model, const JobOptions& o) {
  for (const FamilyRow& r : kFamilies) {
    if (model != std::string(r.family) + ":" + r.size) continue;
    std::string config = r.config;
    // Learned positions of this family are as many as the sequence is long.
    const std::string open = "\"n_positions\":65536";
    if (const size_t at = config.find(open); at != config.npos)
      config.replace(at, open.size(),
                     "\"n_positions\":" + std::to_string(o.sequence.value_or(2048)));
    return job_of_config(config, model, o);
  }
  for (const models::ModelInfo& i : models::list())
    if (i.name == model) return vision_job(model, o);
  const auto ends = [&](std::string_view e) {
    return model.size() >= e.size() && model.compare(model.size() - e.size(), e.size(), e) == 0;
  };
  if (ends(".onnx")) return onnx_job(model, o);
  if (ends(".json")) return config_job(models::ModelConfig::from_file(model), model, o);
  if (file_exists(model + "/config.json"))
    return config_job(models::ModelConfig::from_file(model + "/config.json"), model, o);
  std::string sizes;
  for (const FamilyRow& r : kFamilies)
    if (model.substr(0, model.find(':')) == r.family)
      sizes += (sizes.empty() ? "" : ", ") + std::string(r.family) + ":" + r.size;
  TD_FAIL(
      Value,
      "there is no model '{}'\n{}A model is a name that `tandem inspect` knows (resnet50), a "
      "family and size (llama:7b), a recipe (.yaml), an ONNX file, or a folder with config.json.",
      model,
      did_you_mean(model, job_names()) +
          (sizes.empty() ? "" : "This family's sizes are " + sizes + ". "));
}

}  // namespace tandem::plan
