// SPDX-License-Identifier: Apache-2.0
// Which dimensions of a model's inputs may differ from call to call.
#pragma once

#include <string>
#include <vector>

namespace tandem::models {

struct OpenDim {
  OpenDim() = default;
  OpenDim(const char* name, bool by_default = true) : name(name), by_default(by_default) {}
  std::string name = "";   ///< "batch", "length" ...; empty: the architecture fixes the size
  bool by_default = true;  ///< an exported model leaves it open unless told otherwise
};
/// Those of one input, an entry for each dimension; further ones are fixed.
using OpenDims = std::vector<OpenDim>;

/// Of images [n, channels, height, width], where the model takes every size.
inline OpenDims image_dims(bool any_size) {
  if (!any_size) return {"batch"};
  return {"batch", {}, {"height", false}, {"width", false}};
}

}  // namespace tandem::models
