// SPDX-License-Identifier: Apache-2.0
// A grammar as a recursive transition network (Woods 1970): automata over bytes whose edges may
// call each other. It is what regular expressions and schemas are written into, and what a
// Constraint runs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/io/json.h"

namespace tandem::text {

/// An edge takes a byte of [low, high], nothing, or a text of another rule.
struct NetworkEdge {
  static constexpr int32_t kByte = -1, kNothing = -2;
  int32_t to = 0;
  int32_t rule = kByte;
  uint8_t low = 0, high = 0;
};
struct NetworkNode {
  std::vector<NetworkEdge> edges = {};
  bool ends = false;   ///< the last node of a rule; no edge leaves it
  int32_t height = 0;  ///< calls that are open at the same time, at least, until its rule ends
};
struct NetworkRule {
  int32_t begin = 0, end = 0;
};
struct Network {
  /// Calls open at the same time. Whatever needs more is not part of the grammar.
  static constexpr int32_t kDepth = 48;
  std::vector<NetworkNode> nodes = {};
  std::vector<NetworkRule> rules = {};  ///< texts of the first one are those of the grammar
};

/// Characters, as ascending ranges that do not touch.
class CharacterSet {
 public:
  using Range = std::pair<char32_t, char32_t>;
  static constexpr char32_t kLast = 0x10FFFF;
  CharacterSet() = default;
  CharacterSet(std::initializer_list<Range> ranges) {
    for (const Range& r : ranges) add(r.first, r.second);
  }
  void add(char32_t first, char32_t last);
  void add(const CharacterSet& other);
  /// All others, except surrogates.
  CharacterSet others() const;
  CharacterSet without(const CharacterSet& other) const;
  bool contains(char32_t c) const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

class NetworkBuilder {
 public:
  int32_t rule();
  NetworkRule at(int32_t rule) const { return network_.rules[static_cast<size_t>(rule)]; }
  int32_t node();
  void byte(int32_t from, uint8_t low, uint8_t high, int32_t to);
  void nothing(int32_t from, int32_t to);
  void call(int32_t from, int32_t rule, int32_t to);
  /// Each returns the node after what it adds.
  int32_t literal(int32_t from, std::string_view bytes);
  int32_t called(int32_t from, int32_t rule);
  /// One character of the set in UTF-8; `json`: as it stands in a JSON string, escaped if need be.
  void characters(int32_t from, const CharacterSet& set, int32_t to, bool json = false);
  /// Throws Value where no text belongs to the first rule. `what`: "the schema".
  Network finish(std::string_view what);

 private:
  void edge(int32_t from, NetworkEdge e);
  void utf8(int32_t from, char32_t first, char32_t last, int32_t to);
  Network network_;
  size_t edges_ = 0;
};

/// A part of an expression as it is read: of a regular expression, or of a grammar's rule.
struct GrammarPart {
  enum class Kind : uint8_t { characters, sequence, choice, repeat, call, begin, end };
  static constexpr int kForever = -1, kMostRepeats = 10'000;
  Kind kind = Kind::sequence;
  CharacterSet set = {};
  std::vector<GrammarPart> parts = {};
  int least = 0, most = 0;  ///< of a repeat
  int32_t rule = 0;         ///< of a call
  static GrammarPart one_of(std::vector<GrammarPart> all) {
    if (all.size() == 1) return std::move(all[0]);
    GrammarPart out{.kind = Kind::choice};
    out.parts = std::move(all);
    return out;
  }
};
/// Writes parts into a network (Thompson's construction).
class PartWriter {
 public:
  /// `json`: characters as they stand in a JSON string.
  explicit PartWriter(NetworkBuilder& b, bool json = false) : b_(b), json_(json) {}
  /// Gives the node after it. `from` may get edges back to it.
  int32_t add(int32_t from, const GrammarPart& part);

 private:
  int32_t repeated(int32_t from, const GrammarPart& part);
  NetworkBuilder& b_;
  bool json_;
  int copies_ = 0;
};

/// Texts of a regular expression after `from`. `json`: those found anywhere in a JSON string (as
/// `pattern` has them), in its spelling and without its quotes; else from beginning to end.
int32_t add_regex(NetworkBuilder& b, int32_t from, std::string_view pattern, bool json);

/// Whole numbers of [least, most], and others as JSON with or without a fraction. `open`: the bound
/// itself is left out.
void add_integers(NetworkBuilder& b, int32_t from, int64_t least, int64_t most, int32_t to);
struct NumberBound {
  int64_t at = 0;
  bool open = false;
};
void add_numbers(NetworkBuilder& b, int32_t from, NumberBound least, NumberBound most, int32_t to);

/// The schema whose values satisfy both. Throws Value naming what cannot be combined.
io::Json merge_schemas(const io::Json& a, const io::Json& b);
/// Whether no value can satisfy both; false where it cannot be told.
bool schemas_exclude(const io::Json& a, const io::Json& b);
/// Throws Value for a keyword that is not supported.
void check_schema(const io::Json& schema);
/// The object without its annotations and without `left_out`.
io::Json::Object schema_rest(const io::Json& schema, std::string_view left_out);
/// The types that a schema names, or that its keywords are about; empty: any.
std::vector<std::string> schema_types(const io::Json& schema);
bool is_of_type(const io::Json& value, std::string_view type);

}  // namespace tandem::text
