// SPDX-License-Identifier: Apache-2.0
// What `export:` of a recipe may name: files beside model.safetensors in the run's folder.
#include "cli/model_internal.h"
#include "cli/recipe_internal.h"
#include "tandem/interop/weights.h"

namespace tandem::cli {

void add_exporters(train::Registry& registry) {
  registry.exporter["onnx"] = [](const std::string& folder) {
    write_onnx({.model = folder}, folder + "/model.onnx", {.quiet = true});
  };
  for (const char* kind : {"pth", "npz"})
    registry.exporter[kind] = [kind](const std::string& folder) {
      interop::save_weights(run_state(folder), folder + "/model." + kind);
    };
}

}  // namespace tandem::cli
