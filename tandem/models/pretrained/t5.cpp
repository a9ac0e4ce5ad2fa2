// SPDX-License-Identifier: Apache-2.0
// T5 (Raffel et al. 2019): encoder and decoder with relative positions in buckets, RMS norms, no
// biases and unscaled scores. Names are those of T5ForConditionalGeneration.
#include <cmath>

#include "tandem/models/paged_pair.h"
#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/nn/paged_attention.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

struct Sizes {
  explicit Sizes(const ModelConfig& c)
      : vocab(c.integer("vocab_size", 32128)),
        model(c.integer("d_model", 512, 1, 1 << 16)),
        kv(c.integer("d_kv", 64, 1, 1 << 12)),
        ff(c.integer("d_ff", 2048, 1, 1 << 20)),
        layers(c.integer("num_layers", 6, 1, 1024)),
        decoder_layers(c.integer("num_decoder_layers", layers, 1, 1024)),
        heads(c.integer("num_heads", 8, 1, 1 << 12)),
        buckets(c.integer("relative_attention_num_buckets", 32, 4, 1 << 16)),
        distance(c.integer("relative_attention_max_distance", 128, 2, 1 << 20)),
        eps(c.number("layer_norm_epsilon", 1e-6)) {
    std::string ff_name = c.text("feed_forward_proj", "relu");
    gated = ff_name.compare(0, 6, "gated-") == 0;
    if (gated) ff_name = ff_name == "gated-gelu" ? "gelu_new" : ff_name.substr(6);
    act = detail::activation(c, ff_name);
    scaled = c.flag("scale_decoder_outputs", c.flag("tie_word_embeddings", true));
    if (distance <= buckets / 2) c.fail("'relative_attention_max_distance' is too small");
  }
  int64_t vocab, model, kv, ff, layers, decoder_layers, heads, buckets, distance;
  double eps;
  bool gated = false, scaled = true;
  detail::Activation act = nullptr;
};

// The bucket of a distance (key - query).
int64_t bucket_of(int64_t d, bool both_ways, int64_t buckets, int64_t most) {
  int64_t base = 0;
  if (both_ways) {
    buckets /= 2;
    if (d > 0) base = buckets;
    d = std::abs(d);
  } else {
    d = std::max<int64_t>(-d, 0);
  }
  const int64_t exact = buckets / 2;
  if (d < exact) return base + d;
  const float far =
      std::log(static_cast<float>(d) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(most) / static_cast<double>(exact))) *
      static_cast<float>(buckets - exact);
  return base + std::min(exact + static_cast<int64_t>(far), buckets - 1);
}

class Attention : public nn::Module {
 public:
  Attention(const Sizes& s, bool with_bias)
      : q(s.model, s.heads * s.kv, {.bias = false}),
        k(s.model, s.heads * s.kv, {.bias = false}),
        v(s.model, s.heads * s.kv, {.bias = false}),
        o(s.heads * s.kv, s.model, {.bias = false}),
        heads(s.heads) {
    if (with_bias) relative_attention_bias.emplace(s.buckets, s.heads);
    TD_REGISTER(q, k, v, o, relative_attention_bias);
  }
  // `added` is added to the scores.
  Tensor forward(const Tensor& x, const Tensor& memory, const Tensor& added) {
    return o(detail::merge_heads(scaled_dot_product_attention(
        detail::split_heads(q(x), heads), detail::split_heads(k(memory), heads),
        detail::split_heads(v(memory), heads), added, 0, false, 1)));
  }
  // The same for the next steps, which are appended to the cache.
  Tensor step(const Tensor& x, nn::KVCache& cache, const Tensor& added) {
    const Tensor at = cache.length.value();
    cache.k.write_(2, at, detail::split_heads(k(x), heads));
    cache.v.write_(2, at, detail::split_heads(v(x), heads));
    cache.length.assign_(at + x.size(1));
    return look_up(x, cache, added);
  }
  // Attends to the cached keys and values.
  Tensor look_up(const Tensor& x, const nn::KVCache& cache, const Tensor& added) {
    return o(detail::merge_heads(scaled_dot_product_attention(
        detail::split_heads(q(x), heads), cache.k, cache.v, added, 0, false, 1)));
  }
  // The next steps of many texts, whose keys lie in `slots` [n, s] of a pool. Their scores get a
  // term of their own, which the row paged_attention does not know, so the keys are gathered.
  Tensor step_paged(const Tensor& x, const PagedCache::Layer& pool, const PagedStep& step,
                    const Tensor& slots, const Tensor& added) {
    detail::write_paged(pool, detail::split_heads(k(x), heads), detail::split_heads(v(x), heads),
                        step.slots);
    const auto gather = [&](const Buffer& b) {
      return index_select(b, 0, slots.reshape({-1}))
          .reshape({slots.size(0), slots.size(1), b.size(1), b.size(2)})
          .transpose(1, 2);
    };
    return o(detail::merge_heads(scaled_dot_product_attention(
        detail::split_heads(q(x), heads), gather(pool.k), gather(pool.v), added, 0, false, 1)));
  }
  // Attends to prompts in the pool.
  Tensor look_up_paged(const Tensor& x, const PagedCache::Layer& pool, const PagedStep& step,
                       const Tensor& prompt_last, int64_t block) {
    return o(detail::merge_heads(paged_attention(detail::split_heads(q(x), heads), pool.k, pool.v,
                                                 step.table, prompt_last, {block, 1})));
  }
  // Keys and values of prompts, into the pool.
  void keep(const Tensor& memory, const PagedCache::Layer& pool, const Tensor& slots) {
    detail::write_paged(pool, detail::split_heads(k(memory), heads),
                        detail::split_heads(v(memory), heads), slots);
  }
  nn::Linear q, k, v, o;
  std::optional<nn::Embedding> relative_attention_bias;
  int64_t heads;
};
class FeedForward : public nn::Module {
 public:
  explicit FeedForward(const Sizes& s) : wo(s.ff, s.model, {.bias = false}), act(s.act) {
    const nn::LinearOptions plain{.bias = false};
    if (s.gated) {
      wi_0.emplace(s.model, s.ff, plain);
      wi_1.emplace(s.model, s.ff, plain);
    } else {
      wi.emplace(s.model, s.ff, plain);
    }
    TD_REGISTER(wi, wi_0, wi_1, wo);
  }
  Tensor forward(Tensor x) { return wo(wi ? act((*wi)(x)) : act((*wi_0)(x)) * (*wi_1)(x)); }
  std::optional<nn::Linear> wi, wi_0, wi_1;
  nn::Linear wo;
  detail::Activation act;
};
// One of the two or three parts of a block; the member that is set tells which.
class Part : public nn::Module {
 public:
  enum class Kind : uint8_t { self, self_first, cross, feed_forward };
  Part(const Sizes& s, Kind kind) : layer_norm({s.model}, {.eps = s.eps}) {
    if (kind == Kind::self || kind == Kind::self_first)
      SelfAttention.emplace(s, kind == Kind::self_first);
    if (kind == Kind::cross) EncDecAttention.emplace(s, false);
    if (kind == Kind::feed_forward) DenseReluDense.emplace(s);
    TD_REGISTER(SelfAttention, EncDecAttention, DenseReluDense, layer_norm);
  }
  std::optional<Attention> SelfAttention, EncDecAttention;
  std::optional<FeedForward> DenseReluDense;
  nn::RMSNorm layer_norm;
};
class Block : public nn::Module {
 public:
  Block(const Sizes& s, bool decoder, bool first) {
    layer.emplace_back(s, first ? Part::Kind::self_first : Part::Kind::self);
    if (decoder) layer.emplace_back(s, Part::Kind::cross);
    layer.emplace_back(s, Part::Kind::feed_forward);
    TD_REGISTER(layer);
  }
  Tensor forward(Tensor x, const Tensor& self_added, const Tensor& memory,
                 const Tensor& memory_mask) {
    for (Part& p : layer) {
      const Tensor h = p.layer_norm(x);
      if (p.SelfAttention)
        x = x + p.SelfAttention->forward(h, h, self_added);
      else if (p.EncDecAttention)
        x = x + p.EncDecAttention->forward(h, memory, memory_mask);
      else
        x = x + (*p.DenseReluDense)(h);
    }
    return x;
  }
  // The next steps of a decoder: `own` caches what it wrote, `prompt` what it reads.
  Tensor step(Tensor x, nn::KVCache& own, const Tensor& self_added, const nn::KVCache& prompt,
              const Tensor& prompt_mask) {
    for (Part& p : layer) {
      const Tensor h = p.layer_norm(x);
      if (p.SelfAttention)
        x = x + p.SelfAttention->step(h, own, self_added);
      else if (p.EncDecAttention)
        x = x + p.EncDecAttention->look_up(h, prompt, prompt_mask);
      else
        x = x + (*p.DenseReluDense)(h);
    }
    return x;
  }
  // Of many texts: `own` is the pool's layer of what they wrote, `prompt` of what they read.
  Tensor step_paged(Tensor x, const PagedCache::Layer& own, const PagedCache::Layer& prompt,
                    const PagedStep& step, const Tensor& slots, const Tensor& self_added,
                    const Tensor& prompt_last, int64_t size) {
    for (Part& p : layer) {
      const Tensor h = p.layer_norm(x);
      if (p.SelfAttention)
        x = x + p.SelfAttention->step_paged(h, own, step, slots, self_added);
      else if (p.EncDecAttention)
        x = x + p.EncDecAttention->look_up_paged(h, prompt, step, prompt_last, size);
      else
        x = x + (*p.DenseReluDense)(h);
    }
    return x;
  }
  std::vector<Part> layer;
};
class Stack : public nn::Module {
 public:
  Stack(const Sizes& s, bool decoder)
      : final_layer_norm({s.model}, {.eps = s.eps}),
        buckets(s.buckets),
        distance(s.distance),
        heads(s.heads),
        is_decoder(decoder) {
    for (int64_t i = 0; i < (decoder ? s.decoder_layers : s.layers); ++i)
      block.emplace_back(s, decoder, i == 0);
    TD_REGISTER(block, final_layer_norm);
  }
  // The term added to the scores, [n or 1, heads, l, l]: relative positions, and -inf for hidden
  // ones. Distances beyond the largest one share its bucket.
  Tensor added(Dim length, const Tensor& attention_mask) {
    const Tensor at = arange_dim(length);
    const Tensor sum = positions(at.unsqueeze(0) - at.unsqueeze(1));
    Tensor seen = detail::seen_mask(attention_mask);
    if (is_decoder) seen = detail::causal_mask(length, attention_mask);
    return seen.defined() ? where(seen, sum, kHidden) : sum;
  }
  // The same for the next `fresh` steps against the whole of a cache that holds `at` steps.
  Tensor added(const Tensor& at, int64_t fresh, int64_t length) {
    const Tensor key = arange(length).unsqueeze(0), query = at + arange(fresh).unsqueeze(1);
    return where(key <= query, positions(key - query), kHidden);
  }
  // The bias [1, heads, l, s] for distances [l, s] (key - query).
  Tensor positions(const Tensor& distances) {
    std::vector<int64_t> bucket;
    for (int64_t d = -distance; d <= distance; ++d)
      bucket.push_back(bucket_of(d, !is_decoder, buckets, distance));
    const Tensor apart = clamp(distances, -distance, distance) + distance;
    const Tensor index = index_select(constant(tensor(bucket)), 0, apart.flatten())
                             .reshape({apart.shape(0), apart.shape(1)});
    const Tensor bias = (*block[0].layer[0].SelfAttention->relative_attention_bias)(index);
    return bias.permute({2, 0, 1}).unsqueeze(0);
  }
  // The next steps of a decoder with the caches of its blocks: first its own, then the prompt's.
  Tensor step(Tensor x, DecodeState& state) {
    const auto n = block.size();
    const Tensor self = added(state.layers[0].length, x.size(1), state.layers[0].max_length);
    const Tensor key = arange(state.layers[n].max_length).reshape({1, 1, 1, -1});
    const Tensor seen = key >= state.start.value().reshape({-1, 1, 1, 1});
    for (size_t i = 0; i < n; ++i)
      x = block[i].step(std::move(x), state.layers[i], self, state.layers[n + i], seen);
    return final_layer_norm(x);
  }
  // The next steps of many texts; each query sees its own text's keys up to its own position.
  Tensor step_paged(Tensor x, const PagedStep& step, const Tensor& prompt_last, PagedCache& cache) {
    const int64_t n = step.table.size(0), l = step.positions.size(1),
                  length = step.table.size(1) * cache.block;
    const Tensor slots =
        (step.table.unsqueeze(2) * cache.block + arange(cache.block)).reshape({n, length});
    const Tensor key = arange(length).unsqueeze(0), query = step.positions.reshape({n * l, 1});
    const Tensor self = where(key <= query, positions(key - query), kHidden)
                            .reshape({heads, n, l, length})
                            .transpose(0, 1);
    for (size_t i = 0; i < block.size(); ++i)
      x = block[i].step_paged(std::move(x), cache.layers[i], cache.layers[block.size() + i], step,
                              slots, self, prompt_last, cache.block);
    return final_layer_norm(x);
  }
  Tensor forward(Tensor x, const Tensor& attention_mask, const Tensor& memory,
                 const Tensor& memory_mask) {
    const Tensor self = added(x.shape(1), attention_mask);
    for (Block& b : block) x = b.forward(std::move(x), self, memory, memory_mask);
    return final_layer_norm(x);
  }
  static constexpr float kHidden = -1e30F;
  std::vector<Block> block;
  nn::RMSNorm final_layer_norm;
  int64_t buckets, distance, heads;
  bool is_decoder;
};
class Net : public nn::Module {
 public:
  Net(const Sizes& s, bool with_decoder, bool own_head)
      : shared(s.vocab, s.model), encoder(s, false) {
    if (with_decoder) decoder.emplace(s, true);
    if (own_head) lm_head.emplace(s.model, s.vocab, nn::LinearOptions{.bias = false});
    TD_REGISTER(shared, encoder, decoder, lm_head);
  }
  nn::Embedding shared;
  Stack encoder;
  std::optional<Stack> decoder;
  std::optional<nn::Linear> lm_head;
};

class T5 : public PretrainedModel, public PagedPair {
 public:
  T5(const ModelConfig& c, detail::Head head, bool own_output)
      : PretrainedModel(c),
        sizes_(c),
        head_(head == detail::Head::generation),
        net_(sizes_, head != detail::Head::encoder, head_ && own_output) {}
  nn::Module& module() override { return net_; }
  std::vector<ModelPort> inputs() const override {
    std::vector<ModelPort> ports = detail::text_ports();
    if (net_.decoder) ports.insert(ports.begin() + 1, {"decoder_input_ids", DType::i64, {-1, -1}});
    return ports;
  }
  std::vector<std::string> output_names() const override {
    return {head_ ? "logits" : "last_hidden_state"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    detail::want(in.input_ids, "input_ids", 2);
    const Tensor memory =
        net_.encoder.forward(net_.shared(in.input_ids), in.attention_mask, {}, {});
    if (!net_.decoder) return {memory};
    detail::want(in.decoder_input_ids, "decoder_input_ids", 2);
    Tensor x = net_.decoder->forward(net_.shared(in.decoder_input_ids), {}, memory,
                                     detail::seen_mask(in.attention_mask));
    return {head_ ? logits(x) : x};
  }

  bool is_encoder_decoder() const override { return net_.decoder && head_; }
  DecodeState start_decoding(int64_t n, int64_t length) override {
    if (!is_encoder_decoder()) return PretrainedModel::start_decoding(n, length);
    DecodeState s;
    for (int64_t i = 0; i < sizes_.decoder_layers; ++i)
      s.layers.emplace_back(n, sizes_.heads, length, sizes_.kv, detail::dtype_of(net_));
    s.start = Buffer(zeros({n}, DType::i64));
    return s;
  }
  Tensor start(const ModelInputs& in, DecodeState& state) override {
    read_prompt(in.input_ids, state);
    return decode(first_tokens(in, in.input_ids.size(0)), state);
  }
  Tensor decode(const Tensor& ids, DecodeState& state) override {
    const Tensor x = net_.decoder->step(net_.shared(ids), state);
    return logits(x.select(1, x.size(1) - 1));
  }

  PagedCache start_pair(int64_t blocks, int64_t block) override {
    return detail::empty_pool({2 * sizes_.decoder_layers, sizes_.heads, sizes_.kv},
                              detail::dtype_of(net_), blocks, block);
  }
  void read_prompt(const Tensor& ids, const Tensor& slots, PagedCache& cache) override {
    const Tensor memory = net_.encoder.forward(net_.shared(ids), {}, {}, {});
    size_t at = net_.decoder->block.size();
    for (Block& b : net_.decoder->block)
      b.layer[1].EncDecAttention->keep(memory, cache.layers[at++], slots);
  }
  Tensor decode_pair(const PagedStep& step, const Tensor& prompt_last, PagedCache& cache) override {
    return logits(detail::values_at(
        net_.decoder->step_paged(net_.shared(step.ids), step, prompt_last, cache), step.last));
  }

 private:
  Tensor logits(Tensor x) {
    if (sizes_.scaled) x = x * (1 / std::sqrt(static_cast<double>(sizes_.model)));
    return net_.lm_head ? (*net_.lm_head)(x) : linear(x, net_.shared.weight);
  }
  // Computes the prompt's keys and values for every block of the decoder.
  void read_prompt(const Tensor& ids, DecodeState& state) {
    const int64_t n = ids.size(0), length = ids.size(1);
    const Tensor seen = arange(length).unsqueeze(0) >= state.start.value().unsqueeze(1);
    const Tensor memory = net_.encoder.forward(net_.shared(ids), seen, {}, {});
    for (Block& b : net_.decoder->block)
      for (Part& p : b.layer)
        if (p.EncDecAttention) {
          state.layers.emplace_back(n, sizes_.heads, length, sizes_.kv);
          nn::KVCache& c = state.layers.back();
          c.k.assign_(detail::split_heads(p.EncDecAttention->k(memory), sizes_.heads));
          c.v.assign_(detail::split_heads(p.EncDecAttention->v(memory), sizes_.heads));
          c.length.assign_(full({}, length, DType::i64));
        }
  }

  Sizes sizes_;
  bool head_;
  Net net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_t5(const ModelConfig& c, const FileNames& files) {
  const Head head = head_of(c, "T5", {Head::none, Head::generation, Head::encoder});
  c.only("is_decoder", false);
  c.flag("is_gated_act", false);  // follow from feed_forward_proj
  c.text("dense_act_fn", "");
  return std::make_unique<T5>(c, head, files.listed("lm_head.weight"));
}

}  // namespace tandem::models
