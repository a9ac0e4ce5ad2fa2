// SPDX-License-Identifier: Apache-2.0
// Vision transformers (Dosovitskiy et al. 2021) with torchvision's options, keys and initial
// values. Published files name the layers of an MLP linear_1 and linear_2; weights::load_weights
// knows both.
#pragma once

#include "tandem/nn/nn.h"

namespace tandem::models {

struct VisionTransformerOptions {
  int64_t num_classes = 1000;
  double dropout = 0.0, attention_dropout = 0.0;
  int64_t image_size = 224;
  int64_t representation_size = 0;  ///< a tanh layer of this width before the head; 0: none
  int64_t in_channels = 3;
};

/// Sizes of a transformer.
struct VisionTransformerSize {
  int64_t patch_size, num_layers, num_heads, hidden_dim, mlp_dim;
};

/// Pre-norm attention and MLP, each with a shortcut: x [n, l, hidden] -> same shape.
class TD_API EncoderBlock : public nn::Module {
 public:
  EncoderBlock(const VisionTransformerSize& size, const VisionTransformerOptions& o);
  Tensor forward(Tensor x);
  nn::LayerNorm ln_1;
  nn::MultiheadAttention self_attention;
  nn::Dropout dropout;
  nn::LayerNorm ln_2;
  nn::Sequential mlp;
};

/// Positions, blocks and the final norm: x [n, l, hidden] -> same shape.
class TD_API Encoder : public nn::Module {
 public:
  Encoder(int64_t seq_length, const VisionTransformerSize& size, const VisionTransformerOptions& o);
  Tensor forward(Tensor x);
  Param pos_embedding;
  nn::Dropout dropout;
  nn::Sequential layers;
  nn::LayerNorm ln;
};

/// x [n, in_channels, image_size, image_size] -> [n, num_classes].
class TD_API VisionTransformer : public nn::Module {
 public:
  /// Throws Value when patches do not fill the image.
  VisionTransformer(const VisionTransformerSize& size, VisionTransformerOptions options = {});
  Tensor forward(Tensor x);
  Param class_token;
  nn::Conv2d conv_proj;
  Encoder encoder;
  nn::Sequential heads;
  VisionTransformerOptions options;
  int64_t patch_size;
};

TD_API VisionTransformer vit_b_16(VisionTransformerOptions options = {});
TD_API VisionTransformer vit_b_32(VisionTransformerOptions options = {});
TD_API VisionTransformer vit_l_16(VisionTransformerOptions options = {});
TD_API VisionTransformer vit_l_32(VisionTransformerOptions options = {});

}  // namespace tandem::models
