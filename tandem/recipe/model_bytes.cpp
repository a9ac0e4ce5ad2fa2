// SPDX-License-Identifier: Apache-2.0
#include "tandem/recipe/model_bytes.h"

#include <filesystem>

#include "tandem/base/files/private_folder.h"
#include "tandem/onnx/tensorflow.h"
#include "tandem/onnx/tflite.h"
#include "tandem/recipe/graph_model_internal.h"

namespace tandem::recipe {
namespace {

/// A file with these bytes while it lives; what was mapped of it stays.
class BytesFile {
 public:
  explicit BytesFile(std::string_view bytes) : folder_(PrivateFolder::temporary("model")) {
    TD_CHECK(folder_, Io, "the model needs a temporary file: {}", folder_.problem());
    folder_.write("model", bytes);
  }
  ~BytesFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_.path(), ignored);
  }
  BytesFile(const BytesFile&) = delete;
  BytesFile& operator=(const BytesFile&) = delete;
  std::string path() const { return folder_.path() + "/model"; }

 private:
  PrivateFolder folder_;
};

// .tflite, HDF5 and zip have readers that open files.
bool is_read_from_a_file(std::string_view bytes) {
  return onnx::is_tflite_model(bytes) || bytes.starts_with("\x89HDF\r\n") ||
         bytes.starts_with("PK\x03\x04");
}

}  // namespace

LoadedModel load_model_bytes(std::string bytes, const ModelSource& a) {
  TD_CHECK(a.weights.empty(), Value, "'{}' holds its own weights", a.model);
  const onnx::OnnxLoadOptions options{.signature = a.signature, .device = a.device};
  if (!is_read_from_a_file(bytes))
    return graph_model(onnx::OnnxModel::parse(std::move(bytes), a.model, options), a);
  const BytesFile file(bytes);
  try {
    TD_CHECK(onnx::is_tensorflow_model(file.path()), Format, "'{}' is not a model", file.path());
    return graph_model(onnx::OnnxModel::load(file.path(), options), a);
  } catch (const Error& e) {  // the file's name means nothing to the caller
    std::string text = e.message();
    for (size_t at = 0; (at = text.find(file.path(), at)) != text.npos; at += a.model.size())
      text.replace(at, file.path().size(), a.model);
    throw Error(e.kind(), text, e.hint(), e.op(), e.loc(), e.layer());
  }
}

}  // namespace tandem::recipe
