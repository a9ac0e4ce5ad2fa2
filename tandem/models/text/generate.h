// SPDX-License-Identifier: Apache-2.0
// Token-by-token text generation with a cache of keys and values. Names and defaults are those of
// Hugging Face's generate().
#pragma once

#include <functional>
#include <utility>

#include "tandem/models/pretrained.h"
#include "tandem/models/text/timestamps.h"

namespace tandem::models {

struct GenerateOptions {
  int64_t max_new_tokens = 20;
  int64_t min_new_tokens = 0;
  bool do_sample = false;  ///< else the likeliest token
  double temperature = 1;
  int64_t top_k = 50;  ///< when sampling: only the k likeliest; 0: all
  double top_p = 1;    ///< when sampling: the likeliest tokens whose probabilities sum to p
  double min_p = 0;    ///< when sampling: only tokens at least min_p times as likely as the first
  double repetition_penalty = 1;  ///< above 1: tokens already present become less likely
  double presence_penalty = 0;    ///< taken from the logits of new tokens that came already
  double frequency_penalty = 0;   ///< the same, as often as they came
  std::vector<std::pair<int64_t, double>> logit_bias = {};  ///< added to tokens' logits
  std::vector<int64_t> suppress_tokens = {};                ///< these never come
  std::vector<int64_t> begin_suppress_tokens = {};          ///< these do not come first
  TimestampRules timestamps = {};                           ///< of Whisper
  /// A row ends with one of these; if empty, those of the model's config.
  std::vector<int64_t> eos_token_id = {};
  uint64_t seed = 0;     ///< for sampling: Philox, one stream per row
  bool compiled = true;  ///< decode with one compiled step
  /// Called with each token as it is produced: row and token. Return false to stop that row.
  std::function<bool(int64_t row, int64_t token)> streamer = {};
};

/// Continue each prompt, or answer it if an encoder reads it (rows may differ in length). Returns
/// the new tokens of each row, including the end token. Throws Value for empty prompts and tokens
/// out of range, Unsupported for models that do not generate text.
TD_API std::vector<std::vector<int64_t>> generate(PretrainedModel& model,
                                                  const std::vector<std::vector<int64_t>>& prompts,
                                                  const GenerateOptions& options = {});

/// The same for a model whose encoder reads other inputs, such as the input_features of sound: rows
/// of one length, without padding. The texts begin with decoder_input_ids, if given.
TD_API std::vector<std::vector<int64_t>> generate_from(PretrainedModel& model,
                                                       const ModelInputs& inputs,
                                                       const GenerateOptions& options = {});

/// The same for a causal net without a cache: ids i64 [n, t], t at most `context` -> logits [n, t,
/// vocabulary]. It sees only the last `context` tokens of a longer text. Only
/// `options.eos_token_id` ends a row. Throws Value for empty prompts.
TD_API std::vector<std::vector<int64_t>> generate(const std::function<Tensor(const Tensor&)>& net,
                                                  int64_t context,
                                                  const std::vector<std::vector<int64_t>>& prompts,
                                                  const GenerateOptions& options = {});

/// Throws Value for options out of their ranges.
TD_API void check(const GenerateOptions& options);

/// The next token chosen by `options` from `logits` (modified) for a row of `tokens`, of which
/// `fresh` are new. `draw` is uniform in [0, 1).
TD_API int64_t next_token(std::vector<float>& logits, const std::vector<int64_t>& tokens,
                          int64_t fresh, const std::vector<int64_t>& eos,
                          const GenerateOptions& options, double draw);

}  // namespace tandem::models
