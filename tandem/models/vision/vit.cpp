// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/vision/vit.h"

#include <cmath>

#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

nn::LayerNorm norm(int64_t hidden) { return nn::LayerNorm(hidden, {.eps = 1e-6}); }

int64_t tokens(const VisionTransformerSize& s, const VisionTransformerOptions& o) {
  TD_CHECK(
      s.patch_size > 0 && o.image_size > 0 && o.image_size % s.patch_size == 0, Value,
      "a vision transformer with patches of {} pixels expects an image_size that is a multiple "
      "of it, got {}",
      s.patch_size, o.image_size);
  const int64_t side = o.image_size / s.patch_size;
  return side * side + 1;
}

nn::Linear mlp_layer(int64_t in, int64_t out) {
  nn::Linear layer(in, out);
  layer.weight.assign_(nn::init::xavier_uniform(layer.weight.shape()));
  layer.bias.assign_(nn::init::normal(layer.bias.shape(), 0, 1e-6));
  return layer;
}

nn::Sequential make_heads(int64_t hidden, const VisionTransformerOptions& o) {
  std::vector<std::pair<std::string, nn::AnyModule>> list;
  if (o.representation_size > 0) {
    nn::Linear before(hidden, o.representation_size);
    before.weight.assign_(nn::init::trunc_normal(before.weight.shape(), 0,
                                                 1 / std::sqrt(static_cast<double>(hidden))));
    before.bias.assign_(zeros(before.bias.shape()));
    list.emplace_back("pre_logits", before);
    list.emplace_back("act", nn::Tanh());
    hidden = o.representation_size;
  }
  nn::Linear head(hidden, o.num_classes);
  head.weight.assign_(zeros(head.weight.shape()));
  head.bias.assign_(zeros(head.bias.shape()));
  list.emplace_back("head", head);
  return nn::Sequential::named(std::move(list));
}

}  // namespace

EncoderBlock::EncoderBlock(const VisionTransformerSize& s, const VisionTransformerOptions& o)
    : ln_1(norm(s.hidden_dim)),
      self_attention(s.hidden_dim, s.num_heads,
                     {.dropout = o.attention_dropout, .batch_first = true}),
      dropout(o.dropout),
      ln_2(norm(s.hidden_dim)),
      mlp(mlp_layer(s.hidden_dim, s.mlp_dim), nn::GELU(), nn::Dropout(o.dropout),
          mlp_layer(s.mlp_dim, s.hidden_dim), nn::Dropout(o.dropout)) {
  TD_REGISTER(ln_1, self_attention, dropout, ln_2, mlp);
}
Tensor EncoderBlock::forward(Tensor x) {
  const Tensor y = ln_1(x);
  x = dropout(self_attention(y, y, y)) + x;
  return x + mlp(ln_2(x));
}

Encoder::Encoder(int64_t seq_length, const VisionTransformerSize& s,
                 const VisionTransformerOptions& o)
    : pos_embedding(nn::init::normal({1, seq_length, s.hidden_dim}, 0, 0.02)),
      dropout(o.dropout),
      ln(norm(s.hidden_dim)) {
  std::vector<std::pair<std::string, nn::AnyModule>> list;
  for (int64_t i = 0; i < s.num_layers; ++i)
    list.emplace_back("encoder_layer_" + std::to_string(i), EncoderBlock(s, o));
  layers = nn::Sequential::named(std::move(list));
  TD_REGISTER(pos_embedding, dropout, layers, ln);
}
Tensor Encoder::forward(Tensor x) {
  return ln(layers(dropout(std::move(x) + pos_embedding.value())));
}

VisionTransformer::VisionTransformer(const VisionTransformerSize& s, VisionTransformerOptions o)
    : class_token(zeros({1, 1, s.hidden_dim})),
      conv_proj(o.in_channels, s.hidden_dim, s.patch_size, {.stride = {s.patch_size}}),
      encoder(tokens(s, o), s, o),
      heads(make_heads(s.hidden_dim, o)),
      options(o),
      patch_size(s.patch_size) {
  const auto fan_in = static_cast<double>(o.in_channels * s.patch_size * s.patch_size);
  conv_proj.weight.assign_(
      nn::init::trunc_normal(conv_proj.weight.shape(), 0, std::sqrt(1 / fan_in)));
  conv_proj.bias.assign_(zeros(conv_proj.bias.shape()));
  TD_REGISTER(class_token, conv_proj, encoder, heads);
}
Tensor VisionTransformer::forward(Tensor x) {
  for (const int64_t i : {2, 3})
    TD_CHECK(
        x.dim() == 4 && x.shape(i) == Dim(options.image_size), Shape,
        "VisionTransformer expects x [n, {}, {}, {}], got {}\nIt has learned positions for that "
        "size: set image_size, or resize the images; the batch alone may stay open.",
        options.in_channels, options.image_size, options.image_size, x.shape().to_string());
  x = conv_proj(std::move(x)).flatten(2).transpose(1, 2);
  const Tensor token = class_token.value().expand({x.shape(0), 1, x.shape(2)});
  x = encoder(cat({token, x}, 1));
  return heads(x.select(1, 0));
}

VisionTransformer vit_b_16(VisionTransformerOptions o) {
  return VisionTransformer({16, 12, 12, 768, 3072}, o);
}
VisionTransformer vit_b_32(VisionTransformerOptions o) {
  return VisionTransformer({32, 12, 12, 768, 3072}, o);
}
VisionTransformer vit_l_16(VisionTransformerOptions o) {
  return VisionTransformer({16, 24, 16, 1024, 4096}, o);
}
VisionTransformer vit_l_32(VisionTransformerOptions o) {
  return VisionTransformer({32, 24, 16, 1024, 4096}, o);
}

}  // namespace tandem::models
