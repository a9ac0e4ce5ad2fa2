// SPDX-License-Identifier: Apache-2.0
// OnnxBuilder: a model under construction. Rows of ops are exported by functions over an
// OnnxExportCall (rows.h), which add nodes here and return the names of their results.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tandem/base/function_ref.h"
#include "tandem/graph/trace.h"
#include "tandem/onnx/import/rows.h"

namespace tandem::onnx {

// ---- attributes
OnnxAttribute onnx_int(const char* name, int64_t v);
OnnxAttribute onnx_float(const char* name, double v);
OnnxAttribute onnx_text(const char* name, std::string v);
OnnxAttribute onnx_ints(const char* name, std::vector<int64_t> v);
OnnxAttribute onnx_tensor(const char* name, const Tensor& v);
OnnxAttribute onnx_graph(const char* name, std::shared_ptr<OnnxGraph> g);
/// A list of numbers; throws Unsupported for a symbolic entry, naming `what`.
std::vector<int64_t> onnx_numbers(const IntList& list, const char* what);

using Names = std::vector<std::string>;
using OnnxAttributes = std::vector<OnnxAttribute>;

class OnnxBuilder {
 public:
  explicit OnnxBuilder(int opset);
  int opset() const { return opset_; }

  // ---- nodes of the current graph
  // Add a node; returns the names of its results. An empty input name means absent.
  Names add(const char* op, Names in, size_t n_out, OnnxAttributes attributes = {},
            const char* domain = "");
  /// The same for one result.
  std::string node(const char* op, Names in, OnnxAttributes attributes = {}) {
    return add(op, std::move(in), 1, std::move(attributes))[0];
  }
  std::string cast(const std::string& x, DType from, DType to);
  /// Reshape to `to`, which may be symbolic.
  std::string reshape(const std::string& x, const Shape& to);
  std::string expand(const std::string& x, const Shape& to);
  std::string permute(const std::string& x, const std::vector<int64_t>& perm);
  /// One of the ONNX reductions over non-negative dims; over all if the list is empty.
  std::string reduce(const char* op, const std::string& x, const std::vector<int64_t>& dims,
                     bool keepdim);
  /// Along `axis`: elements start, start + step, ... before `end`.
  std::string slice(const std::string& x, int64_t axis, Dim start, Dim end, int64_t step = 1);

  // ---- constants, deduplicated
  std::string constant(const Tensor& v) { return constant(OnnxValue(v.contiguous())); }
  std::string constant(const OnnxValue& v);
  /// The constant of that name; nullptr: it is none.
  const OnnxValue* constant_named(const std::string& name) const;
  std::string ints(const std::vector<int64_t>& v);
  /// A 0-d tensor.
  std::string number(const Scalar& v, DType dtype);
  /// Sizes as a vector of int64, computed from the inputs where they are symbolic.
  std::string dims(const Shape& sizes);
  std::string dim(Dim d) { return dims(Shape{d}); }

  // ---- graphs
  // Declare that dimension `axis` of the value `name` is the symbol `d`.
  void define_symbol(Dim d, const std::string& name, int axis);
  /// Add the nodes of `g`, whose inputs are these values; returns the names of its outputs and of
  /// other requested values.
  Names inline_graph(const Graph& g, const Names& inputs);
  /// The nodes that `f` adds, as a graph for an attribute.
  std::shared_ptr<OnnxGraph> subgraph(FunctionRef<void(OnnxGraph&)> f);
  /// An input or output of the current graph.
  OnnxPort port(const std::string& name, const Spec& spec) const;

  /// A unique name: `wanted` if that is free.
  std::string unique(const std::string& wanted);
  void reserve(const std::string& name) { used_.insert(name); }
  /// Rename the value `from` to `to` in all nodes.
  void rename(const std::string& from, const std::string& to);

  OnnxModelProto model;
  bool random = false;           ///< a node draws random numbers
  std::set<std::string> custom;  ///< rows without an ONNX form

  /// Values of the nodes of a graph being added, by index and output.
  using Values = std::vector<Names>;
  /// Add the nodes of `g` that lead to `wanted`, in order.
  void add_nodes(const Graph& g, std::span<const Tensor> wanted, Values& values);

 private:
  void add_node(const Node& n, const std::vector<char>& wants, Values& values);
  std::string dim_value(Dim d);
  OnnxGraph& graph() { return *stack_.back(); }

  int opset_;
  std::vector<OnnxGraph*> stack_;
  std::set<std::string> used_;
  std::map<std::string, int> counts_;
  std::map<std::string, std::string> constants_, dims_;
  std::map<int64_t, std::string> dim_values_;
  std::map<std::string, std::pair<std::string, int>> symbols_;
  std::string scope_;
};

/// A call of one of our ops that becomes ONNX nodes.
struct OnnxExportCall {
  OnnxBuilder& b;
  const OpDef& op;
  const void* attrs;
  struct In {
    std::string name;  ///< "" where absent or a number
    Spec spec;
    bool is_number = false;
    Scalar number;
    bool present() const { return is_number || !name.empty(); }
  };
  std::vector<In> in;
  std::vector<Spec> out;    ///< of every output that the node has
  std::vector<char> wants;  ///< which of them are read
  Names result;

  template <class A>
  const A& get_attrs() const {
    return *static_cast<const A*>(attrs);
  }
  bool has(size_t i) const { return i < in.size() && in[i].present(); }
  bool wanted(size_t i) const { return i < wants.size() && wants[i]; }
  const Shape& shape(size_t i) const { return in[i].spec.shape; }
  DType dtype(size_t i) const { return in[i].spec.dtype; }
  int rank(size_t i) const { return in[i].spec.rank(); }
  /// The operand's name; a number becomes a constant of `as`.
  std::string x(size_t i, DType as) const;
  std::string x(size_t i) const;
  /// The operand, or "" where it is absent.
  std::string maybe(size_t i) const { return has(i) ? x(i) : std::string(); }
  void set(size_t i, std::string name) { result[i] = std::move(name); }
  /// Set all outputs by running `f` on symbolic tensors (absent and numeric operands: undefined)
  /// and exporting what it recorded.
  bool by_ops(FunctionRef<std::vector<Tensor>(std::span<const Tensor> x)> f);
  int axis(int64_t dim, size_t i = 0) const;
};

/// The row's expression as nodes; false if a function in it has no ONNX form.
bool export_expression(OnnxExportCall& c);
/// A node of the domain "tandem" that names the row.
void export_custom(OnnxExportCall& c);
/// The exporter of a row, or nullptr.
OnnxExport find_onnx_export(const OpDef& op);

}  // namespace tandem::onnx
