// SPDX-License-Identifier: Apache-2.0
// The models that are to be deployed: their files as the folder of models in its new place holds
// them, and the memory that serving them takes.
#pragma once

#include <string>
#include <vector>

#include "tandem/serve/deploy/image_internal.h"
#include "tandem/serve/model/settings.h"

namespace tandem::serve {

struct DeployedModels {
  std::string name;                ///< of the folder, or of the one model
  std::vector<std::string> names;  ///< of the models
  std::vector<LayerFile> files;    ///< below "models/"
  uint64_t file_bytes = 0;
  // Bytes of memory.
  double weights = 0;              ///< of all versions that are served
  double loaded = 0;               ///< of the models after they were loaded, measured
  double arena = 0;                ///< of their instances, each with its largest batch, by dry runs
  double cache = 0;                ///< keys and values of language models
  bool texts = false;              ///< one of them continues texts
  std::vector<std::string> notes;  ///< which model could not be planned, and why
};
/// `models`: a folder of models, or a model. Throws what opening them throws.
TD_API DeployedModels find_models(const std::string& models, const ModelSettings& defaults,
                                  bool links);

}  // namespace tandem::serve
