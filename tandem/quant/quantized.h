// SPDX-License-Identifier: Apache-2.0
// A quantised network: the codes and scales of its weights, the steps of its activations, and the
// function that it is. That function calls quantize_linear, dequantize_linear and the rows of the
// network itself, so it runs eagerly, becomes a QDQ model when it is exported, and integer kernels
// when it is compiled.
#pragma once

#include "tandem/quant/options.h"
#include "tandem/quant/plan.h"

namespace tandem::quant {

/// Weight and bias of a layer as codes.
struct LayerCodes {
  Tensor weight;      ///< i8, of the weight's shape
  Tensor scale;       ///< f32 [outputs], or one number
  Tensor bias;        ///< i32 [outputs], in steps of (scale of x) * scale; undefined: none
  Tensor bias_scale;  ///< f32 [outputs], or one number
  /// Of a layer whose inputs each call rounds: its weight as i8 [inputs, outputs], its bias as f32.
  Tensor columns, added;
};
/// Codes -127..127 of a layer's weight, symmetric, with a scale for each output or one for all, so
/// that the bias fits i32 in steps of x_scale * scale. A scale that the layer learned counts. `up`
/// (of adaround.h) says which entries are rounded up; undefined: all go to the nearest code.
TD_API LayerCodes round_layer(const Layer& layer, float x_scale, bool per_channel,
                              const Tensor& up = {});
/// Bytes of the codes of its weight in a file: two to a byte where QuantizeOptions::weight_bits
/// says that 4 bits hold them.
TD_API int64_t code_bytes(const Layer& layer, const QuantizeOptions& options);
/// What the codes of the weight stand for.
TD_API Tensor weight_of(const LayerCodes& codes, const Layer& layer);

/// Codes of a table, symmetric in 8 bits, with a scale for each column or one for all.
struct TableCodes {
  Tensor rows;   ///< i8, of the table's shape
  Tensor scale;  ///< f32 [columns], or one number
};

/// What calibration found for a layer where it is quantised.
struct LayerChange {
  Tensor bias;  ///< is added to its bias; undefined: nothing
  Tensor up;    ///< which entries of its weight are rounded up; undefined: the nearest code
};

class TD_API Quantized {
 public:
  /// `steps[i]` is that of plan.sites()[i]; `changes` has an entry for each layer or none. The
  /// network outlives it. Without `tables` those of the network stay in floating point, as do those
  /// that options.keep_float names. Throws Value for weights that are not finite.
  Quantized(const Network& net, Plan plan, std::vector<Step> steps, const QuantizeOptions& options,
            std::span<const LayerChange> changes = {}, bool tables = true);

  std::vector<Tensor> operator()(std::span<const Tensor> inputs) const;
  const Network& network() const { return net_; }
  const Plan& plan() const { return plan_; }
  const QuantizeOptions& options() const { return options_; }
  const std::vector<Step>& steps() const { return steps_; }
  /// Of layer i; empty where it stays in floating point.
  const LayerCodes& codes(size_t layer) const { return codes_[layer]; }
  /// Of table i; empty where it stays in floating point.
  const TableCodes& table(size_t i) const { return tables_[i]; }
  /// Of the table that the node looks rows up in; nullptr: none, or in floating point.
  const TableCodes* table_of(const Node& n) const;
  /// Bytes of weights, tables, scales and biases.
  int64_t weight_bytes() const;

 private:
  const Network& net_;
  Plan plan_;
  QuantizeOptions options_;
  std::vector<Step> steps_;
  std::vector<LayerCodes> codes_;
  std::vector<TableCodes> tables_;
};

/// A run of it.
class TD_API QuantizedWalk : public Walk {
 public:
  explicit QuantizedWalk(const Quantized& q);
  bool before(const Node& n, std::span<Tensor> in, Tensor* out) override;
  std::vector<Tensor> run(std::span<const Tensor> inputs) override;

 protected:
  void operands(const Node& n, std::span<Tensor> in) override;
  Tensor layer(size_t index, const Tensor& x) override;
  const Quantized& q_;

 private:
  Tensor rounded(int site, const Tensor& x);
  std::vector<Tensor> rounded_;
};

}  // namespace tandem::quant
