// SPDX-License-Identifier: Apache-2.0
// TextEncoder: what a folder needs to take texts: its tokenizer, and, where it answers them with
// vectors, what becomes of the model's outputs. The model itself runs in the version's scheduler.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/serve/model/servable.h"
#include "tandem/text/tokenizer.h"

namespace tandem::serve {

class TD_API TextEncoder {
 public:
  /// Of a folder with an encoder of texts and a tokenizer.json; nothing for any other. Throws what
  /// reading the tokenizer throws.
  static std::unique_ptr<TextEncoder> load(const std::string& folder, const Servable& model);

  /// Does it answer with vectors? That is a sentence-transformers folder, which says how tokens are
  /// pooled, or an encoder whose first output is last_hidden_state, of which the mean is taken.
  bool embeds() const { return embeds_; }

  std::vector<int64_t> tokens_of(const std::string& text) const {
    return tokenizer_.encode(text).ids;
  }
  /// Tokens of a text, at most; 0: unlimited.
  int64_t length() const { return length_; }
  /// The inputs of one text, in the model's order.
  std::vector<Tensor> inputs(std::span<const int64_t> tokens) const;
  /// The vector of one text from the model's outputs. With `dimensions` above 0 its first ones;
  /// they have length 1 again where the whole has.
  std::vector<float> vector_of(const std::vector<Tensor>& outputs, int64_t dimensions) const;

 private:
  TextEncoder(text::Tokenizer tokenizer, const Servable& model);
  text::Tokenizer tokenizer_;
  std::vector<std::string> names_;  ///< of the inputs
  int64_t length_ = 0;
  bool embeds_ = false;
};

}  // namespace tandem::serve
