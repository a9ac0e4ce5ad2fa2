// SPDX-License-Identifier: Apache-2.0
// The filters, tests and methods that chat templates use.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tandem/text/jinja_internal.h"
#include "tandem/text/jinja_values_internal.h"

namespace tandem::text::jinja {
namespace {

using io::Json;

std::string in_case(std::string s, int (*change)(int)) {
  for (char& c : s) c = static_cast<char>(change(static_cast<unsigned char>(c)));
  return s;
}
std::string capitalised(std::string s) {
  s = in_case(std::move(s), std::tolower);
  if (!s.empty()) s[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(s[0])));
  return s;
}
std::string titled(std::string s) {
  bool first = true;
  for (char& c : s) {
    const auto u = static_cast<unsigned char>(c);
    c = static_cast<char>(first ? std::toupper(u) : std::tolower(u));
    first = !std::isalpha(static_cast<unsigned char>(c));
  }
  return s;
}

constexpr std::string_view kBlanks = " \t\n\r\f\v";
std::string stripped(const std::string& s, const Value& which, bool left, bool right) {
  const std::string_view of = which && which->as_string() ? *which->as_string() : kBlanks;
  size_t from = left ? s.find_first_not_of(of) : 0, to = s.size();
  if (from == s.npos) return "";
  if (right) to = s.find_last_not_of(of) == s.npos ? from : s.find_last_not_of(of) + 1;
  return s.substr(from, to - from);
}

std::string replaced(const std::string& s, const Value& from, const Value& to, int line) {
  if (!from || !from->as_string() || from->as_string()->empty() || !to)
    fail_at(line, "replace expects two texts");
  const std::string &a = *from->as_string(), b = text_of(to);
  std::string out;
  size_t at = 0;
  for (size_t next = s.find(a); next != s.npos; next = s.find(a, at)) {
    out.append(s, at, next - at).append(b);
    at = next + a.size();
    if (out.size() > (size_t{16} << 20)) fail_at(line, "a text grows beyond 16 MB");
  }
  return out.append(s, at);
}

Value split(const std::string& s, const Value& sign, const Value& most) {
  Json::Array out;
  const int64_t limit = most && most->as_int() ? *most->as_int() : -1;
  if (!sign || !sign->as_string() || sign->as_string()->empty()) {  // at blanks
    for (size_t at = s.find_first_not_of(kBlanks); at != s.npos;) {
      const size_t end = std::min(s.find_first_of(kBlanks, at), s.size());
      out.push_back(s.substr(at, end - at));
      at = s.find_first_not_of(kBlanks, end);
    }
    return made(std::move(out));
  }
  const std::string& by = *sign->as_string();
  size_t at = 0;
  for (size_t next = s.find(by);
       next != s.npos && (limit < 0 || static_cast<int64_t>(out.size()) < limit);
       next = s.find(by, at)) {
    out.push_back(s.substr(at, next - at));
    at = next + by.size();
  }
  out.push_back(s.substr(at));
  return made(std::move(out));
}

Value joined(const Value& list, const std::string& sign, int line) {
  if (!list || !list->as_array()) fail_at(line, "join expects a list");
  std::string out;
  bool first = true;
  for (const Json& e : *list->as_array()) {
    if (!std::exchange(first, false)) out += sign;
    out += text_of(part_of(list, e));
  }
  return made(std::move(out));
}

Value pairs(const Value& object, int line, bool keys, bool values) {
  if (!object || !object->as_object()) fail_at(line, "an object is expected");
  Json::Array out;
  for (const auto& [key, v] : *object->as_object())
    out.push_back(keys && values ? Json(Json::Array{key, v}) : keys ? Json(key) : v);
  return made(std::move(out));
}

Value as_list(const Value& v, int line) {
  if (!v) return made(Json::Array());
  if (v->as_array()) return v;
  if (v->as_object()) return pairs(v, line, true, false);
  if (v->as_string()) {
    Json::Array out;
    const auto n = static_cast<int64_t>(length_of(v, line));
    for (int64_t i = 0; i < n; ++i) out.push_back(*item_of(v, made(i), line));
    return made(std::move(out));
  }
  fail_at(line, "a list is expected");
}

// Items whose attribute passes a test, or does not.
Value selected(const Value& v, const Arguments& a, bool keep, int line) {
  const Value list = as_list(v, line), name = a.find(0);
  if (!name || !name->as_string()) fail_at(line, "selectattr expects the name of an attribute");
  Arguments rest;
  for (size_t i = 2; i < a.all.size(); ++i) rest.all.push_back(a.all[i]);
  const Value test = a.find(1);
  Json::Array out;
  for (const Json& e : *list->as_array()) {
    const Value one = attribute_of(part_of(list, e), *name->as_string());
    const bool passes = test ? apply_test(text_of(test), one, rest, line) : is_true(one);
    if (passes == keep) out.push_back(e);
  }
  return made(std::move(out));
}

Value mapped(const Value& v, const Arguments& a, int line) {
  const Value list = as_list(v, line), attribute = a.find(99, "attribute");
  Json::Array out;
  for (const Json& e : *list->as_array()) {
    const Value item = part_of(list, e);
    Arguments rest;
    for (size_t i = 1; i < a.all.size(); ++i) rest.all.push_back(a.all[i]);
    const Value r = attribute ? attribute_of(item, text_of(attribute))
                              : apply_filter(text_of(a.find(0)), item, rest, line);
    out.push_back(r ? *r : Json());
  }
  return made(std::move(out));
}

Value to_json(const Value& v, const Arguments& a, int line) {
  if (!v) fail_at(line, "tojson of what is undefined");
  const Value indent = a.find(0, "indent");
  return made(dumps(*v, indent && indent->as_int()
                            ? static_cast<int>(std::clamp<int64_t>(*indent->as_int(), 0, 16))
                            : -1));
}

Value to_int(const Value& v) {
  if (v && v->as_string()) {
    char* end = nullptr;
    return made(static_cast<int64_t>(std::strtoll(v->as_string()->c_str(), &end, 10)));
  }
  if (v && v->as_bool()) return made(static_cast<int64_t>(*v->as_bool()));
  const double d = v ? io::number_of(v.get()) : 0;
  return made(d > -9e15 && d < 9e15 ? static_cast<int64_t>(d) : int64_t{0});
}

Value text_filter(const std::string& name, const std::string& s, const Arguments& a, int line) {
  if (name == "trim") return made(stripped(s, a.find(0), true, true));
  if (name == "upper") return made(in_case(s, std::toupper));
  if (name == "lower") return made(in_case(s, std::tolower));
  if (name == "capitalize") return made(capitalised(s));
  if (name == "title") return made(titled(s));
  if (name == "string" || name == "safe") return made(s);
  if (name == "replace") return made(replaced(s, a.find(0), a.find(1), line));
  return nullptr;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& v, const Arguments& a, int line) {
  if (Value text = text_filter(name, text_of(v), a, line)) return text;
  if (name == "default" || name == "d") {
    const bool by_truth = is_true(a.find(1, "boolean"));
    if (by_truth ? is_true(v) : v != nullptr) return v;
    const Value usual = a.find(0, "default_value");
    return usual ? usual : made("");
  }
  if (name == "tojson") return to_json(v, a, line);
  if (name == "length" || name == "count") return made(static_cast<int64_t>(length_of(v, line)));
  if (name == "join") return joined(v, a.find(0) ? text_of(a.find(0)) : "", line);
  if (name == "list") return as_list(v, line);
  if (name == "items" || name == "dictsort") return pairs(v, line, true, true);
  if (name == "int") return to_int(v);
  if (name == "float") return made(v ? io::number_of(v.get()) : 0.0);
  if (name == "selectattr") return selected(v, a, true, line);
  if (name == "rejectattr") return selected(v, a, false, line);
  if (name == "map") return mapped(v, a, line);
  const bool reverse = name == "reverse";
  if (reverse || name == "first" || name == "last") {
    const Value list = as_list(v, line);
    const Json::Array& all = *list->as_array();
    if (reverse) return made(Json::Array(all.rbegin(), all.rend()));
    return all.empty() ? nullptr : part_of(list, name == "first" ? all.front() : all.back());
  }
  fail_at(line, fmt::format("there is no filter '{}' in chat templates", name));
}

bool apply_test(const std::string& name, const Value& v, const Arguments& a, int line) {
  if (name == "defined") return v != nullptr;
  if (name == "undefined") return v == nullptr;
  if (name == "none") return v && v->is_null();
  if (name == "string") return v && v->as_string();
  if (name == "mapping") return v && v->as_object();
  if (name == "iterable" || name == "sequence")  // what is undefined has no items
    return !v || v->as_array() || v->as_string() || v->as_object();
  if (name == "boolean") return v && v->as_bool();
  if (name == "integer") return v && v->as_int();
  if (name == "float") return v && v->as_double();
  if (name == "number") return v && (v->as_int() || v->as_double());
  if (name == "true") return v && v->as_bool() && *v->as_bool();
  if (name == "false") return v && v->as_bool() && !*v->as_bool();
  if (name == "equalto" || name == "eq" || name == "sameas") return equal(v, a.find(0));
  if (name == "ne") return !equal(v, a.find(0));
  if (name == "in") return contains(a.find(0), v, line);
  if (name == "odd" || name == "even")
    return v && v->as_int() && (*v->as_int() % 2 != 0) == (name == "odd");
  if (name == "divisibleby") {
    const Value by = a.find(0);
    return v && v->as_int() && by && by->as_int() && *by->as_int() != 0 && *by->as_int() != -1 &&
           *v->as_int() % *by->as_int() == 0;
  }
  if (name == "callable") return false;
  fail_at(line, fmt::format("there is no test '{}' in chat templates", name));
}

Value call_method(const Value& object, const std::string& name, const Arguments& a, int line) {
  if (object && object->as_object()) {
    if (name == "items") return pairs(object, line, true, true);
    if (name == "keys") return pairs(object, line, true, false);
    if (name == "values") return pairs(object, line, false, true);
    if (name == "get") {
      const Value found = item_of(object, a.find(0), line);
      return found ? found : a.find(1) ? a.find(1) : made(Json());
    }
  }
  if (object && object->as_string()) {
    const std::string& s = *object->as_string();
    const Value first = a.find(0);
    const std::string of = first && first->as_string() ? *first->as_string() : "";
    if (name == "strip") return made(stripped(s, first, true, true));
    if (name == "lstrip") return made(stripped(s, first, true, false));
    if (name == "rstrip") return made(stripped(s, first, false, true));
    if (name == "startswith") return made(s.starts_with(of));
    if (name == "endswith") return made(s.ends_with(of));
    if (name == "split") return split(s, first, a.find(1, "maxsplit"));
    if (name == "splitlines") return split(s, made("\n"), nullptr);
    if (name == "join") return joined(first, s, line);
    if (name == "find") {
      const size_t at = s.find(of);
      return made(at == s.npos ? int64_t{-1} : static_cast<int64_t>(at));
    }
    if (Value v = text_filter(name, s, a, line)) return v;
  }
  fail_at(line, fmt::format("{} has no method '{}' in chat templates",
                            object ? object->kind() : "what is undefined", name));
}

}  // namespace tandem::text::jinja
