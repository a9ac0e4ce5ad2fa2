// SPDX-License-Identifier: Apache-2.0
// From a GraphDef to the importer's graph (model.h): functions are inlined, variables become values
// (a variable that the model writes becomes a state, an input with an output), If and While become
// ONNX's If and Loop, and every other node a node of the domain "tf", which a row runs. Nodes run
// in an order that respects TensorFlow's control inputs, so reads see the writes before them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tandem/base/function_ref.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/onnx/tensorflow/graph_def_internal.h"

namespace tandem::onnx {

/// An output of a node: a value by its name in the imported graph, or a handle of a variable.
struct TfValue {
  std::string name;
  int variable = -1;
};

/// The nodes of a graph or a function while they are being flattened.
struct TfBody {
  const std::vector<TfNode>& nodes;
  std::string scope;                     ///< before the names of its nodes
  std::map<std::string, TfValue> given;  ///< arguments, and nodes whose values are given
  std::unordered_map<std::string_view, size_t> index = {};
  std::vector<char> done = {};
  std::vector<size_t> outputs = {};  ///< of a node, as far as they are read
  std::vector<std::vector<TfValue>> values = {};
};

/// Of a graph without one: its placeholders go in, and what no node reads comes out.
TfSignature signature_of_graph(const TfGraph& g, const std::string& what);

class TfFlattener {
 public:
  TfFlattener(const TfGraph& graph, const io::TensorBundle* bundle, std::string what)
      : graph_(graph), bundle_(bundle), what_(std::move(what)) {}

  /// The ports' names are given out before all others; call it first.
  void name_ports(const TfSignature& signature);
  /// Runs the node that restores the variables; call it next.
  void restore(const TfSavedModel& saved);
  /// The graph from a signature's inputs to its outputs. Throws Format for a broken graph,
  /// Unsupported with a list of all unknown ops.
  OnnxModelProto run(const TfSignature& signature);

 private:
  struct Variable {
    std::string name;  ///< unique
    OnnxTypeSpec type;
    std::string value;        ///< what it holds now; "": nothing
    std::string first;        ///< before the run
    std::string tensor;       ///< of the checkpoint; "": none
    bool is_initial = false;  ///< the first value is an initializer of the graph
    bool written = false;
    bool is_reference = false;  ///< of the old kind: whoever takes it reads it
  };
  /// A node that is not an op of its own.
  using Handler = void (TfFlattener::*)(TfBody&, const TfNode&, std::vector<TfValue>&,
                                        std::vector<TfValue>&);
  static Handler find_handler(std::string_view op);

  // ---- bodies (flatten.cpp)
  void open(TfBody& b) const;
  /// Runs what `refs` and the nodes `effects` need; returns the values of `refs`.
  std::vector<TfValue> run_body(TfBody& b, const std::vector<std::string>& refs,
                                const std::vector<std::string>& effects);
  std::vector<size_t> order(const TfBody& b, const std::vector<std::string>& refs,
                            const std::vector<std::string>& effects) const;
  void run_node(TfBody& b, size_t i);
  TfValue value_of(const TfBody& b, const std::string& ref, const TfNode* reader) const;
  /// The node and output that a reference names; false if it is an argument.
  bool resolve(const TfBody& b, const std::string& ref, size_t& node, size_t& output) const;
  void emit(TfBody& b, const TfNode& n, const std::vector<TfValue>& in, std::vector<TfValue>& out);
  std::vector<TfValue> call(const std::string& function, std::vector<TfValue> arguments,
                            const std::string& scope);
  [[noreturn]] void fail(const std::string& why) const;

  // ---- the imported graph
  std::string unique(const std::string& wanted);
  OnnxGraph& graph() { return *stack_.back(); }
  /// The name of a value as an input of a node: what was restored becomes an initializer.
  std::string use(const TfValue& v, const std::string& reader);
  std::string constant(const std::string& wanted, OnnxValue v);
  std::string add(const char* op, const char* domain, std::vector<std::string> inputs,
                  const std::string& wanted, std::vector<OnnxAttribute> attributes = {});
  void check_known() const;
  void add_states();

  // ---- variables and calls (flatten_ops.cpp)
  int variable(const std::string& key, const TfNode& n);
  Variable& at(const TfValue& handle, const TfNode& n);
  std::string read(Variable& v);
  void no_value(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void pass(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void constant_node(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void placeholder(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void handle(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void read_variable(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void assign(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void update(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void gather_variable(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void restored(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void is_initialized(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void call_function(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);

  // ---- control flow (flatten_control.cpp)
  void if_node(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void case_node(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  void while_node(TfBody&, const TfNode&, std::vector<TfValue>&, std::vector<TfValue>&);
  using Branch = FunctionRef<std::vector<TfValue>()>;
  std::vector<TfValue> choose(const TfNode& n, const std::string& scope,
                              const std::string& condition, Branch yes, Branch no);
  std::vector<TfValue> case_from(const TfNode& n, const std::string& scope,
                                 const std::string& index, size_t k,
                                 const std::vector<TfValue>& arguments);
  std::vector<std::string> variable_values() const;
  void set_values(const std::vector<std::string>& values);
  bool writes(const std::string& function);
  const TfFunction& function(const std::string& name) const;
  std::string function_of(const TfNode& n, const char* attribute) const;

  const TfGraph& graph_;
  const io::TensorBundle* bundle_;
  std::string what_;
  OnnxModelProto model_;
  std::vector<OnnxGraph*> stack_;
  std::vector<Variable> variables_;
  std::map<std::string, int> variable_at_;
  std::map<std::string, size_t> constant_at_;  ///< initializers by name
  std::map<std::string, bool> writes_;
  std::set<std::string> used_;
  std::vector<std::string> input_names_, output_names_;
  std::map<std::string, std::string> unknown_;  ///< ops without a row, by a node's first output
  int depth_ = 0;
  bool restoring_ = false;
};

}  // namespace tandem::onnx
