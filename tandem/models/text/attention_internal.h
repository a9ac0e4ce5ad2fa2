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
/// A bool mask [1, 1, l, l] or [n, 1, l, l] of the positions visible to causal attention, of which
/// `window` limits how many (0: all).
Tensor causal_mask(Dim length, const Tensor& attention_mask, int64_t window = 0);
/// Appends k and v [n, heads, l, d] to the cache; both become its content: all steps so far, in a
/// trace all that it has room for.
void append_to_cache(Tensor& k, Tensor& v, nn::KVCache& cache);
/// A bool mask [n, 1, fresh, s] of what `fresh` new steps see in the caches, to which they have not
/// been appended yet. `padded`: `state.start` counts the padding in them.
Tensor cached_mask(int64_t fresh, const DecodeState& state, int64_t window = 0, bool padded = true);
/// Positions [n, l] of tokens that follow those in the cache.
Tensor cached_positions(const Tensor& ids, const DecodeState& state);

/// One layer's part of a paged step.
struct PagedLayerCall {
  PagedCache::Layer* layer;
  const PagedStep* step;
  int64_t block;
  int64_t window = 0;  ///< how far the layer sees; 0: everything before
};
/// Writes k and v [n, key heads, l, d] into the pool.
void write_paged(const PagedCache::Layer& layer, const Tensor& k, const Tensor& v,
                 const Tensor& slots);
/// The same; what q [n, heads, l, d] then sees there.
Tensor attend_paged(const Tensor& q, const Tensor& k, const Tensor& v, const PagedLayerCall& call,
                    double scale, double softcap = 0);

struct PoolSizes {
  int64_t layers = 0, heads = 0, head_dim = 0;
};
PagedCache empty_pool(const PoolSizes& sizes, DType dtype, int64_t blocks, int64_t block);
/// Of hidden values [n, l, width] those at `last`, as PagedStep has it.
Tensor values_at(const Tensor& x, const Tensor& last);

/// The dtype of the weights, which caches have, too.
DType dtype_of(nn::Module& model);

/// Throws Value unless the tensor is defined and has `rank` dimensions.
void want(const Tensor& t, const char* name, int rank);

/// A call of a decoder: its tokens with their positions [n, l], and what they see.
struct CausalCall {
  Tensor ids, positions;
  Tensor mask;    ///< undefined: all earlier ones
  Tensor window;  ///< the same of layers with a sliding window
  DecodeState* state = nullptr;
  PagedCache* pool = nullptr;  ///< in place of `state`, with the step that reads it
  const PagedStep* step = nullptr;
  PagedLayerCall paged(size_t layer, int64_t window = 0) const {
    return {&pool->layers[layer], step, pool->block, window};
  }
};
/// A decoder of text: all tokens at once, or one after the other through a cache.
class CausalModel : public PretrainedModel {
 public:
  /// Of its caches: a pair of keys and values [n, heads, length, head_dim] for each layer.
  using CacheSizes = PoolSizes;
  bool is_causal() const override { return head_; }
  std::vector<ModelPort> inputs() const override;
  std::vector<std::string> output_names() const override;
  std::vector<Tensor> run(const ModelInputs& in) override;
  DecodeState start_decoding(int64_t n, int64_t length) override;
  Tensor decode(const Tensor& ids, DecodeState& state) override;
  PagedCache start_paged(int64_t blocks, int64_t block) override;
  Tensor decode_paged(const PagedStep& step, PagedCache& cache) override;

 protected:
  /// `head`: it gives logits, else its last hidden values. `window`: how far some of its layers
  /// see.
  CausalModel(const ModelConfig& c, bool head, CacheSizes sizes, int64_t window = 0);
  /// Hidden values [n, l, width].
  virtual Tensor hidden(const CausalCall& call) = 0;
  /// Of hidden values.
  virtual Tensor logits(const Tensor& x) = 0;

 private:
  bool head_;
  CacheSizes cache_;
  int64_t window_;
};

/// input_ids and attention_mask with the given number of open dimensions.
std::vector<ModelPort> text_ports(size_t rank = 2);

/// Does `text` end with `end`?
inline bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace tandem::models::detail
