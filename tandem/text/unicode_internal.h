// SPDX-License-Identifier: Apache-2.0
// The only access to the Unicode libraries: utf8proc (categories, normal forms, grapheme clusters)
// and Oniguruma (regular expressions, the engine that tokenizer files are written for). Everything
// here takes well-formed UTF-8; the tokenizer checks its input once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::text {

/// The code point at byte `i` of `s`; advances `i` past it.
inline char32_t next_char(std::string_view s, size_t& i) {
  const auto at = [&](size_t k) { return static_cast<unsigned char>(s[k]); };
  const unsigned c = at(i);
  if (c < 0x80) return ++i, c;
  if (c < 0xE0) return i += 2, (c & 31U) << 6 | (at(i - 1) & 63U);
  if (c < 0xF0) return i += 3, (c & 15U) << 12 | (at(i - 2) & 63U) << 6 | (at(i - 1) & 63U);
  i += 4;
  return (c & 7U) << 18 | (at(i - 3) & 63U) << 12 | (at(i - 2) & 63U) << 6 | (at(i - 1) & 63U);
}
/// Length in bytes of the character that begins with byte `c`.
inline size_t char_bytes(char c) {
  const auto u = static_cast<unsigned char>(c);
  return u < 0x80 ? 1 : u < 0xE0 ? 2 : u < 0xF0 ? 3 : 4;
}
void append_char(std::string& s, char32_t c);
inline bool is_ascii(std::string_view s) {
  for (char c : s)
    if (static_cast<signed char>(c) < 0) return false;
  return true;
}

/// Unicode's White_Space property.
bool is_space(char32_t c);
/// General categories L*, N*, P*, M*, Mn, C*.
bool is_letter(char32_t c);
bool is_number(char32_t c);
bool is_punctuation(char32_t c);
bool is_mark(char32_t c);
bool is_nonspacing_mark(char32_t c);
bool is_other(char32_t c);
/// \w in regular expressions.
bool is_word(char32_t c);
/// Lower case of one character: one or two code points.
std::u32string_view lower(char32_t c, char32_t (&room)[2]);

/// A character of a changed text: how many old characters it stands for. 0: one, the next; 1: none,
/// it was inserted; -k: the next one, and the k after it were removed.
struct Change {
  char32_t c;
  int32_t change;
};
enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };
/// `s` in a normal form, with the fate of each character.
std::vector<Change> normal_form(std::string_view s, NormalForm form);
/// Ends (byte offsets) of the grapheme clusters of `s`.
std::vector<uint32_t> grapheme_ends(std::string_view s);

/// A compiled regular expression. Several threads may share it.
class Regex {
 public:
  /// Throws Format when `pattern` is not valid.
  explicit Regex(const std::string& pattern);
  /// Byte ranges of all matches from left to right. Throws Value when the search takes too long.
  void find_all(std::string_view s, std::vector<std::pair<uint32_t, uint32_t>>& out) const;

 private:
  std::shared_ptr<void> compiled_;
};

}  // namespace tandem::text
