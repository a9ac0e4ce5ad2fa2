// SPDX-License-Identifier: Apache-2.0
// Regular expressions as networks: a reader of the syntax that Python and ECMAScript share, and
// Thompson's construction.
#include <algorithm>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/text/grammar_internal.h"
#include "tandem/text/unicode_internal.h"

namespace tandem::text {
namespace {

constexpr size_t kMostPattern = 1 << 16;
constexpr int kMostRegexDepth = 100;
constexpr int kForever = GrammarPart::kForever, kMostRepeats = GrammarPart::kMostRepeats;

using Kind = GrammarPart::Kind;

const CharacterSet& digit_set() {
  static const CharacterSet set = {{'0', '9'}};
  return set;
}
const CharacterSet& word_set() {
  static const CharacterSet set = {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}};
  return set;
}
const CharacterSet& space_set() {
  static const CharacterSet set = {{'\t', '\r'}, {' ', ' '}};
  return set;
}

class RegexReader {
 public:
  explicit RegexReader(std::string_view text) : text_(text) {
    TD_CHECK(text.size() <= kMostPattern, Value,
             "a regular expression of {} bytes is longer than {}", text.size(), kMostPattern);
    TD_CHECK(io::is_utf8(text), Value, "the regular expression is not valid UTF-8");
  }
  GrammarPart read() {
    GrammarPart all = choice(0);
    if (at_ < text_.size()) fail("this ')' closes no group");
    return all;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    TD_FAIL(Value, "the regular expression, byte {}: {}", at_, what);
  }
  bool more() const { return at_ < text_.size(); }
  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  char32_t next() {
    if (!more()) fail("it ends too early");
    return next_char(text_, at_);
  }

  GrammarPart choice(int depth) {
    if (depth > kMostRegexDepth) fail("groups are nested too deep");
    std::vector<GrammarPart> all;
    do all.push_back(sequence(depth));
    while (take("|"));
    return GrammarPart::one_of(std::move(all));
  }

  GrammarPart sequence(int depth) {
    GrammarPart out{.kind = Kind::sequence};
    while (more() && text_[at_] != '|' && text_[at_] != ')') {
      GrammarPart part = atom(depth);
      repeat(part);
      out.parts.push_back(std::move(part));
    }
    return out;
  }

  // A quantifier after `part`, if there is one.
  void repeat(GrammarPart& part) {
    int least = 0, most = kForever;
    if (take("+")) {
      least = 1;
    } else if (take("?")) {
      most = 1;
    } else if (!take("*")) {
      const size_t from = at_;
      if (!take("{")) return;
      const std::optional<int> first = number();
      least = first.value_or(0);
      most = least;
      if (take(",")) most = number().value_or(kForever);
      if (!first || !take("}")) {
        at_ = from;
        fail("'{' must begin {n}, {n,} or {n,m}; write \\{ for the character");
      }
      if (most != kForever && most < least) fail("the second bound is less than the first");
    }
    if (part.kind == Kind::begin || part.kind == Kind::end) fail("an anchor cannot be repeated");
    if (take("+")) fail("possessive quantifiers are not supported");
    take("?");  // the same texts, in another order
    GrammarPart out{.kind = Kind::repeat, .least = least, .most = most};
    out.parts.push_back(std::move(part));
    part = std::move(out);
  }
  std::optional<int> number() {
    int n = 0;
    const size_t from = at_;
    for (; more() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      n = n * 10 + (text_[at_] - '0');
      if (n > kMostRepeats) fail("more than 10000 repeats are not supported");
    }
    return at_ > from ? std::optional<int>(n) : std::nullopt;
  }

  GrammarPart atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return {.kind = Kind::characters, .set = brackets()};
    if (take(".")) return {.kind = Kind::characters, .set = CharacterSet{{'\n', '\n'}}.others()};
    if (take("^") || take("\\A")) return {.kind = Kind::begin};
    if (take("$") || take("\\Z") || take("\\z")) return {.kind = Kind::end};
    if (take("\\")) return {.kind = Kind::characters, .set = escape(false)};
    const char c = text_[at_];
    if (c == '*' || c == '+' || c == '?' || c == '{') fail("there is nothing to repeat");
    const char32_t one = next();
    return {.kind = Kind::characters, .set = {{one, one}}};
  }

  GrammarPart group(int depth) {
    if (take("?")) {
      if (take("P<") ||
          (text_.substr(at_, 2) != "<=" && text_.substr(at_, 2) != "<!" && take("<"))) {
        const size_t end = text_.find('>', at_);
        if (end == text_.npos) fail("the name of a group lacks its '>'");
        at_ = end + 1;
      } else if (!take(":")) {
        fail("of groups that begin with '?', only (?:...) and named ones are supported");
      }
    }
    GrammarPart out = choice(depth + 1);
    if (!take(")")) fail("a group lacks its ')'");
    // A sequence of its own, so that anchors in it are not those of the whole.
    GrammarPart whole{.kind = Kind::sequence};
    whole.parts.push_back(std::move(out));
    return whole;
  }

  CharacterSet brackets() {
    CharacterSet out;
    const bool other = take("^");
    for (bool first = true; first || !take("]"); first = false) {
      if (!more()) fail("a set lacks its ']'");
      if (text_.substr(at_, 2) == "[:") fail("[:class:] is not supported");
      CharacterSet low = item();
      const bool range = text_.size() > at_ + 1 && text_[at_] == '-' && text_[at_ + 1] != ']';
      if (!range) {
        out.add(low);
        continue;
      }
      ++at_;
      const CharacterSet high = item();
      const auto one = [](const CharacterSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].second;
      };
      if (!one(low) || !one(high) || high.ranges()[0].first < low.ranges()[0].first)
        fail("a range must be two characters in ascending order");
      out.add(low.ranges()[0].first, high.ranges()[0].first);
    }
    return other ? out.others() : out;
  }
  CharacterSet item() {
    if (take("\\")) return escape(true);
    const char32_t c = next();
    return {{c, c}};
  }

  // What follows a backslash.
  CharacterSet escape(bool in_set) {
    const char32_t c = next();
    const auto one = [](char32_t x) { return CharacterSet{{x, x}}; };
    switch (c) {
      case 'd':
        return digit_set();
      case 'D':
        return digit_set().others();
      case 'w':
        return word_set();
      case 'W':
        return word_set().others();
      case 's':
        return space_set();
      case 'S':
        return space_set().others();
      case 'n':
        return one('\n');
      case 't':
        return one('\t');
      case 'r':
        return one('\r');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        return one(0);
      case 'x':
        return one(hexadecimal(2));
      case 'u':
        return one(hexadecimal(4));
      case 'b':
        if (in_set) return one('\b');
        break;
      default:
        break;
    }
    const bool name = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (name) {
      --at_;
      fail("this escape is not supported");
    }
    return one(c);
  }
  char32_t hexadecimal(int digits) {
    char32_t out = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = next() | 0x20U;
      const bool letter = c >= 'a' && c <= 'f';
      if (!letter && !(c >= '0' && c <= '9')) fail("hexadecimal digits are missing");
      out = out * 16 + (letter ? c - 'a' + 10 : c - '0');
    }
    if (out >= 0xD800 && out <= 0xDFFF) fail("a surrogate is not a character");
    return out;
  }

  std::string_view text_;
  size_t at_ = 0;
};

class RegexWriter {
 public:
  RegexWriter(NetworkBuilder& b, bool json) : b_(b), json_(json), parts_(b, json) {}

  // The whole expression: anchors at its edges say whether more may come there.
  int32_t whole(int32_t from, GrammarPart& part) {
    if (part.kind == Kind::choice) {
      const int32_t to = b_.node();
      for (GrammarPart& p : part.parts) b_.nothing(whole(from, p), to);
      return to;
    }
    bool begins = !json_, ends = !json_;
    std::vector<GrammarPart>& parts = part.parts;
    if (part.kind == Kind::sequence) {
      if (parts.size() == 1 && parts[0].kind == Kind::choice) return whole(from, parts[0]);
      if (parts.size() == 1 && parts[0].kind == Kind::sequence) return whole(from, parts[0]);
      while (!parts.empty() && parts.front().kind == Kind::begin) {
        begins = true;
        parts.erase(parts.begin());
      }
      while (!parts.empty() && parts.back().kind == Kind::end) {
        ends = true;
        parts.pop_back();
      }
    }
    if (!begins) from = anything(from);
    from = parts_.add(from, part);
    return ends ? from : anything(from);
  }

 private:
  int32_t anything(int32_t from) {
    const int32_t loop = b_.node();
    b_.nothing(from, loop);
    b_.characters(loop, CharacterSet().others(), loop, json_);
    return loop;
  }

  NetworkBuilder& b_;
  bool json_;
  PartWriter parts_;
};

}  // namespace

int32_t add_regex(NetworkBuilder& b, int32_t from, std::string_view pattern, bool json) {
  GrammarPart all = RegexReader(pattern).read();
  // The first node may be that of a loop, which has edges back to it.
  const int32_t own = b.node();
  b.nothing(from, own);
  return RegexWriter(b, json).whole(own, all);
}

}  // namespace tandem::text
