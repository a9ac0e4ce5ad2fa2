// SPDX-License-Identifier: Apache-2.0
// What `export:` of a recipe may name: files beside model.safetensors in the run's folder.
#include "tandem/recipe/components/components_internal.h"
#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/model_files.h"
#include "tandem/weights/weights.h"

namespace tandem::recipe {

void add_exporters(Registry& registry) {
  registry.exporter["safetensors"] = [](const std::string&) {};  // model.safetensors is there
  registry.exporter["onnx"] = [](const std::string& folder) {
    write_onnx({.model = folder}, folder + "/model.onnx");
  };
  for (const char* kind : {"pth", "npz"})
    registry.exporter[kind] = [kind](const std::string& folder) {
      weights::save_weights(run_state(folder), folder + "/model." + kind);
    };
}

}  // namespace tandem::recipe
