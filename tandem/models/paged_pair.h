// SPDX-License-Identifier: Apache-2.0
// PagedPair: an encoder and a decoder whose texts grow together. What the decoder wrote and what
// the encoder read lie in blocks of the same numbers: the text's own tokens in the layers of the
// decoder, its prompt in layers after them, which the encoder fills once.
#pragma once

#include "tandem/models/pretrained.h"

namespace tandem::models {

class TD_API PagedPair {
 public:
  virtual ~PagedPair() = default;
  /// An empty pool: a layer for each block of the decoder, then one for each block's prompt.
  virtual PagedCache start_pair(int64_t blocks, int64_t block) = 0;
  /// The encoder reads a prompt, `ids` [1, m]; its keys go into `slots` [1, m].
  virtual void read_prompt(const Tensor& ids, const Tensor& slots, PagedCache& cache) = 0;
  /// As PretrainedModel::decode_paged. `prompt_last` [n, l]: where the last token of the text's
  /// prompt stands; -1: padding. May be compiled.
  virtual Tensor decode_pair(const PagedStep& step, const Tensor& prompt_last,
                             PagedCache& cache) = 0;
};

/// The model as one that can; null for any other, as one whose prompts are not texts.
inline PagedPair* paged_pair(PretrainedModel& model) {
  if (!model.is_encoder_decoder() || model.inputs().front().name != "input_ids") return nullptr;
  return dynamic_cast<PagedPair*>(&model);
}

}  // namespace tandem::models
