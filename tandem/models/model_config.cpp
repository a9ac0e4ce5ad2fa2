// SPDX-License-Identifier: Apache-2.0
// Reads config.json: every error is Format and names the file and the key.
#include "tandem/models/model_config.h"

#include <cmath>
#include <set>

#include "tandem/base/error.h"

namespace tandem::models {

ModelConfig ModelConfig::from_file(const FilePath& path, bool typed) {
  return from_json(read_file(path, size_t{1} << 24), path.str(), typed);
}

ModelConfig ModelConfig::from_json(std::string_view text, std::string_view what, bool typed) {
  ModelConfig c;
  c.what_ = what;
  c.json_ = io::parse_json(text, what, {.depth = 32, .values = size_t{1} << 20});
  if (!c.json_.as_object()) c.fail("must be an object");
  c.model_type_ = c.text("model_type", "");
  if (typed && c.model_type_.empty()) c.fail("has no 'model_type'");
  if (const io::Json* a = c.find("architectures")) {
    if (!a->as_array()) c.fail("'architectures' must be an array");
    if (!a->as_array()->empty()) {
      const io::Json& first = a->as_array()->front();
      if (!first.as_string()) c.fail("'architectures' must contain names");
      c.architecture_ = *first.as_string();
    }
  }
  return c;
}

void ModelConfig::fail(const std::string& reason) const {
  TD_FAIL(Format, "{}: {}", what_, reason);
}

const io::Json* ModelConfig::find(std::string_view key) const {
  {
    const std::lock_guard hold(read_->lock);
    read_->keys.insert(prefix_ + std::string(key));
  }
  const io::Json* v = json_.find(key);
  return v && !v->is_null() ? v : nullptr;
}

int64_t ModelConfig::integer(std::string_view key, int64_t otherwise, int64_t low,
                             int64_t high) const {
  const io::Json* v = find(key);
  if (!v) return otherwise;
  if (!v->as_int()) fail(fmt::format("'{}' must be an integer, is {}", key, v->kind()));
  if (*v->as_int() < low || *v->as_int() > high)
    fail(fmt::format("'{}' must lie in [{}, {}], is {}", key, low, high, *v->as_int()));
  return *v->as_int();
}
double ModelConfig::number(std::string_view key, double otherwise) const {
  const io::Json* v = find(key);
  if (!v) return otherwise;
  if (v->as_int()) return static_cast<double>(*v->as_int());
  if (!v->as_double() || !std::isfinite(*v->as_double()))
    fail(fmt::format("'{}' must be a number, is {}", key, v->kind()));
  return *v->as_double();
}
bool ModelConfig::flag(std::string_view key, bool otherwise) const {
  const io::Json* v = find(key);
  if (!v) return otherwise;
  if (!v->as_bool()) fail(fmt::format("'{}' must be true or false, is {}", key, v->kind()));
  return *v->as_bool();
}
std::string ModelConfig::text(std::string_view key, std::string_view otherwise) const {
  const io::Json* v = find(key);
  if (!v) return std::string(otherwise);
  if (!v->as_string()) fail(fmt::format("'{}' must be a string, is {}", key, v->kind()));
  return *v->as_string();
}
int64_t ModelConfig::first_integer(std::string_view key, int64_t otherwise) const {
  const io::Json* v = find(key);
  if (!v || !v->as_array()) return integer(key, otherwise, 1, 1 << 16);
  const io::Json::Array& a = *v->as_array();
  for (const io::Json& x : a)
    if (!x.as_int() || *x.as_int() != *a[0].as_int() || *x.as_int() < 1 || *x.as_int() > 1 << 16)
      fail(fmt::format("'{}' must be a size, or several equal sizes", key));
  if (a.empty()) fail(fmt::format("'{}' is empty", key));
  return *a[0].as_int();
}
const io::Json* ModelConfig::object(std::string_view key) const {
  const io::Json* v = find(key);
  if (!v) return nullptr;
  if (!v->as_object()) fail(fmt::format("'{}' must be an object, is {}", key, v->kind()));
  return v;
}
int64_t ModelConfig::num_labels() const {
  const io::Json* names = object("id2label");
  if (names && !names->as_object()->empty())
    return static_cast<int64_t>(names->as_object()->size());
  return integer("num_labels", 2);
}
std::vector<int64_t> ModelConfig::tokens(std::string_view key) const {
  std::vector<int64_t> out;
  const io::Json* v = find(key);
  if (!v) return out;
  const auto take = [&](const io::Json& x) {
    if (!x.as_int()) fail(fmt::format("'{}' must be a token id or several", key));
    if (*x.as_int() >= 0) out.push_back(*x.as_int());
  };
  if (v->as_array())
    for (const io::Json& x : *v->as_array()) take(x);
  else
    take(*v);
  return out;
}

ModelConfig ModelConfig::part(std::string_view key) const {
  ModelConfig c;
  const io::Json* own = object(key);
  c.json_ = own ? *own : io::Json(io::Json::Object{});
  c.what_ = what_ + ", '" + std::string(key) + "'";
  c.prefix_ = prefix_ + std::string(key) + ".";
  c.read_ = read_;
  c.model_type_ = c.text("model_type", "");
  return c;
}
std::vector<std::string> ModelConfig::texts(std::string_view key) const {
  std::vector<std::string> out;
  const io::Json* v = find(key);
  if (!v) return out;
  if (!v->as_array()) fail(fmt::format("'{}' must be an array, is {}", key, v->kind()));
  for (const io::Json& x : *v->as_array()) {
    if (!x.as_string()) fail(fmt::format("'{}' must hold strings", key));
    out.push_back(*x.as_string());
  }
  return out;
}
std::vector<int64_t> ModelConfig::integers(std::string_view key, int64_t low, int64_t high) const {
  std::vector<int64_t> out;
  const io::Json* v = find(key);
  if (!v) return out;
  if (!v->as_array()) fail(fmt::format("'{}' must be an array, is {}", key, v->kind()));
  for (const io::Json& x : *v->as_array()) {
    if (!x.as_int() || *x.as_int() < low || *x.as_int() > high)
      fail(fmt::format("'{}' must hold integers in [{}, {}]", key, low, high));
    out.push_back(*x.as_int());
  }
  return out;
}

void ModelConfig::only(std::string_view key, bool value) const {
  if (flag(key, value) != value)
    fail(fmt::format("'{}': {} is not supported, only {}", key, !value, value));
}
void ModelConfig::only(std::string_view key, const char* value) const {
  if (const std::string is = text(key, value); is != value)
    fail(fmt::format("'{}': '{}' is not supported, only '{}'", key, is, value));
}

namespace {
// Keys of training, tokenizers, generation and bookkeeping.
bool changes_nothing(std::string_view key) {
  for (const char* part :
       {"dropout", "pdrop", "drop_path", "layerdrop", "initializer", "init_std", "token_id", "loss",
        "_version", "_attn_implementation", "_coefficient", "aux_loss", "layer_scale_init",
        "layerscale_value", "jitter", "init_value", "init_xavier"})
    if (key.find(part) != key.npos) return true;
  static const std::set<std::string_view> known = {"_name_or_path",
                                                   "architectures",
                                                   "bad_words_ids",
                                                   "dtype",
                                                   "finetuning_task",
                                                   "forced_decoder_ids",
                                                   "gradient_checkpointing",
                                                   "id2label",
                                                   "is_encoder_decoder",
                                                   "label2id",
                                                   "max_length",
                                                   "min_length",
                                                   "model_type",
                                                   "no_repeat_ngram_size",
                                                   "num_beams",
                                                   "early_stopping",
                                                   "length_penalty",
                                                   "output_attentions",
                                                   "output_hidden_states",
                                                   "output_past",
                                                   "output_router_logits",
                                                   "prefix",
                                                   "pretraining_tp",
                                                   "problem_type",
                                                   "return_dict",
                                                   "suppress_tokens",
                                                   "begin_suppress_tokens",
                                                   "task_specific_params",
                                                   "tokenizer_class",
                                                   "torch_dtype",
                                                   "torchscript",
                                                   "use_cache",
                                                   "use_return_dict",
                                                   "max_position_embeddings",
                                                   "num_labels",
                                                   "summary_activation",
                                                   "summary_first_dropout",
                                                   "summary_proj_to_labels",
                                                   "summary_type",
                                                   "summary_use_proj",
                                                   "n_ctx",
                                                   "predict_special_tokens",
                                                   "reorder_and_upcast_attn",
                                                   "encoder_stride",
                                                   "classifier_dropout"};
  return known.count(key) > 0;
}
}  // namespace

std::vector<std::string> ModelConfig::unread() const {
  std::set<std::string> read;
  {
    const std::lock_guard hold(read_->lock);
    read = read_->keys;
  }
  std::vector<std::string> out;
  for (const auto& [key, value] : *json_.as_object()) {
    const std::string full = prefix_ + key;
    if (!read.count(full)) {
      if (!changes_nothing(key) && !value.is_null()) out.push_back(full);
    } else if (value.as_object() && read.count(full + ".model_type")) {
      for (std::string& inner : part(key).unread()) out.push_back(std::move(inner));
    }
  }
  return out;
}

}  // namespace tandem::models
