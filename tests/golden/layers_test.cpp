// SPDX-License-Identifier: Apache-2.0
// Whole layers against PyTorch's: result, gradients of inputs and parameters, buffers afterwards.
// Layers that nn does not have yet are built here from the functions, so these are compared too.
#include <functional>

#include "tandem/init.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {

namespace {

/// A layer of a case with its state loaded.
struct Layer {
  virtual ~Layer() = default;
  virtual Ts run(const Case& c, const Ts& x) = 0;
  virtual std::vector<std::pair<std::string, Param>> params() = 0;
  virtual StateDict state() = 0;
};

StateDict state_of(const Case& c) {
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

// ---- recurrent layers out of one-layer functions

RnnResult one_direction(const Case& c, const Tensor& x, const Tensor& h0, Functional& p,
                        const std::string& end, bool reverse) {
  auto fn = c.op == "GRU" ? gru : c.s("nonlinearity", "tanh") == "relu" ? rnn_relu : rnn_tanh;
  return fn(x, h0, p("weight_ih" + end), p("weight_hh" + end), p("bias_ih" + end),
            p("bias_hh" + end), reverse, Where::here());
}

Ts stacked_rnn(Functional& p, const Case& c, const Ts& in) {
  Tensor x = c.b("batch_first") ? in[0].transpose(0, 1) : in[0];
  int64_t directions = c.b("bidirectional") ? 2 : 1;
  Ts last;
  for (int64_t k = 0; k < c.i("num_layers", 1); ++k) {
    Ts ys;
    for (int64_t d = 0; d < directions; ++d) {
      Tensor h0 = in.size() > 1 ? in[1].select(0, k * directions + d) : Tensor();
      std::string end = "_l" + std::to_string(k) + (d ? "_reverse" : "");
      RnnResult r = one_direction(c, x, h0, p, end, d == 1);
      ys.push_back(r.y);
      last.push_back(r.h);
    }
    x = directions == 2 ? cat(ys, 2) : ys[0];
  }
  return {c.b("batch_first") ? x.transpose(0, 1) : x, stack(last, 0)};
}

Ts projected_lstm(Functional& p, const Case&, const Ts& in) {
  Tensor h0 = zeros({in[0].shape(1), p("weight_hr_l0").shape(0)}), c0;
  c0 = zeros({in[0].shape(1), p("weight_hr_l0").shape(1)});
  LstmResult r = lstm_projected(in[0], h0, c0, p("weight_ih_l0"), p("weight_hh_l0"),
                                p("bias_ih_l0"), p("bias_hh_l0"), p("weight_hr_l0"));
  return {r.y, r.h.unsqueeze(0), r.c.unsqueeze(0)};
}

// ---- the layers

std::unique_ptr<Layer> conv_layer(const Case& c) {
  nn::ConvOptions o;
  o.stride = c.list("stride", {1});
  o.groups = c.i("groups", 1);
  o.dilation = c.list("dilation", {1});
  o.bias = c.b("bias", true);
  const io::Json* padding = c.attr("padding");
  if (padding && padding->as_string())  // "same": both sides take dilation * (kernel - 1) / 2
    o.padding = {o.dilation[0].value() * (c.list("kernel_size")[0].value() - 1) / 2};
  else
    o.padding = c.list("padding", {0});
  int64_t in = c.i("in_channels"), out = c.i("out_channels");
  IntList kernel = c.list("kernel_size");
  if (c.op == "Conv1d") return held(nn::Conv1d(in, out, kernel, o), c);
  if (!c.has("padding_mode")) return held(nn::Conv2d(in, out, kernel, o), c);
  return std::make_unique<Functional>(c, [](Functional& p, const Case& g, const Ts& x) -> Ts {
    int64_t k = g.i("padding");
    return {conv2d(pad(x[0], {k, k, k, k}, g.s("padding_mode")), p("weight"), p("bias"))};
  });
}

std::unique_ptr<Layer> norm_layer(const Case& c) {
  if (c.op == "LayerNorm")
    return held(nn::LayerNorm(c.list("normalized_shape"),
                              {.elementwise_affine = c.b("elementwise_affine", true)}),
                c);
  nn::BatchNormOptions o;
  if (const io::Json* m = c.attr("momentum")) {
    if (m->is_null())
      o.momentum.reset();
    else
      o.momentum = c.d("momentum");
  }
  o.affine = c.b("affine", true);
  o.track_running_stats = c.b("track_running_stats", true);
  if (c.op == "BatchNorm2d") return held(nn::BatchNorm2d(c.i("num_features"), o), c);
  return held(nn::BatchNorm1d(c.i("num_features"), o), c);
}

std::unique_ptr<Layer> lstm_layer(const Case& c) {
  if (c.has("proj_size")) return std::make_unique<Functional>(c, projected_lstm);
  nn::LSTMOptions o;
  o.num_layers = c.i("num_layers", 1);
  o.bias = c.b("bias", true);
  o.batch_first = c.b("batch_first");
  o.bidirectional = c.b("bidirectional");
  return held(nn::LSTM(c.i("input_size"), c.i("hidden_size"), o), c,
              [](nn::LSTM& l, const Case&, const Ts& x) -> Ts {
                Tensor none;
                nn::LSTMOutput r = l(x[0], x.size() > 1 ? x[1] : none, x.size() > 2 ? x[2] : none);
                return {r.y, r.h, r.c};
              });
}

std::unique_ptr<Layer> attention_layer(const Case& c) {
  nn::MultiheadAttentionOptions o;
  o.bias = c.b("bias", true);
  o.batch_first = c.b("batch_first");
  return held(nn::MultiheadAttention(c.i("embed_dim"), c.i("num_heads"), o), c,
              [](nn::MultiheadAttention& l, const Case&, const Ts& x) -> Ts {
                return {l(x[0], x[1], x[2], {.mask = x.size() > 4 ? x[4] : Tensor()})};
              });
}

using Make = std::unique_ptr<Layer> (*)(const Case&);
#define FUNCTION(name, ...)                                                                 \
  {                                                                                         \
#name, [](const Case& c) -> std::unique_ptr<Layer> {                                      \
      return std::make_unique<Functional>(                                                    \
          c, [](Functional & p, [[maybe_unused]] const Case& g, const Ts& x) -> Ts {          \
            return __VA_ARGS__;                                                               \
          });                                                                                 \
    } \
  }
#define MODULE(name, ...)                                                                        \
  {                                                                                              \
#name,                                                                                       \
        [](const Case& g) -> std::unique_ptr < Layer> { return held(nn::name(__VA_ARGS__), g); } \
  }

const std::map<std::string, Make>& makers() {
  static const std::map<std::string, Make> table = {
      MODULE(Linear, g.i("in_features"), g.i("out_features"), {.bias = g.b("bias", true)}),
      MODULE(Dropout, g.d("p")),
      MODULE(Flatten, ),
      MODULE(MaxPool2d, g.list("kernel_size")),
      MODULE(AvgPool2d, g.list("kernel_size"), {.stride = g.list("stride")}),
      MODULE(AdaptiveAvgPool2d, g.list("output_size")),
      MODULE(Embedding, g.i("num_embeddings"), g.i("embedding_dim"),
             {.padding_idx = g.i("padding_idx", -1)}),
      {"Conv1d", conv_layer},
      {"Conv2d", conv_layer},
      {"BatchNorm1d", norm_layer},
      {"BatchNorm2d", norm_layer},
      {"LayerNorm", norm_layer},
      {"LSTM", lstm_layer},
      {"MultiheadAttention", attention_layer},
      FUNCTION(GRU, stacked_rnn(p, g, x)),
      FUNCTION(RNN, stacked_rnn(p, g, x)),
      FUNCTION(ConvTranspose2d, {conv_transpose2d(x[0], p("weight"), p("bias"), g.list("stride"),
                                                  g.list("padding"), g.list("output_padding"))}),
      FUNCTION(GroupNorm, {group_norm(x[0], g.i("num_groups"), p("weight"), p("bias"))}),
      FUNCTION(RMSNorm, {rms_norm(x[0], g.list("normalized_shape"), p("weight"), g.d("eps"))}),
      FUNCTION(InstanceNorm2d, {instance_norm(x[0], {}, {}, p("weight"), p("bias")).y}),
      FUNCTION(PReLU, {prelu(x[0], p("weight"))}),
      FUNCTION(Bilinear, {bilinear(x[0], x[1], p("weight"), p("bias"))}),
      FUNCTION(GRUCell,
               {gru_cell(x[0], x[1], p("weight_ih"), p("weight_hh"), p("bias_ih"), p("bias_hh"))}),
      {"LSTMCell",
       [](const Case& c) -> std::
                             unique_ptr<Layer> {
                               return std::make_unique<Functional>(
                                   c, [](Functional& p, const Case&, const Ts& x) -> Ts {
                                     auto [h, n] =
                                         lstm_cell(x[0], x[1], x[2], p("weight_ih"), p("weight_hh"),
                                                   p("bias_ih"), p("bias_hh"));
                                     return {h, n};
                                   });
                             }},
  };
  return table;
}
#undef FUNCTION
#undef MODULE

// Why a case is left out, or "".
std::string left_out(const Case& c) {
  if (c.op.rfind("Transformer", 0) == 0) return "no Transformer layers yet";
  if (c.op != "MultiheadAttention") {
    if (c.op == "LSTM" && c.t(0).dim() == 2) return "LSTM takes batches only";
    return "";
  }
  if (c.has("kdim")) return "MultiheadAttention has no kdim and vdim yet";
  if (c.t(3).defined()) return "MultiheadAttention has no key_padding_mask yet";
  if (c.b("need_weights", true)) return "MultiheadAttention gives no weights yet";
  return "";
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return test_name(info.param.name);
}
class GoldenLayer : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Layers, GoldenLayer, ::testing::ValuesIn(cases_of("layers")), case_name);

TEST_P(GoldenLayer, Matches) {
  Case c = GetParam();
  if (std::string why = left_out(c); !why.empty()) GTEST_SKIP() << why;
  ASSERT_TRUE(makers().count(c.op)) << c.op;
  std::unique_ptr<Layer> layer = makers().at(c.op)(c);
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

}  // namespace
}  // namespace tandem::golden
