// SPDX-License-Identifier: Apache-2.0
// The five kinds of parts that a tokenizer file names, each with the function that makes one from
// its JSON. All are constant after they were made, so that threads may share a tokenizer.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "tandem/text/aligned_internal.h"
#include "tandem/text/fields_internal.h"

namespace tandem::text {

/// Changes a text.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void run(Aligned& t) const = 0;
};
/// Splits a text.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void run(Pieces& p) const = 0;
};
/// A token of a piece and the bytes of the piece that it stands for.
struct Token {
  uint32_t id, begin, end;
};

/// A set of strings with numbers, both ways.
class Vocabulary {
 public:
  /// Throws Format when a string or a number comes twice or a number is out of range.
  void read(const io::Json::Object& object, const std::string& part);
  void add(std::string_view token, uint32_t id, const std::string& part);
  /// As add(), but a string that comes again gets the new number.
  void set(std::string_view token, uint32_t id);
  std::optional<uint32_t> find(std::string_view token) const {
    const auto at = ids_.find(token);
    return at == ids_.end() ? std::nullopt : std::optional<uint32_t>(at->second);
  }
  /// The string of `id`, or nullptr.
  const std::string* token(uint32_t id) const {
    const auto at = tokens_.find(id);
    return at == tokens_.end() ? nullptr : at->second;
  }
  size_t size() const { return ids_.size(); }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> ids_;
  std::unordered_map<uint32_t, const std::string*> tokens_;
};

/// Turns a piece into tokens.
class Model {
 public:
  virtual ~Model() = default;
  /// Appends the tokens of `piece`.
  virtual void run(std::string_view piece, std::vector<Token>& out) const = 0;
  Vocabulary vocabulary;
};
/// Turns token texts back into text: changes the list, which is joined at the end.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void run(std::vector<std::string>& tokens) const = 0;
};

/// Each throws Format for a part that is not understood. `depth` counts sequences inside sequences.
std::unique_ptr<Normalizer> make_normalizer(const io::Json& json, int depth = 0);
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const io::Json& json, int depth = 0);
std::unique_ptr<Decoder> make_decoder(const io::Json& json, int depth = 0);
std::unique_ptr<Model> make_model(const io::Json& json);

/// A piece of a Unigram model. Its number is its place in the list.
struct UnigramPiece {
  std::string text;
  double score = 0;
  bool matched = true;  ///< is it sought in texts?
};
/// A Unigram model: pieces with scores, found by the best sum. `single`: scores are added as
/// 32-bit floats. Bytes of unknown characters become tokens <0xNN> with `byte_fallback`.
std::unique_ptr<Model> make_unigram(std::vector<UnigramPiece> pieces, std::optional<uint32_t> unk,
                                    bool byte_fallback, bool single);

/// The table of characters by which sentencepiece normalises (a double-array trie and the texts
/// that its values point to). Throws Format when it is cut or points outside.
class Charsmap {
 public:
  explicit Charsmap(std::string bytes);
  /// What the shortest (longest) key that begins `s` becomes, and that key's bytes; none: nullptr.
  const char* find(std::string_view s, bool longest, size_t& key_bytes) const;
  bool empty() const { return units_.empty(); }

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

/// A pattern of a file: {"String": ...} or {"Regex": ...}.
class Pattern {
 public:
  explicit Pattern(const io::Json& json, const std::string& part);
  void find_all(std::string_view s, std::vector<std::pair<uint32_t, uint32_t>>& out) const;

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

/// The character that stands for byte `b` in byte-level vocabularies, and back (-1: none).
char32_t char_of_byte(unsigned char b);
int byte_of_char(char32_t c);
/// "<0x0A>" of a byte, and back (-1: no such token).
std::string byte_token(unsigned char b);
int byte_of_token(std::string_view token);

inline constexpr int kMaxPartDepth = 16;

}  // namespace tandem::text
