// SPDX-License-Identifier: Apache-2.0
// The model `gpt` of a run as Hugging Face's GPT-2: config, weights and tokenizer.
#pragma once

#include <memory>
#include <string>

#include "tandem/io/json.h"
#include "tandem/models/pretrained.h"

namespace tandem::recipe {

struct GptFolder {
  std::unique_ptr<models::PretrainedModel> model;
  std::string tokenizer;  ///< the text of tokenizer.json; empty where data keeps no characters
};
/// Throws Unsupported for a run of another model.
TD_API GptFolder gpt_folder_of(const std::string& run);

}  // namespace tandem::recipe
