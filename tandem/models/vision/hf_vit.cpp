// SPDX-License-Identifier: Apache-2.0
// Vision Transformer (Dosovitskiy et al. 2020) with the names of ViTForImageClassification; vit.cpp
// has the one with torchvision's names.
#include "tandem/models/text/attention_internal.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

struct Sizes {
  explicit Sizes(const ModelConfig& c)
      : hidden(c.integer("hidden_size", 768, 1, 1 << 16)),
        layers(c.integer("num_hidden_layers", 12, 0, 1024)),
        heads(c.integer("num_attention_heads", 12, 1, 1 << 12)),
        inner(c.integer("intermediate_size", 3072, 1, 1 << 20)),
        image(c.first_integer("image_size", 224)),
        patch(c.first_integer("patch_size", 16)),
        channels(c.integer("num_channels", 3, 1, 1 << 12)),
        eps(c.number("layer_norm_eps", 1e-12)),
        qkv_bias(c.flag("qkv_bias", true)),
        act(detail::activation(c, c.text("hidden_act", "gelu"))) {
    if (hidden % heads != 0) c.fail("'hidden_size' is not a multiple of 'num_attention_heads'");
    if (patch > image) c.fail("'patch_size' is above 'image_size'");
  }
  int64_t hidden, layers, heads, inner, image, patch, channels;
  double eps;
  bool qkv_bias;
  detail::Activation act;
};

class Patches : public nn::Module {
 public:
  explicit Patches(const Sizes& s)
      : projection(s.channels, s.hidden, s.patch, {.stride = s.patch}) {
    TD_REGISTER(projection);
  }
  Tensor forward(Tensor x) { return projection(std::move(x)).flatten(2).transpose(1, 2); }
  nn::Conv2d projection;
};
class Embeddings : public nn::Module {
 public:
  explicit Embeddings(const Sizes& s)
      : cls_token(zeros({1, 1, s.hidden})),
        position_embeddings(nn::init::normal(
            {1, (s.image / s.patch) * (s.image / s.patch) + 1, s.hidden}, 0, 0.02)),
        patch_embeddings(s),
        image(s.image) {
    TD_REGISTER(cls_token, position_embeddings, patch_embeddings);
  }
  Tensor forward(Tensor x) {
    TD_CHECK(x.size(2) == image && x.size(3) == image, Shape,
             "the model wants images of {0} x {0}, x is {1}", image, x.shape().to_string());
    const Tensor patches = patch_embeddings(x);
    const Tensor first = cls_token.value().expand({x.shape(0), 1, patches.shape(2)});
    return cat({first, patches}, 1) + position_embeddings;
  }
  Param cls_token, position_embeddings;
  Patches patch_embeddings;
  int64_t image;
};
class SelfAttention : public nn::Module {
 public:
  explicit SelfAttention(const Sizes& s)
      : query(s.hidden, s.hidden, {.bias = s.qkv_bias}),
        key(s.hidden, s.hidden, {.bias = s.qkv_bias}),
        value(s.hidden, s.hidden, {.bias = s.qkv_bias}),
        heads(s.heads) {
    TD_REGISTER(query, key, value);
  }
  Tensor forward(Tensor x) {
    return detail::merge_heads(scaled_dot_product_attention(detail::split_heads(query(x), heads),
                                                            detail::split_heads(key(x), heads),
                                                            detail::split_heads(value(x), heads)));
  }
  nn::Linear query, key, value;
  int64_t heads;
};
class Dense : public nn::Module {
 public:
  Dense(int64_t in, int64_t out) : dense(in, out) { TD_REGISTER(dense); }
  Tensor forward(Tensor x) { return dense(std::move(x)); }
  nn::Linear dense;
};
class Attention : public nn::Module {
 public:
  explicit Attention(const Sizes& s) : attention(s), output(s.hidden, s.hidden) {
    TD_REGISTER(attention, output);
  }
  Tensor forward(Tensor x) { return output(attention(std::move(x))); }
  SelfAttention attention;
  Dense output;
};
class Layer : public nn::Module {
 public:
  explicit Layer(const Sizes& s)
      : attention(s),
        intermediate(s.hidden, s.inner),
        output(s.inner, s.hidden),
        layernorm_before({s.hidden}, {.eps = s.eps}),
        layernorm_after({s.hidden}, {.eps = s.eps}),
        act(s.act) {
    TD_REGISTER(attention, intermediate, output, layernorm_before, layernorm_after);
  }
  Tensor forward(Tensor x) {
    x = x + attention(layernorm_before(x));
    return x + output(act(intermediate(layernorm_after(x))));
  }
  Attention attention;
  Dense intermediate, output;
  nn::LayerNorm layernorm_before, layernorm_after;
  detail::Activation act;
};
class ViTEncoder : public nn::Module {
 public:
  explicit ViTEncoder(const Sizes& s) {
    for (int64_t i = 0; i < s.layers; ++i) layer.emplace_back(s);
    TD_REGISTER(layer);
  }
  Tensor forward(Tensor x) {
    for (Layer& l : layer) x = l(std::move(x));
    return x;
  }
  std::vector<Layer> layer;
};
class Base : public nn::Module {
 public:
  explicit Base(const Sizes& s) : embeddings(s), encoder(s), layernorm({s.hidden}, {.eps = s.eps}) {
    TD_REGISTER(embeddings, encoder, layernorm);
  }
  Tensor forward(Tensor x) { return layernorm(encoder(embeddings(std::move(x)))); }
  Embeddings embeddings;
  ViTEncoder encoder;
  nn::LayerNorm layernorm;
};
class Net : public nn::Module {
 public:
  Net(const Sizes& s, int64_t labels) : vit(s) {
    if (labels > 0) classifier.emplace(s.hidden, labels);
    TD_REGISTER(vit, classifier);
  }
  Base vit;
  std::optional<nn::Linear> classifier;
};

class HfVit : public PretrainedModel {
 public:
  explicit HfVit(const ModelConfig& c)
      : PretrainedModel(c),
        net_(Sizes(c),
             detail::ends_with(c.architecture(), "ForImageClassification") ? c.num_labels() : 0) {}
  nn::Module& module() override { return net_; }
  Tensor forward(const ModelInputs& in) override {
    detail::want(in.pixel_values, "pixel_values", 4);
    Tensor x = net_.vit(in.pixel_values);
    return net_.classifier ? (*net_.classifier)(x.select(1, 0)) : x;
  }

 private:
  Net net_;
};

}  // namespace

std::unique_ptr<PretrainedModel> detail::make_hf_vit(const ModelConfig& c) {
  return std::make_unique<HfVit>(c);
}

}  // namespace tandem::models
