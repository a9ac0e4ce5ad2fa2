// SPDX-License-Identifier: Apache-2.0
// Tokenizers in the format of Hugging Face's tokenizer.json files (BPE, WordPiece, Unigram,
// WordLevel with their normalisers, pre-tokenisers, post-processors and decoders). A Tokenizer is a
// handle; several threads may share one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/export.h"
#include "tandem/base/files/file.h"

namespace tandem::text {

/// The result of encoding a text: one entry per token in each list.
struct Encoding {
  struct Offsets {
    uint32_t begin = 0, end = 0;
    friend bool operator==(const Offsets&, const Offsets&) = default;
  };
  std::vector<int64_t> ids;
  std::vector<int64_t> type_ids;        ///< 0 for the first text, 1 for the second
  std::vector<int64_t> attention_mask;  ///< 0 for padding
  std::vector<int64_t> special_tokens_mask;
  std::vector<Offsets> offsets;  ///< in characters of the text; {0, 0} for inserted tokens
  size_t size() const { return ids.size(); }
};

struct Truncation {
  int64_t max_length = 512;
  enum class Strategy : uint8_t { longest_first, only_first, only_second };
  Strategy strategy = Strategy::longest_first;
  bool left = false;  ///< truncate at the beginning
};
struct Padding {
  std::optional<int64_t> length = {};  ///< none: the longest of the batch
  bool left = false;                   ///< pad at the beginning
  int64_t multiple_of = 0;             ///< 0: no rounding
  int64_t id = 0, type_id = 0;
};

class TD_API Tokenizer {
 public:
  /// Read a tokenizer.json. Throws Io, or Format naming an unsupported part. `limits` hold for
  /// reading it and for each text: a few replacements can make gigabytes of one character.
  static Tokenizer from_file(const FilePath& path, const BudgetLimits& limits = {});
  /// The same from JSON text.
  static Tokenizer from_json(std::string_view json, std::string_view what = "tokenizer.json",
                             const BudgetLimits& limits = {});

  /// Tokens of a text (well-formed UTF-8, else Value), truncated and padded as configured. Throws
  /// Format where the file makes more of the text than its limits allow.
  Encoding encode(std::string_view text, bool add_special_tokens = true) const;
  Encoding encode(std::string_view text, const char* pair) const = delete;  // encode_pair()
  /// Encode two texts as one sequence.
  Encoding encode_pair(std::string_view text, std::string_view pair,
                       bool add_special_tokens = true) const;
  /// Encode many texts in parallel; they are padded together.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     bool add_special_tokens = true) const;
  /// The text of token ids; unknown ids are skipped.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = true) const;

  std::optional<int64_t> token_to_id(std::string_view token) const;
  /// The token's string, or none.
  std::optional<std::string> id_to_token(int64_t id) const;
  /// What a token adds to a text inside of it, as bytes, which need not be whole characters; ""
  /// for special tokens and where there is no such token.
  std::string token_bytes(int64_t id) const;
  /// Number of tokens: the model's and the added ones.
  int64_t vocab_size() const;

  const std::optional<Truncation>& truncation() const;
  const std::optional<Padding>& padding() const;
  /// A tokenizer that differs only in this setting.
  Tokenizer with_truncation(std::optional<Truncation> t) const;
  Tokenizer with_padding(std::optional<Padding> p) const;

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
  std::optional<Truncation> truncation_;
  std::optional<Padding> padding_;
};

}  // namespace tandem::text
