// SPDX-License-Identifier: Apache-2.0
// The files that Keras saves: .keras archives (a zip file of config.json and model.weights.h5) and
// HDF5 files, of Keras 3 (.weights.h5) and of earlier versions (.h5, with layers by name).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tandem/io/hdf5/hdf5.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::io {

struct KerasFile {
  std::unique_ptr<Hdf5File> weights;  ///< null: `named` has them
  Hdf5File::Object group = 0;         ///< what holds the layers
  std::string config;                 ///< the architecture as JSON; "": there are only weights
  bool by_name = false;               ///< of the older layout: a group for each layer, by its name
  /// Variables by paths with their layers' names, of other containers than HDF5.
  std::vector<std::pair<std::string, Tensor>> named = {};
  std::string name = "";  ///< of the file, where `weights` is null
};

/// Whether a file is a .keras archive, by its content (PK, and the members' names).
TD_API bool is_keras_archive(std::string_view content, const FilePath& path);
/// Either kind of file. Throws Io; Format where it is damaged.
TD_API KerasFile open_keras_file(const FilePath& path);
/// The strings of an attribute that may be spread over NAME0, NAME1 ..., as long lists are.
TD_API std::vector<std::string> keras_texts(const Hdf5File& file, Hdf5File::Object o,
                                            const std::string& name);
/// Every array by its path: "layers/conv2d/vars/0", or "conv2d/kernel" in the older layout. Any
/// other HDF5 file of arrays is read, too.
TD_API StateDict keras_tensors(const KerasFile& file);

}  // namespace tandem::io
