// SPDX-License-Identifier: Apache-2.0
// What can be planned by name: the models of the registry, language and vision families as
// "name:size", Hugging Face configs, ONNX files. A Job makes its model with inputs and a loss;
// inside a dry run that costs nothing.
#pragma once

#include <optional>

#include "tandem/plan/workload.h"

namespace tandem::plan {

struct JobOptions {
  std::optional<int64_t> sequence = {};    ///< tokens of a sample of a language model
  std::optional<int64_t> image_size = {};  ///< of vision models
  std::optional<int64_t> classes = {};
  std::string shapes = {};  ///< of an ONNX file's inputs: "x:8x3x224x224"
  /// Behind an ONNX file's first output: "cross_entropy", "mse", "output" (it is the loss itself);
  /// empty: "output" for one number, cross entropy for what looks like logits of classes.
  std::string loss = {};
  Framework framework = Framework::tandem;  ///< whose loss of classes is taken
  bool f32_loss = false;                    ///< logits become f32 before the loss
};

/// A name of models::list(), "family:size", a path of an ONNX file, of a config.json or of a folder
/// that holds one. Throws Value for a name that is none of these, with the nearest known one.
TD_API Job find_job(const std::string& model, const JobOptions& options = {});
/// Every "family:size" and every name of the registry.
TD_API std::vector<std::string> job_names();
/// A job of a Hugging Face config.
TD_API Job job_of_config(const std::string& json, const std::string& name,
                         const JobOptions& options = {});

}  // namespace tandem::plan
