// SPDX-License-Identifier: Apache-2.0
// Grammars in EBNF as llama.cpp (GBNF) and XGrammar write it. Line ends have no meaning: a rule
// ends where the next one's name and "::=" stand.
// https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/text/grammar.h"
#include "tandem/text/grammar_internal.h"
#include "tandem/text/unicode_internal.h"

namespace tandem::text {
namespace {

constexpr size_t kMostEbnf = 1 << 18;
constexpr int kMostEbnfDepth = 100;

bool is_rule_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

class EbnfReader {
 public:
  using Kind = GrammarPart::Kind;
  struct Rule {
    std::string name;
    bool given = false;
    GrammarPart part = {};
  };

  explicit EbnfReader(std::string_view text) : text_(text) {
    TD_CHECK(text.size() <= kMostEbnf, Value, "a grammar of {} bytes is longer than {}",
             text.size(), kMostEbnf);
    TD_CHECK(io::is_utf8(text), Value, "the grammar is not valid UTF-8");
  }

  // All rules, "root" first.
  std::vector<Rule> read() {
    rule_of("root");
    skip();
    while (more()) {
      const std::string name = take_name();
      if (name.empty()) fail("a rule begins with its name");
      skip();
      if (!take("::=")) fail("after the name of a rule comes '::='");
      const auto at = static_cast<size_t>(rule_of(name));
      if (rules_[at].given) fail("the rule '" + name + "' is there already");
      rules_[at].given = true;
      GrammarPart part = choice(0);
      rules_[at].part = std::move(part);
      if (more() && text_[at_] == ')') fail("this ')' closes no group");
    }
    std::vector<std::string> given;
    for (const Rule& r : rules_)
      if (r.given) given.push_back(r.name);
    for (const Rule& r : rules_) {
      const std::string near = r.given ? "" : nearest_word(r.name, given);
      TD_CHECK(r.given, Value, "the grammar has no rule '{}'{}", r.name,
               near.empty() ? "" : "; did you mean '" + near + "'?");
    }
    return std::move(rules_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    TD_FAIL(Value, "the grammar, line {}: {}", line, what);
  }
  bool more() const { return at_ < text_.size(); }
  bool take(std::string_view what) {
    if (text_.substr(at_, what.size()) != what) return false;
    at_ += what.size();
    return true;
  }
  void skip() {
    while (more()) {
      if (text_[at_] == '#')
        at_ = std::min(text_.find('\n', at_), text_.size());
      else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
        ++at_;
      else
        return;
    }
  }
  std::string take_name() {
    const size_t from = at_;
    while (more() && is_rule_name(text_[at_])) ++at_;
    return std::string(text_.substr(from, at_ - from));
  }
  int32_t rule_of(const std::string& name) {
    const auto [at, fresh] = places_.emplace(name, static_cast<int32_t>(rules_.size()));
    if (fresh) rules_.push_back({name});
    return at->second;
  }
  // Does the next rule begin here?
  bool at_rule() {
    const size_t from = at_;
    const bool named = !take_name().empty();
    skip();
    const bool begins = named && text_.substr(at_, 3) == "::=";
    at_ = from;
    return begins;
  }

  GrammarPart choice(int depth) {
    std::vector<GrammarPart> all = {sequence(depth)};
    while (take("|")) all.push_back(sequence(depth));
    return GrammarPart::one_of(std::move(all));
  }

  GrammarPart sequence(int depth) {
    GrammarPart out{.kind = Kind::sequence};
    for (skip(); more() && text_[at_] != '|' && text_[at_] != ')' && !at_rule(); skip()) {
      Budget::check_time();
      GrammarPart part = atom(depth);
      skip();
      repeat(part);
      out.parts.push_back(std::move(part));
    }
    return out;
  }

  void repeat(GrammarPart& part) {
    GrammarPart out{.kind = Kind::repeat, .least = 0, .most = GrammarPart::kForever};
    if (take("+")) {
      out.least = 1;
    } else if (take("?")) {
      out.most = 1;
    } else if (take("{")) {
      const std::optional<int> first = number();
      out.least = first.value_or(0);
      out.most = out.least;
      const bool list = take_after_space(",");
      const std::optional<int> second = list ? number() : std::nullopt;
      if (list) out.most = second.value_or(GrammarPart::kForever);
      if ((!first && !second) || !take_after_space("}"))
        fail("'{' must begin {n}, {n,}, {n,m} or {,m}");
      if (out.most != GrammarPart::kForever && out.most < out.least)
        fail("the second bound is less than the first");
    } else if (!take("*")) {
      return;
    }
    out.parts.push_back(std::move(part));
    part = std::move(out);
  }
  bool take_after_space(std::string_view what) {
    skip();
    return take(what);
  }
  std::optional<int> number() {
    skip();
    int n = 0;
    const size_t from = at_;
    for (; more() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      n = n * 10 + (text_[at_] - '0');
      if (n > GrammarPart::kMostRepeats) fail("more than 10000 repeats are not supported");
    }
    return at_ > from ? std::optional<int>(n) : std::nullopt;
  }

  GrammarPart atom(int depth) {
    if (take("\"")) return literal();
    if (take("[")) return {.kind = Kind::characters, .set = brackets()};
    if (take(".")) return {.kind = Kind::characters, .set = CharacterSet().others()};
    if (take("(")) {
      if (take("=")) fail("lookahead is not supported");
      if (depth == kMostEbnfDepth) fail("groups are nested too deep");
      GrammarPart out = choice(depth + 1);
      if (!take(")")) fail("a group lacks its ')'");
      return out;
    }
    const std::string name = take_name();
    if (name.empty()) fail("this is neither a rule's name, a \"text\", a [set] nor a (group)");
    return {.kind = Kind::call, .rule = rule_of(name)};
  }

  GrammarPart literal() {
    GrammarPart out{.kind = Kind::sequence};
    while (!take("\"")) {
      if (!more() || text_[at_] == '\n') fail("a text lacks its '\"'");
      const char32_t c = one_character();
      out.parts.push_back({.kind = Kind::characters, .set = {{c, c}}});
    }
    return out;
  }

  CharacterSet brackets() {
    CharacterSet out;
    const bool other = take("^");
    while (!take("]")) {
      if (!more() || text_[at_] == '\n') fail("a set lacks its ']'");
      const char32_t low = one_character();
      char32_t high = low;
      if (text_.size() > at_ + 1 && text_[at_] == '-' && text_[at_ + 1] != ']') {
        ++at_;
        high = one_character();
      }
      if (high < low) fail("a range must be two characters in ascending order");
      out.add(low, high);
    }
    return other ? out.others() : out;
  }

  char32_t one_character() {
    if (!more()) fail("it ends too early");
    if (!take("\\")) return next_char(text_, at_);
    if (!more()) fail("it ends too early");
    const char32_t c = next_char(text_, at_);
    constexpr std::string_view kNames = "nrt", kMeans = "\n\r\t", kOwn = "\"'\\[]-^";
    if (c < 128) {
      const auto letter = static_cast<char>(c);
      if (const size_t k = kNames.find(letter); k != kNames.npos)
        return static_cast<char32_t>(kMeans[k]);
      if (kOwn.find(letter) != kOwn.npos) return c;
    }
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) fail("this escape is not supported");
    return hexadecimal(digits);
  }
  char32_t hexadecimal(int digits) {
    uint64_t out = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const auto c = more() ? static_cast<char>(text_[at_] | 0x20) : '-';
      const bool letter = c >= 'a' && c <= 'f';
      if (!letter && !(more() && text_[at_] >= '0' && text_[at_] <= '9'))
        fail("hexadecimal digits are missing");
      out = out * 16 + static_cast<uint64_t>(letter ? c - 'a' + 10 : text_[at_] - '0');
    }
    if (out > CharacterSet::kLast || (out >= 0xD800 && out <= 0xDFFF))
      fail("this is the number of no character");
    return static_cast<char32_t>(out);
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Rule> rules_;
  std::map<std::string, int32_t> places_;
};

/// Which rules may begin with which, before any character: one that begins with itself could be
/// opened for ever.
class LeftRecursion {
 public:
  explicit LeftRecursion(const std::vector<EbnfReader::Rule>& rules)
      : rules_(rules), empty_(rules.size()), first_(rules.size()) {
    for (bool changes = true; changes;) {
      changes = false;
      for (size_t i = 0; i < rules.size(); ++i) {
        const bool empty = may_be_empty(rules[i].part, nullptr);
        changes = changes || empty != empty_[i];
        empty_[i] = empty;
      }
    }
    for (size_t i = 0; i < rules.size(); ++i) may_be_empty(rules[i].part, &first_[i]);
  }
  void check() {
    std::vector<uint8_t> state(rules_.size());
    for (size_t i = 0; i < rules_.size(); ++i) walk(i, state);
  }

 private:
  // `calls` gets the rules that the part may begin with.
  bool may_be_empty(const GrammarPart& part, std::set<int32_t>* calls) const {
    using Kind = GrammarPart::Kind;
    Budget::check_time();
    if (part.kind == Kind::characters) return false;
    if (part.kind == Kind::call) {
      if (calls) calls->insert(part.rule);
      return empty_[static_cast<size_t>(part.rule)];
    }
    if (part.kind == Kind::repeat) {
      if (part.most == 0) return true;
      return may_be_empty(part.parts[0], calls) || part.least == 0;
    }
    bool any = false;
    for (const GrammarPart& p : part.parts) {
      const bool empty = may_be_empty(p, calls);
      if (part.kind == Kind::sequence && !empty) return false;
      any = any || empty;
    }
    return part.kind == Kind::sequence || any;
  }
  // Depth first without recursion: chains of rules may be long.
  void walk(size_t from, std::vector<uint8_t>& state) const {
    constexpr uint8_t kOpen = 1, kDone = 2;
    std::vector<size_t> path = {from};
    while (!path.empty()) {
      const size_t at = path.back();
      if (state[at] == kDone) {
        path.pop_back();
        continue;
      }
      const bool fresh = state[at] == 0;
      state[at] = fresh ? kOpen : kDone;
      if (!fresh) continue;
      for (const int32_t next : first_[at]) {
        const auto n = static_cast<size_t>(next);
        TD_CHECK(state[n] != kOpen, Value,
                 "the rule '{}' of the grammar begins with itself (left recursion); write its "
                 "repeats with '*' or at the end",
                 rules_[n].name);
        if (state[n] == 0) path.push_back(n);
      }
    }
  }

  const std::vector<EbnfReader::Rule>& rules_;
  std::vector<bool> empty_;
  std::vector<std::set<int32_t>> first_;
};

}  // namespace

Grammar Grammar::ebnf(std::string_view rules) {
  const Budget budget("the grammar", rules.size(), {.seconds = 2});
  const std::vector<EbnfReader::Rule> all = EbnfReader(rules).read();
  LeftRecursion(all).check();
  NetworkBuilder b;
  for (size_t i = 0; i < all.size(); ++i) b.rule();
  PartWriter writer(b);
  for (size_t i = 0; i < all.size(); ++i) {
    const NetworkRule r = b.at(static_cast<int32_t>(i));
    // The first node may be that of a loop, which has edges back to it.
    const int32_t own = b.node();
    b.nothing(r.begin, own);
    b.nothing(writer.add(own, all[i].part), r.end);
  }
  return Grammar(std::make_shared<Network>(b.finish("the grammar")));
}

}  // namespace tandem::text
