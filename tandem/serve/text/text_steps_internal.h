// SPDX-License-Identifier: Apache-2.0
// The model's side of a TextEngine: steps of a few fixed sizes, compiled once each, over one pool.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tandem/models/adapters.h"
#include "tandem/models/paged_pair.h"
#include "tandem/models/pretrained.h"
#include "tandem/serve/text/text_engine.h"

namespace tandem::serve {

/// What one text reads in a step.
struct TextPart {
  std::span<const int64_t> ids;     ///< the tokens
  int64_t position = 0;             ///< of the first of them
  std::span<const int64_t> blocks;  ///< of the text, up to its last token at least
  int64_t adapter = 0;
  int64_t prompt = 0;  ///< tokens that an encoder read, in the same blocks
};

/// What the keys and values of all texts take at most, without adapters and a draft model.
double bytes_of_cache(models::PretrainedModel& model, const TextEngineOptions& options);

class TextSteps {
 public:
  /// `wide`: how many tokens of several texts at once a step may read.
  TextSteps(std::shared_ptr<models::PretrainedModel> model, const TextEngineOptions& options,
            int64_t wide);
  /// Of a draft model, whose keys lie in blocks of the same numbers as those of `target`.
  TextSteps(std::shared_ptr<models::PretrainedModel> model, const TextEngineOptions& options,
            int64_t wide, const TextSteps& target);
  TextSteps(const TextSteps&) = delete;
  TextSteps& operator=(const TextSteps&) = delete;
  /// Whether an encoder reads prompts, by read_prompt(), before the first
  /// step of a text, with blocks for all of it.
  bool is_pair() const { return pair_ != nullptr; }
  void read_prompt(std::span<const int64_t> ids, std::span<const int64_t> blocks);
  /// Logits after the last token of each part, [parts, vocabulary]: parts of up to `wide` tokens
  /// each, as many as the largest size, or as many longer ones as read_with() says.
  std::vector<std::vector<float>> run(std::span<const TextPart> parts);
  /// Logits after each of `wide` tokens of each part, in their order; of tokens that a part lacks,
  /// they are empty.
  std::vector<std::vector<float>> run_wide(std::span<const TextPart> parts);
  /// Compile all sizes; keep those in which every text has the bits that it has alone.
  void warm_up(bool same_bits);

  int64_t blocks() const { return blocks_; }
  int64_t length() const { return length_; }
  int64_t vocabulary() const { return vocabulary_; }
  int64_t most_parts() const { return sizes_.back(); }
  /// What one step reads along with a part of `tokens` tokens, at most: `parts` of `each` tokens,
  /// the part itself among them.
  struct PieceSize {
    int64_t each, parts;
  };
  PieceSize read_with(int64_t tokens) const;
  const std::vector<int64_t>& sizes() const { return sizes_; }
  /// How many tokens run_wide() takes where a text has the bits that it has token by token; else 1.
  int64_t wide() const { return wide_; }
  /// May texts with an adapter and texts without one share a batch?
  bool mixes_adapters() const { return mixes_; }

 private:
  void set_up(const TextEngineOptions& options);
  std::vector<std::vector<float>> run_sized(std::span<const TextPart> parts, int64_t n, int64_t l,
                                            bool every = false);
  bool same_when_wide(int64_t size, bool adapted);
  bool same_pieces(int64_t each, int64_t n, bool adapted);
  std::vector<std::vector<float>> each_alone(std::span<const TextPart> parts);
  void warm_up_pieces();
  void warm_up_prompts(bool same_bits);
  std::shared_ptr<models::PretrainedModel> model_;
  models::PagedPair* pair_ = nullptr;
  models::PagedCache cache_;
  int64_t length_ = 0, blocks_ = 0, columns_ = 0, vocabulary_ = 0, wide_ = 1;
  std::vector<int64_t> sizes_;
  std::vector<PieceSize> pieces_;  ///< of a prompt, ascending
  std::optional<models::AdapterSet> adapters_;
  bool mixes_ = true;
  /// ids, positions, slots, table, last and, where a text has one, adapters; of a pair the last
  /// places of the prompts.
  std::function<Tensor(const std::vector<Tensor>&)> step_;
};

}  // namespace tandem::serve
