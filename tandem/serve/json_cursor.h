// SPDX-License-Identifier: Apache-2.0
// Reads JSON from front to back without building a tree: a request's tensors go from its text into
// their memory. What it passes over is checked as strictly as what it reads. Depth is bounded, so
// nothing a client sends exhausts the stack.
#pragma once

#include <array>
#include <forward_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tandem/serve/json_number.h"
#include "tandem/tensor/tensor.h"

namespace tandem::serve {

/// The keys of an object, to find one that is given twice.
class JsonKeys {
 public:
  /// False where it is there already. `lasting`: the text stays where it is.
  bool add(std::string_view key, bool lasting);

 private:
  std::vector<std::string_view> few_;
  std::unordered_set<std::string_view> many_;  ///< all of them, where there are more than a few
  std::forward_list<std::string> own_;
};

class TD_API JsonCursor {
 public:
  static constexpr size_t kMostDepth = 64;
  /// `what` stands in messages and outlives the cursor, as the text does. Throws Format unless the
  /// text is UTF-8.
  explicit JsonCursor(std::string_view text, std::string_view what = "JSON");

  /// The next character that is not a blank, not consumed; 0 at the end.
  char peek() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  /// Consumes '{' or '['.
  void open(char bracket);
  /// Inside an object: the next key, or nothing after the last one; it stands until the next text
  /// is read. Throws for a key seen before only if `keys` is given.
  std::optional<std::string_view> next_key(JsonKeys* keys = nullptr);
  /// Inside an array: is there another item? Consumes the comma.
  bool next_item();
  std::string read_string() { return std::string(string_view(escaped_)); }
  bool read_bool();
  int64_t read_int();
  /// The number at the next character, consumed; of length 0, nothing consumed, where there is
  /// none.
  JsonNumber take_number();
  /// Inside an array, at an item: the numbers that a comma follows go to `take` and are consumed,
  /// up to the first thing else, or the first number for which it says false. Gives how many they
  /// were.
  template <class Take>
  int64_t take_numbers(Take take);
  /// The text of a number, true, false, null or (if allowed) NaN, Infinity, -Infinity.
  std::string_view read_word(bool nonfinite = false);
  /// Passes over a value; gives its text. With `nonfinite` NaN and Infinity may stand in it.
  std::string_view skip(bool nonfinite = false);
  /// Throws unless only blanks are left.
  void finish();
  size_t at() const { return at_; }
  /// Throws Format with the place.
  [[noreturn]] void fail(std::string_view why) const;

 private:
  /// A string, consumed: as it stands in the text where nothing in it is escaped, else in `room`.
  std::string_view string_view(std::string& room);
  void unescape(std::string& out);
  static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
  static bool ends_value(char c) { return is_blank(c) || c == ',' || c == ']' || c == '}'; }
  void unicode(std::string& out);
  std::string_view text_, what_;
  size_t at_ = 0;
  struct Level {
    char end = 0;       ///< the bracket that closes it
    bool first = true;  ///< nothing has been read in it
  };
  Level& level() { return levels_[depth_ - 1]; }
  std::array<Level, kMostDepth> levels_;
  size_t depth_ = 0;  ///< levels that are open
  std::string escaped_;
};

template <class Take>
int64_t JsonCursor::take_numbers(Take take) {
  const char* const end = text_.data() + text_.size();
  const char* p = text_.data() + at_;
  int64_t count = 0;
  for (;; ++count) {
    while (p < end && is_blank(*p)) ++p;
    const JsonNumber n = JsonNumber::scan(p, end);
    const char* const comma = p + n.length;
    if (n.length == 0 || comma >= end || *comma != ',' || !take(n)) break;
    at_ = static_cast<size_t>(comma - text_.data());  // next_item() consumes it
    p = comma + 1;
  }
  return count;
}

/// An array of numbers as a tensor; its shape is that of the nested lists, () for a number alone.
/// Throws Value naming the element (`name`[1][3]) for a list of another length than its
/// neighbours, and for what the dtype does not hold: fractions and numbers out of range, strings,
/// null. NaN and Infinity only with `nonfinite`.
TD_API Tensor read_array(std::string_view json, DType dtype, std::string_view name,
                         bool nonfinite = false);

/// A list of numbers without lists in it, consumed; undefined, nothing consumed, where it is
/// anything else or has a number that takes a second look: read_array() tells. Throws Format.
TD_API Tensor read_list(JsonCursor& json, DType dtype);

/// Append a number as JSON. NaN and infinities as `nan` says: as the words that TensorFlow Serving
/// writes, or null.
enum class NonFinite : uint8_t { null, words };
TD_API void write_array(std::string& out, const Tensor& t, NonFinite nan, bool nested);
/// The same for row `row` of a tensor alone.
TD_API void write_row(std::string& out, const Tensor& t, int64_t row, NonFinite nan);
TD_API void write_text(std::string& out, std::string_view text);

}  // namespace tandem::serve
