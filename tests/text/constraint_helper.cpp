// SPDX-License-Identifier: Apache-2.0
#include "tests/text/constraint_helper.h"

#include <algorithm>
#include <regex>
#include <stdexcept>

namespace tandem::text {

using io::Json;

namespace {

struct Reader {
  std::string_view s;
  size_t at = 0;
  int depth = 0;
  [[noreturn]] void fail(const char* what) const {
    throw std::runtime_error(std::string(what) + " at " + std::to_string(at));
  }
  void space() {
    while (at < s.size() && std::string_view(" \n\t\r").find(s[at]) != std::string::npos) ++at;
  }
  bool take(std::string_view word) {
    if (s.substr(at, word.size()) != word) return false;
    at += word.size();
    return true;
  }
  std::string string() {
    if (!take("\"")) fail("no string");
    std::string out;
    while (!take("\"")) {
      if (at >= s.size()) fail("a string without end");
      const char c = s[at++];
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character");
      if (c != '\\') {
        out += c;
        continue;
      }
      const char e = s[at++];
      const std::string_view names = "\"\\/bfnrt", means = "\"\\/\b\f\n\r\t";
      if (const size_t k = names.find(e); k != names.npos) {
        out += means[k];
        continue;
      }
      if (e != 'u') fail("an escape");
      uint32_t code = four();
      if (code >= 0xDC00 && code < 0xE000) fail("half a character");
      if (code >= 0xD800 && code < 0xDC00) {
        if (!take("\\u")) fail("half a character");
        const uint32_t low = four();
        if (low < 0xDC00 || low > 0xDFFF) fail("half a character");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
      if (code < 0x80) {
        out += static_cast<char>(code);
      } else {
        if (code < 0x800)
          out += static_cast<char>(0xC0 | code >> 6);
        else if (code < 0x10000)
          out += static_cast<char>(0xE0 | code >> 12);
        else
          out += static_cast<char>(0xF0 | code >> 18);
        if (code >= 0x10000) out += static_cast<char>(0x80 | (code >> 12 & 63));
        if (code >= 0x800) out += static_cast<char>(0x80 | (code >> 6 & 63));
        out += static_cast<char>(0x80 | (code & 63));
      }
    }
    if (!io::is_utf8(out)) fail("no UTF-8");
    return out;
  }
  uint32_t four() {
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i, ++at) {
      if (at >= s.size() || !std::isxdigit(static_cast<unsigned char>(s[at]))) fail("hex digits");
      const char c = static_cast<char>(s[at] | 0x20);
      out = out * 16 + static_cast<uint32_t>(c > '9' ? c - 'a' + 10 : s[at] - '0');
    }
    return out;
  }
  Json value() {
    if (++depth > 64) fail("too deep");
    space();
    Json out = plain();
    space();
    --depth;
    return out;
  }
  Json plain() {
    if (take("null")) return {};
    if (take("true")) return true;
    if (take("false")) return false;
    if (at < s.size() && s[at] == '"') return string();
    if (take("[")) {
      Json::Array all;
      space();
      if (take("]")) return all;
      do all.push_back(value());
      while (take(","));
      if (!take("]")) fail("no end of a list");
      return all;
    }
    if (take("{")) {
      Json::Object all;
      space();
      if (take("}")) return all;
      do {
        space();
        std::string name = string();
        space();
        if (!take(":")) fail("no colon");
        all.emplace_back(std::move(name), value());
      } while (take(","));
      if (!take("}")) fail("no end of an object");
      return all;
    }
    static const std::regex number(R"(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?)");
    std::match_results<std::string_view::const_iterator> m;
    if (!std::regex_search(s.begin() + static_cast<ptrdiff_t>(at), s.end(), m, number,
                           std::regex_constants::match_continuous))
      fail("no value");
    at += static_cast<size_t>(m.length());
    const std::string text = m.str();
    if (text.find_first_of(".eE") == text.npos) return static_cast<int64_t>(std::stoll(text));
    return std::stod(text);
  }
};
}  // namespace

Json read_all(std::string_view text) {
  Reader r{text};
  Json out = r.value();
  if (r.at != text.size()) r.fail("something follows");
  return out;
}

namespace {

size_t characters(const std::string& s) {
  return static_cast<size_t>(std::count_if(
      s.begin(), s.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}
bool equal_values(const Json& a, const Json& b) {
  const double x = io::number_of(&a), y = io::number_of(&b);
  if (x == x && y == y) return x == y;
  return a.dump() == b.dump();
}

bool array_satisfies(const Json::Array& v, const Json& s, const Json& root) {
  const Json* prefix = s.find("prefixItems");
  const size_t first = prefix ? prefix->as_array()->size() : 0;
  for (size_t i = 0; i < v.size(); ++i) {
    if (i < first && !satisfies(v[i], prefix->as_array()->at(i), root)) return false;
    if (const Json* items = s.find("items"); items && i >= first && !satisfies(v[i], *items, root))
      return false;
  }
  const Json *least = s.find("minItems"), *most = s.find("maxItems");
  return (!least || static_cast<int64_t>(v.size()) >= *least->as_int()) &&
         (!most || static_cast<int64_t>(v.size()) <= *most->as_int());
}
bool object_satisfies(const Json::Object& v, const Json& s, const Json& root) {
  const Json *properties = s.find("properties"), *required = s.find("required"),
             *others = s.find("additionalProperties");
  for (const auto& [name, value] : v) {
    const Json* own = properties ? properties->find(name) : nullptr;
    if (own && !satisfies(value, *own, root)) return false;
    if (!own && others && !satisfies(value, *others, root)) return false;
  }
  if (required)
    for (const Json& name : *required->as_array())
      if (std::none_of(v.begin(), v.end(),
                       [&](const Json::Member& m) { return m.first == *name.as_string(); }))
        return false;
  return true;
}
bool type_holds(const Json& v, const std::string& type) {
  const std::string kind = v.kind();
  if (type == "integer") return v.as_int();
  if (type == "number") return v.as_int() || v.as_double();
  return kind == (type == "boolean" ? "bool" : type);
}
}  // namespace

bool satisfies(const Json& v, const Json& s, const Json& root) {
  if (s.as_bool()) return *s.as_bool();
  if (const Json* ref = s.find("$ref")) {
    const std::string path = *ref->as_string();
    const Json& target =
        path == "#" ? root : *root.find("$defs")->find(path.substr(std::string("#/$defs/").size()));
    if (!satisfies(v, target, root)) return false;
  }
  if (const Json* t = s.find("type")) {
    bool any = false;
    if (t->as_string()) any = type_holds(v, *t->as_string());
    if (t->as_array())
      for (const Json& one : *t->as_array()) any = any || type_holds(v, *one.as_string());
    if (!any) return false;
  }
  if (const Json* c = s.find("const"); c && !equal_values(*c, v)) return false;
  if (const Json* e = s.find("enum");
      e && std::none_of(e->as_array()->begin(), e->as_array()->end(),
                        [&](const Json& one) { return equal_values(one, v); }))
    return false;
  const auto count = [&](const char* name) {
    int n = 0;
    for (const Json& part : *s.find(name)->as_array()) n += satisfies(v, part, root) ? 1 : 0;
    return n;
  };
  if (s.find("anyOf") && count("anyOf") == 0) return false;
  if (s.find("oneOf") && count("oneOf") != 1) return false;
  if (s.find("allOf") && count("allOf") != static_cast<int>(s.find("allOf")->as_array()->size()))
    return false;
  if (const double x = io::number_of(&v); x == x) {
    const auto at = [&](const char* name, double usual) {
      const Json* j = s.find(name);
      return j ? io::number_of(j) : usual;
    };
    if (x < at("minimum", -1e300) || x > at("maximum", 1e300) ||
        x <= at("exclusiveMinimum", -1e300) || x >= at("exclusiveMaximum", 1e300))
      return false;
  }
  if (const std::string* text = v.as_string()) {
    const auto n = static_cast<int64_t>(characters(*text));
    if (s.find("minLength") && n < *s.find("minLength")->as_int()) return false;
    if (s.find("maxLength") && n > *s.find("maxLength")->as_int()) return false;
    if (const Json* p = s.find("pattern"))
      if (!std::regex_search(*text, std::regex(*p->as_string()))) return false;
  }
  if (v.as_array()) return array_satisfies(*v.as_array(), s, root);
  if (v.as_object()) return object_satisfies(*v.as_object(), s, root);
  return true;
}

Json random_schema(PhiloxStream& random, int depth) {
  const auto pick = [&](uint64_t n) { return random.next_below(n); };
  const auto object = [&](bool closed) {
    Json::Object properties;
    Json::Array required;
    for (const char* name : {"a", "ab", "name", "x\"y", "\xC3\xBC"}) {
      if (pick(2) == 0) continue;
      properties.emplace_back(name, random_schema(random, depth - 1));
      if (pick(2) == 0) required.emplace_back(name);
    }
    Json::Object s = {{"type", "object"}, {"properties", properties}, {"required", required}};
    if (closed)
      s.emplace_back("additionalProperties", false);
    else if (pick(2) == 0)
      s.emplace_back("additionalProperties", random_schema(random, 0));
    return s;
  };
  switch (pick(depth > 0 ? 15 : 9)) {
    case 0:
      return Json::Object{{"type", "null"}};
    case 1:
      return Json::Object{{"type", Json::Array{"boolean", "integer"}}};
    case 2: {
      const auto low = static_cast<int64_t>(pick(3000)) - 1500;
      return Json::Object{{"type", "integer"},
                          {"minimum", low},
                          {"maximum", low + static_cast<int64_t>(pick(1200))}};
    }
    case 3: {
      const auto low = static_cast<int64_t>(pick(20)) - 10;
      return Json::Object{
          {"type", "number"},
          {pick(2) ? "minimum" : "exclusiveMinimum", low},
          {pick(2) ? "maximum" : "exclusiveMaximum", low + 1 + static_cast<int64_t>(pick(12))}};
    }
    case 4:
      return Json::Object{{"type", "number"}};
    case 5: {
      const auto least = static_cast<int64_t>(pick(4));
      return Json::Object{{"type", "string"},
                          {"minLength", least},
                          {"maxLength", least + static_cast<int64_t>(pick(4))}};
    }
    case 6:
      return Json::Object{{"type", "string"},
                          {"pattern", pick(2) ? "^[a-c]{1,3}-\\d+$" : "b+\"?c"}};
    case 7:
      return Json::Object{{"enum", Json::Array{1, "one\n", Json(), 2.5, Json::Array{true}}}};
    case 8:
      return Json::Object{{"const", pick(2) ? Json("k\xC3\xBC") : Json(17)}};
    case 9:
    case 10: {
      const auto least = static_cast<int64_t>(pick(3));
      Json::Object s = {
          {"type", "array"}, {"items", random_schema(random, depth - 1)}, {"minItems", least}};
      if (pick(2) == 0) s.emplace_back("maxItems", least + static_cast<int64_t>(pick(3)));
      if (pick(3) == 0)
        s.emplace_back("prefixItems", Json::Array{random_schema(random, depth - 1)});
      return s;
    }
    case 11:
      return Json::Object{{"anyOf", Json::Array{random_schema(random, depth - 1),
                                                random_schema(random, depth - 1)}}};
    case 12:
      return Json::Object{{"oneOf", Json::Array{Json::Object{{"type", "string"}},
                                                Json::Object{{"type", "array"}}}}};
    default:
      return object(pick(2) == 0);
  }
}

namespace {

std::string byte_level(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const int b = static_cast<unsigned char>(c);
    int code = b, next = 256;
    for (int k = 0; k < 256; ++k) {
      const bool own = (k >= 33 && k <= 126) || (k >= 161 && k <= 172) || k >= 174;
      if (k == b && !own) code = next;
      if (!own) ++next;
    }
    if (code < 128)
      out += static_cast<char>(code);
    else
      out += {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))};
  }
  return out;
}

}  // namespace

Tokenizer tokenizer_with(const std::vector<std::string>& more) {
  std::string vocab;
  int id = 0;
  const auto add = [&](const std::string& bytes) {
    vocab += (id > 0 ? "," : "") + io::quote_json(byte_level(bytes)) + ":" + std::to_string(id);
    ++id;
  };
  for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
  for (const std::string& t : more) add(t);
  return Tokenizer::from_json(
      R"({"decoder":{"type":"ByteLevel"},"added_tokens":[{"id":)" + std::to_string(id) +
      R"(,"content":"<end>","special":true}],"model":{"type":"BPE","vocab":{)" + vocab +
      R"(},"merges":[]}})");
}
std::shared_ptr<const TokenBytes> vocabulary() {
  static const auto bytes = [] {
    const Tokenizer t = tokenizer_with(
        {"{\"",  "\":",      "\": ",     ", \"", "\"}",   "\"]",  "true", "false", "null",
         "12",   "-1",       "0.5",      "ab",   "abc",   "name", "\n  ", "  ",    "}}",
         "]}",   "\xE2\x82", "\xC3\xBC", "\\n",  "\\u00", "e1",   "[[",   "[{\"",  "\",\"",
         "a\":", "2026",     "-0",       ": [",  "hello", " wor", "ld"});
    return std::make_shared<const TokenBytes>(t, t.vocab_size());
  }();
  return bytes;
}

std::shared_ptr<Constraint> constraint(const Grammar& g) {
  return std::make_shared<Constraint>(g, vocabulary());
}
bool holds(const std::shared_ptr<Constraint>& c, std::string_view text) {
  ConstrainedText t(c);
  return t.push(text) && t.may_end();
}
bool says(const Error& e, std::string_view want) {
  const std::string_view text = e.what();
  return text.find(want) != text.npos ||
         (want == "too large" && text.find("over the limit 'seconds'") != text.npos);
}

}  // namespace tandem::text
