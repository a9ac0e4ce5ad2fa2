// SPDX-License-Identifier: Apache-2.0
// What verbs that take a model share: its flags, and the memory of the process.
#pragma once

#include "tandem/recipe/loaded_model.h"
#include "tandem/recipe/model_files.h"
#include "tandem/tandem.h"

namespace CLI {
class App;
}

namespace tandem::cli {

/// --device.
void add_device_option(CLI::App& verb, std::string& device);
/// --weights, --num-classes, --image-size.
void add_model_options(CLI::App& verb, recipe::ModelSource& source);
/// --opset, --shapes, --dynamic of the verbs that write ONNX.
void add_onnx_options(CLI::App& verb, recipe::OnnxFileOptions& options);

/// Says on stdout what was written, and on stderr that its values are initial ones.
void print_written(const recipe::OnnxFile& file);
/// Weights as a file, read back and compared.
void write_and_print(const StateDict& tensors, const std::string& out);

/// Names on stderr what the model's file holds and no output depends on.
void warn_of_unused(const recipe::LoadedModel& model);

/// Most memory that the process has held so far, in MB; 0 where it is not known.
double peak_memory_mb();

}  // namespace tandem::cli
