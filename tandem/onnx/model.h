// SPDX-License-Identifier: Apache-2.0
// An ONNX file as plain structs, field by field as in onnx.proto, and the parser that fills them.
// Names of values are resolved to slots afterwards (import/prepare.cpp).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/files/file.h"
#include "tandem/onnx/import/value.h"

namespace tandem::onnx {

struct OnnxGraph;
struct OnnxFunction;
struct OnnxRow;  // onnx_rows.h

}  // namespace tandem::onnx
namespace tandem {
struct OpDef;
}
namespace tandem::onnx {

/// A type as TypeProto states it.
struct OnnxTypeSpec {
  enum class Kind : uint8_t { none, tensor, sequence, optional, other };
  Kind kind = Kind::none;
  OnnxType elem = OnnxType::undefined;  ///< of a tensor, or of the contained tensors
  bool has_shape = false;
  std::vector<int64_t> dims;                   ///< -1: not a number
  std::vector<std::string> dim_names;          ///< "" if unnamed
  std::shared_ptr<const OnnxTypeSpec> inside;  ///< of a sequence or optional
};

struct OnnxAttribute {
  enum Kind : uint8_t {
    none = 0,
    f = 1,
    i = 2,
    s = 3,
    t = 4,
    g = 5,
    floats = 6,
    ints = 7,
    strings = 8,
    tensors = 9,
    graphs = 10,
    sparse = 11,
    type = 13,
  };
  std::string name;
  std::string ref;  ///< in a function: the name of the function's attribute to substitute
  Kind kind = none;
  float float_value = 0;
  int64_t int_value = 0;
  std::string text;
  std::vector<float> float_list;
  std::vector<int64_t> int_list;
  std::vector<std::string> text_list;
  OnnxValue tensor;
  std::vector<OnnxValue> tensor_list;
  std::vector<std::shared_ptr<OnnxGraph>> graph_list;  ///< g: one
  OnnxTypeSpec type_spec;
};

struct OnnxNode {
  std::string name, op, domain, overload;
  std::vector<std::string> inputs, outputs;
  std::vector<OnnxAttribute> attributes;
  // ---- filled in by prepare
  int64_t version = 0;                     ///< of the node's domain
  const OnnxRow* row = nullptr;            ///< the row that runs it, or
  const OpDef* direct = nullptr;           ///< the equivalent op, or
  const OnnxFunction* function = nullptr;  ///< the model's function
  std::string unread;                      ///< what it holds that nothing reads: it cannot be run
  std::vector<int> in, out;                ///< slots; -1: absent
  std::vector<int> done;                   ///< slots that no later node reads
  const OnnxAttribute* find(std::string_view name) const;
};

struct OnnxPort {
  std::string name;
  OnnxTypeSpec type;
};

struct OnnxGraph {
  std::string name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxPort> inputs, outputs;
  std::vector<std::pair<std::string, OnnxValue>> initializers;
  // ---- filled in by prepare
  int slots = 0;
  std::vector<int> input_slots, output_slots;
  std::vector<std::pair<int, OnnxValue>> constants;
  std::vector<std::pair<int, int>> captures;  ///< slot of the enclosing graph, slot here
  std::map<std::string, int> names;
  bool keeps_all = false;  ///< keep all values: a node inspects the graph itself
};

struct OnnxFunction {
  std::string domain, name, overload;
  std::vector<std::string> attributes;  ///< without defaults
  std::vector<OnnxAttribute> default_attributes;
  std::map<std::string, int64_t> opsets;
  OnnxGraph body;
};

struct OnnxModelProto {
  int64_t ir_version = 0;
  std::string producer, domain;
  int64_t model_version = 0;
  std::map<std::string, int64_t> opsets;
  std::vector<std::pair<std::string, std::string>> metadata;
  OnnxGraph graph;
  std::vector<OnnxFunction> functions;
};

/// Parse a model. `bytes` belong to `file` if it is given: aligned weights then map the file.
/// External data is only read below `folder`. Throws Format if it is not a model or goes over a
/// limit.
TD_API OnnxModelProto parse_onnx_model(std::string_view bytes, const std::string& what,
                                       Ref<MappedFile> file = {}, const std::string& folder = "",
                                       const BudgetLimits& limits = {});
/// Parse a message holding one value: TensorProto, SequenceProto or OptionalProto, as `spec` says.
TD_API OnnxValue parse_onnx_value(std::string_view bytes, const std::string& what,
                                  const OnnxTypeSpec& spec, std::string* name = nullptr);

}  // namespace tandem::onnx
