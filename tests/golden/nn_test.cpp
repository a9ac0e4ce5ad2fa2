// SPDX-License-Identifier: Apache-2.0
// More layers against PyTorch's: every activation, bags, packed and projected recurrent layers,
// attention with all its options, Transformer, positions, parametrised weights.
#include "tandem/init.h"
#include "tests/golden/layers_helper.h"

namespace tandem::golden {
namespace {

Made bag_layer(const Case& c) {
  return held(nn::EmbeddingBag(c.i("num_embeddings"), c.i("embedding_dim"),
                               {.mode = c.s("mode", "mean"),
                                .include_last_offset = c.b("include_last_offset"),
                                .padding_idx = padding_of(c)}),
              c, [](nn::EmbeddingBag& l, const Case&, const Ts& x) -> Ts {
                if (x.size() == 1) return {l(x[0])};
                return {l(x[0], x[1], x.size() > 2 ? x[2] : Tensor())};
              });
}

template <class M>
Made two_inputs(M m, const Case& c) {
  return held(std::move(m), c,
              [](M& l, const Case&, const Ts& x) -> Ts { return {l(x[0], x[1])}; });
}

Made adaptive_layer(const Case& c) {
  return held(nn::AdaptiveLogSoftmaxWithLoss(
                  c.i("in_features"), c.i("n_classes"), c.list("cutoffs").to_vector(),
                  {.div_value = c.d("div_value", 4), .head_bias = c.b("head_bias")}),
              c, [](nn::AdaptiveLogSoftmaxWithLoss& l, const Case&, const Ts& x) -> Ts {
                const nn::AdaptiveLogSoftmaxResult r = l(x[0], x[1]);
                return {r.output, r.loss};
              });
}

Made rms_norm_layer(const Case& c) {
  nn::RMSNormOptions o{.elementwise_affine = c.b("elementwise_affine", true)};
  if (c.has("eps")) o.eps = c.d("eps");
  return held(nn::RMSNorm(c.list("normalized_shape"), o), c);
}
Made linear_loss_layer(const Case& c) {
  return two_inputs(nn::LinearCrossEntropyLoss(c.i("in_features"), c.i("num_classes"),
                                               {.out_features = c.list("out_features"),
                                                .bias = c.b("bias"),
                                                .label_smoothing = c.d("label_smoothing")}),
                    c);
}

nn::PackedSequence pack(const Case& c, const Tensor& x) {
  std::vector<int64_t> lengths;
  for (const io::Json& v : *c.attr("lengths")->as_array()) lengths.push_back(*v.as_int());
  return nn::pack_padded_sequence(x, lengths, false, false);
}
template <class M>
Made packed_of(M m, const Case& c) {
  return held(std::move(m), c, [](M& l, const Case& g, const Ts& x) -> Ts {
    Tensor none;
    if constexpr (std::is_same_v<M, nn::LSTM>) {
      auto r = l(pack(g, x[0]), x.size() > 1 ? x[1] : none, x.size() > 2 ? x[2] : none);
      return {nn::pad_packed_sequence(r.y).first, r.h, r.c};
    } else {
      auto r = l(pack(g, x[0]), x.size() > 1 ? x[1] : none);
      return {nn::pad_packed_sequence(r.y).first, r.h};
    }
  });
}
Made packed_layer(const Case& c) {
  std::string kind = c.s("kind");
  if (kind == "GRU") return packed_of(recurrent_of<nn::GRU>(c), c);
  if (kind == "RNN") return packed_of(recurrent_of<nn::RNN>(c), c);
  return packed_of(
      nn::LSTM(c.i("input_size"), c.i("hidden_size"), recurrent_options<nn::LSTMOptions>(c)), c);
}

Made transformer_layer(const Case& c) {
  nn::Transformer t({.d_model = c.i("d_model"),
                     .nhead = c.i("nhead"),
                     .num_encoder_layers = c.i("num_encoder_layers"),
                     .num_decoder_layers = c.i("num_decoder_layers"),
                     .dim_feedforward = c.i("dim_feedforward"),
                     .dropout = c.d("dropout"),
                     .norm_first = c.b("norm_first")});
  return two_inputs(std::move(t), c);
}

Made rotary_layer(const Case& c) {
  return held(nn::RotaryEmbedding(c.i("size"), {.interleaved = c.b("interleaved")}), c,
              [](nn::RotaryEmbedding& l, const Case& g, const Ts& x) -> Ts {
                return {l(x[0], g.i("start"))};
              });
}

nn::Linear linear_of(const Case& c) { return {c.i("in_features"), c.i("out_features")}; }
nn::Conv2d conv_of(const Case& c) {
  return {c.i("in_channels"), c.i("out_channels"), c.list("kernel_size")};
}
Made weight_norm_layer(const Case& c) {
  if (c.s("layer") == "Conv2d") return held(nn::weight_norm(conv_of(c)), c);
  return held(nn::weight_norm(linear_of(c), "weight", c.i("dim")), c);
}
Made spectral_norm_layer(const Case& c) {
  if (c.s("layer") == "Conv2d") return held(nn::spectral_norm(conv_of(c)), c);
  return held(nn::spectral_norm(linear_of(c)), c);
}

// ---- graphs

template <class M>
Made graph_layer(M m, const Case& c) {
  return held(std::move(m), c, [](M& l, const Case&, const Ts& x) -> Ts {
    if constexpr (std::is_same_v<M, nn::GCNConv>)
      if (x.size() > 2) return {l(x[0], x[1], x[2])};
    return {l(x[0], x[1])};
  });
}
Made gcn_layer(const Case& c) {
  return graph_layer(nn::GCNConv(c.i("i"), c.i("o"),
                                 {.add_self_loops = c.b("add_self_loops", true),
                                  .normalize = c.b("normalize", true),
                                  .bias = c.b("bias", true)}),
                     c);
}
Made sage_layer(const Case& c) {
  std::string aggr = c.s("aggr", "mean");
  return graph_layer(nn::SAGEConv(c.i("i"), c.i("o"),
                                  {.aggregation = aggr == "max"   ? nn::Aggregation::max
                                                  : aggr == "sum" ? nn::Aggregation::sum
                                                                  : nn::Aggregation::mean,
                                   .normalize = c.b("normalize"),
                                   .root_weight = c.b("root_weight", true)}),
                     c);
}
Made gat_layer(const Case& c) {
  nn::GATConvOptions o{.heads = c.i("heads", 1), .concat = c.b("concat", true)};
  if (c.b("v2")) return graph_layer(nn::GATv2Conv(c.i("i"), c.i("o"), o), c);
  return graph_layer(nn::GATConv(c.i("i"), c.i("o"), o), c);
}
Made gin_layer(const Case& c) {
  int64_t i = c.i("i"), o = c.i("o");
  return graph_layer(nn::GINConv(nn::Sequential(nn::Linear(i, o), nn::ReLU(), nn::Linear(o, o)),
                                 {.eps = c.d("eps"), .train_eps = c.b("train_eps")}),
                     c);
}
Made pool_layer(const Case& c) {
  return held(nn::Identity(), c, [](nn::Identity&, const Case& g, const Ts& x) -> Ts {
    std::string how = g.s("how");
    return {how == "sum"    ? nn::global_add_pool(x[0], x[1])
            : how == "mean" ? nn::global_mean_pool(x[0], x[1])
                            : nn::global_max_pool(x[0], x[1])};
  });
}

const Makers& nn_layer_makers() {
#define L(name, ...)                                                                 \
  {                                                                                  \
#name, [](const Case& g) -> Made { (void)g; return held(nn::name(__VA_ARGS__), g); } \
  }
#define L2(name, ...)                                                                 \
  {                                                                                   \
#name, [](const Case& g) -> Made { return two_inputs(nn::name(__VA_ARGS__), g); } \
  }
  static const Makers table = {
      L(ReLU),
      L(ReLU6),
      L(Sigmoid),
      L(LogSigmoid),
      L(Tanh),
      L(Tanhshrink),
      L(SiLU),
      L(Mish),
      L(SELU),
      L(Softsign),
      L(Hardsigmoid),
      L(Hardswish),
      L(Identity),
      L(Softmax2d),
      L(SwiGLU),
      L(RReLU),
      L(Dropout1d),
      L(AlphaDropout),
      L(FeatureAlphaDropout),
      L(LeakyReLU, g.d("negative_slope", 0.01)),
      L(ELU, g.d("alpha", 1)),
      L(CELU, g.d("alpha", 1)),
      L(Hardshrink, g.d("lambd", 0.5)),
      L(Softshrink, g.d("lambd", 0.5)),
      L(Softplus, g.d("beta", 1), g.d("threshold", 20)),
      L(Hardtanh, g.d("min_val", -1), g.d("max_val", 1)),
      L(Threshold, g.d("threshold"), g.d("value")),
      L(GLU, g.i("dim", -1)),
      L(GELU, g.s("approximate", "none")),
      L(Softmax, g.i("dim")),
      L(LogSoftmax, g.i("dim")),
      L(Softmin, g.i("dim")),
      L(PReLU, g.i("num_parameters", 1)),
      L(Unflatten, g.i("dim"), g.list("unflattened_size")),
      L(Flatten, g.i("start_dim", 1), g.i("end_dim", -1)),
      L(SinusoidalPositional, g.i("d_model"), {.max_len = 16, .batch_first = g.b("batch_first")}),
      L2(CosineSimilarity, g.i("dim", 1), g.d("eps", 1e-8)),
      L2(PairwiseDistance, g.d("p", 2), g.d("eps", 1e-6), g.b("keepdim")),
      {"RMSNorm", rms_norm_layer},
      {"Bilinear", bilinear_layer},
      {"EmbeddingBag", bag_layer},
      {"AdaptiveLogSoftmaxWithLoss", adaptive_layer},
      {"LinearCrossEntropyLoss", linear_loss_layer},
      {"LSTM", lstm_layer},
      {"GRU", rnn_layer<nn::GRU>},
      {"RNN", rnn_layer<nn::RNN>},
      {"Packed", packed_layer},
      {"RNNCell", cell_layer<nn::RNNCell>},
      {"GRUCell", cell_layer<nn::GRUCell>},
      {"LSTMCell", lstm_cell_layer},
      {"MultiheadAttention", attention_layer},
      {"TransformerEncoderLayer", encoder_layer},
      {"TransformerDecoderLayer", decoder_layer},
      {"Transformer", transformer_layer},
      {"Rotary", rotary_layer},
      {"weight_norm", weight_norm_layer},
      {"spectral_norm", spectral_norm_layer},
      {"GCNConv", gcn_layer},
      {"SAGEConv", sage_layer},
      {"GATConv", gat_layer},
      {"GINConv", gin_layer},
      {"GlobalPool", pool_layer},
  };
#undef L
#undef L2
  return table;
}

class GoldenNn : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Nn, GoldenNn, ::testing::ValuesIn(cases_of("nn")), case_name);

TEST_P(GoldenNn, Matches) { check_nn_case(GetParam()); }

}  // namespace

void check_nn_case(Case c) {
  std::string op = c.op == "Sinusoidal" ? "SinusoidalPositional" : c.op;
  ASSERT_TRUE(nn_layer_makers().count(op)) << c.op;
  Made layer = nn_layer_makers().at(op)(c);
  check_layer(c, *layer);
}

}  // namespace tandem::golden
