// SPDX-License-Identifier: Apache-2.0
// Llama (Touvron et al. 2023): RMS norms, rotary positions with the scalings of later versions,
// keys and values shared by groups of heads, gated units. Names are those of LlamaForCausalLM.
#include <cmath>
#include <numbers>

#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

struct Sizes {
  explicit Sizes(const ModelConfig& c)
      : vocab(c.integer("vocab_size", 32000)),
        hidden(c.integer("hidden_size", 4096, 1, 1 << 16)),
        inner(c.integer("intermediate_size", 11008, 1, 1 << 20)),
        layers(c.integer("num_hidden_layers", 32, 0, 1024)),
        heads(c.integer("num_attention_heads", 32, 1, 1 << 12)),
        kv_heads(c.integer("num_key_value_heads", heads, 1, 1 << 12)),
        head_dim(c.integer("head_dim", hidden / heads, 1, 1 << 12)),
        positions(c.integer("max_position_embeddings", 2048)),
        eps(c.number("rms_norm_eps", 1e-6)),
        attention_bias(c.flag("attention_bias", false)),
        mlp_bias(c.flag("mlp_bias", false)),
        tied(c.flag("tie_word_embeddings", false)),
        act(detail::activation(c, c.text("hidden_act", "silu"))) {
    if (heads % kv_heads != 0)
      c.fail("'num_attention_heads' is not a multiple of 'num_key_value_heads'");
    if (head_dim % 2 != 0) c.fail("'head_dim' is odd");
  }
  int64_t vocab, hidden, inner, layers, heads, kv_heads, head_dim, positions;
  double eps;
  bool attention_bias, mlp_bias, tied;
  detail::Activation act;
};

// Angle per position of each pair of elements, and the factor on cosine and sine.
struct Rope {
  std::vector<float> frequencies;
  double factor = 1;
};

// The parameters under "rope_parameters" (or "rope_scaling" and a separate "rope_theta").
class RopeReader {
 public:
  RopeReader(const ModelConfig& c, const Sizes& s) : c_(c), s_(s) {
    rope_ = c.object("rope_parameters");
    if (!rope_) rope_ = c.object("rope_scaling");
    theta_ = number("rope_theta", c.number("rope_theta", 10000));
    if (!(theta_ > 0)) c.fail("'rope_theta' must be above 0");
  }
  Rope read() {
    Rope r;
    for (int64_t i = 0; i < s_.head_dim / 2; ++i)
      r.frequencies.push_back(
          1.0F / std::pow(static_cast<float>(theta_),
                          static_cast<float>(2 * i) / static_cast<float>(s_.head_dim)));
    std::string type = "default";
    if (rope_)
      for (const char* key : {"type", "rope_type"})
        if (const io::Json* t = rope_->find(key)) {
          if (!t->as_string()) c_.fail("the type of rope must be a string");
          type = *t->as_string();
        }
    if (type == "default") return r;
    const double factor = number("factor", 0);
    if (!(factor >= 1)) c_.fail("'factor' of rope must be at least 1");
    if (type == "linear")
      for (float& f : r.frequencies) f /= static_cast<float>(factor);
    else if (type == "llama3")
      llama3(r, factor);
    else if (type == "yarn")
      yarn(r, factor);
    else
      c_.fail("rope of type '" + type + "' is not supported (default, linear, llama3, yarn)");
    return r;
  }

 private:
  double number(const char* key, double otherwise) const {
    const io::Json* v = rope_ ? rope_->find(key) : nullptr;
    if (!v || v->is_null()) return otherwise;
    if (v->as_int()) return static_cast<double>(*v->as_int());
    if (!v->as_double()) c_.fail(std::string("'") + key + "' of rope must be a number");
    return *v->as_double();
  }
  // Long wavelengths are stretched, short ones kept, those between are interpolated.
  void llama3(Rope& r, double factor) const {
    const double low = number("low_freq_factor", 1), high = number("high_freq_factor", 4);
    const double old = number("original_max_position_embeddings", 8192);
    if (!(high > low) || !(low > 0) || !(old > 0))
      c_.fail("the factors of rope contradict each other");
    for (float& f : r.frequencies) {
      const double wave = 2 * std::numbers::pi / f;
      if (wave > old / low) {
        f = static_cast<float>(f / factor);
      } else if (wave >= old / high) {
        const double smooth = (old / wave - low) / (high - low);
        f = static_cast<float>((1 - smooth) * f / factor + smooth * f);
      }
    }
  }
  // Peng et al. 2023: a ramp between two dimensions, and a temperature.
  void yarn(Rope& r, double factor) const {
    const double fast = number("beta_fast", 32), slow = number("beta_slow", 1);
    const double old =
        number("original_max_position_embeddings", static_cast<double>(s_.positions));
    const auto dim = static_cast<double>(s_.head_dim);
    const auto at = [&](double turns) {
      return dim * std::log(old / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta_));
    };
    const double low = std::max(std::floor(at(fast)), 0.0);
    double high = std::min(std::ceil(at(slow)), dim - 1);
    if (low == high) high += 0.001;
    for (size_t i = 0; i < r.frequencies.size(); ++i) {
      const double ramp =
          std::min(std::max((static_cast<double>(i) - low) / (high - low), 0.0), 1.0);
      const double f = r.frequencies[i];
      r.frequencies[i] = static_cast<float>(f / factor * ramp + f * (1 - ramp));
    }
    r.factor = number("attention_factor", 0.1 * std::log(factor) + 1);
  }
  const ModelConfig& c_;
  const Sizes& s_;
  const io::Json* rope_;
  double theta_;
};

// cos and sin [n, 1, l, head_dim] of positions [n, l].
struct Turn {
  Tensor cos, sin;
  Tensor apply(const Tensor& x) const {
    const int64_t half = x.size(3) / 2;
    const DType own = x.dtype();  // angles are f32 whatever the weights' dtype
    return (x * cos + cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, 3) * sin).to(own);
  }
};
Turn turn_of(const Rope& rope, const Tensor& positions) {
  const auto half = static_cast<int64_t>(rope.frequencies.size());
  const Tensor angles =
      positions.to(DType::f32).reshape({positions.shape(0), 1, positions.shape(1), 1}) *
      tensor(rope.frequencies).reshape({1, 1, 1, half});
  const Tensor both = cat({angles, angles}, 3);
  Turn t{both.cos(), both.sin()};
  if (rope.factor != 1) t = {t.cos * rope.factor, t.sin * rope.factor};
  return t;
}

class Attention : public nn::Module {
 public:
  explicit Attention(const Sizes& s)
      : q_proj(s.hidden, s.heads * s.head_dim, {.bias = s.attention_bias}),
        k_proj(s.hidden, s.kv_heads * s.head_dim, {.bias = s.attention_bias}),
        v_proj(s.hidden, s.kv_heads * s.head_dim, {.bias = s.attention_bias}),
        o_proj(s.heads * s.head_dim, s.hidden, {.bias = s.attention_bias}),
        heads(s.heads),
        kv_heads(s.kv_heads) {
    TD_REGISTER(q_proj, k_proj, v_proj, o_proj);
  }
  Tensor forward(Tensor x, const Turn& turn, const Tensor& mask, nn::KVCache* cache,
                 const Tensor& start) {
    Tensor q = turn.apply(detail::split_heads(q_proj(x), heads));
    Tensor k = turn.apply(detail::split_heads(k_proj(x), kv_heads));
    Tensor v = detail::split_heads(v_proj(x), kv_heads);
    Tensor y = cache ? detail::cached_attention(q, k, v, *cache, start, 0)
                     : scaled_dot_product_attention(q, k, v, mask, 0, !mask.defined(), 0,
                                                    heads != kv_heads);
    return o_proj(detail::merge_heads(y));
  }
  nn::Linear q_proj, k_proj, v_proj, o_proj;
  int64_t heads, kv_heads;
};
class Mlp : public nn::Module {
 public:
  explicit Mlp(const Sizes& s)
      : gate_proj(s.hidden, s.inner, {.bias = s.mlp_bias}),
        up_proj(s.hidden, s.inner, {.bias = s.mlp_bias}),
        down_proj(s.inner, s.hidden, {.bias = s.mlp_bias}),
        act(s.act) {
    TD_REGISTER(gate_proj, up_proj, down_proj);
  }
  Tensor forward(Tensor x) { return down_proj(act(gate_proj(x)) * up_proj(x)); }
  nn::Linear gate_proj, up_proj, down_proj;
  detail::Activation act;
};
class Layer : public nn::Module {
 public:
  explicit Layer(const Sizes& s)
      : self_attn(s),
        mlp(s),
        input_layernorm({s.hidden}, {.eps = s.eps}),
        post_attention_layernorm({s.hidden}, {.eps = s.eps}) {
    TD_REGISTER(self_attn, mlp, input_layernorm, post_attention_layernorm);
  }
  Tensor forward(Tensor x, const Turn& turn, const Tensor& mask, nn::KVCache* cache,
                 const Tensor& start) {
    x = x + self_attn.forward(input_layernorm(x), turn, mask, cache, start);
    return x + mlp(post_attention_layernorm(x));
  }
  Attention self_attn;
  Mlp mlp;
  nn::RMSNorm input_layernorm, post_attention_layernorm;
};
class Base : public nn::Module {
 public:
  explicit Base(const Sizes& s)
      : embed_tokens(s.vocab, s.hidden), norm({s.hidden}, {.eps = s.eps}) {
    for (int64_t i = 0; i < s.layers; ++i) layers.emplace_back(s);
    TD_REGISTER(embed_tokens, layers, norm);
  }
  nn::Embedding embed_tokens;
  std::vector<Layer> layers;
  nn::RMSNorm norm;
};
class Net : public nn::Module {
 public:
  Net(const Sizes& s, bool head) : model(s) {
    if (head && !s.tied) lm_head.emplace(s.hidden, s.vocab, nn::LinearOptions{.bias = false});
    TD_REGISTER(model, lm_head);
  }
  Base model;
  std::optional<nn::Linear> lm_head;
};

class Llama : public detail::CausalModel {
 public:
  explicit Llama(const ModelConfig& c) : Llama(c, Sizes(c), has_head(c)) {}
  nn::Module& module() override { return net_; }

 private:
  Llama(const ModelConfig& c, const Sizes& s, bool head)
      : CausalModel(c, head, {s.layers, s.kv_heads, s.head_dim}),
        rope_(RopeReader(c, s).read()),
        net_(s, head) {}
  static bool has_head(const ModelConfig& c) {
    return detail::ends_with(c.architecture(), "ForCausalLM") || c.architecture().empty();
  }
  Tensor run(const Tensor& ids, const Tensor& positions, const Tensor& mask,
             DecodeState* state) override {
    Base& m = net_.model;
    const Turn turn = turn_of(rope_, positions);
    const Tensor start = state ? state->start.value() : Tensor();
    Tensor x = m.embed_tokens(ids);
    for (size_t i = 0; i < m.layers.size(); ++i)
      x = m.layers[i].forward(std::move(x), turn, mask, state ? &state->layers[i] : nullptr, start);
    return m.norm(x);
  }
  Tensor logits(const Tensor& x) override {
    return net_.lm_head ? (*net_.lm_head)(x) : linear(x, net_.model.embed_tokens.weight);
  }
  Rope rope_;
  Net net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_llama(const ModelConfig& c) {
  return std::make_unique<Llama>(c);
}

}  // namespace tandem::models
