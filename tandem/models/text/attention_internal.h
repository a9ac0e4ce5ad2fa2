// SPDX-License-Identifier: Apache-2.0
// Code shared by the transformer families: activations by name, heads, masks, attention through a
// cache, and the factories of the families. Not installed.
#pragma once

#include "tandem/models/pretrained.h"

namespace tandem::models::detail {

/// An activation by its name in config files. Throws Format (through `c`) for an unknown one.
using Activation = Tensor (*)(Tensor);
Activation activation(const ModelConfig& c, const std::string& name);

/// [n, l, heads * d] -> [n, heads, l, d], and back.
Tensor split_heads(const Tensor& x, int64_t heads);
Tensor merge_heads(const Tensor& x);
/// attention_mask [n, s] as a bool mask [n, 1, 1, s] of visible positions; undefined stays so.
Tensor seen_mask(const Tensor& attention_mask);
/// A bool mask [1, 1, l, l] or [n, 1, l, l] of the positions visible to causal attention.
Tensor causal_mask(Dim length, const Tensor& attention_mask);
/// Appends k and v [n, heads, l, d] to the cache; returns softmax(q k^T scale) v over it. `start`
/// [n]: positions before it are padding.
Tensor cached_attention(Tensor q, Tensor k, Tensor v, nn::KVCache& cache, const Tensor& start,
                        double scale);
/// Positions [n, l] of tokens that follow those in the cache.
Tensor cached_positions(const Tensor& ids, const DecodeState& state);

/// Throws Value unless the tensor is defined and has `rank` dimensions.
void want(const Tensor& t, const char* name, int rank);

/// A decoder of text: all tokens at once, or one after the other through a cache.
class CausalModel : public PretrainedModel {
 public:
  /// Of its caches: a pair of keys and values [n, heads, length, head_dim] for each layer.
  struct CacheSizes {
    int64_t layers = 0, heads = 0, head_dim = 0;
  };
  bool is_causal() const override { return head_; }
  Tensor forward(const ModelInputs& in) override;
  DecodeState start_decoding(int64_t n, int64_t length) override;
  Tensor decode(const Tensor& ids, DecodeState& state) override;

 protected:
  /// `head`: it gives logits, else its last hidden values.
  CausalModel(const ModelConfig& c, bool head, CacheSizes sizes);
  /// Hidden values [n, l, width] of ids at `positions`, with the caches of `state` if there is one.
  virtual Tensor run(const Tensor& ids, const Tensor& positions, const Tensor& mask,
                     DecodeState* state) = 0;
  /// Of hidden values.
  virtual Tensor logits(const Tensor& x) = 0;

 private:
  bool head_;
  CacheSizes cache_;
};

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
