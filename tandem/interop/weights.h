// SPDX-License-Identifier: Apache-2.0
// One door for files of weights: safetensors (one file or shards with an index), PyTorch, NumPy.
// load_into() puts them into a model and says what was missing, unexpected or of another shape.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tandem/base/file.h"
#include "tandem/nn/module.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::interop {

enum class WeightsFormat { safetensors, safetensors_index, torch, npz };
/// "safetensors", "safetensors index", "PyTorch", "NumPy npz".
TD_API const char* to_string(WeightsFormat f);
/// What a file is, from its content. Throws Io, or Format when it is none of these.
TD_API WeightsFormat weights_format(const FilePath& path);

/// The tensors of a file of weights, or of a folder as Hugging Face lays it out
/// (model.safetensors, model.safetensors.index.json, pytorch_model.bin). They show the mapped file
/// where that is possible. Throws Io, or Format when the file is cut, hostile or of another kind.
TD_API StateDict load_weights(const FilePath& path);

/// Write by the ending of the name: .safetensors, .pth, .pt or .bin (as torch.save), .npz. Throws
/// Value for another ending, and as save(), save_torch() and save_npz().
TD_API void save_weights(const StateDict& tensors, const FilePath& path);

struct LoadIntoOptions {
  bool strict = true;  ///< throw when anything does not fit; else load what does
};

/// What load_into found.
struct TD_API WeightsReport {
  struct Shapes {
    std::string name, model, file;  ///< the shapes as texts
  };
  size_t loaded = 0;
  std::vector<std::string> missing;     ///< the model wants them, the file has none
  std::vector<std::string> unexpected;  ///< the file has them, the model does not
  std::vector<Shapes> misshaped;        ///< both have them, of different shapes
  /// Names that were understood as older or wrapped forms: (in the file, in the model).
  std::vector<std::pair<std::string, std::string>> renamed;
  bool ok() const { return missing.empty() && unexpected.empty() && misshaped.empty(); }
  /// Some lines for people; a missing name comes with the nearest unexpected one.
  std::string to_string() const;
};

/// Copy values into the parameters and buffers of `m`, cast to their dtypes. Prefixes that wrappers
/// add ("module.", "_orig_mod.") and old names of torchvision's files (mlp.linear_1, norm.1) are
/// understood; a missing num_batches_tracked is not counted (files before PyTorch 0.4.1). With
/// `strict` anything that does not fit throws Value with the report, and nothing is changed.
TD_API WeightsReport load_into(nn::Module& m, const StateDict& values,
                               LoadIntoOptions options = {});

}  // namespace tandem::interop
