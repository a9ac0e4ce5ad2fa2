// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/text_proto.h"

#include <charconv>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"

namespace tandem::io {
namespace {

constexpr int kDeepestMessage = 32;

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-' || c == '+';
}

class TextProtoParser {
 public:
  TextProtoParser(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  TextMessage all() {
    TextMessage out = message('\0', 0);
    if (at_ < text_.size()) fail("a brace is closed that was not opened");
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    TD_FAIL(Format, "'{}', line {}: {}", what_, line_, why);
  }

  // The next character that is neither blank nor part of a comment; 0 at the end.
  char peek() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size()) - 1;
      } else if (c == '\n') {
        ++line_;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return c;
      }
    }
    return '\0';
  }
  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  TextMessage message(char end, int depth) {
    if (depth > kDeepestMessage) fail("messages are nested too deeply");
    TextMessage out;
    for (;;) {
      const char c = peek();
      if (c == end && (end || at_ == text_.size())) {
        if (end) ++at_;
        return out;
      }
      if (c == '\0') fail("the message does not end");
      if (c == ';' || c == ',') {
        ++at_;
        continue;
      }
      if (c == '}' || c == '>') return out;  // of the whole file: all() says so
      field(out, depth);
    }
  }

  void field(TextMessage& out, int depth) {
    TextField f;
    f.line = line_;
    if (take('[')) {  // of an extension
      f.name = std::string(text_.substr(at_, std::min(text_.find(']', at_), text_.size()) - at_));
      at_ += f.name.size();
      if (!take(']')) fail("the name of a field does not end");
    } else {
      f.name = word();
    }
    if (f.name.empty()) fail("a field has a name first");
    const bool colon = take(':');
    if (take('[')) {
      if (take(']')) return;
      do {
        TextField item = f;
        value(item, true, depth);
        out.fields.push_back(std::move(item));
      } while (take(','));
      if (!take(']')) fail("a list does not end");
      return;
    }
    value(f, colon, depth);
    out.fields.push_back(std::move(f));
  }

  void value(TextField& f, bool scalar, int depth) {
    Budget::count();
    Budget::take(sizeof(TextField));
    f.line = line_;
    const char c = peek();
    if (c == '{' || c == '<') {
      ++at_;
      f.message.push_back(message(c == '{' ? '}' : '>', depth + 1));
    } else if (!scalar) {
      fail("after '" + f.name + "' comes a colon or a brace");
    } else if (c == '"' || c == '\'') {
      f.quoted = true;
      while (peek() == '"' || peek() == '\'') string(f.text);  // strings side by side are one
    } else {
      f.text = word();
      if (f.text.empty()) fail("'" + f.name + "' has no value");
    }
  }

  std::string word() {
    peek();
    const size_t from = at_;
    while (at_ < text_.size() && is_word_character(text_[at_])) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }

  void string(std::string& out) {
    const char quote = text_[at_++];
    for (;; ++at_) {
      if (at_ >= text_.size() || text_[at_] == '\n') fail("a string does not end");
      char c = text_[at_];
      if (c == quote) break;
      if (c == '\\') {
        if (++at_ >= text_.size()) fail("a string does not end");
        c = escape();
      }
      out += c;
    }
    ++at_;
  }
  char escape() {
    const char c = text_[at_];
    constexpr std::string_view kFrom = "abfnrtv", kTo = "\a\b\f\n\r\t\v";
    if (const size_t k = kFrom.find(c); k != std::string_view::npos) return kTo[k];
    const bool hexadecimal = c == 'x';
    if (!hexadecimal && (c < '0' || c > '7')) return c;
    size_t from = at_ + (hexadecimal ? 1 : 0), end = from;
    const auto digit = [&](char d) {
      return hexadecimal
                 ? (d >= '0' && d <= '9') || (d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F')
                 : d >= '0' && d <= '7';
    };
    while (end < text_.size() && end < from + (hexadecimal ? 2 : 3) && digit(text_[end])) ++end;
    unsigned code = 0;
    std::from_chars(text_.data() + from, text_.data() + end, code, hexadecimal ? 16 : 8);
    if (end == from || code > 255) fail("a string has a damaged escape");
    at_ = end - 1;
    return static_cast<char>(code);
  }

  std::string_view text_, what_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

const TextField* TextMessage::find(std::string_view name) const {
  for (size_t i = fields.size(); i-- > 0;)
    if (fields[i].name == name) return &fields[i];
  return nullptr;
}

std::optional<int64_t> TextField::as_int() const {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (quoted || text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return out;
}

std::optional<bool> TextField::as_bool() const {
  if (!quoted && (text == "true" || text == "True" || text == "t" || text == "1")) return true;
  if (!quoted && (text == "false" || text == "False" || text == "f" || text == "0")) return false;
  return {};
}

TextMessage parse_text_proto(std::string_view text, std::string_view what) {
  const Budget budget(what, text.size());
  return TextProtoParser(text, what).all();
}

}  // namespace tandem::io
