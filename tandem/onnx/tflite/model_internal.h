// SPDX-License-Identifier: Apache-2.0
// A .tflite file as plain structs: subgraphs of tensors and operators, what their buffers hold, the
// signatures. tensorflow/compiler/mlir/lite/schema/schema.fbs
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/io/flatbuffer.h"
#include "tandem/onnx/import/value.h"

namespace tandem::onnx {

/// How codes stand for numbers: (code - zero) * scale, one pair or one for each entry of `axis`.
struct TfliteScales {
  std::vector<float> scale;
  std::vector<int64_t> zero;  ///< as many as scales
  int64_t axis = 0;
  bool operator==(const TfliteScales&) const = default;
};

struct TfliteTensor {
  std::string name;
  int64_t file_type = 0;  ///< the schema's number
  OnnxType type = OnnxType::undefined;
  std::vector<int64_t> shape;      ///< as the file was written
  std::vector<int64_t> signature;  ///< -1: open; empty: all are as in `shape`
  bool has_shape = false;
  std::string_view data;  ///< of a constant
  TfliteScales scales;    ///< of codes; empty for other tensors
  bool is_variable = false;
  io::FlatTable sparsity;
  /// Whether it holds codes of real numbers.
  bool is_quantised() const;
};

struct TfliteOp {
  int64_t code = 0;    ///< BuiltinOperator
  std::string custom;  ///< the name of an op that is not built in
  int64_t version = 1;
  std::vector<int32_t> in, out;        ///< tensors; -1: absent
  std::vector<int32_t> intermediates;  ///< tensors that only say scales
  io::FlatTable options, options2;
  std::string_view custom_options;
};

struct TfliteGraph {
  std::string name;
  std::vector<TfliteTensor> tensors;
  std::vector<int32_t> inputs, outputs;
  std::vector<TfliteOp> ops;
};

struct TfliteSignature {
  std::string key;
  std::vector<std::pair<std::string, uint32_t>> inputs, outputs;  ///< names and tensors
  uint32_t graph = 0;
};

struct TfliteModel {
  std::string description;
  std::vector<TfliteGraph> graphs;
  std::vector<TfliteSignature> signatures;
  std::vector<std::pair<std::string, std::string_view>> metadata;
};

/// The signature of that name; "": "serving_default", else the first subgraph's or nullptr. Throws
/// Value where there is none.
const TfliteSignature* find_tflite_signature(const TfliteModel& m, const std::string& wanted,
                                             const std::string& what);
/// The element type of the schema's number; undefined for variants and resources.
OnnxType tflite_type(int64_t number);
/// Throws Format where the file is broken. What it returns points into the document.
TfliteModel parse_tflite(const io::FlatDocument& document);
/// How many numbers it has. Throws Format beyond 2^34.
uint64_t tflite_count(const TfliteTensor& t, const std::string& what);
/// The values of a constant; sparse ones become dense. Throws Format.
OnnxValue tflite_constant(const TfliteTensor& t, const std::string& what);

}  // namespace tandem::onnx
