// SPDX-License-Identifier: Apache-2.0
// A request of the Open Inference Protocol V2 as it was asked, by REST or gRPC, and what is checked
// of it either way.
#pragma once

#include <span>

#include "tandem/serve/server_internal.h"
#include "tandem/serve/shared_memory_internal.h"

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
  std::shared_ptr<SharedAsk> shared = nullptr;       ///< in the place of both
};
struct AskedOutput {
  std::string name;
  std::optional<bool> binary;
  int64_t classes = 0;  ///< asked for in the place of the numbers; 0: none
  std::shared_ptr<SharedAsk> shared = nullptr;
};
struct Asked {
  std::string id;
  RunTerms terms;
  bool binary = false;  ///< outputs that do not say otherwise
  std::vector<AskedInput> inputs;
  std::vector<AskedOutput> outputs;
};

/// An output that is answered, and how.
struct WantedOutput {
  size_t at = 0;  ///< of the model's
  bool binary = false;
  int64_t classes = 0;
  std::optional<SharedRange> shared = {};
};
/// The tensor of an answer: the model's, or of classes BYTES.
struct AnsweredOutput {
  std::string_view name, datatype;
  Tensor numbers = {};                  ///< undefined for BYTES
  std::vector<std::string> texts = {};  ///< the elements of BYTES
  std::vector<int64_t> shape = {};      ///< of those
  std::string own = {};                 ///< those in their binary form
  std::span<const int64_t> sizes() const { return numbers.defined() ? numbers.sizes() : shape; }
  std::string_view bytes() const;  ///< as binary data
};

/// A tensor as metadata and configs describe it.
struct V2Port {
  std::string name;
  const char* datatype;
  int config;  ///< the number of its type in Triton's ModelConfig
  std::vector<int64_t> shape;
  bool optional = false;
  const char* config_name() const;  ///< "FP32", and "STRING" of BYTES
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
/// The elements of a shape. Throws Refusal for a missing one and beyond kMostElements.
int64_t count_of(const AskedInput& in);
/// The inputs in the model's order. Throws Refusal for unknown, missing and repeated ones, other
/// datatypes, and data that does not fill its shape.
std::vector<Tensor> tensors_of(const Asked& asked, const std::vector<ModelPort>& ports,
                               const SharedMemory& shared);
/// Where in shared memory an input lies. Throws Refusal, also where it has data besides.
SharedRange range_of(const AskedInput& in, const SharedMemory& shared);
/// What the parameters of shared memory begin with.
constexpr std::string_view kSharedPrefix = "shared_memory_";
/// "'x', 'y'" for messages.
std::string known_names(const std::vector<ModelPort>& ports);

// ---- texts and files (v2_bytes.cpp)
constexpr const char* kBytes = "BYTES";
/// Append an element in the binary form of BYTES: its length in four bytes before it.
void add_element(std::string& to, std::string_view element);
/// The elements of an input of BYTES: views of the request, or of `room`. Throws Refusal.
std::vector<std::string_view> bytes_elements(const AskedInput& in, const SharedMemory& shared,
                                             std::string& room);
/// The input for texts or files that a version takes in the place of its tensors; "" for none.
std::string bytes_input_of(const ModelVersion& v);
/// Inputs and outputs as metadata has them, with the one for texts or files.
std::vector<V2Port> v2_inputs(const ModelVersion& v);
std::vector<V2Port> v2_outputs(const ModelVersion& v);
/// Instances or inputs of TensorFlow Serving's JSON that are texts or {"b64": ...}, alone or under
/// the name `input`, as a request of V2; nothing where they are anything else or `input` is "".
std::optional<Asked> bytes_of_tensorflow(std::string_view json, const std::string& input);
/// Prepare the inputs and run the model, as run_inputs() does. What takes long is done beside the
/// loop: then `asked` is copied, and errors come as results. Throws Refusal.
void run_asked(const HttpExchangePtr& exchange, const ServerContext& server,
               const ModelVersionPtr& v, const Asked& asked, const RunTerms& terms,
               std::function<void(JobResult)> done);

// ---- answers (v2_outputs.cpp)
/// Which outputs are answered, in which order and how. Throws Refusal.
std::vector<WantedOutput> wanted_outputs(const Asked& asked, const ModelVersion& v,
                                         const SharedMemory& shared);
/// An output of a result; one that goes to shared memory is written there. Throws Refusal.
AnsweredOutput answered_output(const ModelVersion& v, const WantedOutput& wanted,
                               const JobResult& r);
/// "tandem_onnx", as Triton writes "onnxruntime_onnx".
std::string platform_of(const ModelVersion& v);
/// The largest batch; 0 where requests are not batched.
int64_t most_rows_of(const ModelVersion& v);
/// What the server has of Triton's extensions.
std::vector<std::string> v2_extensions(const ServerContext& server);
/// /v2/systemsharedmemory and /v2/cudasharedmemory (v2_shared.cpp).
void shared_memory_v2(Call& call);
/// There are never any regions of CUDA: refuses to register one, and a name of one.
[[noreturn]] void refuse_cuda();
void refuse_cuda_region(const std::string& name);

}  // namespace tandem::serve
