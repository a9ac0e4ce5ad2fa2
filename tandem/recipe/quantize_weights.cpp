// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/quantize_weights.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>

#include "tandem/base/files/folder.h"
#include "tandem/graph/context.h"
#include "tandem/io/safetensors.h"
#include "tandem/models/codes.h"
#include "tandem/ops/ops.h"
#include "tandem/recipe/gpt_folder.h"
#include "tandem/recipe/open_run.h"
#include "tandem/recipe/recipe.h"
#include "tandem/text/tokenizer.h"
#include "tandem/weights/weights.h"

namespace tandem::recipe {
namespace {

constexpr int64_t kWindowsTogether = 16;
constexpr double kCalibrationPart = 0.9;

/// Tokens x [n, l], and those that follow each, y.
struct TextWindows {
  Tensor x, y;
};

class WeightQuantising {
 public:
  WeightQuantising(const std::string& source, const std::string& out,
                   const QuantizeWeightsOptions& o);
  QuantizeWeightsReport run();

 private:
  void read_windows();
  void windows_of_recipe(const Recipe& recipe);
  void windows_of_text(const std::string& path);
  double perplexity(int64_t* tokens);
  std::vector<quant::InputSums> input_sums(const std::vector<size_t>& layers);
  std::vector<std::vector<size_t>> by_block() const;
  void scale();
  void round();
  bool fits(const models::CodedLayer& l) const;
  int64_t write();
  io::Json config() const;

  std::string source_, out_;
  bool is_run_;
  QuantizeWeightsOptions o_;
  std::unique_ptr<models::PretrainedModel> model_;
  std::string tokenizer_;
  std::vector<models::CodedLayer> layers_;
  std::vector<TextWindows> calibration_, evaluation_;
};

WeightQuantising::WeightQuantising(const std::string& source, const std::string& out,
                                   const QuantizeWeightsOptions& o)
    : source_(source), out_(out), is_run_(recipe::is_run(source)), o_(o) {
  TD_CHECK(o.samples > 0 && o.evaluated >= 0 && o.length > 1, Value,
           "{} windows of {} tokens to calibrate with and {} to evaluate were asked for", o.samples,
           o.length, o.evaluated);
  check_accuracy_level(o.accuracy_level);
  TD_CHECK(o.weights.group > 0, Value, "groups of {} were asked for, expected a positive number",
           o.weights.group);
  TD_CHECK(!std::filesystem::exists(out) || std::filesystem::is_empty(out), Value,
           "'{}' is there already\nGive a new folder.", out);
  if (is_run_) {
    GptFolder gpt = gpt_folder_of(source);
    model_ = std::move(gpt.model);
    tokenizer_ = std::move(gpt.tokenizer);
  } else {
    model_ = models::from_pretrained(source);
  }
  TD_CHECK(model_->is_causal() && !model_->is_encoder_decoder(), Unsupported,
           "models of type '{}' do not generate text: weights alone are quantised of decoders",
           model_->config.model_type());
  layers_ = models::coded_layers(*model_);
  for (const models::CodedLayer& l : layers_)
    TD_CHECK(!l.has_codes(), Value, "'{}' is quantised already", source);
}

// ---- data

void WeightQuantising::windows_of_recipe(const Recipe& recipe) {
  with_recipe(recipe, Registry::standard(false), [&](RecipeParts& parts) {
    const auto read = [&](const data::AnyPipeline& from, int64_t windows,
                          std::vector<TextWindows>& to) {
      for (int64_t i = 0; windows > 0 && i < from.size(); ++i) {
        const std::vector<Tensor> batch = from.fields(i);
        TD_CHECK(batch.size() >= 2 && batch[0].dim() == 2 && batch[0].shape() == batch[1].shape() &&
                     !is_floating(batch[0].dtype()),
                 Value, "the data of '{}' is not text: its batches are not tokens and what follows",
                 recipe.file);
        const int64_t take = std::min(windows, batch[0].size(0));
        to.push_back({batch[0].narrow(0, 0, take), batch[1].narrow(0, 0, take)});
        windows -= take;
      }
    };
    read(parts.data.train, o_.samples, calibration_);
    const data::AnyPipeline& test = parts.data.test  ? *parts.data.test
                                    : parts.data.val ? *parts.data.val
                                                     : parts.data.train;
    read(test, o_.evaluated > 0 ? o_.evaluated : INT64_MAX, evaluation_);
  });
}

void WeightQuantising::windows_of_text(const std::string& path) {
  const text::Tokenizer tokenizer = is_run_
                                        ? text::Tokenizer::from_json(tokenizer_)
                                        : text::Tokenizer::from_file(source_ + "/tokenizer.json");
  const std::vector<int64_t> ids = tokenizer.encode(read_file(path), false).ids;
  int64_t length = o_.length;
  if (const int64_t most = model_->max_positions(); most > 0) length = std::min(length, most);
  const auto all = static_cast<int64_t>(ids.size());
  const auto cut = static_cast<int64_t>(kCalibrationPart * static_cast<double>(all));
  const Tensor tokens = tensor(ids);
  const auto read = [&](int64_t from, int64_t to, int64_t most, std::vector<TextWindows>& windows) {
    const int64_t count = (to - from - 1) / length, n = std::min(count, most);
    TD_CHECK(n > 0, Value, "'{}' has {} tokens, too few for windows of {}", path, all, length);
    std::vector<Tensor> x, y;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = from + i * count / n * length;  // spread over the part
      x.push_back(tokens.narrow(0, at, length));
      y.push_back(tokens.narrow(0, at + 1, length));
      if (static_cast<int64_t>(x.size()) < kWindowsTogether && i + 1 < n) continue;
      windows.push_back({stack(x, 0), stack(y, 0)});
      x.clear(), y.clear();
    }
  };
  read(0, cut, o_.samples, calibration_);
  read(cut, all, o_.evaluated > 0 ? o_.evaluated : INT64_MAX, evaluation_);
}

void WeightQuantising::read_windows() {
  std::string from = o_.data;
  if (from.empty() && is_run_) from = source_;
  if (from.empty()) {
    TD_CHECK(
        o_.method == quant::WeightMethod::rtn, Value,
        "{} looks at what layers read, and there is no data\nGive --data: a text file, a run's "
        "folder or a recipe.",
        quant::to_string(o_.method));
    return;
  }
  const bool yaml = from.ends_with(".yaml") || from.ends_with(".yml");
  if (yaml || recipe::is_run(from))
    windows_of_recipe(Recipe::load(yaml ? from : from + "/recipe.yaml"));
  else
    windows_of_text(from);
}

double WeightQuantising::perplexity(int64_t* tokens) {
  double sum = 0, count = 0;
  for (const TextWindows& w : evaluation_) {
    const Tensor y = model_->forward({.input_ids = w.x});
    const auto n = static_cast<double>(w.y.numel());
    sum += n * cross_entropy(y.reshape({-1, y.size(-1)}), w.y.reshape({-1})).item<double>();
    count += n;
  }
  *tokens = static_cast<int64_t>(count);
  return count > 0 ? std::exp(sum / count) : 0;
}

// ---- weights

bool WeightQuantising::fits(const models::CodedLayer& l) const {
  const Tensor w = l.weight();
  return models::fits_gptq(w.size(0), w.size(1), o_.weights.bits) &&
         w.size(1) % o_.weights.group == 0;
}

// Layers whose names have the same number first: they are of one block, which is calibrated with
// the codes of those before.
std::vector<std::vector<size_t>> WeightQuantising::by_block() const {
  std::vector<std::vector<size_t>> out;
  std::string last;
  for (size_t i = 0; i < layers_.size(); ++i) {
    const std::string& name = layers_[i].name;
    size_t at = 0;
    while (at < name.size() && !(name[at] == '.' && at + 1 < name.size() &&
                                 std::isdigit(static_cast<unsigned char>(name[at + 1]))))
      ++at;
    const std::string block = name.substr(0, name.find('.', at + 1));
    if (out.empty() || block != last) out.emplace_back();
    out.back().push_back(i);
    last = block;
  }
  return out;
}

std::vector<quant::InputSums> WeightQuantising::input_sums(const std::vector<size_t>& layers) {
  std::vector<quant::InputSums> sums(layers.size());
  std::vector<int> hooks;
  for (size_t i = 0; i < layers.size(); ++i)
    hooks.push_back(layers_[layers[i]].module->register_forward_pre_hook(
        [&sums, i](nn::Module&, const Tensor& in) {
          sums[i].add(in);
          return Tensor();
        }));
  for (const TextWindows& w : calibration_) model_->forward({.input_ids = w.x});
  for (size_t i = 0; i < layers.size(); ++i) layers_[layers[i]].module->remove_hook(hooks[i]);
  return sums;
}

void WeightQuantising::scale() {
  const std::vector<models::ScaledInputs> all = models::scaled_inputs(*model_, layers_);
  for (const std::vector<size_t>& block : by_block()) {
    std::vector<const models::ScaledInputs*> own;
    std::vector<size_t> first;
    for (const models::ScaledInputs& s : all)
      if (std::find(block.begin(), block.end(), s.readers[0]) != block.end()) {
        own.push_back(&s);
        first.push_back(s.readers[0]);
      }
    const std::vector<quant::InputSums> sums = input_sums(first);
    for (size_t i = 0; i < own.size(); ++i) {
      std::vector<Tensor> weights;
      for (const size_t r : own[i]->readers) weights.push_back(layers_[r].weight());
      models::scale_inputs(*model_, layers_, *own[i],
                           quant::awq_scales(weights, sums[i], o_.weights));
    }
  }
}

void WeightQuantising::round() {
  for (const std::vector<size_t>& block : by_block()) {
    std::vector<size_t> chosen;
    for (const size_t i : block)
      if (fits(layers_[i])) chosen.push_back(i);
    std::vector<quant::InputSums> sums;
    if (o_.method == quant::WeightMethod::gptq) sums = input_sums(chosen);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const models::CodedLayer& l = layers_[chosen[i]];
      l.set_codes(sums.empty() ? quant::round_weight(l.weight(), o_.weights)
                               : quant::gptq_weight(l.weight(), sums[i], o_.weights));
    }
  }
}

// ---- the folder

io::Json WeightQuantising::config() const {
  io::Json::Object codes{
      {"quant_method", "gptq"},      {"bits", o_.weights.bits}, {"group_size", o_.weights.group},
      {"sym", o_.weights.symmetric}, {"desc_act", false},       {"checkpoint_format", "gptq"}};
  if (o_.accuracy_level > 0) codes.push_back({"accuracy_level", o_.accuracy_level});
  io::Json::Object all;
  for (const auto& [key, value] : *model_->config.json().as_object())
    if (key != "quantization_config") all.push_back({key, value});
  all.push_back({"quantization_config", std::move(codes)});
  return io::Json(std::move(all));
}

// The floating dtype that most elements have.
DType common_dtype(const StateDict& tensors) {
  std::map<DType, int64_t> elements;
  DType most = DType::f32;
  for (const auto& [name, t] : tensors)
    if (is_floating(t.dtype()) && (elements[t.dtype()] += t.numel()) > elements[most])
      most = t.dtype();
  return most;
}

int64_t WeightQuantising::write() {
  namespace fs = std::filesystem;
  StateDict before, out;
  if (!is_run_) before = weights::load_weights(source_);
  const DType common = common_dtype(before);
  // A folder may hold the model without the prefix of its head, and experts one by one.
  const auto dtype_in_file = [&](const std::string& name) {
    const Tensor* t = before.find(name);
    if (!t) t = before.find(name.substr(name.find('.') + 1));
    return t && is_floating(t->dtype()) ? t->dtype() : common;
  };
  for (const models::CodedLayer& l : layers_)
    if (l.has_codes()) {
      const StateDict own =
          models::gptq_tensors(l.codes(), l.codes().codes.size(1) * o_.weights.group);
      for (const auto& [part, t] : own) out[l.name + "." + part] = t;
    }
  for (const auto& [name, t] : model_->module().state_dict()) {
    const bool coded = std::any_of(layers_.begin(), layers_.end(), [&, name = name](const auto& l) {
      return l.has_codes() &&
             (name == l.name + ".codes" || name == l.name + ".scale" || name == l.name + ".zero");
    });
    if (!coded) out[name] = is_floating(t.dtype()) ? t.to(dtype_in_file(name)) : t;
  }
  make_folders(out_);
  save(out, out_ + "/model.safetensors", {{"format", "pt"}});
  write_file(out_ + "/config.json", config().dump(2) + "\n");
  if (!tokenizer_.empty()) write_file(out_ + "/tokenizer.json", tokenizer_);
  if (!is_run_)
    for (const std::string& name : list_folder(source_)) {
      const bool text = name.ends_with(".json") || name.ends_with(".txt") ||
                        name.ends_with(".model") || name.ends_with(".jinja");
      if (!text || name == "config.json" || name.ends_with(".index.json")) continue;
      write_file(out_ + "/" + name, read_file(source_ + "/" + name));
    }
  int64_t bytes = 0;
  for (const auto& [name, t] : out) bytes += t.numel() * static_cast<int64_t>(size_of(t.dtype()));
  return bytes;
}

QuantizeWeightsReport WeightQuantising::run() {
  const NoGradGuard no_grad;
  read_windows();
  QuantizeWeightsReport r;
  r.folder = out_;
  r.method = quant::to_string(o_.method);
  r.bits = o_.weights.bits, r.group = o_.weights.group;
  r.accuracy_level = o_.accuracy_level;
  r.bytes_before = 4 * model_->module().num_parameters();
  r.perplexity_before = perplexity(&r.tokens);
  if (o_.method == quant::WeightMethod::awq) scale();
  round();
  for (const models::CodedLayer& l : layers_) ++(l.has_codes() ? r.layers : r.kept);
  TD_CHECK(r.layers > 0, Value,
           "no layer of '{}' has a number of inputs that groups of {} divide\nGive a smaller "
           "--group.",
           source_, o_.weights.group);
  if (o_.accuracy_level > 0) models::set_accuracy_level(*model_, o_.accuracy_level);
  r.perplexity_after = perplexity(&r.tokens);
  r.bytes_after = write();
  return r;
}

}  // namespace

QuantizeWeightsReport quantize_weights(const std::string& model, const std::string& out,
                                       const QuantizeWeightsOptions& options) {
  return WeightQuantising(model, out, options).run();
}

std::string QuantizeWeightsReport::to_string() const {
  std::string s = fmt::format(
      "{}: {} layers in int{}, groups of {}, by {}{}{}\n{:.2f} MB of {:.2f} MB in f32 ({:+.1f} "
      "%)\n",
      folder, layers, bits, group, method,
      accuracy_level == kCodesOfInputs ? "; inputs are rounded to int8" : "",
      kept > 0 ? fmt::format("; {} stay in floating point, their sizes do not fit", kept) : "",
      static_cast<double>(bytes_after) * 1e-6, static_cast<double>(bytes_before) * 1e-6,
      100 * (static_cast<double>(bytes_after) / static_cast<double>(bytes_before) - 1));
  if (tokens > 0)
    s += fmt::format("perplexity {:.4f}, in f32 {:.4f} ({:+.2f} %), over {} tokens\n",
                     perplexity_after, perplexity_before,
                     100 * (perplexity_after / perplexity_before - 1), tokens);
  return s;
}

io::Json QuantizeWeightsReport::to_json() const {
  io::Json::Object o{{"folder", folder},
                     {"method", method},
                     {"bits", bits},
                     {"group", group},
                     {"accuracy_level", accuracy_level},
                     {"layers", layers},
                     {"kept", kept},
                     {"bytes_before", bytes_before},
                     {"bytes_after", bytes_after}};
  if (tokens > 0) {
    o.push_back({"tokens", tokens});
    o.push_back({"perplexity_before", perplexity_before});
    o.push_back({"perplexity_after", perplexity_after});
  }
  return o;
}

}  // namespace tandem::recipe
