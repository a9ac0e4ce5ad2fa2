// SPDX-License-Identifier: Apache-2.0
// Graphs of nodes of TensorFlow's ops as the files of a TensorFlow.js model. The ops are a table:
// only those that TensorFlow.js has, with the types of their inputs and results.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/onnx/model.h"

namespace tandem::onnx {

/// An op of TensorFlow.js. Types are names of attributes, "T", or types themselves, "bool"; "N*T":
/// as many as the attribute N says; "*T": the op has no such attribute.
struct TfjsOp {
  std::string_view name, in, out;
  std::string_view more = "";  ///< "image": it has a data_format; "window": dilations, too
};
/// nullptr: TensorFlow.js does not have the node's op.
const TfjsOp* find_tfjs_op(const OnnxNode& n);
/// Whether the node has the inputs and results of the op.
bool fits_tfjs_op(const OnnxNode& n, const TfjsOp& op);

/// Puts biases and activations into the convolutions and matmuls that they follow.
void fuse_tfjs_nodes(OnnxGraph& g);

/// The files of a model: what model.json says, and the bytes of its shards.
struct TfjsFiles {
  std::string json;
  std::vector<std::pair<std::string, std::string>> shards;  ///< names and contents
  size_t nodes = 0;                                         ///< without constants
  std::map<std::string, std::string> keys;  ///< of the model's ports: what the file calls them
};
/// What a file of weights is called, from 1 on.
std::string tfjs_shard_name(const std::string& prefix, uint64_t i, uint64_t count);
/// `weights`: "", or what floats are stored as, "float16", "uint8", "uint16". `prefix`: of the
/// shards' names. Throws Unsupported for element types that TensorFlow.js does not have.
TfjsFiles write_tfjs_graph(OnnxModelProto model, const std::string& weights, uint64_t shard_bytes,
                           const std::string& prefix);

/// A constant's entry in the manifest and the bytes that stand for it.
struct TfjsStored {
  std::string dtype, quantization;  ///< "float32"; "", or what it is stored as
  double scale = 0, min = 0;        ///< of whole codes
  std::string bytes;
};
/// Floats become f32, whole numbers i32, which has to hold them.
TfjsStored store_tfjs_weight(const std::string& name, const OnnxValue& v,
                             const std::string& weights);

}  // namespace tandem::onnx
