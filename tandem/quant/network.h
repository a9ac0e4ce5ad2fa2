// SPDX-License-Identifier: Apache-2.0
// A trained network as room quant works on it: its trace, what in it is constant, and its layers,
// which are the convolutions and matmuls with a weight, each with the batch norm that follows it.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tandem/graph/run/visit.h"
#include "tandem/graph/spec.h"
#include "tandem/quant/ranges.h"

namespace tandem::quant {

/// A function over tensors, such as a model in evaluation mode.
using Forward = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// One result of a node of the trace.
struct ValueId {
  uint32_t node = 0;
  uint16_t output = 0;
  auto operator<=>(const ValueId&) const = default;
};
inline ValueId value_of(const NodeInput& i) { return {i.from->index, i.from_index}; }

/// A convolution or a matmul with a weight that is known.
struct Layer {
  std::string name;            ///< of its module, or its row with a number; unique
  const Node* node = nullptr;  ///< operands: x, weight, bias?
  Tensor weight, bias;         ///< f32, the batch norm folded in; no bias: undefined
  int axis = 0;                ///< of the outputs in the weight
  /// Of a weight that was trained with rounding (fake_quantize): the scale that it learned, one
  /// number or one for each output, and its largest code.
  Tensor scale;
  int64_t most_code = 127;
  const Node* norm = nullptr;  ///< the batch norm that went into weight and bias
  /// Its result after the batch norm.
  ValueId result() const { return {norm ? norm->index : node->index, 0}; }
};

/// A constant matrix of which the network looks up rows, such as an embedding.
struct Table {
  std::string name;  ///< of its module, or "index" with a number; unique among tables and layers
  const Node* node = nullptr;
  Tensor weight;  ///< f32
};

class TD_API Network {
 public:
  /// Traces `f` on inputs of these Specs; sizes may be symbols. Throws Value where it has no layer,
  /// Unsupported where it assigns cells or draws random numbers, and what `f` throws.
  Network(const Forward& f, std::span<const Spec> inputs);

  const Graph& graph() const { return *graph_; }
  std::vector<Layer>& layers() { return layers_; }
  const std::vector<Layer>& layers() const { return layers_; }
  const std::vector<Table>& tables() const { return tables_; }
  /// The layer that the node computes; -1: none.
  int layer_at(const Node& n) const { return layer_at_[n.index]; }
  bool is_folded(const Node& n) const { return folded_[n.index]; }
  bool is_known(const NodeInput& i) const { return known_[i.from->index]; }
  /// The results of a node that is computed from constants alone; nullptr: another node. Empty
  /// where only weights of layers are made of it.
  const std::vector<Tensor>* known_results(const Node& n) const;
  struct Use {
    const Node* node;
    size_t operand;
  };
  const std::vector<Use>& uses(ValueId v) const { return uses_[v.node].at(v.output); }
  bool is_output(ValueId v) const;
  /// The steps of values that the network rounds by itself, as one that was trained for it does
  /// (fake_quantize with a known scale and codes of 8 bits), zero points for u8. That rounding is
  /// passed over in its walks.
  const std::map<ValueId, Step>& learned() const { return learned_; }
  /// Layers read the value times `factor`, an entry for each index of its last dimension, from here
  /// on. A layer or RMS norm that computes it for them alone takes the factor into its weight.
  void scale_inputs(ValueId v, const Tensor& factor);
  /// The factor with which layers read the value; undefined: as it is.
  Tensor input_scale(ValueId v) const;
  /// Weight and bias of a norm that took a factor; nullptr: those of the trace.
  const std::pair<Tensor, Tensor>* scaled_norm(const Node& n) const;
  /// The bytes of its layers' weights and biases and of its tables as f32.
  int64_t weight_bytes() const;

 private:
  void find_known();
  void find_learned();
  void find_uses();
  void find_layers();
  void find_tables();
  void find_results();
  void learned_scale(Layer& layer);
  void fold_norm(Layer& layer);
  Tensor constant_of(const NodeInput& i);
  Tensor evaluate(const Node& n, size_t output);

  Ref<Graph> graph_;
  std::vector<char> known_, folded_, read_;  ///< read_: a walk asks for the known value
  std::vector<int> layer_at_;
  std::vector<std::vector<Tensor>> values_;  ///< of known nodes, once they were asked for
  std::vector<std::vector<std::vector<Use>>> uses_;
  std::vector<Layer> layers_;
  std::vector<Table> tables_;
  std::map<ValueId, Step> learned_;
  std::map<ValueId, Tensor> input_scales_;
  std::map<uint32_t, std::pair<Tensor, Tensor>> scaled_norms_;
};

/// Throws Value where the network was trained with rounding: `what` would change its channels.
TD_API void check_untrained(const Network& net, std::string_view what);

/// A run of the network as it is: layers with their weights, folded norms passed over. Those that
/// watch or change it derive from it.
class TD_API Walk : public NodeVisitor {
 public:
  explicit Walk(const Network& net) : net_(net) {}
  bool before(const Node& n, std::span<Tensor> in, Tensor* out) override;
  void after(const Node&, Tensor*) override {}
  /// Values of the outputs.
  virtual std::vector<Tensor> run(std::span<const Tensor> inputs);

 protected:
  /// Called with the operands of every node; what a layer reads has its factor.
  virtual void operands(const Node&, std::span<Tensor> /*in*/) {}
  /// The result of a layer for x.
  virtual Tensor layer(size_t index, const Tensor& x);
  /// What the layer's row gives with another weight and bias.
  Tensor call(const Layer& layer, const Tensor& x, const Tensor& weight, const Tensor& bias) const;

  const Network& net_;

 private:
  void scale(const Node& n, std::span<Tensor> in);
  std::map<ValueId, Tensor> scaled_;  ///< in this run
};

/// `t` as it may be used in a trace that refuses what it captures.
TD_API Tensor as_constant(const Tensor& t);

}  // namespace tandem::quant
