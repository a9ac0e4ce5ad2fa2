// SPDX-License-Identifier: Apache-2.0
// Tokenizers as Hugging Face's tokenizer.json files describe them (BPE, WordPiece, Unigram,
// WordLevel with their normalisers, pre-tokenisers, post-processors and decoders). A Tokenizer is a
// handle; several threads may use one.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"
#include "tandem/base/file.h"

namespace tandem::text {

/// What a text became: one entry per token in each list.
struct Encoding {
  struct Offsets {
    uint32_t begin = 0, end = 0;
    friend bool operator==(const Offsets&, const Offsets&) = default;
  };
  std::vector<int64_t> ids;
  std::vector<int64_t> type_ids;        ///< 0 for the first text, 1 for the second
  std::vector<int64_t> attention_mask;  ///< 0 for padding
  std::vector<int64_t> special_tokens_mask;
  std::vector<Offsets> offsets;  ///< characters of the text; {0, 0} for tokens put in
  size_t size() const { return ids.size(); }
};

struct Truncation {
  int64_t max_length = 512;
  enum class Strategy : uint8_t { longest_first, only_first, only_second };
  Strategy strategy = Strategy::longest_first;
  bool left = false;  ///< cut at the beginning
};
struct Padding {
  std::optional<int64_t> length = {};  ///< none: the longest of the batch
  bool left = false;                   ///< pad at the beginning
  int64_t multiple_of = 0;             ///< 0: of nothing
  int64_t id = 0, type_id = 0;
};

class TD_API Tokenizer {
 public:
  /// Read a tokenizer.json. Throws Io, or Format naming the part that is not understood.
  static Tokenizer from_file(const FilePath& path);
  /// The same from its text.
  static Tokenizer from_json(std::string_view json, std::string_view what = "tokenizer.json");

  /// Tokens of a text (well-formed UTF-8, else Value), cut and padded as set.
  Encoding encode(std::string_view text, bool add_special_tokens = true) const;
  Encoding encode(std::string_view text, const char* pair) const = delete;  // encode_pair()
  /// Of two texts as one sequence.
  Encoding encode_pair(std::string_view text, std::string_view pair,
                       bool add_special_tokens = true) const;
  /// Of many texts, in parallel; padded together.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     bool add_special_tokens = true) const;
  /// Text of tokens; numbers that are no tokens are left out.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = true) const;

  std::optional<int64_t> token_to_id(std::string_view token) const;
  /// The token's text, or none.
  std::optional<std::string> id_to_token(int64_t id) const;
  /// Tokens of the model and added ones.
  int64_t vocab_size() const;

  const std::optional<Truncation>& truncation() const;
  const std::optional<Padding>& padding() const;
  /// A tokenizer that differs in this alone.
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
