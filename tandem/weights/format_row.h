// SPDX-License-Identifier: Apache-2.0
// A row of weights_formats(): how files of one format are recognised, read and written.
#pragma once

#include <string_view>

#include "tandem/base/files/file.h"
#include "tandem/base/registry.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::weights {

struct WeightsFormat : Component {
  const char* title;    ///< "NumPy npz"
  const char* endings;  ///< extensions that select it for writing, ".pth .pt .bin"; "": none
  /// Does a file hold it? `content` is all of it, mapped. Formats are asked in order.
  bool (*holds)(std::string_view content, const FilePath& path);
  /// Throws Io, or Format when the file is truncated, hostile or of another kind.
  StateDict (*read)(const FilePath& path);
  void (*write)(const StateDict& tensors, const FilePath& path) = nullptr;
};

}  // namespace tandem::weights
