// SPDX-License-Identifier: Apache-2.0
// Text token by token with a cache of keys and values. Names and defaults are those of Hugging
// Face's generate().
#pragma once

#include <functional>

#include "tandem/models/pretrained.h"

namespace tandem::models {

struct GenerateOptions {
  int64_t max_new_tokens = 20;
  int64_t min_new_tokens = 0;
  bool do_sample = false;  ///< else the likeliest token
  double temperature = 1;
  int64_t top_k = 50;             ///< of sampling: the k likeliest only; 0: all
  double top_p = 1;               ///< of sampling: the likeliest whose sum reaches p
  double repetition_penalty = 1;  ///< above 1: tokens that are there already become less likely
  /// A row ends with one of these; none given: those of the model's config.
  std::vector<int64_t> eos_token_id = {};
  uint64_t seed = 0;     ///< of sampling: Philox, one stream per row
  bool compiled = true;  ///< decode by one compiled step
  /// Called with each token as it comes: row and token. Return false to stop that row.
  std::function<bool(int64_t row, int64_t token)> streamer = {};
};

/// Continue each prompt, or answer it where an encoder reads it (rows may differ in length). Gives
/// the new tokens of each row, up to and with the end token. Throws Value for empty prompts and
/// tokens out of range, Unsupported for models that generate no text.
TD_API std::vector<std::vector<int64_t>> generate(PretrainedModel& model,
                                                  const std::vector<std::vector<int64_t>>& prompts,
                                                  const GenerateOptions& options = {});

/// The same of a causal net without a cache: ids i64 [n, t], t at most `context` -> logits
/// [n, t, vocabulary]. Of a longer text it sees the last `context` tokens. `options.eos_token_id`
/// alone ends a row. Throws Value for empty prompts.
TD_API std::vector<std::vector<int64_t>> generate(const std::function<Tensor(const Tensor&)>& net,
                                                  int64_t context,
                                                  const std::vector<std::vector<int64_t>>& prompts,
                                                  const GenerateOptions& options = {});

/// The next token by `options` from `logits` (changed), for a row that holds `tokens` of which
/// `fresh` are new. `draw` is uniform in [0, 1).
TD_API int64_t next_token(std::vector<float>& logits, const std::vector<int64_t>& tokens,
                          int64_t fresh, const std::vector<int64_t>& eos,
                          const GenerateOptions& options, double draw);

}  // namespace tandem::models
