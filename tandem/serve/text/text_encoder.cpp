// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/text/text_encoder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tandem/base/error.h"
#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {

TextEncoder::TextEncoder(text::Tokenizer tokenizer, const Servable& model)
    : tokenizer_(std::move(tokenizer)), length_(model.pretrained()->max_positions()) {
  for (const ModelPort& p : model.inputs()) names_.push_back(p.name);
  const std::string first = model.pretrained()->output_names().at(0);
  embeds_ = first == "sentence_embedding" || first == "last_hidden_state";
}

std::unique_ptr<TextEncoder> TextEncoder::load(const std::string& folder, const Servable& model) {
  const auto& net = model.pretrained();
  if (!net || net->is_causal() || net->is_encoder_decoder()) return nullptr;
  for (const ModelPort& p : model.inputs())
    if (p.shape.size() != 2 ||
        (p.name != "input_ids" && p.name != "attention_mask" && p.name != "token_type_ids"))
      return nullptr;
  for (const char* name : {"tokenizer.json", "0_Transformer/tokenizer.json"}) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (!std::filesystem::exists(path)) continue;
    text::Tokenizer t = text::Tokenizer::from_file(path.string())
                            .with_truncation(std::nullopt)
                            .with_padding(std::nullopt);
    return std::unique_ptr<TextEncoder>(new TextEncoder(std::move(t), model));
  }
  return nullptr;
}

std::vector<Tensor> TextEncoder::inputs(std::span<const int64_t> tokens) const {
  const auto n = static_cast<int64_t>(tokens.size());
  std::vector<Tensor> out;
  for (const std::string& name : names_) {
    std::vector<int64_t> row(tokens.begin(), tokens.end());
    if (name != "input_ids") std::fill(row.begin(), row.end(), name == "attention_mask" ? 1 : 0);
    out.push_back(tensor(row, Shape(1, n)));
  }
  return out;
}

std::vector<float> TextEncoder::vector_of(const std::vector<Tensor>& outputs,
                                          int64_t dimensions) const {
  const NoGradGuard no_grad;
  Tensor y = outputs.at(0).to(DType::f32);
  if (y.dim() == 3) y = y.mean({1});
  std::vector<float> out = y.contiguous().to_vector<float>();
  const auto whole = static_cast<int64_t>(out.size());
  if (dimensions > whole)
    refuse(400, "'dimensions' is {}, the model's vectors have {}", dimensions, whole);
  const auto norm = [&] {
    double sum = 0;
    for (const float v : out) sum += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(sum);
  };
  if (dimensions <= 0 || dimensions == whole) return out;
  const bool unit = std::abs(norm() - 1) < 1e-3;
  out.resize(static_cast<size_t>(dimensions));
  if (const double by = norm(); unit && by > 0)
    for (float& v : out) v = static_cast<float>(v / by);
  return out;
}

}  // namespace tandem::serve
