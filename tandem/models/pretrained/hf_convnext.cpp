// SPDX-License-Identifier: Apache-2.0
// ConvNeXt (Liu et al. 2022) with the names of Hugging Face's files; vision/convnext.cpp has the
// one with torchvision's names.
#include "tandem/models/pretrained/family_internal.h"
#include "tandem/models/pretrained/layers_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

using namespace detail;

struct ConvNextSpec {
  explicit ConvNextSpec(const ModelConfig& c)
      : image(c.first_integer("image_size", 224)),
        patch(c.first_integer("patch_size", 4)),
        channels(c.integer("num_channels", 3, 1, 1 << 12)),
        depths(c.integers("depths", 1, 1024)),
        widths(c.integers("hidden_sizes", 1, 1 << 14)),
        eps(c.number("layer_norm_eps", 1e-12)),
        scaled(c.number("layer_scale_init_value", 1e-6) > 0),
        act(activation(c, c.text("hidden_act", "gelu"))) {
    if (depths.empty()) depths = {3, 3, 9, 3};
    if (widths.empty()) widths = {96, 192, 384, 768};
    if (depths.size() != widths.size())
      c.fail("'depths' and 'hidden_sizes' must have as many entries");
    c.integer("num_stages", 4);  // follows from them
    for (const char* key : {"out_features", "stage_names"}) c.texts(key);
    c.integers("out_indices", 0);
  }
  int64_t image, patch, channels;
  std::vector<int64_t> depths, widths;
  double eps;
  bool scaled;
  Activation act;
};

// A norm over the channels of [n, c, h, w].
Tensor over_channels(Norm& norm, const Tensor& x) {
  return norm(x.permute({0, 2, 3, 1})).permute({0, 3, 1, 2});
}

class ConvNextLayer : public nn::Module {
 public:
  ConvNextLayer(const ConvNextSpec& s, int64_t width)
      : dwconv(width, width, 7, {.padding = {3}, .groups = width}),
        layernorm(width, {.eps = 1e-6}),
        pwconv1(width, 4 * width),
        pwconv2(4 * width, width),
        act(s.act) {
    if (s.scaled) layer_scale_parameter = Param(ones({width}));
    TD_REGISTER(dwconv, layernorm, pwconv1, pwconv2, layer_scale_parameter);
  }
  Tensor forward(Tensor x) {
    Tensor y = pwconv2(act(pwconv1(layernorm(dwconv(x).permute({0, 2, 3, 1})))));
    if (layer_scale_parameter.defined()) y = y * layer_scale_parameter;
    return x + y.permute({0, 3, 1, 2});
  }
  nn::Conv2d dwconv;
  Norm layernorm;
  nn::Linear pwconv1, pwconv2;
  Param layer_scale_parameter;
  Activation act;
};

class ConvNextStage : public nn::Module {
 public:
  ConvNextStage(const ConvNextSpec& s, size_t stage) {
    if (stage > 0) {
      norm.emplace(s.widths[stage - 1], NormSpec{.eps = 1e-6});
      conv.emplace(s.widths[stage - 1], s.widths[stage], 2, nn::ConvOptions{.stride = {2}});
    }
    for (int64_t i = 0; i < s.depths[stage]; ++i) layers.emplace_back(s, s.widths[stage]);
    register_as(this, {"downsampling_layer.0", "downsampling_layer.1", "layers"}, norm, conv,
                layers);
  }
  Tensor forward(Tensor x) {
    if (norm) x = (*conv)(over_channels(*norm, x));
    for (ConvNextLayer& l : layers) x = l(std::move(x));
    return x;
  }
  std::optional<Norm> norm;
  std::optional<nn::Conv2d> conv;
  std::vector<ConvNextLayer> layers;
};

class ConvNextNet : public nn::Module {
 public:
  ConvNextNet(const ConvNextSpec& s, int64_t labels)
      : patches(s.channels, s.widths[0], s.patch, {.stride = {s.patch}}),
        first(s.widths[0], {.eps = 1e-6}),
        last(s.widths.back(), {.eps = s.eps}) {
    for (size_t i = 0; i < s.depths.size(); ++i) stages.emplace_back(s, i);
    if (labels > 0) classifier.emplace(s.widths.back(), labels);
    register_as(this,
                {"convnext.embeddings.patch_embeddings", "convnext.embeddings.layernorm",
                 "convnext.encoder.stages", "convnext.layernorm", "classifier"},
                patches, first, stages, last, classifier);
  }
  nn::Conv2d patches;
  Norm first, last;
  std::vector<ConvNextStage> stages;
  std::optional<nn::Linear> classifier;
};

class HfConvNext : public PretrainedModel {
 public:
  HfConvNext(const ModelConfig& c, const ConvNextSpec& s, int64_t labels)
      : PretrainedModel(c), spec_(s), net_(s, labels) {}
  nn::Module& module() override { return net_; }
  std::vector<ModelPort> inputs() const override {
    return {{"pixel_values", DType::f32, {-1, spec_.channels, spec_.image, spec_.image}}};
  }
  std::vector<std::string> output_names() const override {
    if (net_.classifier) return {"logits"};
    return {"last_hidden_state", "pooler_output"};
  }
  std::vector<Tensor> run(const ModelInputs& in) override {
    want(in.pixel_values, "pixel_values", 4);
    Tensor x = over_channels(net_.first, net_.patches(in.pixel_values));
    for (ConvNextStage& s : net_.stages) x = s(std::move(x));
    const Tensor pooled = net_.last(x.mean({2, 3}));
    if (net_.classifier) return {(*net_.classifier)(pooled)};
    return {x, pooled};
  }

 private:
  ConvNextSpec spec_;
  ConvNextNet net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_hf_convnext(const ModelConfig& c, const FileNames&) {
  const Head head = head_of(c, "ConvNext", {Head::none, Head::image});
  return std::make_unique<HfConvNext>(c, ConvNextSpec(c), head == Head::image ? c.num_labels() : 0);
}

}  // namespace tandem::models
