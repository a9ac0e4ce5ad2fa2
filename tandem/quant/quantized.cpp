// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/quantized.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"

namespace tandem::quant {
namespace {

constexpr double kMostBias = 1 << 30;  ///< of i32, with room for the sum

// max |w| for each output, or over all.
Tensor largest(const Layer& layer, bool per_channel) {
  IntList others;
  for (int d = 0; d < layer.weight.dim(); ++d)
    if (!per_channel || d != layer.axis) others.push_back(d);
  return amax(abs(layer.weight), others);
}

// The codes that are not above the weight.
Tensor floored(const Layer& layer, const Tensor& scale) {
  Shape shape;
  for (int d = 0; scale.dim() > 0 && d < layer.weight.dim(); ++d)
    shape.push_back(d == layer.axis ? layer.weight.shape(d) : Dim(1));
  const Tensor codes = floor(layer.weight / scale.reshape(shape));
  return clamp(codes, -128.0, 127.0).to(DType::i8);
}

}  // namespace

LayerCodes round_layer(const Layer& layer, float x_scale, bool per_channel, const Tensor& up) {
  const NoGradGuard no_grad;
  LayerCodes c;
  const auto finite = [](const Tensor& t) { return isfinite(t).all().item<bool>(); };
  TD_CHECK(
      finite(layer.weight) && (!layer.bias.defined() || finite(layer.bias)), Value,
      "the weight or bias of layer '{}' holds values that are not finite\nRepair the model, or "
      "leave the layer in floating point (--keep-float).",
      layer.name);
  Tensor scale = layer.scale;
  if (scale.defined())
    per_channel = scale.dim() == 1;
  else
    scale = largest(layer, per_channel) / static_cast<double>(layer.most_code);
  if (layer.bias.defined()) {
    const Tensor bias = abs(layer.bias);
    const Tensor least = (per_channel ? bias : amax(bias)) / (kMostBias * x_scale);
    scale = maximum(scale, least);
  }
  c.scale = where(scale >= std::numeric_limits<float>::min(), scale, 1.0).to(DType::f32);
  const auto limit = [&](int64_t code) { return full(Shape(), code, DType::i8); };
  const auto between = [&](const Tensor& t, int64_t low, int64_t high) {
    return minimum(maximum(t, limit(low)), limit(high));
  };
  const int64_t most = layer.most_code;
  if (up.defined())
    c.weight = between(floored(layer, c.scale), -most, most - 1) + up.to(DType::i8);
  else
    c.weight =
        between(quantize_linear(layer.weight, c.scale, {}, layer.axis, DType::i8), -most, most);
  if (!layer.bias.defined()) return c;
  c.bias_scale = c.scale * x_scale;
  c.bias = round(layer.bias.to(DType::f64) / c.bias_scale.to(DType::f64)).to(DType::i32);
  return c;
}

int64_t code_bytes(const Layer& layer, const QuantizeOptions& options) {
  constexpr int64_t kNibble = 4;
  const bool packed = options.weight_bits <= kNibble && layer.most_code <= 7 && !options.dynamic;
  return packed ? (layer.weight.numel() + 1) / 2 : layer.weight.numel();
}

Tensor weight_of(const LayerCodes& codes, const Layer& layer) {
  return dequantize_linear(as_constant(codes.weight), as_constant(codes.scale), {}, layer.axis);
}

namespace {

TableCodes round_table(const Table& t, bool per_channel) {
  const NoGradGuard no_grad;
  TD_CHECK(
      isfinite(t.weight).all().item<bool>(), Value,
      "the table '{}' holds values that are not finite\nRepair the model, or leave the table in "
      "floating point (--keep-float).",
      t.name);
  constexpr double kMost = 127;
  const IntList over = per_channel ? IntList{0} : IntList{0, 1};
  const Tensor scale = amax(abs(t.weight), over) / kMost;
  TableCodes c;
  c.scale = where(scale >= std::numeric_limits<float>::min(), scale, 1.0).to(DType::f32);
  c.rows = quantize_linear(t.weight, c.scale, {}, 1, DType::i8);
  return c;
}

bool keeps_float(const QuantizeOptions& o, const std::string& name) {
  return std::find(o.keep_float.begin(), o.keep_float.end(), name) != o.keep_float.end();
}

}  // namespace

Quantized::Quantized(const Network& net, Plan plan, std::vector<Step> steps,
                     const QuantizeOptions& options, std::span<const LayerChange> changes,
                     bool tables)
    : net_(net), plan_(std::move(plan)), options_(options), steps_(std::move(steps)) {
  TD_ASSERT(steps_.size() == plan_.sites().size());
  codes_.resize(net.layers().size());
  for (size_t i = 0; i < codes_.size(); ++i) {
    if (!plan_.is_quantised(i)) continue;
    Layer l = net.layers()[i];
    const LayerChange change = i < changes.size() ? changes[i] : LayerChange();
    if (change.bias.defined() && l.bias.defined()) l.bias = l.bias + change.bias;
    if (options.dynamic) {
      const Tensor bias = std::exchange(l.bias, Tensor());
      codes_[i] = round_layer(l, 1, options.per_channel, change.up);
      codes_[i].added = bias;
      const Tensor& w = codes_[i].weight;
      codes_[i].columns = (l.axis == 0 ? w.t() : w).contiguous();
      continue;
    }
    const auto x = static_cast<size_t>(plan_.site_at(*l.node, 0));
    codes_[i] = round_layer(l, steps_[x].scale, options.per_channel, change.up);
  }
  for (const Table& t : net.tables())
    tables_.push_back(tables && !keeps_float(options, t.name) ? round_table(t, options.per_channel)
                                                              : TableCodes());
}

const TableCodes* Quantized::table_of(const Node& n) const {
  const std::vector<Table>& all = net_.tables();
  const auto at =
      std::find_if(all.begin(), all.end(), [&](const Table& t) { return t.node == &n; });
  if (at == all.end()) return nullptr;
  const TableCodes& c = tables_[static_cast<size_t>(at - all.begin())];
  return c.rows.defined() ? &c : nullptr;
}

std::vector<Tensor> Quantized::operator()(std::span<const Tensor> inputs) const {
  return QuantizedWalk(*this).run(inputs);
}

int64_t Quantized::weight_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < codes_.size(); ++i) {
    const Layer& l = net_.layers()[i];
    const int64_t biases = l.bias.defined() ? l.bias.numel() : 0;
    const bool codes = codes_[i].weight.defined();
    const int64_t steps = options_.dynamic ? 1 : 2;  // of the weight, of the bias
    bytes += codes ? code_bytes(l, options_) + 4 * (biases + steps * codes_[i].scale.numel())
                   : 4 * (l.weight.numel() + biases);
  }
  for (size_t i = 0; i < tables_.size(); ++i) {
    const int64_t n = net_.tables()[i].weight.numel();
    bytes += tables_[i].rows.defined() ? n + 4 * tables_[i].scale.numel() : 4 * n;
  }
  return bytes;
}

// ---- a run

QuantizedWalk::QuantizedWalk(const Quantized& q) : Walk(q.network()), q_(q) {}

std::vector<Tensor> QuantizedWalk::run(std::span<const Tensor> inputs) {
  rounded_.assign(q_.plan().sites().size(), Tensor());
  std::vector<Tensor> out = Walk::run(inputs);
  for (size_t i = 0; i < out.size(); ++i)
    if (const int site = q_.plan().output_site(i); site >= 0) out[i] = rounded(site, out[i]);
  rounded_.clear();
  return out;
}

// Codes are looked up, so that no whole table is made of numbers.
bool QuantizedWalk::before(const Node& n, std::span<Tensor> in, Tensor* out) {
  const TableCodes* t = q_.table_of(n);
  if (!t) return Walk::before(n, in, out);
  Operand operands[] = {Operand(as_constant(t->rows), n.loc), Operand(in[1], n.loc)};
  Tensor rows[kMaxOpOuts];
  apply(*n.op, attrs(), operands, rows, n.loc);
  out[0] = dequantize_linear(rows[0], as_constant(t->scale), {}, rows[0].dim() - 1);
  return true;
}

void QuantizedWalk::operands(const Node& n, std::span<Tensor> in) {
  for (size_t i = 0; i < in.size(); ++i)
    if (const int site = q_.plan().site_at(n, i); site >= 0) in[i] = rounded(site, in[i]);
}

Tensor QuantizedWalk::rounded(int site, const Tensor& x) {
  Tensor& at = rounded_[static_cast<size_t>(site)];
  if (at.defined()) return at;
  const Step& s = q_.steps()[static_cast<size_t>(site)];
  const DType t = q_.options().activations;
  const Tensor scale = as_constant(full(Shape(), s.scale, DType::f32)),
               zero = as_constant(full(Shape(), s.zero, t));
  return at = dequantize_linear(quantize_linear(x, scale, zero, 0, t), scale, zero, 0);
}

namespace {
Tensor dynamic_product(const LayerCodes& c, const Tensor& x) {
  const DynamicCodes d = dynamic_quantize_linear(x);
  const Tensor w = as_constant(c.columns);
  const Tensor y =
      matmul_integer(d.codes, w, d.zero).to(DType::f32) * (d.scale * as_constant(c.scale));
  return c.added.defined() ? y + as_constant(c.added) : y;
}
}  // namespace

Tensor QuantizedWalk::layer(size_t index, const Tensor& x) {
  const LayerCodes& c = q_.codes(index);
  if (!c.weight.defined()) return Walk::layer(index, x);
  const Layer& l = net_.layers()[index];
  if (q_.options().dynamic) return dynamic_product(c, x);
  Tensor bias;
  if (c.bias.defined())
    bias = dequantize_linear(as_constant(c.bias), as_constant(c.bias_scale), {}, 0);
  if (bias.defined() && bias.dim() == 1 && c.bias_scale.dim() == 0) bias = bias.reshape({-1});
  return call(l, x, weight_of(c, l), bias);
}

}  // namespace tandem::quant
