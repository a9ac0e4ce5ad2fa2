// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/codes.h"

#include <algorithm>

#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/models/pretrained/projection_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

const detail::ProjectionKind& kind_of(const CodedLayer& l) {
  const detail::ProjectionKind* kind = detail::projection_kind_of(*l.module);
  TD_CHECK(kind, Internal, "'{}' is not a layer whose weight may be codes", l.name);
  return *kind;
}

}  // namespace

Tensor CodedLayer::weight() const {
  const detail::ProjectionKind& kind = kind_of(*this);
  if (has_codes()) return dequantize_codes(codes()).narrow(1, 0, kind.coded(*module).columns);
  const Tensor w = kind.weight(*module);
  return kind.turned ? w.t() : w;
}
bool CodedLayer::has_codes() const { return kind_of(*this).coded(*module).defined(); }
PackedCodes CodedLayer::codes() const { return kind_of(*this).coded(*module).value(); }
void CodedLayer::set_weight(const Tensor& w) const {
  const detail::ProjectionKind& kind = kind_of(*this);
  const NoGradGuard no_grad;
  Param& own = kind.weight(*module);
  own.assign_((kind.turned ? w.t() : w).to(own.dtype()));
}
void CodedLayer::set_codes(const PackedCodes& w) const {
  const detail::ProjectionKind& kind = kind_of(*this);
  const bool first = !has_codes();
  if (first) kind.coded(*module).columns = weight().size(1);
  kind.coded(*module).set(w);
  if (first) kind.use(*module);
}

std::vector<CodedLayer> coded_layers(PretrainedModel& model) {
  std::vector<CodedLayer> out;
  for (const auto& [name, module] : model.module().named_modules())
    if (detail::projection_kind_of(*module)) out.push_back({name, module});
  return out;
}

void set_accuracy_level(PretrainedModel& model, int64_t level) {
  check_accuracy_level(level);
  bool any = false;
  for (const CodedLayer& l : coded_layers(model)) {
    if (!l.has_codes()) continue;
    kind_of(l).coded(*l.module).accuracy_level = level;
    any = true;
  }
  TD_CHECK(any, Value,
           "accuracy levels are for layers whose weights are codes, and this model has none\n"
           "`tandem quantize --weights int4` makes such a model.");
}

// ---- scales between layers

namespace {

/// A norm of a decoder's block (or a layer whose result the reader multiplies), and who reads it.
struct Reads {
  const char* from;
  std::initializer_list<const char*> readers;
  const char* unless = nullptr;  ///< a block with this norm uses it instead
  const char* needs = nullptr;   ///< a block without this layer multiplies nothing
};
constexpr Reads kReads[] = {
    {"input_layernorm",
     {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.qkv_proj"}},
    {"pre_feedforward_layernorm", {"mlp.gate_proj", "mlp.up_proj"}},
    {"post_attention_layernorm",
     {"mlp.gate_proj", "mlp.up_proj", "mlp.gate_up_proj"},
     "pre_feedforward_layernorm"},
    {"mlp.up_proj", {"mlp.down_proj"}, nullptr, "mlp.gate_proj"},
    {"ln_1", {"attn.c_attn"}},
    {"ln_2", {"mlp.c_fc"}},
};

}  // namespace

std::vector<ScaledInputs> scaled_inputs(PretrainedModel& model,
                                        const std::vector<CodedLayer>& layers) {
  std::vector<std::string> names;
  for (const auto& [name, module] : model.module().named_modules()) names.push_back(name);
  const auto is_there = [&](const std::string& n) {
    return std::find(names.begin(), names.end(), n) != names.end();
  };
  std::vector<ScaledInputs> out;
  for (const Reads& r : kReads)
    for (const std::string& name : names) {
      const std::string suffix = std::string(".") + r.from;
      if (!name.ends_with(suffix)) continue;
      const std::string block = name.substr(0, name.size() - suffix.size() + 1);
      if (r.unless && is_there(block + r.unless)) continue;
      if (r.needs && !is_there(block + r.needs)) continue;
      ScaledInputs s{{}, name};
      for (size_t i = 0; i < layers.size(); ++i)
        for (const char* reader : r.readers)
          if (layers[i].name == block + reader) s.readers.push_back(i);
      if (!s.readers.empty()) out.push_back(std::move(s));
    }
  return out;
}

void scale_inputs(PretrainedModel& model, const std::vector<CodedLayer>& layers,
                  const ScaledInputs& s, const Tensor& scales) {
  const NoGradGuard no_grad;
  for (const size_t i : s.readers) layers[i].set_weight(layers[i].weight() * scales);
  const bool layer = std::any_of(layers.begin(), layers.end(),
                                 [&](const CodedLayer& l) { return l.name == s.from; });
  bool from_one = false;
  for (const auto& [name, module] : model.module().named_modules())
    if (name == s.from) from_one = detail::counts_from_one(*module);
  for (auto& [name, p] : model.module().named_parameters()) {
    if (name != s.from + ".weight" && name != s.from + ".bias") continue;
    const Tensor v = p.value().to(DType::f32);
    if (layer)
      p.assign_((v.dim() == 2 ? v / scales.unsqueeze(1) : v / scales).to(p.dtype()));
    else
      p.assign_((from_one ? (v + 1) / scales - 1 : v / scales).to(p.dtype()));
  }
}

}  // namespace tandem::models
