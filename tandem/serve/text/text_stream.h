// SPDX-License-Identifier: Apache-2.0
// TextStream: the text of tokens that come one by one, given out as soon as it is certain: whole
// characters, and nothing of a text that ends the answer.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "tandem/text/tokenizer.h"

namespace tandem::serve {

/// Characters of a text in UTF-8.
inline size_t utf8_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

class TD_API TextStream {
 public:
  /// Continues `prompt`. One of `stops` ends the text and is not part of it.
  TextStream(text::Tokenizer tokenizer, std::span<const int64_t> prompt,
             std::vector<std::string> stops);
  /// What the token adds that is certain; often nothing.
  std::string push(int64_t token);
  /// What was held back. After it nothing comes.
  std::string finish();
  /// A stop has come: what follows is not part of the text.
  bool stopped() const { return stopped_; }
  /// Of all that was read so far, with what is held back.
  size_t characters() const { return characters_; }

 private:
  std::string fresh_text(bool whole);
  void read(bool whole);
  std::string certain(bool whole);
  text::Tokenizer tokenizer_;
  std::vector<std::string> stops_;
  std::vector<int64_t> ids_;
  size_t read_ = 0;  ///< ids before it have been given out
  size_t from_ = 0;  ///< what decides how the next one reads begins here
  size_t characters_ = 0;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace tandem::serve
