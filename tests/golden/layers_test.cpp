// SPDX-License-Identifier: Apache-2.0
// Whole layers against PyTorch's: result, gradients of inputs and parameters, buffers afterwards.
// Layers without a class are built here from the functions.
#include "tandem/init.h"
#include "tandem/nn/nn.h"
#include "tandem/ops/ops.h"
#include "tests/golden/layers_helper.h"

namespace tandem::golden {

namespace {

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
  if (c.op == "BatchNorm3d") return held(nn::BatchNorm3d(c.i("num_features"), o), c);
  return held(nn::BatchNorm1d(c.i("num_features"), o), c);
}

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

const Makers& layer_makers() {
  static const Makers table = {
      MODULE(Linear, g.i("in_features"), g.i("out_features"), {.bias = g.b("bias", true)}),
      MODULE(Dropout, g.d("p")),
      MODULE(Flatten, ),
      MODULE(MaxPool2d, g.list("kernel_size")),
      MODULE(AvgPool2d, g.list("kernel_size"), {.stride = g.list("stride")}),
      MODULE(AdaptiveAvgPool2d, g.list("output_size")),
      MODULE(Embedding, g.i("num_embeddings"), g.i("embedding_dim"),
             {.padding_idx = padding_of(g)}),
      {"Conv1d", conv_layer},
      {"Conv2d", conv_layer},
      {"BatchNorm1d", norm_layer},
      {"BatchNorm2d", norm_layer},
      {"BatchNorm3d", norm_layer},
      {"LayerNorm", norm_layer},
      {"LSTM", lstm_layer},
      {"MultiheadAttention", attention_layer},
      {"TransformerEncoderLayer", encoder_layer},
      {"TransformerDecoderLayer", decoder_layer},
      {"GRU", rnn_layer<nn::GRU>},
      {"RNN", rnn_layer<nn::RNN>},
      MODULE(RMSNorm, g.list("normalized_shape"), {.eps = g.d("eps")}),
      MODULE(PReLU, g.i("num_parameters")),
      FUNCTION(ConvTranspose2d, {conv_transpose2d(x[0], p("weight"), p("bias"), g.list("stride"),
                                                  g.list("padding"), g.list("output_padding"))}),
      FUNCTION(GroupNorm, {group_norm(x[0], g.i("num_groups"), p("weight"), p("bias"))}),
      FUNCTION(InstanceNorm2d, {instance_norm(x[0], {}, {}, p("weight"), p("bias")).y}),
      {"Bilinear", bilinear_layer},
      {"GRUCell", cell_layer<nn::GRUCell>},
      {"LSTMCell", lstm_cell_layer},
  };
  return table;
}
#undef FUNCTION
#undef MODULE

class GoldenLayer : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Layers, GoldenLayer, ::testing::ValuesIn(cases_of("layers")), case_name);

TEST_P(GoldenLayer, Matches) { check_layers_case(GetParam()); }

}  // namespace

void check_layers_case(Case c) {
  ASSERT_TRUE(layer_makers().count(c.op)) << c.op;
  std::unique_ptr<Layer> layer = layer_makers().at(c.op)(c);
  check_layer(c, *layer);
}

}  // namespace tandem::golden
