// SPDX-License-Identifier: Apache-2.0
// Networks: how they are put together, and which of their nodes lead to an end.
#include "tandem/text/grammar.h"

#include <algorithm>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/text/grammar_internal.h"
#include "tandem/text/unicode_internal.h"

namespace tandem::text {
namespace {

constexpr size_t kMostNodes = 400'000, kMostEdges = 1'600'000;
constexpr int32_t kNever = 1 << 20;

// A call as the last thing of a rule opens nothing: the rule's own return is used.
int32_t height_by(const Network& n, const NetworkEdge& e) {
  const NetworkNode& to = n.nodes[static_cast<size_t>(e.to)];
  if (e.rule < 0) return to.height;
  const int32_t begin = n.rules[static_cast<size_t>(e.rule)].begin;
  const int32_t inside = n.nodes[static_cast<size_t>(begin)].height;
  return to.ends ? inside : std::min(kNever, std::max(inside + 1, to.height));
}

void set_heights(Network& n) {
  std::vector<std::vector<int32_t>> before(n.nodes.size());  // nodes whose heights depend on one
  std::vector<int32_t> changed;
  for (size_t i = 0; i < n.nodes.size(); ++i) {
    n.nodes[i].height = n.nodes[i].ends ? 0 : kNever;
    if (n.nodes[i].ends) changed.push_back(static_cast<int32_t>(i));
    for (const NetworkEdge& e : n.nodes[i].edges) {
      before[static_cast<size_t>(e.to)].push_back(static_cast<int32_t>(i));
      if (e.rule >= 0)
        before[static_cast<size_t>(n.rules[static_cast<size_t>(e.rule)].begin)].push_back(
            static_cast<int32_t>(i));
    }
  }
  while (!changed.empty()) {
    const int32_t at = changed.back();
    changed.pop_back();
    for (const int32_t i : before[static_cast<size_t>(at)]) {
      NetworkNode& node = n.nodes[static_cast<size_t>(i)];
      int32_t least = node.height;
      for (const NetworkEdge& e : node.edges) least = std::min(least, height_by(n, e));
      if (least == node.height) continue;
      node.height = least;
      changed.push_back(i);
    }
  }
}

}  // namespace

void CharacterSet::add(char32_t first, char32_t last) {
  std::vector<Range> out;
  for (const Range& r : ranges_) {
    if (r.second + 1 < first || last + 1 < r.first) {
      out.push_back(r);
    } else {
      first = std::min(first, r.first);
      last = std::max(last, r.second);
    }
  }
  out.insert(std::upper_bound(out.begin(), out.end(), Range{first, last}), {first, last});
  ranges_ = std::move(out);
}
void CharacterSet::add(const CharacterSet& other) {
  for (const Range& r : other.ranges_) add(r.first, r.second);
}
CharacterSet CharacterSet::others() const {
  CharacterSet all = *this, out;
  all.add(0xD800, 0xDFFF);
  char32_t next = 0;
  for (const Range& r : all.ranges_) {
    if (r.first > next) out.ranges_.emplace_back(next, r.first - 1);
    next = r.second + 1;
  }
  if (next <= kLast) out.ranges_.emplace_back(next, kLast);
  return out;
}
CharacterSet CharacterSet::without(const CharacterSet& other) const {
  CharacterSet out = others();
  out.add(other);
  return out.others();
}
bool CharacterSet::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const Range& r) { return c >= r.first && c <= r.second; });
}

int32_t NetworkBuilder::rule() {
  const int32_t begin = node(), end = node();
  network_.nodes[static_cast<size_t>(end)].ends = true;
  network_.rules.push_back({begin, end});
  return static_cast<int32_t>(network_.rules.size()) - 1;
}
int32_t NetworkBuilder::node() {
  TD_CHECK(network_.nodes.size() < kMostNodes, Value,
           "the constraint is too large: it has more than {} states", kMostNodes);
  if (network_.nodes.size() % 256 == 0) Budget::check_time();
  network_.nodes.emplace_back();
  return static_cast<int32_t>(network_.nodes.size()) - 1;
}
void NetworkBuilder::edge(int32_t from, NetworkEdge e) {
  TD_CHECK(++edges_ <= kMostEdges, Value,
           "the constraint is too large: it has more than {} transitions", kMostEdges);
  network_.nodes[static_cast<size_t>(from)].edges.push_back(e);
}
void NetworkBuilder::byte(int32_t from, uint8_t low, uint8_t high, int32_t to) {
  edge(from, {to, NetworkEdge::kByte, low, high});
}
void NetworkBuilder::nothing(int32_t from, int32_t to) {
  if (from != to) edge(from, {to, NetworkEdge::kNothing, 0, 0});
}
void NetworkBuilder::call(int32_t from, int32_t rule, int32_t to) { edge(from, {to, rule, 0, 0}); }
int32_t NetworkBuilder::literal(int32_t from, std::string_view bytes) {
  for (const char c : bytes) {
    const int32_t to = node();
    byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
    from = to;
  }
  return from;
}
int32_t NetworkBuilder::called(int32_t from, int32_t rule) {
  const int32_t to = node();
  call(from, rule, to);
  return to;
}

// A range is cut until all its characters have the same bytes but for free ones at their end.
void NetworkBuilder::utf8(int32_t from, char32_t first, char32_t last, int32_t to) {
  for (const char32_t limit : {0x7FU, 0x7FFU, 0xFFFFU}) {
    if (first <= limit && last > limit) {
      utf8(from, first, limit, to);
      utf8(from, limit + 1, last, to);
      return;
    }
  }
  std::string low, high;
  append_char(low, first);
  append_char(high, last);
  const size_t n = high.size();
  for (size_t i = 1; i < n; ++i) {
    const char32_t free = (char32_t{1} << (6 * i)) - 1;
    if ((first & ~free) == (last & ~free)) continue;
    if ((first & free) != 0) {
      utf8(from, first, first | free, to);
      utf8(from, (first | free) + 1, last, to);
      return;
    }
    if ((last & free) != free) {
      utf8(from, first, (last & ~free) - 1, to);
      utf8(from, last & ~free, last, to);
      return;
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const int32_t next = i + 1 == n ? to : node();
    byte(from, static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i]), next);
    from = next;
  }
}

void NetworkBuilder::characters(int32_t from, const CharacterSet& set, int32_t to, bool json) {
  Budget::check_time();
  static const CharacterSet kEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}};
  const CharacterSet plain = json ? set.without(kEscaped) : set;
  for (const auto& [first, last] : plain.ranges()) utf8(from, first, last, to);
  if (!json) return;
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t", kNames = "\"\\bfnrt";
  for (char32_t c = 0; c <= '\\'; ++c) {
    if (!kEscaped.contains(c) || !set.contains(c)) continue;
    const int32_t slash = literal(from, "\\");
    if (const size_t k = kNamed.find(static_cast<char>(c)); k != kNamed.npos) {
      const auto name = static_cast<uint8_t>(kNames[k]);
      byte(slash, name, name, to);
      continue;
    }
    const int32_t last = literal(slash, c < 16 ? "u000" : "u001");
    const auto digit = static_cast<uint8_t>("0123456789abcdef"[c % 16]);
    byte(last, digit, digit, to);
  }
}

int32_t PartWriter::add(int32_t from, const GrammarPart& part) {
  constexpr int kMostCopies = 1'000'000;
  using Kind = GrammarPart::Kind;
  TD_CHECK(++copies_ <= kMostCopies, Value, "the expression is too large");
  switch (part.kind) {
    case Kind::characters: {
      const int32_t to = b_.node();
      b_.characters(from, part.set, to, json_);
      return to;
    }
    case Kind::sequence:
      for (const GrammarPart& p : part.parts) from = add(from, p);
      return from;
    case Kind::choice: {
      const int32_t to = b_.node();
      for (const GrammarPart& p : part.parts) b_.nothing(add(from, p), to);
      return to;
    }
    case Kind::repeat:
      return repeated(from, part);
    case Kind::call:
      return b_.called(from, part.rule);
    default:
      TD_FAIL(Value, "the regular expression has ^ or $ inside; they are supported at its edges");
  }
}

int32_t PartWriter::repeated(int32_t from, const GrammarPart& part) {
  const GrammarPart& one = part.parts[0];
  for (int i = 0; i < part.least; ++i) from = add(from, one);
  if (part.most == GrammarPart::kForever) {
    const int32_t loop = b_.node();
    b_.nothing(from, loop);
    b_.nothing(add(loop, one), loop);
    return loop;
  }
  const int32_t to = b_.node();
  b_.nothing(from, to);
  for (int i = part.least; i < part.most; ++i) {
    from = add(from, one);
    b_.nothing(from, to);
  }
  return to;
}

Network NetworkBuilder::finish(std::string_view what) {
  Network n = std::move(network_);
  set_heights(n);
  const int32_t height = n.nodes[static_cast<size_t>(n.rules[0].begin)].height;
  TD_CHECK(height < kNever, Value, "no text satisfies {}", what);
  TD_CHECK(height <= Network::kDepth, Value, "{} is nested more than {} deep", what,
           Network::kDepth);
  for (NetworkNode& node : n.nodes)
    std::erase_if(node.edges,
                  [&](const NetworkEdge& e) { return height_by(n, e) > Network::kDepth; });
  return n;
}

Grammar Grammar::regex(std::string_view pattern) {
  const Budget budget("the regular expression", pattern.size(), {.seconds = 2});
  NetworkBuilder b;
  const NetworkRule r = b.at(b.rule());
  b.nothing(add_regex(b, r.begin, pattern, false), r.end);
  return Grammar(std::make_shared<Network>(b.finish("the regular expression")));
}

Grammar Grammar::choice(std::span<const std::string> texts) {
  TD_CHECK(!texts.empty(), Value, "a choice expects at least one text");
  NetworkBuilder b;
  const NetworkRule r = b.at(b.rule());
  for (const std::string& text : texts) {
    TD_CHECK(io::is_utf8(text), Value, "a choice is not valid UTF-8");
    b.nothing(b.literal(r.begin, text), r.end);
  }
  return Grammar(std::make_shared<Network>(b.finish("the choice")));
}

}  // namespace tandem::text
