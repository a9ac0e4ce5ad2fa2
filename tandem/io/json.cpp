// SPDX-License-Identifier: Apache-2.0
#include "tandem/io/json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tandem/base/budget.h"
#include "tandem/base/error.h"

namespace tandem::io {

/// Builds a Json from nlohmann's events; the first violated rule ends the parse and is recorded.
struct JsonBuilder {
  using Base = nlohmann::json;
  explicit JsonBuilder(JsonLimits limits) : limits(limits) {}

  struct Level {
    Json* at;
    std::unordered_set<std::string> keys;
  };
  JsonLimits limits;
  Json root;
  std::vector<Level> open;
  std::string key_text;
  size_t count = 0;
  std::string error;
  size_t error_byte = 0;

  bool refuse(std::string why) {
    error = std::move(why);
    return false;
  }
  /// Where the next value goes; the vector that holds an open level does not grow before it is
  /// closed.
  Json* place(Json v) {
    Budget::take(2 * sizeof(Json::Member));  // the list doubles as it grows
    if (open.empty()) {
      root = std::move(v);
      return &root;
    }
    if (auto* array = std::get_if<Json::Array>(&open.back().at->value_)) {
      array->push_back(std::move(v));
      return &array->back();
    }
    auto& object = std::get<Json::Object>(open.back().at->value_);
    object.emplace_back(std::move(key_text), std::move(v));
    return &object.back().second;
  }
  bool leaf(Json v) {
    if (++count > limits.values) return refuse("it holds too many values");
    place(std::move(v));
    return true;
  }
  bool enter(Json v) {
    if (++count > limits.values) return refuse("it holds too many values");
    if (static_cast<int>(open.size()) >= limits.depth)
      return refuse(fmt::format("it is nested deeper than {} levels", limits.depth));
    Json* at = place(std::move(v));
    open.push_back({at, {}});
    return true;
  }
  bool leave() {
    open.pop_back();
    return true;
  }

  bool null() { return leaf({}); }
  bool boolean(bool v) { return leaf(v); }
  bool number_integer(Base::number_integer_t v) { return leaf(int64_t{v}); }
  bool number_unsigned(Base::number_unsigned_t v) {
    return v <= uint64_t{INT64_MAX} ? leaf(static_cast<int64_t>(v)) : leaf(static_cast<double>(v));
  }
  bool number_float(Base::number_float_t v, const std::string&) { return leaf(v); }
  bool string(std::string& v) { return leaf(std::move(v)); }
  bool binary(Base::binary_t&) { return refuse("it holds binary data"); }
  bool start_object(size_t) { return enter(Json::Object{}); }
  bool start_array(size_t) { return enter(Json::Array{}); }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }
  bool key(std::string& k) {
    if (!open.back().keys.insert(k).second)
      return refuse(fmt::format("the key {} appears twice", quote_json(k)));
    Budget::take(64 + k.size());
    key_text = std::move(k);
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: <reason>"
    std::string_view text = e.what();
    // "[json.exception.out_of_range.406] number overflow parsing '1e400'" has no place.
    const size_t colon = text.find(": "), name = text.find("] ");
    if (colon != text.npos || name != text.npos)
      text = text.substr((colon != text.npos ? colon : name) + 2);
    error = std::string(text);
    error_byte = byte;
    return false;
  }
};

// Out of line: inlined variants cost every user compile time (and gcc 12 warns about them).
Json::Json() = default;
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
Json::Json(bool v) : value_(v) {}
Json::Json(Integer v) : value_(v.v) {}
Json::Json(double v) : value_(v) {}
Json::Json(const char* v) : value_(std::string(v)) {}
Json::Json(std::string v) : value_(std::move(v)) {}
Json::Json(Array v) : value_(std::move(v)) {}
Json::Json(Object v) : value_(std::move(v)) {}

double number_of(const Json* j) {
  if (j && j->as_double()) return *j->as_double();
  if (j && j->as_int()) return static_cast<double>(*j->as_int());
  return std::nan("");
}
int64_t whole_of(const Json* j) { return j && j->as_int() ? *j->as_int() : 0; }
std::string text_of(const Json* j) { return j && j->as_string() ? *j->as_string() : ""; }

const Json* Json::find(std::string_view key) const {
  if (const Object* object = as_object())
    for (const Member& m : *object)
      if (m.first == key) return &m.second;
  return nullptr;
}

const char* Json::kind() const {
  static constexpr const char* kNames[] = {"null",   "bool",  "integer", "number",
                                           "string", "array", "object"};
  return kNames[value_.index()];
}

Json parse_json(std::string_view text, std::string_view what, JsonLimits limits) {
  const Budget budget(what, text.size());
  JsonBuilder builder(limits);
  const bool done = nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  if (done) return std::move(builder.root);
  if (builder.error_byte > 0)
    TD_FAIL(Format, "{}: invalid JSON at byte {}: {}", what, builder.error_byte, builder.error);
  TD_FAIL(Format, "{}: this JSON is rejected: {}", what, builder.error);
}

bool is_utf8(std::string_view s) {
  size_t i = 0;
  while (i < s.size()) {
    const unsigned char c = static_cast<unsigned char>(s[i]);
    const int more = c < 0x80                ? 0
                     : c >= 0xC2 && c < 0xE0 ? 1
                     : c >= 0xE0 && c < 0xF0 ? 2
                     : c >= 0xF0 && c < 0xF5 ? 3
                                             : -1;
    if (more < 0 || i + static_cast<size_t>(more) >= s.size()) return false;
    for (int k = 1; k <= more; ++k) {
      const unsigned char d = static_cast<unsigned char>(s[i + static_cast<size_t>(k)]);
      // The second byte's range also excludes overlong forms, surrogates and values past U+10FFFF.
      const unsigned char lo = k > 1 ? 0x80 : c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
      const unsigned char hi = k > 1 ? 0xBF : c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
      if (d < lo || d > hi) return false;
    }
    i += static_cast<size_t>(more) + 1;
  }
  return true;
}

std::string quote_json(std::string_view text) {
  std::string out = "\"";
  auto plain = [&](std::string_view s) {
    for (const char c : s) {
      const unsigned char u = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out += '\\';
        out += c;
      } else if (c == '\n') {
        out += "\\n";
      } else if (c == '\t') {
        out += "\\t";
      } else if (u < 0x20 || u == 0x7F) {
        out += fmt::format("\\u{:04x}", u);
      } else {
        out += c;
      }
    }
  };
  if (is_utf8(text)) {
    plain(text);
  } else {
    for (size_t i = 0; i < text.size();) {
      size_t n = 4;
      while (n > 0 && (i + n > text.size() || !is_utf8(text.substr(i, n)))) --n;
      if (n == 0)
        out += "\xEF\xBF\xBD";
      else
        plain(text.substr(i, n));
      i += n == 0 ? 1 : n;
    }
  }
  return out + '"';
}

namespace {

void append(const Json& v, int indent, int depth, std::string& out) {
  auto line = [&](int level) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * level), ' ');
  };
  if (const bool* b = v.as_bool()) {
    out += *b ? "true" : "false";
  } else if (const int64_t* i = v.as_int()) {
    out += std::to_string(*i);
  } else if (const double* d = v.as_double()) {
    std::string text = std::isfinite(*d) ? fmt::format("{}", *d) : "null";
    out += text;
  } else if (const std::string* s = v.as_string()) {
    out += quote_json(*s);
  } else if (const Json::Array* array = v.as_array()) {
    out += '[';
    for (size_t k = 0; k < array->size(); ++k) {
      if (k > 0) out += ',';
      line(depth + 1);
      append((*array)[k], indent, depth + 1, out);
    }
    if (!array->empty()) line(depth);
    out += ']';
  } else if (const Json::Object* object = v.as_object()) {
    out += '{';
    for (size_t k = 0; k < object->size(); ++k) {
      if (k > 0) out += ',';
      line(depth + 1);
      out += quote_json((*object)[k].first);
      out += indent < 0 ? ":" : ": ";
      append((*object)[k].second, indent, depth + 1, out);
    }
    if (!object->empty()) line(depth);
    out += '}';
  } else {
    out += "null";
  }
}

}  // namespace

std::string Json::dump(int indent) const {
  std::string out;
  append(*this, indent, 0, out);
  return out;
}

}  // namespace tandem::io
