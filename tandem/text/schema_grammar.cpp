// SPDX-License-Identifier: Apache-2.0
// JSON schemas as networks: a rule for each schema, so that they may refer to each other.
// https://json-schema.org/draft/2020-12
#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/text/grammar.h"
#include "tandem/text/grammar_internal.h"
#include "tandem/text/unicode_internal.h"

namespace tandem::text {
namespace {

constexpr size_t kMostRules = 20'000, kMostSchemaBytes = size_t{16} << 20;
constexpr int kMostReferences = 64;
constexpr int kIndent = 24;  ///< spaces after a new line, at most
constexpr int64_t kLargest = 999'999'999'999'999, kLargestBound = 999'999'999;

struct FormatPattern {
  std::string_view name, pattern;
};
#define TD_TEXT_DATE                                                            \
  "([12]\\d{3}-((0[1-9]|1[0-2])-(0[1-9]|1\\d|2[0-8])|(0[13-9]|1[0-2])-(29|30)|" \
  "(0[13578]|1[02])-31)|[12]\\d(0[48]|[2468][048]|[13579][26])-02-29|(1[26]|2[048])00-02-29)"
#define TD_TEXT_TIME \
  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
constexpr FormatPattern kFormats[] = {
    {"date", "^" TD_TEXT_DATE "$"},
    {"time", "^" TD_TEXT_TIME "$"},
    {"date-time", "^" TD_TEXT_DATE "T" TD_TEXT_TIME "$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
    {"ipv4",
     "^((25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)\\.){3}(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)$"},
    {"email",
     "^[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,32}){0,3}@"
     "([a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?\\.){1,4}[a-z]{2,12}$"}};
#undef TD_TEXT_DATE
#undef TD_TEXT_TIME

class SchemaWriter {
 public:
  explicit SchemaWriter(const io::Json& root) : root_(root) {}

  Network write(const SchemaFrame& frame) {
    const int32_t first = b_.rule();
    const auto [begin, end] = b_.at(first);
    space_ = space();
    character_ = character();
    string_ = string();
    if (frame.before.empty() && frame.after.empty() && frame.between.empty()) {
      b_.call(begin, rule_of(root_), end);
    } else {
      const int32_t one = b_.node();
      b_.nothing(begin, one);
      const int32_t last =
          b_.literal(b_.called(b_.literal(one, frame.before), rule_of(root_)), frame.after);
      b_.nothing(last, end);
      if (!frame.between.empty()) b_.nothing(b_.literal(last, frame.between), one);
    }
    while (!open_.empty()) {
      const auto [rule, schema] = std::move(open_.front());
      open_.pop_front();
      fill(b_.at(rule), schema);
    }
    return b_.finish("the schema");
  }

 private:
  // ---- what JSON is made of

  // Nothing, a space, or a new line with its indentation.
  int32_t space() {
    const int32_t r = b_.rule();
    const auto [begin, end] = b_.at(r);
    b_.nothing(begin, end);
    b_.byte(begin, ' ', ' ', end);
    int32_t at = b_.literal(begin, "\n");
    for (int i = 0; i < kIndent; ++i) {
      b_.nothing(at, end);
      at = b_.literal(at, " ");
    }
    b_.nothing(at, end);
    return r;
  }
  // A character of a string in any of its spellings.
  int32_t character() {
    const int32_t r = b_.rule();
    const auto [begin, end] = b_.at(r);
    add_character(begin, end);
    return r;
  }
  void hex(int32_t from, std::string_view digits, int32_t to) {
    for (const char c : digits) b_.byte(from, static_cast<uint8_t>(c), static_cast<uint8_t>(c), to);
  }
  int32_t hexes(int32_t from, int count) {
    for (; count > 0; --count) {
      const int32_t to = b_.node();
      hex(from, "0123456789abcdefABCDEF", to);
      from = to;
    }
    return from;
  }
  void add_character(int32_t from, int32_t to) {
    b_.characters(from, raw_characters(), to);
    const int32_t slash = b_.literal(from, "\\");
    hex(slash, "\"\\/bfnrt", to);
    // Four digits; a surrogate is followed by its other half.
    const int32_t four = b_.literal(slash, "u"), other = b_.node(), d = b_.node(), high = b_.node();
    hex(four, "0123456789abcefABCEF", other);
    b_.nothing(hexes(other, 3), to);
    hex(four, "dD", d);
    const int32_t below = b_.node();
    hex(d, "01234567", below);
    b_.nothing(hexes(below, 2), to);
    hex(d, "89abAB", high);
    const int32_t second = b_.literal(hexes(high, 2), "\\u"), low = b_.node(), last = b_.node();
    hex(second, "dD", low);
    hex(low, "cdefCDEF", last);
    b_.nothing(hexes(last, 2), to);
  }
  static CharacterSet raw_characters() {
    return CharacterSet{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}.others();
  }
  int32_t string() {
    const int32_t r = b_.rule();
    const auto [begin, end] = b_.at(r);
    const int32_t loop = b_.node();
    b_.byte(begin, '"', '"', loop);
    add_character(loop, loop);
    b_.byte(loop, '"', '"', end);
    return r;
  }

  // ---- rules of schemas

  int32_t rule_of(const io::Json& schema) {
    Budget::check_time();
    const std::string key = schema.dump();
    const auto at = rules_.find(key);
    if (at != rules_.end()) return at->second;
    bytes_ += key.size();
    TD_CHECK(rules_.size() < kMostRules && bytes_ < kMostSchemaBytes, Value,
             "the schema is too large");
    const int32_t r = b_.rule();
    rules_.emplace(key, r);
    open_.emplace_back(r, schema);
    return r;
  }
  void same_as(NetworkRule r, const io::Json& schema) { b_.call(r.begin, rule_of(schema), r.end); }

  const io::Json& target(const io::Json& ref) const {
    TD_CHECK(ref.as_string() && ref.as_string()->starts_with("#"), Value,
             "the schema: '$ref' expects a place in the schema itself, as \"#/$defs/name\", got {}",
             ref.dump());
    const std::string& path = *ref.as_string();
    const io::Json* j = &root_;
    for (size_t from = 1; from < path.size() && j;) {
      if (path[from] != '/') j = nullptr;
      const size_t end = std::min(path.find('/', from + 1), path.size());
      std::string name;
      for (size_t i = from + 1; i < end; ++i) {
        const bool escaped = path[i] == '~' && i + 1 < end;
        name += !escaped ? path[i] : path[++i] == '0' ? '~' : '/';
      }
      if (j && j->as_array()) {
        const bool number =
            !name.empty() && name.size() < 6 && name.find_first_not_of("0123456789") == name.npos;
        const size_t i = number ? std::stoul(name) : j->as_array()->size();
        j = i < j->as_array()->size() ? &(*j->as_array())[i] : nullptr;
      } else if (j) {
        j = j->find(name);
      }
      from = end;
    }
    TD_CHECK(j, Value, "the schema: there is nothing at '{}'", path);
    return *j;
  }
  // Without references at its top.
  io::Json resolved(io::Json schema) const {
    for (int i = 0; i < kMostReferences; ++i) {
      const io::Json* ref = schema.find("$ref");
      if (!ref) return schema;
      const io::Json::Object rest = schema_rest(schema, "$ref");
      io::Json next = target(*ref);
      schema = rest.empty() ? std::move(next) : merge_schemas(next, rest);
    }
    TD_FAIL(Value, "the schema: its references form a cycle");
  }
  static const io::Json::Array& list_of(const io::Json& j, std::string_view name) {
    TD_CHECK(j.as_array() && !j.as_array()->empty(), Value,
             "the schema: '{}' expects a list that is not empty", name);
    return *j.as_array();
  }

  void fill(NetworkRule r, const io::Json& schema) {
    if (const bool* any = schema.as_bool()) {
      if (*any) any_value(r);
      return;
    }
    TD_CHECK(schema.as_object(), Value, "the schema: a schema is an object, true or false, got {}",
             schema.kind());
    check_schema(schema);
    if (schema.find("$ref")) {
      const io::Json::Object rest = schema_rest(schema, "$ref");
      if (rest.empty()) return same_as(r, target(*schema.find("$ref")));
      return same_as(r, resolved(schema));
    }
    if (const io::Json* all = schema.find("allOf")) {
      io::Json merged = schema_rest(schema, "allOf");
      for (const io::Json& part : list_of(*all, "allOf"))
        merged = merge_schemas(merged, resolved(part));
      return same_as(r, merged);
    }
    if (schema.find("anyOf")) return alternatives(r, schema, "anyOf");
    if (schema.find("oneOf")) return alternatives(r, schema, "oneOf");
    if (schema.find("enum") || schema.find("const")) return values(r, schema);
    const std::vector<std::string> types = schema_types(schema);
    if (types.empty()) return any_value(r);
    for (const std::string& type : types) typed(r, schema, type);
  }

  void alternatives(NetworkRule r, const io::Json& schema, std::string_view name) {
    const io::Json::Array& all = list_of(*schema.find(name), name);
    const io::Json::Object rest = schema_rest(schema, name);
    std::vector<io::Json> each;
    for (const io::Json& part : all)
      each.push_back(rest.empty() ? part : merge_schemas(resolved(part), rest));
    if (name == "oneOf") {
      std::vector<io::Json> flat;
      for (const io::Json& part : each) flat.push_back(resolved(part));
      for (size_t i = 0; i < flat.size(); ++i)
        for (size_t k = 0; k < i; ++k)
          TD_CHECK(schemas_exclude(flat[k], flat[i]), Value,
                   "the schema: alternatives {} and {} of 'oneOf' may hold at the same time; write "
                   "'anyOf', or give both a required property with different constants",
                   k, i);
    }
    for (const io::Json& part : each) same_as(r, part);
  }

  void values(NetworkRule r, const io::Json& schema) {
    const io::Json* one = schema.find("const");
    TD_CHECK(!one || !schema.find("enum"), Value,
             "the schema: 'const' and 'enum' for one value are not supported");
    const bool typed = schema.find("type") != nullptr;
    for (const auto& [name, value] : *schema.as_object())
      TD_CHECK(name == "const" || name == "enum" || name == "type" ||
                   schema_rest(io::Json::Object{{name, value}}, "").empty(),
               Value, "the schema: '{}' with '{}' is not supported", name, one ? "const" : "enum");
    io::Json::Array single;
    if (one) single.push_back(*one);
    for (const io::Json& v : one ? single : list_of(*schema.find("enum"), "enum")) {
      bool fits = !typed;
      if (typed)
        for (const std::string& t : schema_types(schema)) fits = fits || is_of_type(v, t);
      if (fits) b_.nothing(b_.literal(r.begin, v.dump()), r.end);
    }
  }

  void any_value(NetworkRule r) {
    for (const char* type : {"null", "boolean", "number", "string", "array", "object"})
      typed(r, io::Json::Object{}, type);
  }

  void typed(NetworkRule r, const io::Json& schema, const std::string& type) {
    if (type == "null") {
      b_.nothing(b_.literal(r.begin, "null"), r.end);
    } else if (type == "boolean") {
      b_.nothing(b_.literal(r.begin, "true"), r.end);
      b_.nothing(b_.literal(r.begin, "false"), r.end);
    } else if (type == "integer" || type == "number") {
      number(r, schema, type == "integer");
    } else if (type == "string") {
      text(r, schema);
    } else if (type == "array") {
      array(r, schema);
    } else {
      object(r, schema);
    }
  }

  // ---- numbers and strings

  static const io::Json* bound(const io::Json& schema, std::string_view name) {
    const io::Json* j = schema.find(name);
    const double v = io::number_of(j);
    TD_CHECK(!j || (v == v && std::abs(v) < 9e18), Value,
             "the schema: '{}' expects a number, got {}", name, j->dump());
    return j;
  }
  void number(NetworkRule r, const io::Json& schema, bool whole) {
    const io::Json *least = bound(schema, "minimum"), *most = bound(schema, "maximum"),
                   *above = bound(schema, "exclusiveMinimum"),
                   *below = bound(schema, "exclusiveMaximum");
    if (!least && !most && !above && !below) {
      const int32_t at =
          add_regex(b_, r.begin,
                    whole ? "-?(0|[1-9]\\d{0,14})"
                          : "-?(0|[1-9]\\d{0,14})(\\.\\d{1,16})?([eE][+-]?\\d{1,2})?",
                    false);
      return b_.nothing(at, r.end);
    }
    TD_CHECK(!(least && above) && !(most && below), Value,
             "the schema: an inclusive and an exclusive bound on the same side are not supported");
    if (whole) {
      const auto integer = [](const io::Json* j, bool up) {
        if (j->as_int()) return *j->as_int();
        return static_cast<int64_t>(up ? std::ceil(*j->as_double()) : std::floor(*j->as_double()));
      };
      int64_t low = -kLargest, high = kLargest;
      if (least) low = integer(least, true);
      if (above) low = integer(above, false) + 1;
      if (most) high = integer(most, false);
      if (below) high = integer(below, true) - 1;
      if (!most && !below) high = std::max(high, low);
      if (!least && !above) low = std::min(low, high);
      if (low <= high) add_integers(b_, r.begin, low, high, r.end);
      return;
    }
    NumberBound low{-kLargestBound, false}, high{kLargestBound, false};
    const auto set = [](NumberBound& out, const io::Json* j, bool open) {
      if (!j) return;
      const double v = io::number_of(j);
      TD_CHECK(v == std::floor(v) && std::abs(v) <= static_cast<double>(kLargestBound), Value,
               "the schema: bounds of a number must be whole and of at most 1e9, got {}",
               j->dump());
      out = {static_cast<int64_t>(v), open};
    };
    set(low, least, false);
    set(low, above, true);
    set(high, most, false);
    set(high, below, true);
    if (low.at <= high.at) add_numbers(b_, r.begin, low, high, r.end);
  }

  static int64_t count(const io::Json& schema, std::string_view name, int64_t usual) {
    const io::Json* j = schema.find(name);
    if (!j) return usual;
    TD_CHECK(j->as_int() && *j->as_int() >= 0, Value,
             "the schema: '{}' expects a whole number from 0, got {}", name, j->dump());
    return *j->as_int();
  }

  void text(NetworkRule r, const io::Json& schema) {
    const int64_t least = count(schema, "minLength", 0), most = count(schema, "maxLength", -1);
    const io::Json *pattern = schema.find("pattern"), *format = schema.find("format");
    std::string_view expression;
    if (format) {
      for (const FormatPattern& f : kFormats)
        if (format->as_string() && f.name == *format->as_string()) expression = f.pattern;
      TD_CHECK(!expression.empty(), Value, "the schema: the format {} is not supported",
               format->dump());
    }
    if (pattern) {
      TD_CHECK(!format, Value, "the schema: 'pattern' with 'format' is not supported");
      TD_CHECK(pattern->as_string(), Value, "the schema: 'pattern' expects a regular expression");
      expression = *pattern->as_string();
    }
    if (pattern || format) {
      TD_CHECK(least == 0 && most<0, Value, "the schema: '{}' with '{}' is not supported", least> 0
                   ? "minLength"
                   : "maxLength",
               pattern ? "pattern" : "format");
      const int32_t at = add_regex(b_, b_.literal(r.begin, "\""), expression, true);
      return b_.byte(at, '"', '"', r.end);
    }
    if (least == 0 && most < 0) return b_.call(r.begin, string_, r.end);
    int32_t at = b_.literal(r.begin, "\"");
    for (int64_t i = 0; i < least; ++i) at = b_.called(at, character_);
    b_.byte(at, '"', '"', r.end);
    if (most < 0) {
      const int32_t loop = b_.node();
      b_.nothing(at, loop);
      add_character(loop, loop);
      b_.byte(loop, '"', '"', r.end);
    } else if (most < least) {
      TD_FAIL(Value, "the schema: 'maxLength' is less than 'minLength'");
    }
    for (int64_t i = least; i < most; ++i) {
      at = b_.called(at, character_);
      b_.byte(at, '"', '"', r.end);
    }
  }

  // ---- arrays and objects

  void array(NetworkRule r, const io::Json& schema) {
    io::Json::Array first;
    io::Json others = true;
    const io::Json *prefix = schema.find("prefixItems"), *items = schema.find("items");
    const bool old = items && items->as_array();  // before draft 2020-12
    TD_CHECK(!(old && prefix), Value, "the schema: 'prefixItems' with a list of 'items'");
    if (prefix) first = list_of(*prefix, "prefixItems");
    if (old) first = list_of(*items, "items");
    if (items && !old) others = *items;
    if (const io::Json* more = schema.find("additionalItems"); more && old) others = *more;
    const int64_t least = count(schema, "minItems", 0);
    int64_t most = count(schema, "maxItems", -1);
    if (others.as_bool() && !*others.as_bool()) {
      const auto all = static_cast<int64_t>(first.size());
      most = most < 0 ? all : std::min(most, all);
    }
    TD_CHECK(most < 0 || most >= least, Value,
             "the schema: an array cannot have at least {} and at most {} items", least, most);
    const int32_t open = b_.literal(r.begin, "[");
    if (least == 0) b_.byte(open, ']', ']', r.end);
    const auto listed = static_cast<int64_t>(first.size());
    const int64_t chain = most >= 0 ? most : std::max(least, listed) + 1;
    int32_t at = open;
    for (int64_t i = 0; i < chain; ++i) {
      const int32_t comma = i == 0 ? at : b_.literal(at, ",");
      const io::Json& item = i < listed ? first[static_cast<size_t>(i)] : others;
      at = b_.called(b_.called(comma, space_), rule_of(item));
      if (i + 1 >= least) b_.byte(b_.called(at, space_), ']', ']', r.end);
    }
    if (most >= 0) return;
    // As many more as there may be.
    const int32_t comma = b_.literal(at, ",");
    b_.call(b_.called(comma, space_), rule_of(others), at);
  }

  // "name": value
  int32_t member(const std::string& name, const io::Json& schema) {
    const int32_t r = b_.rule();
    const int32_t key = b_.literal(b_.at(r).begin, io::quote_json(name) + ":");
    b_.call(b_.called(key, space_), rule_of(schema), b_.at(r).end);
    return r;
  }
  // The same for any name but some.
  int32_t other_member(const std::vector<std::string>& names, const io::Json& schema) {
    const int32_t r = b_.rule();
    int32_t key = 0;
    if (names.empty()) {
      key = b_.called(b_.at(r).begin, string_);
    } else {
      key = b_.node();
      std::vector<std::u32string> all;
      for (const std::string& n : names) {
        std::u32string characters;
        for (size_t i = 0; i < n.size();) characters += next_char(n, i);
        const auto plain = raw_characters();
        if (std::all_of(characters.begin(), characters.end(),
                        [&](char32_t c) { return plain.contains(c); }))
          all.push_back(characters);
      }
      const int32_t free = b_.node();
      b_.characters(free, raw_characters(), free);
      b_.byte(free, '"', '"', key);
      other_names(b_.literal(b_.at(r).begin, "\""), all, 0, free, key);
    }
    key = b_.literal(key, ":");
    b_.call(b_.called(key, space_), rule_of(schema), b_.at(r).end);
    return r;
  }
  // After `at` characters in which all `names` are alike: a character that leaves them for `free`,
  // or the end where none of them ends. Names are spelt without escapes.
  void other_names(int32_t from, const std::vector<std::u32string>& names, size_t at, int32_t free,
                   int32_t end) {
    CharacterSet taken;
    std::map<char32_t, std::vector<std::u32string>> next;
    bool ends = false;
    for (const std::u32string& n : names) {
      if (n.size() == at) {
        ends = true;
      } else {
        taken.add(n[at], n[at]);
        next[n[at]].push_back(n);
      }
    }
    if (!ends) b_.byte(from, '"', '"', end);
    b_.characters(from, raw_characters().without(taken), free);
    for (const auto& [c, group] : next) {
      const int32_t to = b_.node();
      b_.characters(from, {{c, c}}, to);
      TD_CHECK(at < 256, Value, "the schema: names of properties are too long");
      other_names(to, group, at + 1, free, end);
    }
  }

  struct Member {
    std::string name;
    io::Json schema;
    bool required = false;
  };
  static std::vector<Member> members(const io::Json& schema) {
    std::vector<Member> out;
    if (const io::Json* p = schema.find("properties")) {
      TD_CHECK(p->as_object(), Value, "the schema: 'properties' expects an object");
      for (const auto& [name, value] : *p->as_object()) out.push_back({name, value});
    }
    const io::Json* required = schema.find("required");
    if (!required) return out;
    TD_CHECK(required->as_array(), Value, "the schema: 'required' expects a list");
    for (const io::Json& name : *required->as_array()) {
      TD_CHECK(name.as_string(), Value, "the schema: 'required' expects names");
      const auto at = std::find_if(out.begin(), out.end(),
                                   [&](const Member& m) { return m.name == *name.as_string(); });
      const io::Json* others = schema.find("additionalProperties");
      if (at != out.end())
        at->required = true;
      else
        out.push_back({*name.as_string(), others ? *others : io::Json(true), true});
    }
    return out;
  }

  void object(NetworkRule r, const io::Json& schema) {
    const std::vector<Member> all = members(schema);
    const io::Json* others = schema.find("additionalProperties");
    const int32_t open = b_.literal(r.begin, "{");
    // Before each member: a node where none has come yet, and one after others. Where a member has
    // to come, the first leads nowhere else.
    int32_t fresh = open, later = b_.node();
    const auto add = [&](int32_t rule, int32_t to) {
      b_.call(b_.called(fresh, space_), rule, to);
      b_.call(b_.called(b_.literal(later, ","), space_), rule, to);
    };
    std::vector<std::string> names;
    for (const Member& m : all) {
      names.push_back(m.name);
      const int32_t next_fresh = b_.node(), next_later = b_.node();
      add(member(m.name, m.schema), next_later);
      if (!m.required) {
        b_.nothing(fresh, next_fresh);
        b_.nothing(later, next_later);
      }
      fresh = next_fresh;
      later = next_later;
    }
    const bool open_ended =
        others ? !(others->as_bool() && !*others->as_bool()) : !schema.find("properties");
    if (open_ended) add(other_member(names, others ? *others : io::Json(true)), later);
    b_.byte(fresh, '}', '}', r.end);
    b_.byte(b_.called(later, space_), '}', '}', r.end);
  }

  const io::Json& root_;
  NetworkBuilder b_;
  std::map<std::string, int32_t> rules_;
  std::deque<std::pair<int32_t, io::Json>> open_;
  size_t bytes_ = 0;
  int32_t space_ = 0, character_ = 0, string_ = 0;
};

}  // namespace

Grammar Grammar::json_schema(const io::Json& schema, const SchemaFrame& frame) {
  const Budget budget("the schema", 0, {.seconds = 2});
  return Grammar(std::make_shared<Network>(SchemaWriter(schema).write(frame)));
}
Grammar Grammar::json_object() { return json_schema(io::Json::Object{{"type", "object"}}); }

}  // namespace tandem::text
