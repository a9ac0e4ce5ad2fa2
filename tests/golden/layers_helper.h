// SPDX-License-Identifier: Apache-2.0
// A layer of a golden case with its state loaded, made of a module or of a function of its
// parameters, and its comparison: results, gradients of inputs and parameters, buffers afterwards.
// Makers that several tests of this room use.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {

/// A layer of a case with its state loaded.
struct Layer {
  virtual ~Layer() = default;
  virtual Ts run(const Case& c, const Ts& x) = 0;
  virtual std::vector<std::pair<std::string, Param>> params() = 0;
  virtual StateDict state() = 0;
};
/// Layers by the name that cases give them.
using Made = std::unique_ptr<Layer>;
using Make = Made (*)(const Case&);
using Makers = std::map<std::string, Make>;

/// The padding_idx of a case, if it has one.
inline std::optional<int64_t> padding_of(const Case& c) {
  if (!c.has("padding_idx")) return {};
  return c.i("padding_idx");
}

inline StateDict state_of(const Case& c) {
  StateDict s;
  for (const auto& [name, key] : *c.json().find("state")->as_object())
    s[name] = c.stored(*key.as_string());
  return s;
}

template <class M>
struct Held : Layer {
  using Call = std::function<Ts(M&, const Case&, const Ts&)>;
  M module;
  Call call;
  Held(M m, const Case& c, Call call) : module(std::move(m)), call(std::move(call)) {
    if (c.name.find("_f64") != std::string::npos) module.to(float64);
    module.load_state_dict(state_of(c));
    module.train(c.b("train", true));
  }
  Ts run(const Case& c, const Ts& x) override { return call(module, c, x); }
  std::vector<std::pair<std::string, Param>> params() override { return module.named_parameters(); }
  StateDict state() override { return module.state_dict(); }
};
template <class M>
std::unique_ptr<Layer> held(M m, const Case& c) {
  return std::make_unique<Held<M>>(std::move(m), c,
                                   [](M& l, const Case&, const Ts& x) -> Ts { return {l(x[0])}; });
}
template <class M>
std::unique_ptr<Layer> held(M m, const Case& c, typename Held<M>::Call call) {
  return std::make_unique<Held<M>>(std::move(m), c, std::move(call));
}

/// A layer as a function of its parameters.
struct Functional : Layer {
  using Call = Ts (*)(Functional&, const Case&, const Ts&);
  std::vector<std::pair<std::string, Param>> all;
  Call call;
  Functional(const Case& c, Call call) : call(call) {
    for (const auto& [name, value] : state_of(c)) all.emplace_back(name, Param(value.clone()));
  }
  Tensor operator()(const std::string& name) const {
    for (const auto& [n, p] : all)
      if (n == name) return p.value();
    return {};
  }
  Ts run(const Case& c, const Ts& x) override { return call(*this, c, x); }
  std::vector<std::pair<std::string, Param>> params() override { return all; }
  StateDict state() override { return {}; }
};

inline void check_layer(const Case& c, Layer& made) {
  Layer* layer = &made;
  Ts want_grads = c.list_of("grads"), seeds = c.list_of("grad_out"), x;
  for (size_t i = 0; i < c.n(); ++i)
    x.push_back(want_grads[i].defined() ? c.t(i).detach().requires_grad_() : c.t(i));
  Ts y = layer->run(c, x), want = c.list_of("outputs");
  ASSERT_EQ(y.size(), want.size());
  Tensor total;
  for (size_t i = 0; i < y.size(); ++i) {
    EXPECT_TRUE(matches(y[i], want[i], c.rtol(), c.atol())) << "output " << i;
    Tensor part = sum(y[i] * seeds[i]);
    total = total.defined() ? total + part : part;
  }
  if (total.requires_grad()) total.backward();
  for (size_t i = 0; i < x.size(); ++i) {
    if (!want_grads[i].defined()) continue;
    EXPECT_TRUE(matches(x[i].grad(), want_grads[i], c.rtol(), c.atol())) << "gradient " << i;
  }
  size_t compared = 0;
  for (const auto& [name, key] : *c.json().find("param_grads")->as_object())
    for (const auto& [own, p] : layer->params()) {
      if (own != name) continue;
      ++compared;
      EXPECT_TRUE(matches(p.grad(), c.stored(*key.as_string()), c.rtol(), c.atol())) << name;
    }
  EXPECT_EQ(compared, c.json().find("param_grads")->as_object()->size());
  for (const auto& [name, key] : *c.json().find("state_after")->as_object())
    EXPECT_TRUE(matches(layer->state().at(name), c.stored(*key.as_string()), c.rtol(), c.atol()))
        << name;
}

// ---- makers

template <class O>
O recurrent_options(const Case& c) {
  O o;
  o.num_layers = c.i("num_layers", 1);
  o.bias = c.b("bias", true);
  o.batch_first = c.b("batch_first");
  o.bidirectional = c.b("bidirectional");
  if constexpr (requires { o.proj_size; }) o.proj_size = c.i("proj_size");
  if constexpr (requires { o.nonlinearity; }) o.nonlinearity = c.s("nonlinearity", "tanh");
  return o;
}
template <class M>
auto recurrent_of(const Case& c) {
  using O = std::conditional_t<std::is_same_v<M, nn::GRU>, nn::GRUOptions, nn::RNNOptions>;
  return M(c.i("input_size"), c.i("hidden_size"), recurrent_options<O>(c));
}

template <class M>
std::unique_ptr<Layer> rnn_layer(const Case& c) {
  return held(recurrent_of<M>(c), c, [](M& l, const Case&, const Ts& x) -> Ts {
    nn::RNNOutput r = l(x[0], x.size() > 1 ? x[1] : Tensor());
    return {r.y, r.h};
  });
}
inline std::unique_ptr<Layer> lstm_layer(const Case& c) {
  return held(
      nn::LSTM(c.i("input_size"), c.i("hidden_size"), recurrent_options<nn::LSTMOptions>(c)), c,
      [](nn::LSTM& l, const Case&, const Ts& x) -> Ts {
        Tensor none;
        nn::LSTMOutput r = l(x[0], x.size() > 1 ? x[1] : none, x.size() > 2 ? x[2] : none);
        return {r.y, r.h, r.c};
      });
}
inline nn::RNNCellOptions cell_options(const Case& c) {
  return {.bias = c.b("bias", true), .nonlinearity = c.s("nonlinearity", "tanh")};
}
template <class M>
std::unique_ptr<Layer> cell_layer(const Case& c) {
  return held(M(c.i("input_size"), c.i("hidden_size"), cell_options(c)), c,
              [](M& l, const Case&, const Ts& x) -> Ts {
                return {l(x[0], x.size() > 1 ? x[1] : Tensor())};
              });
}
inline std::unique_ptr<Layer> lstm_cell_layer(const Case& c) {
  return held(nn::LSTMCell(c.i("input_size"), c.i("hidden_size"), cell_options(c)), c,
              [](nn::LSTMCell& l, const Case&, const Ts& x) -> Ts {
                Tensor none;
                auto [h, n] = l(x[0], x.size() > 1 ? x[1] : none, x.size() > 2 ? x[2] : none);
                return {h, n};
              });
}

inline std::unique_ptr<Layer> bilinear_layer(const Case& c) {
  return held(nn::Bilinear(c.i("in1_features"), c.i("in2_features"), c.i("out_features"),
                           {.bias = c.b("bias", true)}),
              c, [](nn::Bilinear& l, const Case&, const Ts& x) -> Ts { return {l(x[0], x[1])}; });
}

inline std::unique_ptr<Layer> attention_layer(const Case& c) {
  nn::MultiheadAttentionOptions o;
  o.bias = c.b("bias", true);
  o.batch_first = c.b("batch_first");
  o.add_bias_kv = c.b("add_bias_kv");
  o.add_zero_attn = c.b("add_zero_attn");
  o.kdim = c.i("kdim");
  o.vdim = c.i("vdim");
  return held(nn::MultiheadAttention(c.i("embed_dim"), c.i("num_heads"), o), c,
              [](nn::MultiheadAttention& l, const Case& g, const Ts& x) -> Ts {
                nn::AttentionArguments a;
                if (x.size() > 3) a.key_padding_mask = x[3];
                if (x.size() > 4) a.mask = x[4];
                a.average_attn_weights = g.b("average_attn_weights", true);
                if (!g.b("need_weights", true)) return {l(x[0], x[1], x[2], a)};
                nn::AttentionOutput r = l.with_weights(x[0], x[1], x[2], a);
                return {r.y, r.weights};
              });
}

inline nn::TransformerLayerOptions transformer_options(const Case& c) {
  nn::TransformerLayerOptions o;
  o.dim_feedforward = c.i("dim_feedforward");
  o.dropout = c.d("dropout");
  o.activation = c.s("activation", "relu");
  o.batch_first = c.b("batch_first");
  o.norm_first = c.b("norm_first");
  o.bias = c.b("bias", true);
  return o;
}
inline std::unique_ptr<Layer> encoder_layer(const Case& c) {
  return held(nn::TransformerEncoderLayer(c.i("d_model"), c.i("nhead"), transformer_options(c)), c,
              [](nn::TransformerEncoderLayer& l, const Case&, const Ts& x) -> Ts {
                if (x.size() == 1) return {l(x[0])};
                return {l(x[0], {.mask = x[1], .src_key_padding_mask = x[2]})};
              });
}
inline std::unique_ptr<Layer> decoder_layer(const Case& c) {
  return held(nn::TransformerDecoderLayer(c.i("d_model"), c.i("nhead"), transformer_options(c)), c,
              [](nn::TransformerDecoderLayer& l, const Case&, const Ts& x) -> Ts {
                return {l(x[0], x[1])};
              });
}

}  // namespace tandem::golden
