// SPDX-License-Identifier: Apache-2.0
// Keras's attention layers: with several heads through ONNX's Attention, and the older ones without
// projections.
#include <fmt/format.h>

#include "tandem/onnx/tensorflow/keras_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {

using io::Json;
using Values = KerasBuilder::Values;

std::string KerasBuilder::projection(const KerasCall& c, const std::string& x,
                                     const KerasWeights& weights, const char* role, bool out) {
  const Tensor w = weights.at(0);
  if (w.dim() != 3) lacks(c, "attention over several axes");
  const Tensor flat = out ? w.reshape({w.size(0) * w.size(1), w.size(2)})
                          : w.reshape({w.size(0), w.size(1) * w.size(2)});
  const std::string y = onnx(c, "MatMul", {x, constant(c.name + "/" + role, flat)});
  if (!c.flag("use_bias", true)) return y;
  return node(c, "AddV2",
              {y, constant(c.name + "/" + role + "_bias", weights.at(1).reshape({-1}))});
}

// What is added to the scores [batch, 1, query, value]: 0 where all masks allow a place.
std::string KerasBuilder::attention_bias(const KerasCall& c, const std::string& query,
                                         const std::string& value, const std::string& key) {
  std::string all;
  const auto join = [&](const std::string& mask, int64_t axis) {
    if (mask.empty()) return;
    const std::string m = onnx(c, "Cast", {mask}, {onnx_int("to", 9)});
    const std::string wide = axis == 0 ? m : onnx(c, "Unsqueeze", {m, numbers({axis})});
    all = all.empty() ? wide : node(c, "LogicalAnd", {all, wide});
  };
  const auto mask = [&](const char* keyword, const std::string& v) {
    const std::string given = named_value(c, keyword);
    return given.empty() ? carried_mask(c, v) : given;
  };
  join(mask("query_mask", query), 2);
  join(mask("value_mask", value), 1);
  join(key == value ? named_value(c, "key_mask") : mask("key_mask", key), 1);
  join(named_value(c, "attention_mask"), 0);
  if (const int64_t width = c.whole("sliding_window", 0); width > 0)
    join(node(c, "Band", {query, value}, {onnx_int("width", width)}, kOnnxKeras), 0);
  if (all.empty()) return "";
  if (c.option("use_causal_mask"))
    join(node(c, "Band", {query, value}, {onnx_int("causal", 1)}, kOnnxKeras), 0);
  // As Keras does: where nothing is allowed, all places have the same weight.
  const std::string bias = node(c, "SelectV2", {all, number(0), number(-1e30)});
  return onnx(c, "Unsqueeze", {bias, numbers({-3})});
}

// Called on the query, the value and, if it is another one, the key.
Values KerasBuilder::multi_head_attention(const KerasCall& c) {
  const auto input = [&](const char* key, size_t i) {
    const std::string given = named_value(c, key);
    return given.empty() && i < c.inputs.size() ? c.inputs[i] : given;
  };
  const std::string query = input("query", 0), value = input("value", 1);
  std::string key = input("key", 2);
  if (query.empty() || value.empty()) fail(fmt::format("the layer '{}' has no value", c.name));
  if (key.empty()) key = value;
  if (c.option("return_attention_scores")) lacks(c, "returning scores");
  const bool grouped = c.type != "MultiHeadAttention";
  const int64_t heads = c.whole(grouped ? "num_query_heads" : "num_heads", 1);
  const auto part = [&](const std::string& x, const char* role) {
    const std::string attribute = std::string(grouped ? "_" : "") + role + "_dense";
    return projection(c, x, c.weights.child(attribute, role), role, false);
  };
  const std::string q = part(query, "query"), k = part(key, "key"), v = part(value, "value");
  const std::string bias = attention_bias(c, query, value, key);
  Values in{q, k, v};
  if (!bias.empty()) in.push_back(bias);
  std::string y =
      onnx(c, "Attention", in,
           {onnx_int("q_num_heads", heads),
            onnx_int("kv_num_heads", grouped ? c.whole("num_key_value_heads", heads) : heads),
            onnx_int("is_causal", bias.empty() && c.option("use_causal_mask"))});
  if (c.flag("use_gate", false)) y = node(c, "Mul", {y, node(c, "Sigmoid", {part(query, "gate")})});
  const char* output = grouped ? "_output_dense" : "output_dense";
  return {projection(c, y, c.weights.child(output, "attention_output"), "output", true)};
}

// Attention and AdditiveAttention: called on [query, value] or [query, value, key].
Values KerasBuilder::attention(const KerasCall& c) {
  const std::string query = c.in(0), value = c.in(1), key = c.inputs.size() > 2 ? c.in(2) : value;
  if (c.option("return_attention_scores")) lacks(c, "returning scores");
  const bool additive = c.type == "AdditiveAttention",
             adds = additive || c.text("score_mode", "dot") == "concat";
  const bool scaled = c.flag("use_scale", additive);
  std::string scores;
  if (adds) {
    std::string sum = node(
        c, "AddV2",
        {onnx(c, "Unsqueeze", {query, numbers({-2})}), onnx(c, "Unsqueeze", {key, numbers({-3})})});
    const std::string scale = scaled ? constant(c.name + "/scale", c.weights.at(0)) : std::string();
    if (!additive && scaled) sum = node(c, "Mul", {sum, scale});
    sum = node(c, "Tanh", {sum});
    if (additive && scaled) sum = node(c, "Mul", {sum, scale});
    scores = node(c, "Sum", {sum, numbers({-1})});
    if (!additive)
      scores =
          node(c, "Mul",
               {scores, constant(c.name + "/concat_score_weight", c.weights.at(scaled ? 1 : 0))});
  } else {
    scores = node(c, "BatchMatMulV2", {query, key}, {onnx_int("adj_y", 1)});
    if (scaled) scores = node(c, "Mul", {scores, constant(c.name + "/scale", c.weights.at(0))});
  }
  const std::string query_mask = mask_of(c, 0), value_mask = mask_of(c, 1);
  std::string allowed;
  if (!value_mask.empty()) allowed = onnx(c, "Unsqueeze", {value_mask, numbers({1})});
  if (c.option("use_causal_mask")) {
    const std::string causal = node(c, "Band", {query, value}, {onnx_int("causal", 1)}, kOnnxKeras);
    allowed = allowed.empty() ? causal : node(c, "LogicalAnd", {allowed, causal});
  }
  if (!allowed.empty())
    scores = node(c, "SelectV2", {allowed, scores, node(c, "Sub", {scores, number(1e9)})});
  std::string y = node(c, "BatchMatMulV2", {node(c, "Softmax", {scores}), value});
  if (!query_mask.empty())
    y = node(c, "SelectV2", {onnx(c, "Unsqueeze", {query_mask, numbers({-1})}), y, number(0)});
  return {y};
}

}  // namespace tandem::onnx
