// SPDX-License-Identifier: Apache-2.0
// What the transformer families say alike: activations by name, heads, masks, attention through a
// cache, and the makers of the families. Not installed.
#pragma once

#include "tandem/models/pretrained.h"

namespace tandem::models::detail {

/// An activation by the name that config files use. Throws Format (through `c`) for another.
using Activation = Tensor (*)(Tensor);
Activation activation(const ModelConfig& c, const std::string& name);

/// [n, l, heads * d] -> [n, heads, l, d], and back.
Tensor split_heads(const Tensor& x, int64_t heads);
Tensor merge_heads(const Tensor& x);
/// attention_mask [n, s] as a bool mask [n, 1, 1, s] of what is seen; undefined stays so.
Tensor seen_mask(const Tensor& attention_mask);
/// A bool mask [1, 1, l, l] or [n, 1, l, l] of what causal attention sees.
Tensor causal_mask(Dim length, const Tensor& attention_mask);
/// Appends k and v [n, heads, l, d] to the cache; gives softmax(q k^T scale) v over it. `start`
/// [n]: positions before it are padding.
Tensor cached_attention(Tensor q, Tensor k, Tensor v, nn::KVCache& cache, const Tensor& start,
                        double scale);
/// Positions [n, l] of tokens that come after those in the cache.
Tensor cached_positions(const Tensor& ids, const DecodeState& state);

/// Throws Value unless the tensor is there and has `rank` dimensions.
void want(const Tensor& t, const char* name, int rank);

std::unique_ptr<PretrainedModel> make_bert(const ModelConfig& c);
std::unique_ptr<PretrainedModel> make_distilbert(const ModelConfig& c);
std::unique_ptr<PretrainedModel> make_roberta(const ModelConfig& c);
std::unique_ptr<PretrainedModel> make_gpt2(const ModelConfig& c);
std::unique_ptr<PretrainedModel> make_llama(const ModelConfig& c);
std::unique_ptr<PretrainedModel> make_hf_vit(const ModelConfig& c);
std::unique_ptr<PretrainedModel> make_t5(const ModelConfig& c);

/// Does `text` end with `end`?
inline bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace tandem::models::detail
