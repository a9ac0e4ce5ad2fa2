// SPDX-License-Identifier: Apache-2.0
// The five kinds of parts in a tokenizer file, each with a function that builds one from its JSON.
// All are immutable once built, so threads may share a tokenizer.
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
/// A token of a piece and the bytes of the piece that it covers.
struct Token {
  uint32_t id, begin, end;
};

/// A two-way map between strings and ids.
class Vocabulary {
 public:
  /// Throws Format when a string or an id appears twice or an id is out of range.
  void read(const io::Json::Object& object, const std::string& part);
  void add(std::string_view token, uint32_t id, const std::string& part);
  /// Like add(), but a repeated string gets the new id.
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
/// Turns token strings back into text: transforms the list, which is concatenated at the end.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void run(std::vector<std::string>& tokens) const = 0;
  /// Whether `token` stands for bytes rather than for characters; it becomes those.
  virtual bool bytes(std::string& /*token*/) const { return false; }
};

/// Each throws Format for an unsupported part. `depth` counts nested sequences.
std::unique_ptr<Normalizer> make_normalizer(const io::Json& json, int depth = 0);
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const io::Json& json, int depth = 0);
std::unique_ptr<Decoder> make_decoder(const io::Json& json, int depth = 0);
std::unique_ptr<Model> make_model(const io::Json& json);

/// A piece of a Unigram model. Its id is its index in the list.
struct UnigramPiece {
  std::string text;
  double score = 0;
  bool matched = true;  ///< whether it is matched in texts
};
/// A Unigram model: pieces with scores; the best sum wins. `single`: scores are added as 32-bit
/// floats. `byte_fallback`: bytes of unknown characters become tokens <0xNN>.
std::unique_ptr<Model> make_unigram(std::vector<UnigramPiece> pieces, std::optional<uint32_t> unk,
                                    bool byte_fallback, bool single);

/// The character table of SentencePiece's normalisation (a double-array trie and the strings its
/// values point to). Throws Format when it is truncated or points outside.
class Charsmap {
 public:
  explicit Charsmap(std::string bytes);
  /// What the shortest (longest) key beginning `s` becomes, and the key's length; or nullptr.
  const char* find(std::string_view s, bool longest, size_t& key_bytes) const;
  bool empty() const { return units_.empty(); }

 private:
  std::vector<uint32_t> units_;
  std::string texts_;
};

/// A pattern from a file: {"String": ...} or {"Regex": ...}.
class Pattern {
 public:
  explicit Pattern(const io::Json& json, const std::string& part);
  void find_all(std::string_view s, std::vector<std::pair<uint32_t, uint32_t>>& out) const;

 private:
  std::string literal_;
  std::optional<Regex> regex_;
};

/// The character that represents byte `b` in byte-level vocabularies, and back (-1: none).
char32_t char_of_byte(unsigned char b);
int byte_of_char(char32_t c);
/// The token "<0x0A>" of a byte, and back (-1: no such token).
std::string byte_token(unsigned char b);
int byte_of_token(std::string_view token);

inline constexpr int kMaxPartDepth = 16;

}  // namespace tandem::text
