// SPDX-License-Identifier: Apache-2.0
// The model's side of a TextEngine: steps of a few fixed sizes, compiled once each, over one pool.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/models/pretrained.h"
#include "tandem/serve/text/text_engine.h"

namespace tandem::serve {

/// What one text reads in a step.
struct TextPart {
  std::span<const int64_t> ids;     ///< the tokens
  int64_t position = 0;             ///< of the first of them
  std::span<const int64_t> blocks;  ///< of the text, up to its last token at least
};

class TextSteps {
 public:
  TextSteps(std::shared_ptr<models::PretrainedModel> model, const TextEngineOptions& options);
  TextSteps(const TextSteps&) = delete;
  TextSteps& operator=(const TextSteps&) = delete;
  /// Logits after the last token of each part, [parts, vocabulary]: parts of one token each, as
  /// many as the largest size, or one part of up to `piece` tokens.
  std::vector<std::vector<float>> run(std::span<const TextPart> parts);
  /// Compile all sizes; keep those in which every text has the bits that it has alone.
  void warm_up(bool same_bits);

  int64_t blocks() const { return blocks_; }
  int64_t length() const { return length_; }
  int64_t vocabulary() const { return vocabulary_; }
  int64_t most_parts() const { return sizes_.back(); }
  const std::vector<int64_t>& sizes() const { return sizes_; }

 private:
  std::vector<std::vector<float>> run_sized(std::span<const TextPart> parts, int64_t n, int64_t l);
  std::shared_ptr<models::PretrainedModel> model_;
  models::PagedCache cache_;
  int64_t length_ = 0, blocks_ = 0, columns_ = 0, vocabulary_ = 0;
  std::vector<int64_t> sizes_, pieces_;
  std::function<Tensor(Tensor, Tensor, Tensor, Tensor, Tensor)> step_;
};

}  // namespace tandem::serve
