// SPDX-License-Identifier: Apache-2.0
// TextModel: what a folder needs to answer texts with texts: the engine, its tokenizer, and how a
// conversation becomes a prompt.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tandem/serve/text/constraints.h"
#include "tandem/serve/text/text_engine.h"
#include "tandem/text/chat_template.h"
#include "tandem/text/tokenizer.h"

namespace tandem::serve {

struct TextModel {
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat;
  TextEngine engine;
  std::unique_ptr<ConstraintCache> constraints;

  /// A Hugging Face folder with a decoder and tokenizer.json; nothing for any other. `model` is the
  /// folder's where it is loaded already, so that its weights are held once. Throws what loading
  /// throws.
  TD_API static std::unique_ptr<TextModel> load(
      const std::string& folder, const TextEngineOptions& options,
      std::shared_ptr<models::PretrainedModel> model = nullptr);
};

}  // namespace tandem::serve
