// SPDX-License-Identifier: Apache-2.0
// The ops of TensorFlow.js that are written, with the types of their inputs and results as
// TensorFlow's own definitions have them.
#include <algorithm>
#include <set>

#include "tandem/onnx/import/rows.h"
#include "tandem/onnx/tensorflow/tfjs_write_internal.h"

namespace tandem::onnx {
namespace {

constexpr TfjsOp kTfjsOps[] = {
    // element by element
    {"Abs", "T", "T"},
    {"Neg", "T", "T"},
    {"Sign", "T", "T"},
    {"Floor", "T", "T"},
    {"Ceil", "T", "T"},
    {"Round", "T", "T"},
    {"Square", "T", "T"},
    {"Sqrt", "T", "T"},
    {"Rsqrt", "T", "T"},
    {"Exp", "T", "T"},
    {"Log", "T", "T"},
    {"Sin", "T", "T"},
    {"Cos", "T", "T"},
    {"Tanh", "T", "T"},
    {"Sigmoid", "T", "T"},
    {"Erf", "T", "T"},
    {"Relu", "T", "T"},
    {"Relu6", "T", "T"},
    {"Elu", "T", "T"},
    {"LeakyRelu", "T", "T"},
    {"Prelu", "T T", "T"},
    {"AddV2", "T T", "T"},
    {"Sub", "T T", "T"},
    {"Mul", "T T", "T"},
    {"RealDiv", "T T", "T"},
    {"FloorDiv", "T T", "T"},
    {"FloorMod", "T T", "T"},
    {"Pow", "T T", "T"},
    {"SquaredDifference", "T T", "T"},
    {"Maximum", "T T", "T"},
    {"Minimum", "T T", "T"},
    {"Atan2", "T T", "T"},
    {"AddN", "N*T", "T"},
    {"ClipByValue", "T T T", "T"},
    {"Cast", "SrcT", "DstT"},
    {"Equal", "T T", "bool"},
    {"NotEqual", "T T", "bool"},
    {"Less", "T T", "bool"},
    {"LessEqual", "T T", "bool"},
    {"Greater", "T T", "bool"},
    {"GreaterEqual", "T T", "bool"},
    {"LogicalAnd", "bool bool", "bool"},
    {"LogicalOr", "bool bool", "bool"},
    {"LogicalNot", "bool", "bool"},
    {"Select", "bool T T", "T"},
    {"SelectV2", "bool T T", "T"},
    {"Identity", "T", "T"},
    // along dimensions
    {"Softmax", "T", "T"},
    {"LogSoftmax", "T", "T"},
    {"LRN", "T", "T"},
    {"Mean", "T Tidx", "T"},
    {"Sum", "T Tidx", "T"},
    {"Prod", "T Tidx", "T"},
    {"Max", "T Tidx", "T"},
    {"Min", "T Tidx", "T"},
    {"Any", "bool Tidx", "bool"},
    {"All", "bool Tidx", "bool"},
    {"ArgMax", "T Tidx", "output_type"},
    {"ArgMin", "T Tidx", "output_type"},
    {"Cumsum", "T Tidx", "T"},
    {"TopKV2", "T Tk", "T index_type"},
    {"Unique", "T", "T out_idx"},
    {"OneHot", "TI int32 T T", "T"},
    // places
    {"Reshape", "T Tshape", "T"},
    {"Squeeze", "T", "T"},
    {"ExpandDims", "T Tdim", "T"},
    {"Transpose", "T Tperm", "T"},
    {"ConcatV2", "N*T Tidx", "T"},
    {"Pack", "N*T", "T"},
    {"Unpack", "T", "num*T"},
    {"Split", "int32 T", "num_split*T"},
    {"SplitV", "T Tlen int32", "num_split*T"},
    {"StridedSlice", "T Index Index Index", "T"},
    {"Slice", "T Index Index", "T"},
    {"GatherV2", "Tparams Tindices Taxis", "Tparams"},
    {"GatherNd", "Tparams Tindices", "Tparams"},
    {"ScatterNd", "Tindices T Tindices", "T"},
    {"SparseToDense", "Tindices Tindices T T", "T"},
    {"PadV2", "T Tpaddings T", "T"},
    {"Pad", "T Tpaddings", "T"},
    {"MirrorPad", "T Tpaddings", "T"},
    {"ReverseV2", "T Tidx", "T"},
    {"Tile", "T Tmultiples", "T"},
    {"BroadcastTo", "T Tidx", "T"},
    {"BroadcastArgs", "T T", "T"},
    {"DepthToSpace", "T", "T", "image"},
    {"SpaceToBatchND", "T Tblock_shape Tpaddings", "T"},
    {"BatchToSpaceND", "T Tblock_shape Tcrops", "T"},
    {"Shape", "T", "out_type"},
    {"Rank", "T", "int32"},
    {"Fill", "index_type T", "T"},
    {"Range", "Tidx Tidx Tidx", "Tidx"},
    {"ZerosLike", "T", "T"},
    // images and matrices
    {"ResizeNearestNeighbor", "T int32", "T"},
    {"ResizeBilinear", "T int32", "float32"},
    {"Conv2D", "T T", "T", "window"},
    {"DepthwiseConv2dNative", "T T", "T", "window"},
    {"Conv2DBackpropInput", "int32 T T", "T", "window"},
    {"AvgPool", "T", "T", "image"},
    {"MaxPool", "T", "T", "image"},
    {"BiasAdd", "T T", "T", "image"},
    {"MatMul", "T T", "T"},
    {"BatchMatMulV2", "T T", "T"},
    {"_FusedConv2D", "T T num_args*T", "T", "window"},
    {"FusedDepthwiseConv2dNative", "T T num_args*T", "T", "window"},
    {"_FusedMatMul", "T T num_args*T", "T"},
};

}  // namespace

const TfjsOp* find_tfjs_op(const OnnxNode& n) {
  if (n.domain != kOnnxTf && n.op != "Identity") return nullptr;
  const auto* const row = std::find_if(std::begin(kTfjsOps), std::end(kTfjsOps),
                                       [&](const TfjsOp& o) { return o.name == n.op; });
  return row == std::end(kTfjsOps) ? nullptr : row;
}

bool fits_tfjs_op(const OnnxNode& n, const TfjsOp& op) {
  const auto fits = [](const std::vector<std::string>& values, std::string_view types) {
    const auto fixed = static_cast<size_t>(std::count(types.begin(), types.end(), ' '));
    const bool any = types.find('*') != types.npos;
    return !std::count(values.begin(), values.end(), "") &&
           (any ? values.size() > fixed : values.size() == fixed + 1);
  };
  return fits(n.inputs, op.in) && fits(n.outputs, op.out);
}

// ---- fused ops

namespace {

/// What follows a convolution or a matmul, as long as nothing else reads what is between.
class TfjsFusion {
 public:
  explicit TfjsFusion(OnnxGraph& g) : graph_(g) {
    for (size_t i = 0; i < g.nodes.size(); ++i)
      for (const std::string& name : g.nodes[i].inputs) readers_[name].push_back(i);
    for (const OnnxPort& p : g.outputs) readers_[p.name].resize(2, g.nodes.size());
    for (const auto& [name, v] : g.initializers)
      if (v.is_tensor() && v.shape().size() == 1) vectors_.insert(name);
  }

  void run() {
    std::vector<bool> gone(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const OnnxNode& first = graph_.nodes[i];
      if (first.op != "Conv2D" && first.op != "DepthwiseConv2dNative" && first.op != "MatMul")
        continue;
      const size_t bias = reader(i);
      if (bias == graph_.nodes.size() || graph_.nodes[bias].op != "BiasAdd") continue;
      const size_t next = reader(bias);
      const bool activated = next < graph_.nodes.size() && takes(first.op, graph_.nodes[next]);
      const size_t last = activated ? next : bias;
      graph_.nodes[last] = fused(first, graph_.nodes[bias], graph_.nodes[last]);
      gone[i] = true;
      if (activated) gone[bias] = true;
    }
    std::vector<OnnxNode> left;
    for (size_t i = 0; i < gone.size(); ++i)
      if (!gone[i]) left.push_back(std::move(graph_.nodes[i]));
    graph_.nodes = std::move(left);
  }

 private:
  /// The one node whose first input node i gives, or none.
  size_t reader(size_t i) const {
    const auto at = readers_.find(graph_.nodes[i].outputs[0]);
    if (at == readers_.end() || at->second.size() != 1) return graph_.nodes.size();
    const OnnxNode& n = graph_.nodes[at->second[0]];
    return n.inputs[0] == graph_.nodes[i].outputs[0] ? at->second[0] : graph_.nodes.size();
  }
  bool takes(std::string_view first, const OnnxNode& activation) const {
    if (activation.op == "LeakyRelu") return first != "DepthwiseConv2dNative";  // has no alpha
    if (activation.op == "Prelu") return vectors_.count(activation.inputs[1]) > 0;
    constexpr std::string_view kAll[] = {"Relu", "Relu6", "Elu", "Sigmoid"};
    return std::find(std::begin(kAll), std::end(kAll), activation.op) != std::end(kAll);
  }
  static OnnxNode fused(const OnnxNode& first, const OnnxNode& bias, const OnnxNode& last) {
    OnnxNode n = first;
    n.op = first.op == "DepthwiseConv2dNative" ? "FusedDepthwiseConv2dNative" : "_Fused" + first.op;
    n.outputs = last.outputs;
    n.inputs.push_back(bias.inputs[1]);
    OnnxAttribute steps;
    steps.name = "fused_ops";
    steps.kind = OnnxAttribute::strings;
    steps.text_list = {"BiasAdd"};
    if (&last != &bias) steps.text_list.push_back(last.op);
    if (last.op == "Prelu") n.inputs.push_back(last.inputs[1]);
    if (last.op == "LeakyRelu") {
      n.attributes.push_back(*last.find("alpha"));
      n.attributes.back().name = "leakyrelu_alpha";
    }
    n.attributes.push_back(std::move(steps));
    return n;
  }

  OnnxGraph& graph_;
  std::map<std::string, std::vector<size_t>> readers_;
  std::set<std::string> vectors_;  ///< constants of one dimension
};

}  // namespace

void fuse_tfjs_nodes(OnnxGraph& g) { TfjsFusion(g).run(); }

}  // namespace tandem::onnx
