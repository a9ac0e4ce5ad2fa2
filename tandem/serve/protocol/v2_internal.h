// SPDX-License-Identifier: Apache-2.0
// A request of the Open Inference Protocol V2 as it was asked, by REST or gRPC, and what is checked
// of it either way.
#pragma once

#include "tandem/serve/server_internal.h"

namespace tandem::serve {

constexpr size_t kMostTensors = 256, kMostRank = 8;
constexpr int64_t kMostElements = int64_t{1} << 31;

struct AskedInput {
  std::string name, datatype;
  std::optional<std::vector<int64_t>> shape;
  std::string_view data;                             ///< JSON
  Tensor values = {};                                ///< of `data`, if they are known already
  std::optional<int64_t> binary;                     ///< bytes
  std::string_view bytes;                            ///< of them
  std::shared_ptr<const std::string> own = nullptr;  ///< where they lie, if not in the request
};
struct AskedOutput {
  std::string name;
  std::optional<bool> binary;
};
struct Asked {
  std::string id;
  RunTerms terms;
  bool binary = false;  ///< outputs that do not say otherwise
  std::vector<AskedInput> inputs;
  std::vector<AskedOutput> outputs;
};

/// A dtype as V2 names it.
struct V2Type {
  DType dtype;
  const char* name;
  int config;         ///< its number in Triton's ModelConfig
  uint32_t contents;  ///< the field of gRPC's InferTensorContents with its values; 0: bytes alone
};
/// nullptr for a name that V2 does not have, and for types that no tensor has.
const V2Type* v2_type(std::string_view name);
const V2Type& v2_type(DType dtype);

/// Append a size to an input's shape. Throws Refusal for one that no tensor has.
void add_size(std::vector<int64_t>& shape, int64_t size, const std::string& name);
/// The inputs in the model's order. Throws Refusal for unknown, missing and repeated ones, other
/// datatypes, and data that does not fill its shape.
std::vector<Tensor> tensors_of(const Asked& asked, const std::vector<ModelPort>& ports);
/// Which outputs are answered, in which order, as bytes or as JSON. Throws Refusal.
std::vector<std::pair<size_t, bool>> wanted_outputs(const Asked& asked,
                                                    const std::vector<ModelPort>& ports);
/// "tandem_onnx", as Triton writes "onnxruntime_onnx".
std::string platform_of(const ModelVersion& v);
/// The largest batch; 0 where requests are not batched.
int64_t most_rows_of(const ModelVersion& v);
constexpr const char* kV2Extensions[] = {"binary_tensor_data", "model_repository",
                                         "model_configuration", "statistics", "sequence"};

}  // namespace tandem::serve
