// SPDX-License-Identifier: Apache-2.0
// Calls of Keras's layers: what a call says, masks of time steps, images with channels first.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/onnx/tensorflow/keras_internal.h"

namespace tandem::onnx {

using io::Json;

const Json& keras_member(const Json& j, const char* key) {
  const Json* m = j.find(key);
  static const Json nothing;
  return m ? *m : nothing;
}
const std::vector<Json>& keras_entries(const Json* j) {
  static const std::vector<Json> none;
  const Json::Array* a = j ? j->as_array() : nullptr;
  return a ? *a : none;
}
bool is_keras_model_type(std::string_view type) {
  return type == "Sequential" || type == "Functional" || type == "Model";
}
int64_t keras_dtype(std::string_view name) {
  for (int number = 1; number < 30; ++number)
    if (const io::TfTypeInfo* t = io::find_tf_type(number); t && t->onnx && name == t->name)
      return t->onnx;
  return 0;
}
int keras_input_rank(const Json& layer) {
  const Json& config = keras_member(layer, "build_config");
  const Json* first = config.find("input_shape");
  if (!first) first = keras_member(config, "shapes_dict").find("sequences_shape");
  const std::vector<Json>& shape = keras_entries(first);
  return shape.empty() || shape[0].as_array() ? 0 : static_cast<int>(shape.size());
}

// ---- calls

double KerasCall::number(const char* key, double otherwise) const {
  const Json* j = config.find(key);
  return j && !j->is_null() ? io::number_of(j) : otherwise;
}
int64_t KerasCall::whole(const char* key, int64_t otherwise) const {
  const Json* j = config.find(key);
  return j && !j->is_null() ? io::whole_of(j) : otherwise;
}
bool KerasCall::flag(const char* key, bool otherwise) const {
  const Json* j = config.find(key);
  return j && j->as_bool() ? *j->as_bool() : otherwise;
}
std::string KerasCall::text(const char* key, const char* otherwise) const {
  const Json* j = config.find(key);
  return j && j->as_string() ? *j->as_string() : otherwise;
}
std::vector<int64_t> KerasCall::list(const char* key, size_t n, int64_t otherwise) const {
  const Json* j = config.find(key);
  if (!j || j->is_null()) return std::vector<int64_t>(n, otherwise);
  if (j->as_int()) return std::vector<int64_t>(n, *j->as_int());
  std::vector<int64_t> out;
  for (const Json& v : keras_entries(j)) out.push_back(io::whole_of(&v));
  return out;
}
std::vector<double> KerasCall::numbers(const char* key) const {
  const Json* j = config.find(key);
  if (!j || j->is_null()) return {};
  if (!j->as_array()) return {io::number_of(j)};
  std::vector<double> out;
  for (const Json& v : keras_entries(j)) out.push_back(io::number_of(&v));
  return out;
}
bool KerasCall::option(std::string_view key) const {
  return std::find(options.begin(), options.end(), key) != options.end();
}
const std::string& KerasCall::in(size_t i) const {
  TD_CHECK(i < inputs.size(), Format, "the layer '{}' ({}) has {} inputs, expected {}", name, type,
           inputs.size(), i + 1);
  return inputs[i];
}

KerasBuilder::Values KerasBuilder::call(const Json& layer, KerasCall& c) {
  if (is_keras_model_type(c.type)) {
    const std::string mask = named_value(c, "mask");
    if (!mask.empty() && !c.inputs.empty()) masks_[c.inputs[0]] = mask;
    return model(layer, c.inputs, c.weights);
  }
  // Files of the older layout do not say what is an operation; a number among the arguments does.
  const bool numbers = std::any_of(c.arguments.begin(), c.arguments.end(), [](const Json* a) {
    return a && (a->as_int() || a->as_double());
  });
  if (is_operation(layer) || (numbers && has_operation(c.type))) return operation(c);
  const KerasLayer* found = find_layer(c.type);
  TD_ASSERT(found);
  // Layers that prepare images are always called so, and told otherwise by predict().
  if (c.option("training") && !found->prepares) lacks(c, "calling it in training mode");
  return build(*found, c);
}

namespace {

// Dimensions of a layer's result, for files that state no shapes (Keras before 2.13,
// TensorFlow.js); 0: not told.
int rank_after(const KerasLayer& layer, const KerasCall& c) {
  const std::string& t = c.type;
  // What keeps the steps of its input, or joins inputs, keeps their dimensions.
  const bool keeps = layer.mask == KerasMask::kept || layer.mask == KerasMask::merged ||
                     layer.mask == KerasMask::joined;
  const bool of_lines_or_images = t.find("D", t.find_first_of("123")) != t.npos;
  if (t == "Permute" || (keeps && t != "TimeDistributed" && !of_lines_or_images)) return c.rank;
  if (t == "Flatten") return 2;
  if (t == "RepeatVector") return 3;
  if (t == "Embedding") return c.rank == 0 ? 0 : c.rank + 1;
  if (t == "Reshape") return static_cast<int>(keras_entries(c.find("target_shape")).size()) + 1;
  if (t == "LSTM" || t == "GRU" || t == "SimpleRNN")
    return c.flag("return_sequences", false) ? 3 : 2;
  if (t.starts_with("ConvLSTM")) return 0;
  for (int d = 1; d <= 3; ++d)  // of images and lines: Conv2D, GlobalMaxPooling1D ...
    if (t.find(std::to_string(d) + "D") != t.npos)
      return t.starts_with("Global") && !c.flag("keepdims", false) ? 2 : d + 2;
  return 0;
}

}  // namespace

KerasBuilder::Values KerasBuilder::build(const KerasLayer& layer, KerasCall& c) {
  for (const auto& [key, value] : c.named) {
    const std::string name = " " + key.substr(0, key.find('/')) + " ";
    if ((" " + std::string(layer.takes) + " ").find(name) == std::string::npos)
      lacks(c, fmt::format("the argument '{}'", key));
  }
  if (c.rank == 0 && !c.inputs.empty()) c.rank = ranks_[c.inputs[0]];
  const bool first = c.text("data_format", "channels_last") == "channels_first";
  if (first && layer.images == KerasImages::none) lacks(c, "channels_first");
  const int rank = rank_after(layer, c);
  const Values out = first ? call_images(layer, c) : (this->*layer.build)(c);
  if (out.size() == 1) ranks_[out[0]] = rank;
  pass_mask(layer, c, out);
  return out;
}

// On an input with its channels last, and turned back where the result still has them.
KerasBuilder::Values KerasBuilder::call_images(const KerasLayer& layer, KerasCall& c) {
  const auto digit =
      std::find_if(c.type.begin(), c.type.end(), [](char d) { return d >= '1' && d <= '3'; });
  const int rank = digit == c.type.end() ? c.rank : *digit - '0' + 2;
  if (rank < 3) lacks(c, "channels_first of an input of unknown rank");
  std::vector<int64_t> last{0}, back{0, rank - 1};
  for (int64_t d = 2; d < rank; ++d) {
    last.push_back(d);
    back.push_back(d - 1);
  }
  last.push_back(1);
  c.inputs[0] = onnx(c, "Transpose", {c.in()}, {onnx_ints("perm", last)});
  Values out = (this->*layer.build)(c);
  if (layer.images == KerasImages::flat && !c.flag("keepdims", false)) return out;
  for (std::string& y : out) y = onnx(c, "Transpose", {y}, {onnx_ints("perm", back)});
  return out;
}

KerasBuilder::Values KerasBuilder::call_inner(const KerasCall& c, const Json* layer, Values inputs,
                                              KerasWeights weights) {
  if (!layer || !layer->as_object()) fail(fmt::format("the layer '{}' holds no layer", c.name));
  const Json& config = keras_member(*layer, "config");
  KerasCall inner{config,
                  c.name + "/" + io::text_of(config.find("name")),
                  io::text_of(layer->find("class_name")),
                  std::move(inputs),
                  {},
                  {},
                  {},
                  keras_input_rank(*layer),
                  std::move(weights)};
  if (!is_keras_model_type(inner.type) && !find_layer(inner.type))
    lacks(c, fmt::format("the layer '{}' inside", inner.type));
  return call(*layer, inner);
}

// ---- masks

namespace {
constexpr int kMostLazyMasks = 32;  ///< inside each other, before they are made at once
}  // namespace

std::string KerasBuilder::named_value(const KerasCall& c, std::string_view key, int i) {
  const std::string wanted = i < 0 ? std::string(key) : fmt::format("{}/{}", key, i);
  for (const auto& [name, value] : c.named)
    if (name == wanted) return value;
  return "";
}

std::string KerasBuilder::mask_of(const KerasCall& c, size_t i) {
  std::string mask = named_value(c, "mask");
  if (mask.empty()) mask = named_value(c, "mask", static_cast<int>(i));
  return !mask.empty() || i >= c.inputs.size() ? mask : carried_mask(c, c.inputs[i]);
}

std::string KerasBuilder::carried_mask(const KerasCall& c, const std::string& value) {
  const auto it = masks_.find(value);
  if (it == masks_.end()) return "";
  const auto joined = joined_masks_.find(it->second);
  if (joined == joined_masks_.end()) return it->second;
  JoinedMask& j = joined->second;
  if (j.value.empty()) j.value = joined_mask(c, j.inputs, j.axis);
  return j.value;
}

// As Keras does: masks as wide as their inputs, ones where there is none; a step counts where any
// of its features does.
std::string KerasBuilder::joined_mask(const KerasCall& c, const Values& inputs, int64_t axis) {
  const auto flags = [&](const char* op, const std::string& x) {
    return onnx(c, "Cast", {node(c, op, {x})}, {onnx_int("to", 9)});
  };
  Values masks;
  for (const std::string& x : inputs) {
    const std::string mask = carried_mask(c, x);
    masks.push_back(
        mask.empty() ? flags("OnesLike", x)
                     : node(c, "LogicalOr",
                            {onnx(c, "Unsqueeze", {mask, numbers({-1})}), flags("ZerosLike", x)}));
  }
  const std::string all = onnx(c, "Concat", std::move(masks), {onnx_int("axis", axis)});
  return node(c, "Any", {all, numbers({-1})});
}

void KerasBuilder::pass_mask(const KerasLayer& layer, const KerasCall& c, const Values& out) {
  if (out.empty() || layer.mask == KerasMask::dropped || layer.mask == KerasMask::own) return;
  const auto carried = [&](const std::string& v) { return masks_.count(v) != 0; };
  if (layer.mask == KerasMask::kept) {
    const std::string mask = named_value(c, "mask");
    if (!mask.empty()) {
      masks_[out[0]] = mask;
    } else if (!c.inputs.empty() && carried(c.inputs[0])) {
      masks_[out[0]] = std::string(masks_[c.inputs[0]]);
    }
  } else if (layer.mask == KerasMask::joined) {
    if (!std::any_of(c.inputs.begin(), c.inputs.end(), carried)) return;
    JoinedMask joined{c.inputs, c.whole("axis", -1), ""};
    for (const std::string& x : c.inputs)
      if (const auto inner = joined_masks_.find(carried(x) ? masks_[x] : "");
          inner != joined_masks_.end())
        joined.depth = std::max(joined.depth, inner->second.depth + 1);
    if (joined.depth >= kMostLazyMasks) {
      joined.value = joined_mask(c, joined.inputs, joined.axis);
      joined.depth = 0;
    }
    masks_[out[0]] = "mask of " + out[0];
    joined_masks_[masks_[out[0]]] = std::move(joined);
  } else if (!c.inputs.empty() && std::all_of(c.inputs.begin(), c.inputs.end(), carried)) {
    std::string all = mask_of(c, 0);
    for (size_t i = 1; i < c.inputs.size(); ++i) all = node(c, "LogicalOr", {all, mask_of(c, i)});
    masks_[out[0]] = all;
  }
}

}  // namespace tandem::onnx
