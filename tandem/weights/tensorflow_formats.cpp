// SPDX-License-Identifier: Apache-2.0
// The formats of TensorFlow and Keras: checkpoints, .keras archives, HDF5. They are read only.
#include "tandem/base/budget.h"
#include "tandem/base/log.h"
#include "tandem/io/tensorflow/keras_file.h"
#include "tandem/io/tensorflow/tensor_bundle.h"
#include "tandem/weights/formats.h"

namespace tandem::weights {
namespace {

constexpr std::string_view kVariable = "/.ATTRIBUTES/VARIABLE_VALUE";

bool holds_checkpoint(std::string_view content, const FilePath&) {
  return io::TensorBundle::is_index(content);
}

// Objects of Python besides variables are stored as strings, and left out.
StateDict read_checkpoint(const FilePath& path) {
  const Budget budget(path.str(), 0);
  const io::TensorBundle bundle(path);
  StateDict out;
  size_t others = 0;
  std::string first;
  for (const auto& [name, e] : bundle.entries()) {
    if (e.type->bytes == 0) {
      if (name != "_CHECKPOINTABLE_OBJECT_GRAPH" && others++ == 0) first = name;
      continue;
    }
    std::string key = name;
    if (key.ends_with(kVariable)) key.resize(key.size() - kVariable.size());
    out[key] = bundle.tensor(name);
  }
  if (others > 0)
    log_warning("'{}': {} {} no numbers and {} left out ({}{})", path.str(), others,
                others == 1 ? "entry holds" : "entries hold", others == 1 ? "is" : "are", first,
                others > 1 ? ", ..." : "");
  return out;
}

bool holds_keras(std::string_view content, const FilePath& path) {
  return io::is_keras_archive(content, path) || io::Hdf5File::is_hdf5(content);
}
StateDict read_keras(const FilePath& path) {
  const auto file = make_ref<MappedFile>(path);
  const Budget budget(path.str(), file->size());
  return io::keras_tensors(io::open_keras_file(path));
}

}  // namespace

namespace format_rows {
constinit const WeightsFormat tf_checkpoint = {
    {"tf_checkpoint", "A checkpoint of TensorFlow: an index and its data files.", "model.index"},
    "TensorFlow checkpoint",
    "",
    holds_checkpoint,
    read_checkpoint};
constinit const WeightsFormat keras = {
    {"keras", "Keras's files: .keras archives and HDF5 (.h5).", "model.keras"},
    "Keras (HDF5)",
    "",
    holds_keras,
    read_keras};
}  // namespace format_rows

}  // namespace tandem::weights
