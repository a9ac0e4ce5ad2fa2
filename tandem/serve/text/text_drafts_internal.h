// SPDX-License-Identifier: Apache-2.0
// Tokens that a text may continue with, guessed before the model is asked: by a smaller model, or
// from what followed the same tokens earlier in the text. The model reads all of them in one step
// and keeps those that it would have chosen itself (Leviathan et al. 2023).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tandem/base/philox.h"
#include "tandem/models/text/token_choices.h"
#include "tandem/serve/text/text_steps_internal.h"

namespace tandem::serve {

/// A guess and what it was drawn from.
struct TextGuess {
  int64_t token = 0;
  models::TokenChoices from;
};

/// A text that is to be guessed on.
struct TextToGuess {
  const std::vector<int64_t>* tokens;
  std::span<const int64_t> blocks;  ///< with room for `count` more tokens
  int64_t fresh = 0;                ///< of `tokens` those that are new
  int64_t count = 0;                ///< guesses that are wanted
  const models::GenerateOptions* options = nullptr;
  const std::vector<int64_t>* eos = nullptr;
  PhiloxStream* draws = nullptr;
  int64_t* read = nullptr;  ///< tokens that the draft model has read
};

class TextDrafts {
 public:
  /// Throws Value where the draft model has another vocabulary than `target`.
  TextDrafts(const TextEngineOptions& options, const TextSteps& target);
  /// The draft model reads a part of a prompt, too.
  void read(const TextPart& part);
  /// Up to `count` guesses for each text.
  std::vector<std::vector<TextGuess>> guess(std::span<const TextToGuess> texts);
  /// Does a draft model read the texts?
  bool reads() const { return steps_ != nullptr; }

 private:
  std::vector<std::vector<TextGuess>> from_model(std::span<const TextToGuess> texts);
  int64_t piece_;
  std::unique_ptr<TextSteps> steps_;
};

/// The next token where `choices` are the model's; `guess` may be none. `taken`: the guess was
/// right.
struct TextChoice {
  int64_t token = 0;
  bool taken = false;
};
TextChoice choose_token(const models::TokenChoices& choices, const TextGuess* guess,
                        PhiloxStream& draws, bool sampled);

}  // namespace tandem::serve
