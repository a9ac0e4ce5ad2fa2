// SPDX-License-Identifier: Apache-2.0
// The first and last stages of a tokenizer: added tokens, which are found before anything else, and
// the processors that put special tokens around the sequences.
#pragma once

#include <array>

#include "tandem/text/parts_internal.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {

struct AddedToken {
  std::string content;
  uint32_t id = 0;
  bool single_word = false, lstrip = false, rstrip = false, normalized = true, special = false;
};

/// The added tokens of a file.
class AddedTokens {
 public:
  /// `json` is the array "added_tokens" or null.
  AddedTokens(const io::Json* json, const Vocabulary& vocabulary, const Normalizer* normalizer);
  /// `text` as segments: added tokens, and the normalised text between them.
  void split(std::string_view text, const Normalizer* normalizer, Pieces& out) const;
  const AddedToken* find(uint32_t id) const;
  const AddedToken* find(std::string_view content) const;
  /// Number of added tokens that the model's vocabulary lacks.
  size_t extra() const { return extra_; }

 private:
  // Maps contents to tokens; tries the longest first at each byte with which one begins.
  struct Finder {
    std::unordered_map<std::string_view, const AddedToken*> tokens;
    std::array<std::vector<uint32_t>, 256> lengths;  // by first byte, longest first
    std::vector<std::string> contents;
    void add(std::string content, const AddedToken& t);
    void finish();
    struct Match {
      uint32_t begin, end;
      const AddedToken* token;
    };
    std::vector<Match> matches(std::string_view s) const;
  };
  void append(Aligned& segment, Pieces& out) const;

  std::vector<std::unique_ptr<AddedToken>> tokens_;
  std::unordered_map<uint32_t, const AddedToken*> by_id_;
  std::unordered_map<std::string_view, const AddedToken*> by_content_;
  Finder raw_, normalized_;
  size_t extra_ = 0;
};

/// An encoding in progress, with the text of tokens that stand for more than their own content
/// (added tokens that absorbed spaces): index and text.
struct Draft : Encoding {
  std::vector<std::pair<size_t, std::string>> surfaces;
};

/// Inserts special tokens and concatenates the sequences.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// How many tokens run() inserts.
  virtual size_t added(bool pair) const = 0;
  virtual void run(std::vector<Draft>& sequences, bool add_special_tokens) const = 0;
};
/// `token` returns a token's string or nullptr.
using TokenText = const std::string* (*)(const void* owner, uint32_t id);
std::unique_ptr<PostProcessor> make_post_processor(const io::Json& json, const void* owner,
                                                   TokenText token, int depth = 0);

/// Appends `b` to `a`.
void append(Encoding& a, const Encoding& b);

}  // namespace tandem::text
