// SPDX-License-Identifier: Apache-2.0
// A GraphDef and what a SavedModel puts around it, as plain structs with the fields of TensorFlow's
// .proto files. Attributes are those of ONNX nodes (model.h): types have ONNX's numbers, shapes are
// lists of sizes with -1 for open ones, functions are named by texts.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/onnx/model.h"

namespace tandem::onnx {

struct TfNode {
  std::string name, op;
  std::vector<std::string> inputs;  ///< "node", "node:1", in functions "node:output:1"; "^node"
  std::vector<OnnxAttribute> attributes;
  const OnnxAttribute* find(std::string_view attribute) const;
};

/// An argument of a function.
struct TfArgument {
  std::string name;
  OnnxType type = OnnxType::undefined;  ///< undefined for resources, too
  bool is_resource = false;
};

struct TfFunction {
  std::string name;
  std::vector<TfArgument> inputs, outputs;
  std::vector<TfNode> nodes;
  std::map<std::string, std::string> results;  ///< output argument to the value it returns
  std::vector<std::string> control_results;    ///< nodes whose effects count
};

struct TfGraph {
  std::vector<TfNode> nodes;
  std::map<std::string, TfFunction> functions;
};

/// A tensor that a signature names.
struct TfPort {
  std::string key, tensor;  ///< "x", "serving_default_x:0"
  OnnxTypeSpec type;
};

struct TfSignature {
  std::vector<TfPort> inputs, outputs;  ///< sorted by key
};

struct TfSavedModel {
  TfGraph graph;
  std::map<std::string, TfSignature> signatures;
  std::string version;     ///< of TensorFlow
  std::string restore_op;  ///< the node that restores the variables; "": there is none
  std::string file_name;   ///< the tensor that takes the name of their file
};

/// Parse a GraphDef, or a saved_model.pb (its graph for serving). Throw Format.
TfGraph parse_tf_graph(std::string_view bytes, const std::string& what);
TfSavedModel parse_tf_saved_model(std::string_view bytes, const std::string& what);
/// Whether bytes look like a GraphDef: every field is a node, the versions or the library.
bool is_tf_graph(std::string_view bytes);

}  // namespace tandem::onnx
