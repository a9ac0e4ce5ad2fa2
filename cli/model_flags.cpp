// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/model_internal.h"

namespace tandem::cli {

void add_device_option(CLI::App& verb, std::string& device) {
  verb.add_option("--device", device,
                  "Where it runs: cpu, cuda, cuda:1, opencl; auto: a CUDA GPU where there is one");
}

void add_model_options(CLI::App& verb, recipe::ModelSource& source) {
  verb.add_option("--weights", source.weights,
                  "File of weights (.safetensors, .pth, .npz, a folder)");
  verb.add_flag("--partial", source.partial,
                "Load the weights that fit; the others stay as they are drawn");
  verb.add_option("--num-classes", source.num_classes, "Classes of the last layer");
  verb.add_option("--image-size", source.image_size, "Size of the images");
  verb.add_option("--signature", source.signature, "Of a SavedModel, which of its signatures");
}

void add_onnx_options(CLI::App& verb, recipe::OnnxFileOptions& options) {
  verb.add_option("--opset", options.opset, "Opset of an ONNX model, 17 to 22");
  verb.add_option("--shapes", options.shapes, "Sizes of the example, as x:1x3x224x224");
  verb.add_option("--dynamic", options.dynamic,
                  "Dimensions that stay open: all, none, or x:0=batch,2=height for each input; "
                  "default: the batch and the lengths of sequences")
      ->allow_extra_args(false);
}

void print_written(const recipe::OnnxFile& file) {
  if (file.random_weights)
    fmt::print(stderr, "no --weights: the values are the initial ones, drawn at random\n");
  fmt::print("{}\n", file.report);
}

void write_and_print(const StateDict& tensors, const std::string& out) {
  recipe::write_weights(tensors, out);
  fmt::print("{}: {} tensors, read back and equal\n", out, tensors.size());
}

void warn_of_unused(const recipe::LoadedModel& model) {
  if (model.unused.empty()) return;
  constexpr size_t kShown = 5;
  std::string names;
  for (size_t i = 0; i < std::min(kShown, model.unused.size()); ++i)
    names += (i ? ", " : "") + model.unused[i];
  if (model.unused.size() > kShown)
    names += fmt::format(" and {} more", model.unused.size() - kShown);
  fmt::print(stderr, "warning: no output depends on {}\n", names);
}

double peak_memory_mb() {
  rusage use{};
  return getrusage(RUSAGE_SELF, &use) == 0 ? static_cast<double>(use.ru_maxrss) / 1024 : 0;
}

}  // namespace tandem::cli
