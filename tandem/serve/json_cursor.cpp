// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/json_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/io/json.h"

namespace tandem::serve {
namespace {

// Whether no byte has its highest bit set, eight bytes at a time.
bool is_ascii(std::string_view s) {
  uint64_t all = 0;
  size_t i = 0;
  for (; i + 8 <= s.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, s.data() + i, 8);
    all |= word;
  }
  for (; i < s.size(); ++i) all |= static_cast<unsigned char>(s[i]);
  return (all & 0x8080808080808080U) == 0;
}

}  // namespace

bool JsonKeys::add(std::string_view key, bool lasting) {
  constexpr size_t kFew = 16;
  const bool known =
      many_.empty() ? std::find(few_.begin(), few_.end(), key) != few_.end() : many_.count(key) > 0;
  if (known) return false;
  if (!lasting) key = own_.emplace_front(key);
  if (many_.empty() && few_.size() == kFew) many_.insert(few_.begin(), few_.end());
  if (!many_.empty()) return many_.insert(key).second;
  if (few_.empty()) few_.reserve(kFew);
  few_.push_back(key);
  return true;
}

JsonCursor::JsonCursor(std::string_view text, std::string_view what) : text_(text), what_(what) {
  TD_CHECK(is_ascii(text) || io::is_utf8(text), Format, "{}: the text is not UTF-8", what);
}

void JsonCursor::fail(std::string_view why) const {
  TD_FAIL(Format, "{}: byte {}: {}", what_, at_, why);
}

void JsonCursor::open(char bracket) {
  if (peek() != bracket)
    fail(at_ >= text_.size() ? "the text ends early"
         : bracket == '{'    ? "expected an object"
                             : "expected a list");
  if (depth_ >= kMostDepth) fail(fmt::format("more than {} levels", kMostDepth));
  levels_[depth_++] = {bracket == '{' ? '}' : ']'};
  ++at_;
}

bool JsonCursor::next_item() {
  const char c = peek();
  if (c == level().end) {
    ++at_;
    --depth_;
    return false;
  }
  if (c == ']' || c == '}') fail("brackets do not match");
  if (!level().first) {
    if (c != ',')
      fail(c == '\0' ? "the text ends early" : "expected a comma or the end of the list");
    ++at_;
    const char next = peek();
    if (next == ']' || next == '}') fail("a comma before the end");
  }
  level().first = false;
  return true;
}

std::optional<std::string_view> JsonCursor::next_key(JsonKeys* keys) {
  if (!next_item()) return std::nullopt;
  if (peek() != '"') fail("expected a key");
  const std::string_view key = string_view(escaped_);
  if (peek() != ':') fail("expected a colon");
  ++at_;
  if (keys) {
    if (!keys->add(key, key.data() != escaped_.data()))
      fail(fmt::format("the key '{}' is given twice", key.substr(0, 100)));
  }
  return key;
}

// The four digits after \u, and those of the second half where they are a first one.
void JsonCursor::unicode(std::string& out) {
  const auto four = [&]() -> uint32_t {
    uint32_t v = 0;
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), v, 16);
    if (error != std::errc() || digits.size() < 4 || end != digits.data() + 4)
      fail("\\u expects four hexadecimal digits");
    at_ += 4;
    return v;
  };
  uint32_t code = four();
  if (code >= 0xDC00 && code < 0xE000) fail("half of a surrogate pair");
  if (code >= 0xD800 && code < 0xDC00) {
    if (text_.substr(at_, 2) != "\\u") fail("half of a surrogate pair");
    at_ += 2;
    const uint32_t low = four();
    if (low < 0xDC00 || low >= 0xE000) fail("half of a surrogate pair");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  const auto put = [&out](uint32_t v) { out += static_cast<char>(v); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 63));
    }
    put(0x80 | (code >> 6 & 63));
  }
  put(0x80 | (code & 63));
}

std::string_view JsonCursor::string_view(std::string& room) {
  if (peek() != '"') fail("expected a string");
  const size_t from = ++at_;
  const auto plain = [](char c) {
    return c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 32;
  };
  while (at_ < text_.size() && plain(text_[at_])) ++at_;
  if (at_ < text_.size() && text_[at_] == '"') return text_.substr(from, at_++ - from);
  room = text_.substr(from, at_ - from);
  unescape(room);
  return room;
}

// The rest of a string, from the first thing in it that does not stand for itself.
void JsonCursor::unescape(std::string& out) {
  for (;;) {
    const size_t from = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 32)
      ++at_;
    out.append(text_.substr(from, at_ - from));
    if (at_ >= text_.size()) fail("a string has no end");
    const char c = text_[at_];
    if (c != '\\' && c != '"') fail("a control character in a string");
    ++at_;
    if (c == '"') return;
    constexpr std::string_view kCodes = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
    const char code = at_ < text_.size() ? text_[at_] : '\0';
    ++at_;
    if (code == 'u') {
      unicode(out);
    } else {
      const size_t place = kCodes.find(code);
      if (code == '\0' || place == std::string_view::npos) fail("an unknown escape in a string");
      out += kMeant[place];
    }
  }
}

JsonNumber JsonCursor::take_number() {
  peek();
  const char* const end = text_.data() + text_.size();
  const char* const from = text_.data() + at_;
  const JsonNumber n = JsonNumber::scan(from, end);
  if (n.length == 0 || (from + n.length < end && !ends_value(from[n.length]))) return {};
  at_ += n.length;
  return n;
}

std::string_view JsonCursor::read_word(bool nonfinite) {
  const JsonNumber number = take_number();
  if (number.length > 0) return text_.substr(at_ - number.length, number.length);
  const std::string_view rest = text_.substr(at_);
  size_t n = 0;
  for (const std::string_view word : {"true", "false", "null"})
    if (rest.starts_with(word)) n = word.size();
  if (n == 0 && nonfinite)
    for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
      if (rest.starts_with(word)) n = word.size();
  if (n == 0) fail(rest.empty() ? "the text ends early" : "expected a value");
  const std::string_view after = rest.substr(n);
  if (!after.empty() && !ends_value(after[0])) fail("expected a value");
  at_ += n;
  return rest.substr(0, n);
}

bool JsonCursor::read_bool() {
  const std::string_view word = read_word();
  if (word != "true" && word != "false") fail("expected true or false");
  return word == "true";
}

int64_t JsonCursor::read_int() {
  const std::string_view word = peek() == '"' || peek() == '{' || peek() == '[' ? "" : read_word();
  int64_t v = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), v);
  if (error != std::errc() || end != word.data() + word.size()) fail("expected a whole number");
  return v;
}

std::string_view JsonCursor::skip(bool nonfinite) {
  peek();
  const size_t from = at_, outside = depth_;
  do {
    if (depth_ > outside) {
      if (!next_item()) continue;
      if (level().end == '}') {
        string_view(escaped_);
        if (peek() != ':') fail("expected a colon");
        ++at_;
      } else if (take_numbers([](const JsonNumber&) { return true; }) > 0) {
        continue;
      }
    }
    const char c = peek();
    if (c == '{' || c == '[')
      open(c);
    else if (c == '"')
      string_view(escaped_);
    else
      read_word(nonfinite);
  } while (depth_ > outside);
  return text_.substr(from, at_ - from);
}

void JsonCursor::finish() {
  if (peek() != '\0' || at_ < text_.size()) fail("something follows the value");
}

void write_text(std::string& out, std::string_view text) {
  const bool plain = std::all_of(
      text.begin(), text.end(), [](char c) { return c >= 32 && c < 127 && c != '"' && c != '\\'; });
  if (plain)
    out.append("\"").append(text).append("\"");
  else
    out += io::quote_json(text);
}

}  // namespace tandem::serve
