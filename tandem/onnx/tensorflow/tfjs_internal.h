// SPDX-License-Identifier: Apache-2.0
// Models of TensorFlow.js: a model.json with the graph or Keras's layers, and files of weights
// beside it, which may be quantised.
// https://github.com/tensorflow/tfjs/blob/master/tfjs-core/src/io/types.ts
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/io/json.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/onnx/tensorflow/tensorflow_internal.h"

namespace tandem::onnx {

/// A model.json, or the folder of one.
bool is_tfjs_model(const FilePath& path);
OnnxModelProto read_tfjs_model(const FilePath& path);

/// A variable or constant as it stands in the files, after quantised ones got their values back.
struct TfjsWeight {
  std::string name;
  int type = 0;  ///< its number in TensorFlow's types.proto
  std::vector<int64_t> shape;
  std::string bytes;               ///< little-endian elements
  std::vector<std::string> texts;  ///< in their place, of a tensor of strings
};
/// All weights of a manifest, in its order. `folder`: of the files it names. Throws Format, Io;
/// Unsupported for types and quantisations that are not known.
std::vector<TfjsWeight> read_tfjs_weights(const io::Json& manifest, const std::string& folder,
                                          const std::string& what);

/// The bytes of the GraphDef that `topology` describes, with the constants' values from `weights`;
/// TensorFlow.js's fused ops become those that they stand for. Throws Format.
std::string tfjs_graph_bytes(const io::Json& topology,
                             const std::map<std::string, const TfjsWeight*>& weights,
                             const std::string& what);
/// A whole number, which protobuf's JSON writes as a text where it has 64 bits; else 0.
int64_t tfjs_integer(const io::Json& j);
/// The type that is called "float32", in graphs "DT_FLOAT"; nullptr: none is.
const io::TfTypeInfo* tfjs_type_named(std::string_view name);
/// "DT_FLOAT" or a number as types.proto has it; 0: none.
int64_t tfjs_type(const io::Json* j);

}  // namespace tandem::onnx
