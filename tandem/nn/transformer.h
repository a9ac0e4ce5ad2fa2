// SPDX-License-Identifier: Apache-2.0
// Transformer layers like torch.nn's (Vaswani et al. 2017), and positions: rotary and sinusoidal.
#pragma once

#include "tandem/nn/attention.h"
#include "tandem/nn/norm.h"

namespace tandem::nn {

struct TransformerLayerOptions {
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";  ///< or "gelu"
  double layer_norm_eps = 1e-5;
  bool batch_first = false;
  bool norm_first = false;
  bool bias = true;
  DType dtype = DType::f32;
};
struct EncoderMasks {
  Tensor mask = {}, src_key_padding_mask = {};
  bool is_causal = false;
};
struct DecoderMasks {
  Tensor tgt_mask = {}, memory_mask = {}, tgt_key_padding_mask = {}, memory_key_padding_mask = {};
  bool tgt_is_causal = false, memory_is_causal = false;
};

/// x [l, n, d_model] (or [n, l, d_model] with batch_first) -> the same.
class TD_API TransformerEncoderLayer : public Module {
 public:
  TransformerEncoderLayer(Dim d_model, Dim nhead, TransformerLayerOptions options = {});
  Tensor forward(Tensor src) { return forward(std::move(src), EncoderMasks{}); }
  Tensor forward(Tensor src, const EncoderMasks& masks);
  using Module::operator();
  Tensor operator()(Tensor src, const EncoderMasks& masks,
                    SourceLocation loc = SourceLocation::here());
  TransformerLayerOptions options;
  MultiheadAttention self_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2;
  Dropout dropout1, dropout2;
};

/// tgt and memory have the layout of the encoder's x.
class TD_API TransformerDecoderLayer : public Module {
 public:
  TransformerDecoderLayer(Dim d_model, Dim nhead, TransformerLayerOptions options = {});
  Tensor forward(Tensor tgt, Tensor memory, const DecoderMasks& masks = {});
  Tensor operator()(Tensor tgt, Tensor memory, const DecoderMasks& masks = {},
                    SourceLocation loc = SourceLocation::here());
  TransformerLayerOptions options;
  MultiheadAttention self_attn, multihead_attn;
  Linear linear1;
  Dropout dropout;
  Linear linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout1, dropout2, dropout3;
};

/// num_layers copies of a layer, followed by a norm if given.
class TD_API TransformerEncoder : public Module {
 public:
  TransformerEncoder(const TransformerEncoderLayer& layer, int64_t num_layers,
                     std::optional<LayerNorm> norm = {});
  Tensor forward(Tensor src) { return forward(std::move(src), EncoderMasks{}); }
  Tensor forward(Tensor src, const EncoderMasks& masks);
  using Module::operator();
  Tensor operator()(Tensor src, const EncoderMasks& masks,
                    SourceLocation loc = SourceLocation::here());
  std::vector<TransformerEncoderLayer> layers;
  std::optional<LayerNorm> norm;
};
class TD_API TransformerDecoder : public Module {
 public:
  TransformerDecoder(const TransformerDecoderLayer& layer, int64_t num_layers,
                     std::optional<LayerNorm> norm = {});
  Tensor forward(Tensor tgt, Tensor memory, const DecoderMasks& masks = {});
  Tensor operator()(Tensor tgt, Tensor memory, const DecoderMasks& masks = {},
                    SourceLocation loc = SourceLocation::here());
  std::vector<TransformerDecoderLayer> layers;
  std::optional<LayerNorm> norm;
};

struct TransformerOptions {
  Dim d_model = 512, nhead = 8;
  int64_t num_encoder_layers = 6, num_decoder_layers = 6, dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";
  double layer_norm_eps = 1e-5;
  bool batch_first = false, norm_first = false, bias = true;
  DType dtype = DType::f32;
};
/// Encoder and decoder; matrices start Xavier uniform.
class TD_API Transformer : public Module {
 public:
  explicit Transformer(TransformerOptions options = {});
  Tensor forward(Tensor src, Tensor tgt, const EncoderMasks& source = {},
                 const DecoderMasks& target = {});
  Tensor operator()(Tensor src, Tensor tgt, const EncoderMasks& source = {},
                    const DecoderMasks& target = {}, SourceLocation loc = SourceLocation::here());
  /// [n, n] with -inf above the diagonal, 0 elsewhere.
  static Tensor generate_square_subsequent_mask(Dim n, DType dtype = DType::f32);
  TransformerOptions options;
  TransformerEncoder encoder;
  TransformerDecoder decoder;
};

struct RotaryOptions {
  double base = 10000;
  bool interleaved = false;  ///< pairs (0, 1), (2, 3), ...; else (i, i + size / 2)
};
/// Rotates pairs of the last dimension of x [..., l, size] by angles position / base^(2i / size)
/// (Su et al. 2021). `start` is the position of the first step, a number or a 0-d integer tensor.
class TD_API RotaryEmbedding : public Module {
 public:
  explicit RotaryEmbedding(Dim size, RotaryOptions options = {});
  Tensor forward(Tensor x) { return forward(std::move(x), 0); }
  Tensor forward(Tensor x, const Operand& start);
  using Module::operator();
  Tensor operator()(Tensor x, const Operand& start, SourceLocation loc = SourceLocation::here());
  int64_t size;
  RotaryOptions options;
};

struct SinusoidalOptions {
  int64_t max_len = 5000;
  double dropout = 0;
  bool batch_first = false;
};
/// x [l, n, d_model] (or [n, l, d_model] with batch_first) plus sines and cosines of the position.
class TD_API SinusoidalPositional : public Module {
 public:
  explicit SinusoidalPositional(Dim d_model, SinusoidalOptions options = {});
  Tensor forward(Tensor x);
  Tensor table;  ///< [max_len, d_model]
  Dropout dropout;
  SinusoidalOptions options;
};

}  // namespace tandem::nn
