// SPDX-License-Identifier: Apache-2.0
// Decoders of text with RMS norms, rotary positions and gated units: Llama (Touvron et al. 2023)
// and what followed it. A family is a set of options, most of which its config.json says.
#include <algorithm>
#include <cmath>
#include <set>

#include "tandem/graph/trace.h"
#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/rope_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

// What the keys of a family stand for when its config.json leaves them out, and what no key says.
struct Traits {
  const char *type, *classes;
  enum class Windows : uint8_t { none, all, listed } windows = Windows::none;
  NormKind norm = NormKind::rms;
  BlockSpec::Order order = BlockSpec::Order::before;
  bool qkv_bias = false, head_norms = false, packed = false, tied = false, scaled_embedding = false;
  int64_t window = 0, head_dim = 0;
  double theta = 10000, eps = 1e-6, softcap = 0, final_softcap = 0, pre_scalar = 0;
};
constexpr Traits kTraits[] = {
    {.type = "llama", .classes = "Llama"},
    {.type = "mistral", .classes = "Mistral", .windows = Traits::Windows::all, .window = 4096},
    {.type = "qwen2",
     .classes = "Qwen2",
     .windows = Traits::Windows::listed,
     .qkv_bias = true,
     .window = 4096},
    {.type = "qwen3",
     .classes = "Qwen3",
     .windows = Traits::Windows::listed,
     .head_norms = true,
     .window = 4096,
     .head_dim = 128},
    {.type = "gemma",
     .classes = "Gemma",
     .norm = NormKind::rms_from_one,
     .tied = true,
     .scaled_embedding = true,
     .head_dim = 256},
    {.type = "gemma2",
     .classes = "Gemma2",
     .windows = Traits::Windows::listed,
     .norm = NormKind::rms_from_one,
     .order = BlockSpec::Order::both,
     .tied = true,
     .scaled_embedding = true,
     .window = 4096,
     .head_dim = 256,
     .softcap = 50,
     .final_softcap = 30,
     .pre_scalar = 256},
    {.type = "gemma3_text",
     .classes = "Gemma3",
     .windows = Traits::Windows::listed,
     .norm = NormKind::rms_from_one,
     .order = BlockSpec::Order::both,
     .head_norms = true,
     .tied = true,
     .scaled_embedding = true,
     .window = 4096,
     .head_dim = 256,
     .theta = 1e6,
     .pre_scalar = 256},
    {.type = "phi3",
     .classes = "Phi3",
     .windows = Traits::Windows::all,
     .packed = true,
     .eps = 1e-5},
    {.type = "mixtral",
     .classes = "Mixtral",
     .windows = Traits::Windows::all,
     .theta = 1e6,
     .eps = 1e-5},
};

struct DecoderSpec {
  int64_t vocab = 0, width = 0, depth = 0, positions = 0, window = 0;
  BlockSpec block;
  std::vector<bool> windowed;
  bool tied = false;
  double embedding_scale = 1, softcap = 0;
  Rope rope, window_rope;
};

// A number that a config may switch off with null.
double switched(const ModelConfig& c, const char* key, double otherwise) {
  const double v = c.number(key, otherwise);
  const io::Json* own = c.json().find(key);
  if (own && own->is_null()) return 0;
  if (v < 0) c.fail(fmt::format("'{}' must not be negative", key));
  return v;
}

// Which layers see no further than a window. Sets s.window to 0 if none does.
void read_windows(const ModelConfig& c, const Traits& t, DecoderSpec& s) {
  s.windowed.assign(static_cast<size_t>(s.depth), t.windows == Traits::Windows::all);
  if (t.windows == Traits::Windows::none) return;
  s.window = static_cast<int64_t>(switched(c, "sliding_window", static_cast<double>(t.window)));
  const std::vector<std::string> kinds = c.texts("layer_types");
  const bool qwen = t.norm == NormKind::rms;
  const bool used = c.flag("use_sliding_window", false);
  const int64_t first = c.integer("max_window_layers", 28, 0);
  const int64_t pattern = c.integer("sliding_window_pattern",
                                    c.integer("_sliding_window_pattern", t.head_norms ? 6 : 2));
  if (t.windows == Traits::Windows::listed) {
    if (!kinds.empty() && kinds.size() != s.windowed.size())
      c.fail(fmt::format("'layer_types' has {} entries for {} layers", kinds.size(), s.depth));
    for (size_t i = 0; i < s.windowed.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      if (kinds.empty()) {
        s.windowed[i] = qwen ? used && at >= first : (at + 1) % pattern != 0;
      } else if (kinds[i] == "sliding_attention" || kinds[i] == "full_attention") {
        s.windowed[i] = kinds[i] == "sliding_attention";
      } else {
        c.fail("layers of type '" + kinds[i] + "' are not supported");
      }
    }
  }
  if (s.window == 0) s.windowed.assign(s.windowed.size(), false);
  if (std::find(s.windowed.begin(), s.windowed.end(), true) == s.windowed.end()) s.window = 0;
}

void read_attention(const ModelConfig& c, const Traits& t, DecoderSpec& s) {
  AttentionSpec& a = s.block.self;
  a.width = s.width;
  a.heads = c.integer("num_attention_heads", 32, 1, 1 << 12);
  a.kv_heads = c.integer("num_key_value_heads", a.heads, 1, 1 << 12);
  a.head_dim = c.integer("head_dim", t.head_dim ? t.head_dim : s.width / a.heads, 1, 1 << 12);
  if (a.heads % a.kv_heads != 0)
    c.fail("'num_attention_heads' is not a multiple of 'num_key_value_heads'");
  if (a.head_dim % 2 != 0) c.fail("'head_dim' is odd");
  const bool bias = c.flag("attention_bias", false);
  a.q_bias = a.k_bias = a.v_bias = bias || t.qkv_bias;
  a.o_bias = bias;
  a.packed = t.packed;
  a.softcap = switched(c, "attn_logit_softcapping", t.softcap);
  if (t.pre_scalar > 0) {
    const double scalar = c.number("query_pre_attn_scalar", t.pre_scalar);
    if (!(scalar > 0)) c.fail("'query_pre_attn_scalar' must be above 0");
    a.scale = 1 / std::sqrt(scalar);
  }
  if (t.head_norms) a.norm = s.block.norm;
  a.q = t.packed ? "self_attn.qkv_proj" : "self_attn.q_proj";
  a.k = "self_attn.k_proj";
  a.v = "self_attn.v_proj";
  a.o = "self_attn.o_proj";
  a.q_norm = "self_attn.q_norm";
  a.k_norm = "self_attn.k_norm";
}

void read_mlp(const ModelConfig& c, const Traits& t, DecoderSpec& s) {
  MlpSpec& m = s.block.mlp;
  m.width = s.width;
  m.inner = c.integer("intermediate_size", 11008, 1, 1 << 20);
  m.bias = c.flag("mlp_bias", false);
  const bool gemma = t.norm == NormKind::rms_from_one;
  m.act = activation(
      c, c.text("hidden_activation", gemma ? "gelu_pytorch_tanh" : c.text("hidden_act", "silu")));
  if (gemma) c.text("hidden_act", "");  // older than hidden_activation, and overridden by it
  m.gated = true;
  m.packed = t.packed;
  m.up = t.packed ? "mlp.gate_up_proj" : "mlp.up_proj";
  m.gate = "mlp.gate_proj";
  m.down = "mlp.down_proj";
  if (c.model_type() != "mixtral") return;
  m.experts = c.integer("num_local_experts", 8, 1, 1 << 12);
  m.chosen = c.integer("num_experts_per_tok", 2, 1, m.experts);
  m.up = "mlp.experts.gate_up_proj";
  m.down = "mlp.experts.down_proj";
  m.gate = "mlp.gate";
}

DecoderSpec decoder_spec(const ModelConfig& c, const Traits& t) {
  DecoderSpec s;
  s.vocab = c.integer("vocab_size", 32000);
  s.width = c.integer("hidden_size", 4096, 1, 1 << 16);
  s.depth = c.integer("num_hidden_layers", 32, 0, 1024);
  s.positions = c.integer("max_position_embeddings", 2048);
  s.tied = c.flag("tie_word_embeddings", t.tied);
  c.only("use_bidirectional_attention", false);
  if (t.scaled_embedding) s.embedding_scale = std::sqrt(static_cast<double>(s.width));
  s.softcap = switched(c, "final_logit_softcapping", t.final_softcap);
  BlockSpec& b = s.block;
  b.norm = {t.norm, c.number("rms_norm_eps", t.eps)};
  b.order = t.order;
  b.norm1 = "input_layernorm";
  b.after1 = b.norm2 = "post_attention_layernorm";
  if (b.order == BlockSpec::Order::both) {
    b.norm2 = "pre_feedforward_layernorm";
    b.after2 = "post_feedforward_layernorm";
  } else {
    b.after1 = "";
  }
  read_attention(c, t, s);
  read_mlp(c, t, s);
  read_windows(c, t, s);
  const RopeSizes sizes{b.self.head_dim, s.positions, t.theta};
  s.rope = s.window_rope = read_rope(c, sizes);
  if (c.model_type() == "gemma3_text")
    s.window_rope =
        read_rope(c, {b.self.head_dim, s.positions, c.number("rope_local_base_freq", 10000)},
                  "sliding_attention", true);
  return s;
}

class DecoderNet : public nn::Module {
 public:
  DecoderNet(const DecoderSpec& s, bool head)
      : embed_tokens(s.vocab, s.width), norm(s.width, s.block.norm) {
    for (int64_t i = 0; i < s.depth; ++i) layers.emplace_back(s.block);
    if (head && !s.tied) lm_head.emplace(s.width, s.vocab, nn::LinearOptions{.bias = false});
    register_as(this, {"model.embed_tokens", "model.layers", "model.norm", "lm_head"}, embed_tokens,
                layers, norm, lm_head);
  }
  nn::Embedding embed_tokens;
  std::vector<Block> layers;
  Norm norm;
  std::optional<nn::Linear> lm_head;
};

class Decoder : public CausalModel {
 public:
  Decoder(const ModelConfig& c, const DecoderSpec& s, bool head)
      : CausalModel(c, head, {s.depth, s.block.self.kv_heads, s.block.self.head_dim}, s.window),
        spec_(s),
        net_(s, head) {}
  nn::Module& module() override { return net_; }

 private:
  Tensor hidden(const CausalCall& c) override {
    check_length(c);
    const Turn turn = spec_.rope.at(c.positions);
    const Turn window_turn = spec_.window > 0 ? spec_.window_rope.at(c.positions) : Turn{};
    Tensor x = net_.embed_tokens(c.ids);
    if (spec_.embedding_scale != 1) x = x * spec_.embedding_scale;
    for (size_t i = 0; i < net_.layers.size(); ++i) {
      const bool windowed = spec_.windowed[i];
      PagedLayerCall paged{};
      if (c.pool) paged = c.paged(i, windowed ? spec_.window : 0);
      const AttentionCall call{.mask = windowed ? c.window : c.mask,
                               .causal = true,
                               .turn = windowed ? &window_turn : &turn,
                               .cache = c.state ? &c.state->layers[i] : nullptr,
                               .paged = c.pool ? &paged : nullptr};
      x = net_.layers[i].forward(std::move(x), call);
    }
    return net_.norm(x);
  }
  Tensor logits(const Tensor& x) override {
    Tensor y = net_.lm_head ? (*net_.lm_head)(x) : linear(x, net_.embed_tokens.weight);
    return spec_.softcap > 0 ? tanh(y * (1 / spec_.softcap)) * spec_.softcap : y;
  }
  // The keys of a short text are turned by other angles than those of a long one.
  void check_length(const CausalCall& c) const {
    TD_CHECK(spec_.rope.beyond.empty() || !c.pool, Unsupported,
             "texts of different lengths cannot be decoded together: the model turns keys by other "
             "angles beyond {} tokens (longrope)",
             spec_.rope.longest);
    if (spec_.rope.beyond.empty() || !c.state || is_tracing()) return;
    const nn::KVCache& cache = c.state->layers.at(0);
    TD_CHECK(
        cache.length.value().item<int64_t>() > 0 || cache.max_length <= spec_.rope.longest ||
            c.ids.size(1) > spec_.rope.longest,
        Unsupported,
        "a text of {} tokens cannot grow to {}: the model turns keys by other angles beyond {} "
        "(longrope)\nGenerate fewer tokens.",
        c.ids.size(1), cache.max_length, spec_.rope.longest);
  }
  DecoderSpec spec_;
  DecoderNet net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_decoder(const ModelConfig& c, const FileNames&) {
  for (const Traits& t : kTraits)
    if (c.model_type() == t.type) {
      const Head head = head_of(c, t.classes, {Head::causal, Head::text});
      return std::make_unique<Decoder>(c, decoder_spec(c, t), head == Head::causal);
    }
  TD_FAIL(Internal, "'{}' is not a decoder", c.model_type());
}

StateDict detail::stacked_experts(StateDict files) {
  StateDict out;
  const std::string block = ".block_sparse_moe.", expert = "experts.";
  std::vector<std::string> layers, experts;  // that have experts one by one, and their names
  for (const auto& [name, t] : files) {
    const size_t at = name.find(block);
    if (at == name.npos) {
      out[name] = t;
    } else if (name.compare(at + block.size(), expert.size(), expert) != 0) {
      out[name.substr(0, at) + ".mlp." + name.substr(at + block.size())] = t;
    } else {
      experts.push_back(name);
      if (std::find(layers.begin(), layers.end(), name.substr(0, at)) == layers.end())
        layers.push_back(name.substr(0, at));
    }
  }
  std::set<std::string> used;
  for (const std::string& layer : layers) {
    std::vector<Tensor> up, down;
    for (int64_t e = 0;; ++e) {
      const std::string own = layer + block + expert + std::to_string(e);
      const Tensor *w1 = files.find(own + ".w1.weight"), *w2 = files.find(own + ".w2.weight"),
                   *w3 = files.find(own + ".w3.weight");
      if (!w1 || !w2 || !w3) break;
      TD_CHECK(w1->dim() == 2 && w1->shape() == w3->shape() && w2->dim() == 2, Format,
               "{}: the matrices of an expert do not fit each other", own);
      for (const char* part : {".w1.weight", ".w2.weight", ".w3.weight"}) used.insert(own + part);
      up.push_back(cat({*w1, *w3}, 0));
      down.push_back(*w2);
    }
    if (up.empty()) continue;
    out[layer + ".mlp.experts.gate_up_proj"] = stack(up, 0);
    out[layer + ".mlp.experts.down_proj"] = stack(down, 0);
  }
  for (const std::string& name : experts)
    if (!used.count(name)) out[name] = files.at(name);
  return out;
}

}  // namespace tandem::models
