// SPDX-License-Identifier: Apache-2.0
// JSON schemas side by side: which keywords there are, two schemas as one, and whether two exclude
// each other.
#include <algorithm>
#include <set>
#include <span>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"
#include "tandem/text/grammar_internal.h"

namespace tandem::text {
namespace {

constexpr std::string_view kAnnotations[] = {
    "title",    "description", "default",  "examples",      "$schema",          "$id",
    "$comment", "deprecated",  "readOnly", "writeOnly",     "contentMediaType", "contentEncoding",
    "$defs",    "definitions", "$anchor",  "discriminator", "example"};
constexpr std::string_view kConnectives[] = {"$ref", "allOf", "anyOf", "oneOf",
                                             "enum", "const", "type"};
struct KeywordType {
  std::string_view keyword, type;
};
constexpr KeywordType kKeywords[] = {{"properties", "object"},
                                     {"required", "object"},
                                     {"additionalProperties", "object"},
                                     {"items", "array"},
                                     {"prefixItems", "array"},
                                     {"additionalItems", "array"},
                                     {"minItems", "array"},
                                     {"maxItems", "array"},
                                     {"pattern", "string"},
                                     {"minLength", "string"},
                                     {"maxLength", "string"},
                                     {"format", "string"},
                                     {"minimum", "number"},
                                     {"maximum", "number"},
                                     {"exclusiveMinimum", "number"},
                                     {"exclusiveMaximum", "number"}};
constexpr std::string_view kTypes[] = {"null",   "boolean", "integer", "number",
                                       "string", "array",   "object"};

bool listed(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
bool annotation(std::string_view name) { return listed(kAnnotations, name); }

// The types of both: an integer is a number, too.
std::vector<std::string> common_types(const std::vector<std::string>& a,
                                      const std::vector<std::string>& b) {
  std::vector<std::string> out;
  const auto has = [](const std::vector<std::string>& all, const std::string& t) {
    return std::find(all.begin(), all.end(), t) != all.end() ||
           (t == "integer" && std::find(all.begin(), all.end(), "number") != all.end());
  };
  for (const std::string_view t : kTypes)
    if (has(a, std::string(t)) && has(b, std::string(t))) out.emplace_back(t);
  if (std::find(out.begin(), out.end(), "number") != out.end())
    std::erase(out, std::string("integer"));
  return out;
}

io::Json types_json(const std::vector<std::string>& types) {
  io::Json::Array out;
  for (const std::string& t : types) out.emplace_back(t);
  return out;
}

// The values that `enum` or `const` allows; null: any.
const io::Json* values_of(const io::Json& schema, io::Json::Array& one) {
  if (const io::Json* c = schema.find("const")) {
    one = {*c};
    return c;
  }
  const io::Json* e = schema.find("enum");
  if (e && e->as_array()) one = *e->as_array();
  return e;
}

bool same_value(const io::Json& a, const io::Json& b) {
  const double x = io::number_of(&a), y = io::number_of(&b);
  return x == x && y == y ? x == y : a.dump() == b.dump();
}

io::Json both_of(const io::Json& a, const io::Json& b) {
  if (a.dump() == b.dump()) return a;
  return io::Json::Object{{"allOf", io::Json::Array{a, b}}};
}

io::Json merged_properties(const io::Json& a, const io::Json& b) {
  if (!a.as_object() || !b.as_object())
    TD_FAIL(Value, "the schema: 'properties' expects an object");
  io::Json::Object out = *a.as_object();
  for (const auto& [name, schema] : *b.as_object()) {
    const auto at = std::find_if(out.begin(), out.end(),
                                 [&n = name](const io::Json::Member& m) { return m.first == n; });
    if (at == out.end())
      out.emplace_back(name, schema);
    else
      at->second = both_of(at->second, schema);
  }
  return out;
}

io::Json merged_required(const io::Json& a, const io::Json& b) {
  if (!a.as_array() || !b.as_array()) TD_FAIL(Value, "the schema: 'required' expects a list");
  io::Json::Array out = *a.as_array();
  for (const io::Json& name : *b.as_array())
    if (std::none_of(out.begin(), out.end(),
                     [&](const io::Json& j) { return j.dump() == name.dump(); }))
      out.push_back(name);
  return out;
}

io::Json merged_enum(const io::Json& a, const io::Json& b) {
  io::Json::Array left, right, out;
  values_of(a, left);
  values_of(b, right);
  for (const io::Json& v : left) {
    Budget::check_time();
    if (std::any_of(right.begin(), right.end(),
                    [&](const io::Json& w) { return same_value(v, w); }))
      out.push_back(v);
  }
  return out;
}

// Where one leaves out other properties than its own, the other must not have more.
void check_closed(const io::Json& a, const io::Json& b) {
  const auto names = [](const io::Json& s) {
    std::set<std::string> out;
    const io::Json* p = s.find("properties");
    if (p && p->as_object())
      for (const auto& m : *p->as_object()) out.insert(m.first);
    return out;
  };
  const io::Json *x = a.find("additionalProperties"), *y = b.find("additionalProperties");
  const auto closes = [](const io::Json* j) { return j && j->dump() != "true"; };
  if (!closes(x) && !closes(y)) return;
  TD_CHECK(names(a) == names(b) || !(a.find("properties") && b.find("properties")), Value,
           "the schema: 'additionalProperties' in an 'allOf' whose parts have other properties is "
           "not supported");
}

io::Json merged_keyword(const std::string& name, const io::Json& x, const io::Json& y) {
  if (x.dump() == y.dump()) return x;
  if (name == "properties") return merged_properties(x, y);
  if (name == "required") return merged_required(x, y);
  if (name == "items") return both_of(x, y);
  const bool least = name.starts_with("min") || name == "exclusiveMinimum";
  const bool most = name.starts_with("max") || name == "exclusiveMaximum";
  const double a = io::number_of(&x), b = io::number_of(&y);
  if ((least || most) && a == a && b == b) return (least ? a >= b : a <= b) ? x : y;
  TD_FAIL(Value, "the schema: two different '{}' for one value are not supported", name);
}

}  // namespace

bool is_of_type(const io::Json& v, std::string_view type) {
  if (type == "null") return v.is_null();
  if (type == "boolean") return v.as_bool() != nullptr;
  if (type == "integer") return v.as_int() != nullptr;
  if (type == "number") return v.as_int() || v.as_double();
  if (type == "string") return v.as_string() != nullptr;
  if (type == "array") return v.as_array() != nullptr;
  return v.as_object() != nullptr;
}

std::vector<std::string> schema_types(const io::Json& schema) {
  std::vector<std::string> out;
  const auto add = [&](const io::Json& j) {
    TD_CHECK(j.as_string() && listed(kTypes, *j.as_string()), Value,
             "the schema: there is no type {}", j.dump());
    out.push_back(*j.as_string());
  };
  if (const io::Json* type = schema.find("type")) {
    if (type->as_array())
      for (const io::Json& j : *type->as_array()) add(j);
    else
      add(*type);
    TD_CHECK(!out.empty(), Value, "the schema: 'type' is an empty list");
    return out;
  }
  for (const KeywordType& k : kKeywords)
    if (schema.find(k.keyword) &&
        std::find(out.begin(), out.end(), std::string(k.type)) == out.end())
      out.emplace_back(k.type);
  return out;
}

io::Json::Object schema_rest(const io::Json& schema, std::string_view left_out) {
  io::Json::Object out;
  for (const auto& [name, value] : *schema.as_object())
    if (name != left_out && !annotation(name)) out.emplace_back(name, value);
  return out;
}

void check_schema(const io::Json& schema) {
  for (const auto& [name, value] : *schema.as_object()) {
    const bool known = annotation(name) || listed(kConnectives, name) ||
                       std::any_of(std::begin(kKeywords), std::end(kKeywords),
                                   [&n = name](const KeywordType& k) { return k.keyword == n; });
    if (known || (name == "uniqueItems" && value.as_bool() && !*value.as_bool())) continue;
    TD_FAIL(Value, "the schema: the keyword '{}' is not supported", name);
  }
}

io::Json merge_schemas(const io::Json& a, const io::Json& b) {
  if (const bool* x = a.as_bool()) return *x ? b : a;
  if (const bool* y = b.as_bool()) return *y ? a : b;
  TD_CHECK(a.as_object() && b.as_object(), Value,
           "the schema: a schema is an object, true or false");
  check_closed(a, b);
  io::Json::Object out;
  io::Json::Array unused;
  const bool types = a.find("type") && b.find("type");
  const bool values = values_of(a, unused) && values_of(b, unused);
  if (types) {
    const std::vector<std::string> common = common_types(schema_types(a), schema_types(b));
    if (common.empty()) return false;
    out.emplace_back("type", types_json(common));
  }
  if (values) out.emplace_back("enum", merged_enum(a, b));
  const auto done = [&](const std::string& name) {
    return annotation(name) || (types && name == "type") ||
           (values && (name == "enum" || name == "const"));
  };
  for (const auto& [name, value] : *a.as_object()) {
    if (done(name)) continue;
    const io::Json* other = b.find(name);
    out.emplace_back(name, other ? merged_keyword(name, value, *other) : value);
  }
  for (const auto& [name, value] : *b.as_object())
    if (!done(name) && !a.find(name)) out.emplace_back(name, value);
  return out;
}

bool schemas_exclude(const io::Json& a, const io::Json& b) {
  Budget::check_time();
  if ((a.as_bool() && !*a.as_bool()) || (b.as_bool() && !*b.as_bool())) return true;
  if (!a.as_object() || !b.as_object()) return false;
  if (a.find("type") && b.find("type") && common_types(schema_types(a), schema_types(b)).empty())
    return true;
  io::Json::Array left, right;
  const bool x = values_of(a, left), y = values_of(b, right);
  const auto composed = [](const io::Json& v) { return v.as_array() || v.as_object(); };
  if (std::any_of(left.begin(), left.end(), composed) ||
      std::any_of(right.begin(), right.end(), composed))
    return false;
  if (x && y) return merged_enum(a, b).as_array()->empty();
  const auto none_fits = [](const io::Json::Array& values, const io::Json& schema) {
    if (!schema.find("type")) return false;
    const std::vector<std::string> types = schema_types(schema);
    for (const io::Json& v : values)
      for (const std::string& t : types)
        if (is_of_type(v, t)) return false;
    return true;
  };
  if (x) return none_fits(left, b);
  if (y) return none_fits(right, a);
  // Objects: a property that both must have, with values that exclude each other.
  const io::Json *p = a.find("properties"), *q = b.find("properties");
  const auto requires_it = [](const io::Json& s, const std::string& name) {
    const io::Json* list = s.find("required");
    return list && list->as_array() && s.find("type") && s.find("type")->dump() == "\"object\"" &&
           std::any_of(list->as_array()->begin(), list->as_array()->end(),
                       [&](const io::Json& j) { return j.as_string() && *j.as_string() == name; });
  };
  if (!p || !q || !p->as_object() || !q->as_object()) return false;
  for (const auto& [name, schema] : *p->as_object()) {
    const io::Json* other = q->find(name);
    if (other && requires_it(a, name) && requires_it(b, name) && schemas_exclude(schema, *other))
      return true;
  }
  return false;
}

}  // namespace tandem::text
