// SPDX-License-Identifier: Apache-2.0
// The interpreter's frame: the values of one graph (or function body) while it runs.
#pragma once

#include <array>

#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/onnx/import/rows.h"

namespace tandem::onnx {

struct OnnxFrame {
  const OnnxGraph& graph;
  /// Attributes of the function call that is being run.
  const std::map<std::string, const OnnxAttribute*>* bindings = nullptr;
  int depth = 0;
  std::vector<OnnxValue> slots;
};

/// Functions of a model by domain, name and overload; of equal ones the last.
using OnnxFunctionTable = std::map<std::array<std::string_view, 3>, const OnnxFunction*>;
OnnxFunctionTable onnx_function_table(const std::vector<OnnxFunction>& functions);

/// Resolve names to slots in `g` and all graphs inside, find what runs each node, and order the
/// nodes. Throws Format for a name that is never defined or defined twice, and for a cycle.
void prepare_onnx_graph(OnnxGraph& g, const std::map<std::string, int64_t>& opsets,
                        const OnnxFunctionTable& functions);
/// A warning for every domain of which the model asks for an opset beyond the known ones.
void warn_of_opsets(const OnnxModelProto& model, const std::string& what);
/// Slots of its graph that a prepared node reads, also from the graphs in its attributes.
std::vector<int> onnx_reads(const OnnxNode& node);
/// Turn the weights into inputs and put the nodes that support it into training mode, before
/// prepare_onnx_graph(); returns the weights. See OnnxLoadOptions::trainable.
std::vector<std::pair<std::string, OnnxValue>> make_trainable(OnnxModelProto& model);
/// Run `g`; `around` is the frame of the enclosing graph, or nullptr.
std::vector<OnnxValue> run_onnx_graph(const OnnxGraph& g, std::span<const OnnxValue> inputs,
                                      OnnxFrame* around,
                                      const std::map<std::string, const OnnxAttribute*>* bindings,
                                      int depth);
/// Is input i part of the model, the same in every run? Constants of enclosing graphs count as not.
bool is_of_model(const OnnxCall& call, size_t i);
/// Run one node of a frame. Graphs and nodes are charged to the open Budget.
void run_onnx_node(OnnxFrame& frame, const OnnxNode& node);

/// Suspends the running trace while it lives: ops run immediately.
class OutsideTrace {
 public:
  OutsideTrace() : slow_(context().slow), trace_(context().trace) {
    context().slow &= ~static_cast<uint32_t>(kTracing);
    context().trace = nullptr;
  }
  ~OutsideTrace() {
    context().slow = slow_;
    context().trace = trace_;
  }
  OutsideTrace(const OutsideTrace&) = delete;
  OutsideTrace& operator=(const OutsideTrace&) = delete;

 private:
  uint32_t slow_;
  Trace* trace_;
};

}  // namespace tandem::onnx
