// SPDX-License-Identifier: Apache-2.0
// The image layers against PyTorch's: result, gradients of inputs and parameters, buffers
// afterwards.
#include "tests/golden/layers_helper.h"

namespace tandem::golden {
namespace {

#define MODULE(name, ...) \
  t[#name] = [](const Case& g) -> std::unique_ptr<Layer> { return held(nn::name(__VA_ARGS__), g); }

void add_pool_layers(Makers& t) {
#define POOLS(n)                                                                            \
  t["MaxPool" #n "d"] = [](const Case& g) -> std::unique_ptr<Layer> {                       \
    nn::MaxPoolOptions o{g.list("stride"), g.list("padding", {0}), g.list("dilation", {1}), \
                         g.b("ceil_mode")};                                                 \
    nn::MaxPool##n##d m(g.list("kernel_size"), o);                                          \
    if (!g.b("return_indices")) return held(m, g);                                          \
    return held(m, g, [](nn::MaxPool##n##d& l, const Case&, const Ts& x) -> Ts {            \
      return {l.forward_with_indices(x[0]).output};                                         \
    });                                                                                     \
  };                                                                                        \
  MODULE(AvgPool##n##d, g.list("kernel_size"),                                              \
         {g.list("stride"), g.list("padding", {0}), g.b("ceil_mode"),                       \
          g.b("count_include_pad", true), g.i("divisor_override")});                        \
  MODULE(AdaptiveAvgPool##n##d, g.list("output_size"));                                     \
  MODULE(AdaptiveMaxPool##n##d, g.list("output_size"));                                     \
  MODULE(LPPool##n##d, g.d("norm_type"), g.list("kernel_size"));                            \
  t["MaxUnpool" #n "d"] = [](const Case& c) -> std::unique_ptr<Layer> {                     \
    return held(nn::MaxUnpool##n##d(c.list("kernel_size")), c,                              \
                [](nn::MaxUnpool##n##d& l, const Case& g, const Ts& x) -> Ts {              \
                  return {l(x[0], x[1], g.list("output_size"))};                            \
                });                                                                         \
  };
  POOLS(1)
  POOLS(2)
  POOLS(3)
#undef POOLS
  t["FractionalMaxPool2d"] = [](const Case& g) -> std::unique_ptr<Layer> {
    FractionalPoolOptions o{.output_size = g.list("output_size"), .random_samples = g.t(1)};
    return held(nn::FractionalMaxPool2d(g.list("kernel_size"), o), g);
  };
  t["FractionalMaxPool3d"] = [](const Case& g) -> std::unique_ptr<Layer> {
    FractionalPoolOptions o{.output_size = g.list("output_size"), .random_samples = g.t(1)};
    return held(nn::FractionalMaxPool3d(g.list("kernel_size"), o), g);
  };
}

void add_resizing_layers(Makers& t) {
  t["Upsample"] = [](const Case& g) -> std::unique_ptr<Layer> {
    nn::UpsampleOptions o{.size = g.list("size"),
                          .scale_factor = factor_of(g, "scale_factor"),
                          .mode = g.s("mode", "nearest"),
                          .recompute_scale_factor = g.b("recompute_scale_factor")};
    if (g.has("align_corners")) o.align_corners = g.b("align_corners");
    return held(nn::Upsample(o), g);
  };
  MODULE(UpsamplingNearest2d, {g.list("size"), factor_of(g, "scale_factor")});
  MODULE(UpsamplingBilinear2d, {g.list("size"), factor_of(g, "scale_factor")});
  MODULE(PixelShuffle, g.i("upscale_factor"));
  MODULE(PixelUnshuffle, g.i("downscale_factor"));
  MODULE(ChannelShuffle, g.i("groups"));
#define PATCHES {g.list("dilation", {1}), g.list("padding", {0}), g.list("stride", {1})}
  MODULE(Unfold, g.list("kernel_size"), PATCHES);
  MODULE(Fold, g.list("output_size"), g.list("kernel_size"), PATCHES);
#undef PATCHES
#define PADS(n)                                    \
  MODULE(ZeroPad##n##d, g.list("padding"));        \
  MODULE(ReflectionPad##n##d, g.list("padding"));  \
  MODULE(ReplicationPad##n##d, g.list("padding")); \
  MODULE(CircularPad##n##d, g.list("padding"));    \
  MODULE(ConstantPad##n##d, g.list("padding"), g.number("value"));
  PADS(1)
  PADS(2)
  PADS(3)
#undef PADS
}

nn::ConvOptions conv_options(const Case& g) {
  nn::ConvOptions o;
  o.stride = g.list("stride", {1});
  o.dilation = g.list("dilation", {1});
  o.groups = g.i("groups", 1);
  o.bias = g.b("bias", true);
  o.padding_mode = g.s("padding_mode", "zeros");
  const io::Json* padding = g.attr("padding");
  if (padding && padding->as_string())
    o.padding = *padding->as_string();
  else
    o.padding = g.list("padding", {0});
  return o;
}

void add_convolution_layers(Makers& t) {
#define CONVS(n)                                                                                  \
  MODULE(Conv##n##d, g.i("in_channels"), g.i("out_channels"), g.list("kernel_size"),              \
         conv_options(g));                                                                        \
  t["ConvTranspose" #n "d"] = [](const Case& c) -> std::unique_ptr<Layer> {                       \
    nn::ConvTransposeOptions o{.stride = c.list("stride", {1}),                                   \
                               .padding = c.list("padding", {0}),                                 \
                               .output_padding = c.list("output_padding", {0}),                   \
                               .groups = c.i("groups", 1),                                        \
                               .bias = c.b("bias", true),                                         \
                               .dilation = c.list("dilation", {1})};                              \
    nn::ConvTranspose##n##d m(c.i("in_channels"), c.i("out_channels"), c.list("kernel_size"), o); \
    return held(m, c, [](nn::ConvTranspose##n##d& l, const Case& g, const Ts& x) -> Ts {          \
      if (g.has("output_size")) return {l(x[0], g.list("output_size"))};                          \
      return {l(x[0])};                                                                           \
    });                                                                                           \
  };
  CONVS(1)
  CONVS(2)
  CONVS(3)
#undef CONVS
}

void add_norm_layers(Makers& t) {
  MODULE(GroupNorm, g.i("num_groups"), g.i("num_channels"),
         {.eps = g.d("eps", 1e-5), .affine = g.b("affine", true)});
#define NORM(n)                                   \
  MODULE(InstanceNorm##n##d, g.i("num_features"), \
         {.momentum = g.d("momentum", 0.1),       \
          .affine = g.b("affine"),                \
          .track_running_stats = g.b("track_running_stats")});
  NORM(1)
  NORM(2)
  NORM(3)
#undef NORM
  MODULE(LocalResponseNorm, g.i("size"), g.d("alpha", 1e-4), g.d("beta", 0.75), g.d("k", 1));
}
#undef MODULE

const Makers& image_layer_makers() {
  static const Makers table = [] {
    Makers t;
    add_pool_layers(t);
    add_resizing_layers(t);
    add_convolution_layers(t);
    add_norm_layers(t);
    return t;
  }();
  return table;
}

class GoldenImageLayer : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(ImageLayers, GoldenImageLayer,
                         ::testing::ValuesIn(cases_of("image_layers")), case_name);

TEST_P(GoldenImageLayer, Matches) { check_image_layer_case(GetParam()); }

}  // namespace

void check_image_layer_case(Case c) {
  ASSERT_TRUE(image_layer_makers().count(c.op)) << c.op;
  std::unique_ptr<Layer> layer = image_layer_makers().at(c.op)(c);
  check_layer(c, *layer);
}

}  // namespace tandem::golden
