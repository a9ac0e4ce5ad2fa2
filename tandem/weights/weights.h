// SPDX-License-Identifier: Apache-2.0
// One interface to weights files: safetensors (one file or indexed shards), PyTorch, NumPy, and
// TensorFlow's and Keras's, which are read only.
// load_into() copies them into a model and reports missing, unexpected and misshaped ones.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/files/file.h"
#include "tandem/nn/module.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::weights {

/// A format of weights files; the rows are in weights/formats.h.
struct WeightsFormat;
/// "safetensors", "safetensors index", "PyTorch", "NumPy npz", "TensorFlow checkpoint", ...
TD_API const char* to_string(const WeightsFormat& f);
/// A file's format, from its content. Throws Io, or Format when it is none that is known.
TD_API const WeightsFormat& weights_format(const FilePath& path);

/// The tensors of a weights file, of a folder in Hugging Face's layout (model.safetensors,
/// model.safetensors.index.json, pytorch_model.bin), or of a SavedModel's folder. TensorFlow's
/// checkpoints are named with or without ".index", their tensors by the path in the checkpoint's
/// objects; those of Keras by the path in the HDF5 file ("layers/dense/vars/0"). They map the file
/// where possible. Throws Io, or Format when the file is truncated, hostile or of another kind.
TD_API StateDict load_weights(const FilePath& path);

/// Write a file in the format of its extension: .safetensors, .pth, .pt or .bin (as torch.save),
/// .npz, and those of weights/formats.h. Throws Value for others, and as the format's writer does.
TD_API void save_weights(const StateDict& tensors, const FilePath& path);

struct LoadIntoOptions {
  bool strict = true;  ///< throw if anything does not match; otherwise load what does
};

/// What load_into found.
struct TD_API WeightsReport {
  struct Shapes {
    std::string name, model, file;  ///< the shapes as strings
  };
  size_t loaded = 0;
  std::vector<std::string> missing;     ///< in the model, but not in the file
  std::vector<std::string> unexpected;  ///< in the file, but not in the model
  std::vector<Shapes> misshaped;        ///< in both, with different shapes
  /// Names recognised as older or wrapped forms: (in the file, in the model).
  std::vector<std::pair<std::string, std::string>> renamed;
  bool ok() const { return missing.empty() && unexpected.empty() && misshaped.empty(); }
  /// A readable report; a missing name comes with the nearest unexpected one.
  std::string to_string() const;
};

/// Copy values into the parameters and buffers of `m`, cast to their dtypes. Prefixes added by
/// wrappers ("module.", "_orig_mod.") and old names of torchvision's files (mlp.linear_1, norm.1)
/// are recognised; a missing num_batches_tracked is ignored (files before PyTorch 0.4.1). With
/// `strict` any mismatch throws Value with the report, and nothing is changed.
TD_API WeightsReport load_into(nn::Module& m, const StateDict& values,
                               LoadIntoOptions options = {});

}  // namespace tandem::weights
