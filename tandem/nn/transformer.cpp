// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/transformer.h"

#include <cmath>
#include <limits>

#include "tandem/nn/init.h"
#include "tandem/ops/matmul/matmul.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace {

MultiheadAttentionOptions attention_of(const TransformerLayerOptions& o) {
  return {.dropout = o.dropout, .bias = o.bias, .batch_first = o.batch_first, .dtype = o.dtype};
}
LinearOptions linear_of(const TransformerLayerOptions& o) { return {o.bias, o.dtype}; }
LayerNorm norm_of(Dim d, double eps, bool bias, DType dtype) {
  return LayerNorm({d}, {.eps = eps, .bias = bias, .dtype = dtype});
}
LayerNorm norm_of(Dim d, const TransformerLayerOptions& o) {
  return norm_of(d, o.layer_norm_eps, o.bias, o.dtype);
}

void check_activation(const TransformerLayerOptions& o) {
  TD_CHECK(o.activation == "relu" || o.activation == "gelu", Value,
           "activation is \"relu\" or \"gelu\", got \"{}\"", o.activation);
  TD_CHECK(o.dim_feedforward > 0, Value, "dim_feedforward expects a size > 0, got {}",
           o.dim_feedforward);
}

template <class Layer>
Tensor feed_forward(Layer& l, Tensor x) {
  x = l.linear1(std::move(x));
  x = l.options.activation == "gelu" ? gelu(std::move(x)) : relu(std::move(x));
  return l.linear2(l.dropout(std::move(x)));
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(Dim d, Dim heads, TransformerLayerOptions o)
    : options(o),
      self_attn(d, heads, attention_of(o)),
      linear1(d, o.dim_feedforward, linear_of(o)),
      dropout(o.dropout),
      linear2(o.dim_feedforward, d, linear_of(o)),
      norm1(norm_of(d, o)),
      norm2(norm_of(d, o)),
      dropout1(o.dropout),
      dropout2(o.dropout) {
  check_activation(o);
  TD_REGISTER(self_attn, linear1, dropout, linear2, norm1, norm2, dropout1, dropout2);
}

Tensor TransformerEncoderLayer::forward(Tensor x, const EncoderMasks& m) {
  const auto attend = [&](const Tensor& y) {
    return dropout1(self_attn(
        y, y, y,
        {.mask = m.mask, .is_causal = m.is_causal, .key_padding_mask = m.src_key_padding_mask}));
  };
  if (options.norm_first) {
    x = x + attend(norm1(x));
    return x + dropout2(feed_forward(*this, norm2(x)));
  }
  x = norm1(x + attend(x));
  return norm2(x + dropout2(feed_forward(*this, x)));
}

Tensor TransformerEncoderLayer::operator()(Tensor x, const EncoderMasks& m, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), m); });
}

TransformerDecoderLayer::TransformerDecoderLayer(Dim d, Dim heads, TransformerLayerOptions o)
    : options(o),
      self_attn(d, heads, attention_of(o)),
      multihead_attn(d, heads, attention_of(o)),
      linear1(d, o.dim_feedforward, linear_of(o)),
      dropout(o.dropout),
      linear2(o.dim_feedforward, d, linear_of(o)),
      norm1(norm_of(d, o)),
      norm2(norm_of(d, o)),
      norm3(norm_of(d, o)),
      dropout1(o.dropout),
      dropout2(o.dropout),
      dropout3(o.dropout) {
  check_activation(o);
  TD_REGISTER(self_attn, multihead_attn, linear1, dropout, linear2, norm1, norm2, norm3, dropout1,
              dropout2, dropout3);
}

Tensor TransformerDecoderLayer::forward(Tensor x, Tensor memory, const DecoderMasks& m) {
  const auto attend = [&](const Tensor& y) {
    return dropout1(self_attn(y, y, y,
                              {.mask = m.tgt_mask,
                               .is_causal = m.tgt_is_causal,
                               .key_padding_mask = m.tgt_key_padding_mask}));
  };
  const auto look = [&](const Tensor& y) {
    return dropout2(multihead_attn(y, memory, memory,
                                   {.mask = m.memory_mask,
                                    .is_causal = m.memory_is_causal,
                                    .key_padding_mask = m.memory_key_padding_mask}));
  };
  if (options.norm_first) {
    x = x + attend(norm1(x));
    x = x + look(norm2(x));
    return x + dropout3(feed_forward(*this, norm3(x)));
  }
  x = norm1(x + attend(x));
  x = norm2(x + look(x));
  return norm3(x + dropout3(feed_forward(*this, x)));
}

Tensor TransformerDecoderLayer::operator()(Tensor x, Tensor memory, const DecoderMasks& m,
                                           SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(memory), m); });
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& layer, int64_t n,
                                       std::optional<LayerNorm> last)
    : norm(std::move(last)) {
  TD_CHECK(n >= 0, Value, "num_layers expects a number >= 0, got {}", n);
  for (int64_t i = 0; i < n; ++i) layers.push_back(nn::clone(layer));
  TD_REGISTER(layers, norm);
}
Tensor TransformerEncoder::forward(Tensor x, const EncoderMasks& m) {
  for (TransformerEncoderLayer& l : layers) x = l(std::move(x), m);
  return norm ? (*norm)(std::move(x)) : x;
}
Tensor TransformerEncoder::operator()(Tensor x, const EncoderMasks& m, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), m); });
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& layer, int64_t n,
                                       std::optional<LayerNorm> last)
    : norm(std::move(last)) {
  TD_CHECK(n >= 0, Value, "num_layers expects a number >= 0, got {}", n);
  for (int64_t i = 0; i < n; ++i) layers.push_back(nn::clone(layer));
  TD_REGISTER(layers, norm);
}
Tensor TransformerDecoder::forward(Tensor x, Tensor memory, const DecoderMasks& m) {
  for (TransformerDecoderLayer& l : layers) x = l(std::move(x), memory, m);
  return norm ? (*norm)(std::move(x)) : x;
}
Tensor TransformerDecoder::operator()(Tensor x, Tensor memory, const DecoderMasks& m,
                                      SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(memory), m); });
}

namespace {
TransformerLayerOptions layer_of(const TransformerOptions& o) {
  return {o.dim_feedforward, o.dropout,    o.activation, o.layer_norm_eps,
          o.batch_first,     o.norm_first, o.bias,       o.dtype};
}
LayerNorm last_norm(const TransformerOptions& o) {
  return norm_of(o.d_model, o.layer_norm_eps, o.bias, o.dtype);
}
}  // namespace

Transformer::Transformer(TransformerOptions o)
    : options(o),
      encoder(TransformerEncoderLayer(o.d_model, o.nhead, layer_of(o)), o.num_encoder_layers,
              last_norm(o)),
      decoder(TransformerDecoderLayer(o.d_model, o.nhead, layer_of(o)), o.num_decoder_layers,
              last_norm(o)) {
  TD_REGISTER(encoder, decoder);
  for (Param& p : parameters())
    if (p.dim() > 1) p.assign_(init::xavier_uniform(p.shape(), 1, o.dtype));
}

Tensor Transformer::forward(Tensor src, Tensor tgt, const EncoderMasks& source,
                            const DecoderMasks& target) {
  TD_CHECK(dims_equal(src.shape(-1), options.d_model) && dims_equal(tgt.shape(-1), options.d_model),
           Shape, "src and tgt expect d_model = {} features, got {} and {}",
           options.d_model.to_string(), src.shape().to_string(), tgt.shape().to_string());
  return decoder(std::move(tgt), encoder(std::move(src), source), target);
}
Tensor Transformer::operator()(Tensor src, Tensor tgt, const EncoderMasks& source,
                               const DecoderMasks& target, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(src), std::move(tgt), source, target); });
}

Tensor Transformer::generate_square_subsequent_mask(Dim n, DType dtype) {
  Tensor later = arange_dim(n).reshape({1, n}) > arange_dim(n).reshape({n, 1});
  return where(later, full({}, -std::numeric_limits<double>::infinity(), dtype),
               full({}, 0.0, dtype));
}

// ---- positions

RotaryEmbedding::RotaryEmbedding(Dim s, RotaryOptions o) : size(s.value()), options(o) {
  TD_CHECK(size > 0 && size % 2 == 0, Value, "RotaryEmbedding expects an even size, got {}", size);
  TD_CHECK(o.base > 0, Value, "RotaryEmbedding expects base > 0, got {}", o.base);
  this->register_members(this, "");
}

Tensor RotaryEmbedding::forward(Tensor x, const Operand& start) {
  TD_CHECK(x.dim() >= 2 && dims_equal(x.shape(-1), size), Shape,
           "RotaryEmbedding expects x [..., l, {}], got {}", size, x.shape().to_string());
  int64_t half = size / 2;
  Dim steps = x.shape(-2);
  Tensor at = arange_dim(steps);
  at = start.is_scalar() ? at + start.scalar().to_int() : at + start.tensor();
  Tensor rate = pow(options.base, arange(half).to(DType::f32) * (-2.0 / static_cast<double>(size)));
  Tensor angle = at.to(DType::f32).reshape({steps, 1}) * rate;
  Tensor c = cos(angle).to(x.dtype()), s = sin(angle).to(x.dtype());
  if (!options.interleaved) {
    Tensor a = narrow(x, -1, 0, half), b = narrow(x, -1, half, half);
    return cat({a * c - b * s, b * c + a * s}, -1);
  }
  Shape pairs = x.shape();
  pairs[x.dim() - 1] = half;
  pairs.push_back(2);
  Tensor p = reshape(x, pairs), a = select(p, -1, 0), b = select(p, -1, 1);
  return reshape(stack({a * c - b * s, b * c + a * s}, -1), x.shape());
}
Tensor RotaryEmbedding::operator()(Tensor x, const Operand& start, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), start); });
}

SinusoidalPositional::SinusoidalPositional(Dim d_model, SinusoidalOptions o)
    : dropout(o.dropout), options(o) {
  int64_t d = d_model.value();
  TD_CHECK(d > 0 && d % 2 == 0 && o.max_len > 0, Value,
           "SinusoidalPositional expects an even d_model and max_len > 0, got {} and {}", d,
           o.max_len);
  std::vector<float> v(static_cast<size_t>(o.max_len * d));
  for (int64_t t = 0; t < o.max_len; ++t)
    for (int64_t i = 0; i < d; i += 2) {
      double angle = static_cast<double>(t) *
                     std::exp(static_cast<double>(i) * -std::log(10000.0) / static_cast<double>(d));
      v[static_cast<size_t>(t * d + i)] = static_cast<float>(std::sin(angle));
      v[static_cast<size_t>(t * d + i + 1)] = static_cast<float>(std::cos(angle));
    }
  table = tensor(v, {o.max_len, d});
  TD_REGISTER(dropout);
}

Tensor SinusoidalPositional::forward(Tensor x) {
  int64_t d = table.size(1);
  TD_CHECK(x.dim() == 3 && dims_equal(x.shape(2), d), Shape,
           "SinusoidalPositional expects x of 3 dimensions with {} features, got {}", d,
           x.shape().to_string());
  Dim steps = x.shape(options.batch_first ? 1 : 0);
  TD_CHECK(steps.is_symbolic() || steps.value() <= options.max_len, Shape,
           "x {} has {} steps, max_len is {}", x.shape().to_string(), steps.to_string(),
           options.max_len);
  Tensor p = narrow(constant(table), 0, 0, steps).to(x.dtype());
  if (!options.batch_first) p = unsqueeze(p, 1);
  return dropout(x + p);
}

}  // namespace tandem::nn
