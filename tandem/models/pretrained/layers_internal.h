// SPDX-License-Identifier: Apache-2.0
// Layers of the families that Hugging Face's folders hold: attention, MLP, mixture of experts and
// the block made of them. Their members take the names that a family's files use, so that one class
// serves them all and a state_dict has the files' names. Not installed.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "tandem/models/pretrained/projection_internal.h"
#include "tandem/models/text/attention_internal.h"
#include "tandem/nn/nn.h"

namespace tandem::models::detail {

/// Visit the members of a module, or of an optional one, as if they were those of its owner.
template <class T>
void visit_inlined(void* p, const std::string&, nn::MemberVisitor& v) {
  T& member = *static_cast<T*>(p);
  if constexpr (requires { member.has_value(); }) {
    if (!member) return;
    v.hidden(*member);
    member->visit_members(v);
  } else {
    v.hidden(member);
    member.visit_members(v);
  }
}
/// TD_REGISTER with names that are known at run time; they may contain dots. An empty name makes
/// the members of that module members of `self`.
template <class Self, class... M>
void register_as(Self* self, const std::array<std::string, sizeof...(M)>& names, M&... members) {
  std::string list;
  for (size_t i = 0; i < names.size(); ++i)
    list += (i ? "," : "") + (names[i].empty() ? "inlined" + std::to_string(i) : names[i]);
  self->register_members(self, list.c_str(), members...);
  size_t i = 0;
  const auto inlined = [&]<class T>(T&) {
    if constexpr (
        requires(T & m) { m.state(); } || requires(T & m) { m->state(); })
      if (names[i].empty()) self->state().members[i].visit = visit_inlined<T>;
    ++i;
  };
  (inlined(members), ...);
}

enum class NormKind : uint8_t {
  layer,         ///< LayerNorm
  rms,           ///< x / rms(x) * weight
  rms_from_one,  ///< x / rms(x) * (1 + weight), Gemma's
};
struct NormSpec {
  NormKind kind = NormKind::layer;
  double eps = 1e-5;
};
/// Parameters weight [n] and, of `layer`, bias [n].
class Norm : public nn::Module {
 public:
  Norm(int64_t size, const NormSpec& spec);
  Tensor forward(Tensor x);
  Param weight, bias;
  NormSpec spec;
};
/// Is it a norm whose weight counts from 1?
bool counts_from_one(const nn::Module& m);

/// Rotations by position, cos and sin [n, 1, l, size] of the first `size` elements of each head (Su
/// et al. 2021).
struct Turn {
  Tensor cos, sin;
  Tensor apply(const Tensor& x) const;
};

struct AttentionSpec {
  int64_t width = 0, heads = 1;
  int64_t kv_heads = 0;  ///< shared by groups of heads; 0: `heads`
  int64_t head_dim = 0;  ///< 0: width / heads
  int64_t memory = 0;    ///< width of what keys and values are made from; 0: `width`
  bool q_bias = true, k_bias = true, v_bias = true, o_bias = true;
  bool packed = false;                ///< query, key and value are one matrix, named `q`
  double scale = 0;                   ///< of scores; 0: 1 / sqrt(head_dim)
  double softcap = 0;                 ///< scores become c tanh(score / c)
  std::optional<NormSpec> norm = {};  ///< of each head's query and key, named `q_norm` and `k_norm`
  std::string q, k, v, o, q_norm, k_norm;
};

/// What attention sees besides its input.
struct AttentionCall {
  Tensor mask;                   ///< bool (true: visible) or added; broadcasts to [n, heads, l, s]
  bool causal = false;           ///< without a mask
  const Turn* turn = nullptr;    ///< of queries and keys
  Tensor q_added, k_added;       ///< added to what queries and keys are made from
  nn::KVCache* cache = nullptr;  ///< the keys and values so far
  bool complete = false;         ///< the cache holds all keys and values
  const PagedLayerCall* paged = nullptr;  ///< keys and values lie in a pool
  Tensor seen = {};  ///< with `complete` and `paged`: the last key that a query sees, [n, l]
};

/// x [n, l, width], memory [n, s, memory] (or x) -> [n, l, width].
class Attention : public nn::Module {
 public:
  explicit Attention(const AttentionSpec& spec);
  Tensor forward(const Tensor& x, const Tensor& memory, const AttentionCall& call);
  /// Keys and values of `memory`, as one call to a complete cache.
  void fill(nn::KVCache& cache, const Tensor& memory);
  /// The same in a pool.
  void fill(const PagedCache::Layer& pool, const Tensor& memory, const Tensor& slots);
  AttentionSpec spec;
  Projection q;
  std::optional<Projection> k, v;
  Projection o;
  std::optional<Norm> q_norm, k_norm;
};

struct MlpSpec {
  int64_t width = 0, inner = 0;
  Activation act = nullptr;
  bool bias = true;
  bool gated = false;               ///< act(gate(x)) * up(x)
  bool packed = false;              ///< both are one matrix, named `up`, gate(x) first
  int64_t experts = 0, chosen = 0;  ///< a mixture of experts of which each token takes some
  std::string up, down, gate;
};
class Mlp : public nn::Module {
 public:
  explicit Mlp(const MlpSpec& spec);
  Tensor forward(Tensor x);
  MlpSpec spec;
  Projection up, down;
  std::optional<Projection> gate;
};
/// Each token goes to the `chosen` experts with the largest scores, weighted by the softmax over
/// those (Jiang et al. 2024). gate_up_proj [experts, 2 inner, width], down_proj [experts, width,
/// inner]; the router is `gate`.
class Experts : public nn::Module {
 public:
  explicit Experts(const MlpSpec& spec);
  Tensor forward(Tensor x);
  MlpSpec spec;
  nn::Linear gate;
  Param gate_up_proj, down_proj;
};

struct BlockSpec {
  AttentionSpec self;
  std::optional<AttentionSpec> cross = {};
  MlpSpec mlp;
  NormSpec norm;
  enum class Order : uint8_t {
    before,  ///< x + f(norm(x))
    after,   ///< norm(x + f(x))
    both,    ///< x + norm(f(norm(x))), Gemma 2
  } order = Order::before;
  bool scaled = false;  ///< f(x) times a weight per channel, named `scale1` and `scale2`
  std::string norm1, norm2, cross_norm, after1, after2, scale1, scale2;
};
/// Self-attention, attention to a memory if there is one, and an MLP, each beside a residual.
class Block : public nn::Module {
 public:
  explicit Block(const BlockSpec& spec);
  Tensor forward(Tensor x, const AttentionCall& call, const Tensor& memory = {},
                 const AttentionCall& cross_call = {});
  BlockSpec spec;
  Attention self;
  std::optional<Attention> cross;
  std::optional<Mlp> mlp;
  std::optional<Experts> experts;
  Norm norm1, norm2;
  std::optional<Norm> cross_norm, after1, after2;
  Param scale1, scale2;
};

/// softmax(scores + mask) v with every option of AttentionSpec; q [n, heads, l, d], k and v [n,
/// kv_heads, s, d].
Tensor attend(const Tensor& q, Tensor k, Tensor v, const Tensor& mask, bool causal, double scale,
              double softcap);

}  // namespace tandem::models::detail
