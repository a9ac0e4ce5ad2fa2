// SPDX-License-Identifier: Apache-2.0
// What the model of a run generates: text of gpt and char_rnn, images of ddpm and vae.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tandem/recipe/open_run.h"

namespace tandem::recipe {

/// What is not set has the model's default; what a model does not take is an error (Value).
struct GenerateOptions {
  // Of text.
  std::vector<std::string> prompts = {};  ///< none: the beginning of a line
  std::optional<int64_t> num_return_sequences = {}, max_new_tokens = {}, min_new_tokens = {};
  std::optional<double> temperature = {}, top_p = {}, repetition_penalty = {};
  std::optional<int64_t> top_k = {};
  // Of arrays.
  std::optional<int64_t> n = {}, steps = {};
  std::vector<int64_t> labels = {};  ///< classes, in turn; none: all in turn
  std::optional<double> guidance = {};
  // Of both.
  std::optional<int64_t> seed = {};
  Device device = cpu;  ///< of a run's folder: where its model runs
  /// Called with what is new in the text of a row; false stops the row.
  std::function<bool(size_t row, const std::string& text)> stream = {};
};
/// Texts after their prompts, or arrays [n, ...] (images are 0..1). The same seed gives the same
/// samples. Throws Unsupported for a model that generates nothing.
TD_API RecipeSamples generate(const OpenedRun& run, const GenerateOptions& options = {});
/// `weights`: last, or best by the run's monitor.
TD_API RecipeSamples generate(const std::string& run, const GenerateOptions& options = {},
                              const std::string& weights = "last");

/// Samples about to be made, of options by the names of `tandem generate`'s flags.
struct Generation {
  bool text = false;
  std::vector<std::string> prompts = {};  ///< of text: a row each
  std::function<RecipeSamples()> make = {};
};
/// Reads the model's options; those left over are the caller's to read or to refuse.
TD_API Generation
prepare_generation(const OpenedRun& run, Options& options,
                   std::function<bool(size_t row, const std::string& text)> stream = {});
/// Throws Value for options that were given and nobody read; `model` says who does not take them.
TD_API void refuse_left(const Options& options, const std::string& model);

}  // namespace tandem::recipe
