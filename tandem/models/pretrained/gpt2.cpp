// SPDX-License-Identifier: Apache-2.0
// GPT-2 (Radford et al. 2019): a decoder with learned positions and norms before each part. Names
// are those of GPT2LMHeadModel; its linear layers keep their weights as [in, out].
#include <cmath>

#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/projection_internal.h"
#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

struct Sizes {
  explicit Sizes(const ModelConfig& c)
      : vocab(c.integer("vocab_size", 50257)),
        positions(c.integer("n_positions", 1024)),
        embd(c.integer("n_embd", 768, 1, 1 << 16)),
        layers(c.integer("n_layer", 12, 0, 1024)),
        heads(c.integer("n_head", 12, 1, 1 << 12)),
        inner(c.integer("n_inner", 4 * embd, 1, 1 << 20)),
        eps(c.number("layer_norm_epsilon", 1e-5)),
        scaled(c.flag("scale_attn_weights", true)),
        by_layer(c.flag("scale_attn_by_inverse_layer_idx", false)),
        tied(c.flag("tie_word_embeddings", true)),
        act(detail::activation(c, c.text("activation_function", "gelu_new"))) {
    if (embd % heads != 0) c.fail("'n_embd' is not a multiple of 'n_head'");
    c.only("add_cross_attention", false);
  }
  int64_t vocab, positions, embd, layers, heads, inner;
  double eps;
  bool scaled, by_layer, tied;
  detail::Activation act;
};

using detail::Conv1D;

class Attention : public nn::Module {
 public:
  Attention(const Sizes& s, int64_t layer)
      : c_attn(s.embd, 3 * s.embd), c_proj(s.embd, s.embd), heads(s.heads) {
    scale = s.scaled ? 1 / std::sqrt(static_cast<double>(s.embd / s.heads)) : 1;
    if (s.by_layer) scale /= static_cast<double>(layer + 1);
    TD_REGISTER(c_attn, c_proj);
  }
  Tensor forward(Tensor x, const detail::CausalCall& c, size_t layer) {
    const int64_t e = x.size(2);
    const Tensor qkv = c_attn(std::move(x));
    Tensor q = detail::split_heads(qkv.narrow(2, 0, e), heads);
    Tensor k = detail::split_heads(qkv.narrow(2, e, e), heads);
    Tensor v = detail::split_heads(qkv.narrow(2, 2 * e, e), heads);
    if (c.pool)
      return c_proj(detail::merge_heads(detail::attend_paged(q, k, v, c.paged(layer), scale)));
    if (c.state) detail::append_to_cache(k, v, c.state->layers[layer]);
    return c_proj(detail::merge_heads(
        scaled_dot_product_attention(q, k, v, c.mask, 0, !c.mask.defined(), scale)));
  }
  Conv1D c_attn, c_proj;
  int64_t heads;
  double scale;
};
class Mlp : public nn::Module {
 public:
  explicit Mlp(const Sizes& s) : c_fc(s.embd, s.inner), c_proj(s.inner, s.embd), act(s.act) {
    TD_REGISTER(c_fc, c_proj);
  }
  Tensor forward(Tensor x) { return c_proj(act(c_fc(std::move(x)))); }
  Conv1D c_fc, c_proj;
  detail::Activation act;
};
class Block : public nn::Module {
 public:
  Block(const Sizes& s, int64_t layer)
      : ln_1({s.embd}, {.eps = s.eps}), attn(s, layer), ln_2({s.embd}, {.eps = s.eps}), mlp(s) {
    TD_REGISTER(ln_1, attn, ln_2, mlp);
  }
  Tensor forward(Tensor x, const detail::CausalCall& c, size_t layer) {
    x = x + attn.forward(ln_1(x), c, layer);
    return x + mlp(ln_2(x));
  }
  nn::LayerNorm ln_1;
  Attention attn;
  nn::LayerNorm ln_2;
  Mlp mlp;
};
class Transformer : public nn::Module {
 public:
  explicit Transformer(const Sizes& s)
      : wte(s.vocab, s.embd), wpe(s.positions, s.embd), ln_f({s.embd}, {.eps = s.eps}) {
    for (int64_t i = 0; i < s.layers; ++i) h.emplace_back(s, i);
    TD_REGISTER(wte, wpe, h, ln_f);
  }
  nn::Embedding wte, wpe;
  std::vector<Block> h;
  nn::LayerNorm ln_f;
};
class Net : public nn::Module {
 public:
  Net(const Sizes& s, bool head) : transformer(s) {
    if (head && !s.tied) lm_head.emplace(s.embd, s.vocab, nn::LinearOptions{.bias = false});
    TD_REGISTER(transformer, lm_head);
  }
  Transformer transformer;
  std::optional<nn::Linear> lm_head;
};

class Gpt2 : public detail::CausalModel {
 public:
  explicit Gpt2(const ModelConfig& c)
      : Gpt2(c, Sizes(c),
             detail::head_of(c, "GPT2", {detail::Head::causal}) == detail::Head::causal) {}
  nn::Module& module() override { return net_; }
  int64_t max_positions() const override { return positions_; }

 private:
  Gpt2(const ModelConfig& c, const Sizes& s, bool head)
      : CausalModel(c, head, {s.layers, s.heads, s.embd / s.heads}),
        positions_(s.positions),
        net_(s, head) {}
  Tensor hidden(const detail::CausalCall& c) override {
    Transformer& t = net_.transformer;
    Tensor x = t.wte(c.ids) + t.wpe(c.positions);
    for (size_t i = 0; i < t.h.size(); ++i) x = t.h[i].forward(std::move(x), c, i);
    return t.ln_f(x);
  }
  Tensor logits(const Tensor& x) override {
    return net_.lm_head ? (*net_.lm_head)(x) : linear(x, net_.transformer.wte.weight);
  }
  int64_t positions_;
  Net net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_gpt2(const ModelConfig& c, const FileNames&) {
  return std::make_unique<Gpt2>(c);
}

}  // namespace tandem::models
