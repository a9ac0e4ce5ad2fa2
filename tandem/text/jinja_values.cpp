// SPDX-License-Identifier: Apache-2.0
#include "tandem/text/jinja_values_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tandem/text/jinja_internal.h"

namespace tandem::text::jinja {
namespace {

using io::Json;

constexpr size_t kMostBytes = size_t{16} << 20;  ///< of one text, and 8 for each item of a list

bool is_number(const Value& v) { return v && (v->as_int() || v->as_double() || v->as_bool()); }
double number(const Value& v) {
  if (v->as_bool()) return *v->as_bool();
  return io::number_of(v.get());
}

std::string python_repr(const Json& j) {
  if (const std::string* s = j.as_string()) {
    const char quote = s->find('\'') != s->npos && s->find('"') == s->npos ? '"' : '\'';
    std::string out(1, quote);
    for (const char c : *s) {
      if (c == quote || c == '\\')
        out.append({'\\', c});
      else if (c == '\n')
        out += "\\n";
      else
        out += c;
    }
    return out + quote;
  }
  if (j.is_null()) return "None";
  if (const bool* b = j.as_bool()) return *b ? "True" : "False";
  if (const double* d = j.as_double()) {
    const std::string s = fmt::format("{}", *d);
    return s.find_first_of(".en") == s.npos ? s + ".0" : s;
  }
  std::string out;
  if (const Json::Array* a = j.as_array()) {
    for (const Json& e : *a) out += (out.empty() ? "" : ", ") + python_repr(e);
    return "[" + out + "]";
  }
  if (const Json::Object* o = j.as_object()) {
    for (const auto& [key, e] : *o)
      out += (out.empty() ? "" : ", ") + python_repr(key) + ": " + python_repr(e);
    return "{" + out + "}";
  }
  return j.dump();
}

// The whole number of a bound, from the end where it is negative.
int64_t bound(const Value& v, int64_t size, int64_t usual, int line) {
  if (!v || v->is_null()) return usual;
  if (!v->as_int()) fail_at(line, "a bound of a slice is not a whole number");
  const int64_t at = *v->as_int() < 0 ? *v->as_int() + size : *v->as_int();
  return std::clamp<int64_t>(at, -1, size);
}

}  // namespace

Value Arguments::find(size_t place, std::string_view name) const {
  if (place < all.size()) return all[place];
  for (const auto& [key, v] : named)
    if (key == name) return v;
  return nullptr;
}

bool is_true(const Value& v) {
  if (!v || v->is_null()) return false;
  if (is_number(v)) return number(v) != 0;
  if (v->as_string()) return !v->as_string()->empty();
  return v->as_array() ? !v->as_array()->empty() : !v->as_object()->empty();
}

std::string text_of(const Value& v) {
  if (!v) return "";
  return v->as_string() ? *v->as_string() : python_repr(*v);
}

std::string dumps(const Json& j, int indent, int depth) {
  const std::string line =
      indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(indent * (depth + 1)), ' ');
  const std::string last =
      indent < 0 ? "" : "\n" + std::string(static_cast<size_t>(indent * depth), ' ');
  const std::string comma = indent < 0 ? ", " : ",";
  std::string out;
  if (const Json::Array* a = j.as_array()) {
    for (const Json& e : *a) out += (out.empty() ? "" : comma) + line + dumps(e, indent, depth + 1);
    return a->empty() ? "[]" : "[" + out + last + "]";
  }
  if (const Json::Object* o = j.as_object()) {
    for (const auto& [key, e] : *o)
      out += (out.empty() ? "" : comma) + line + io::quote_json(key) + ": " +
             dumps(e, indent, depth + 1);
    return o->empty() ? "{}" : "{" + out + last + "}";
  }
  return j.dump();
}

bool equal(const Value& a, const Value& b) {
  if (!a || !b) return !a && !b;
  if (is_number(a) && is_number(b)) return number(a) == number(b);
  return a->kind() == b->kind() && a->dump() == b->dump();
}

bool less(const Value& a, const Value& b, int line) {
  if (is_number(a) && is_number(b)) return number(a) < number(b);
  if (a && b && a->as_string() && b->as_string()) return *a->as_string() < *b->as_string();
  fail_at(line, "two values cannot be compared by size");
}

bool contains(const Value& whole, const Value& item, int line) {
  if (!whole) return false;
  if (const Json::Array* a = whole->as_array())
    return std::any_of(a->begin(), a->end(),
                       [&](const Json& e) { return equal(part_of(whole, e), item); });
  const std::string* text = item ? item->as_string() : nullptr;
  if (whole->as_object()) return text && whole->find(*text);
  if (whole->as_string() && text) return whole->as_string()->find(*text) != std::string::npos;
  fail_at(line, "'in' expects a list, an object or two texts");
}

size_t length_of(const Value& v, int line) {
  if (v && v->as_array()) return v->as_array()->size();
  if (v && v->as_object()) return v->as_object()->size();
  if (v && v->as_string())
    return static_cast<size_t>(std::count_if(v->as_string()->begin(), v->as_string()->end(),
                                             [](char c) { return (c & 0xC0) != 0x80; }));
  if (!v) return 0;
  fail_at(line, "a value has no length");
}

Value attribute_of(const Value& whole, const std::string& name) {
  if (!whole || !whole->as_object()) return nullptr;
  const Json* j = whole->find(name);
  return j ? part_of(whole, *j) : nullptr;
}

Value item_of(const Value& whole, const Value& key, int line) {
  if (!whole) fail_at(line, "what is undefined has no items");
  if (key && key->as_string()) return attribute_of(whole, *key->as_string());
  if (!key || !key->as_int()) return nullptr;
  const auto size = static_cast<int64_t>(length_of(whole, line));
  const int64_t at = *key->as_int() < 0 ? *key->as_int() + size : *key->as_int();
  if (at < 0 || at >= size) return nullptr;
  if (whole->as_array()) return part_of(whole, (*whole->as_array())[static_cast<size_t>(at)]);
  if (!whole->as_string()) return nullptr;
  const Value bounds[3] = {made(at), made(at + 1), nullptr};
  return slice_of(whole, bounds, line);
}

Value slice_of(const Value& whole, const Value (&bounds)[3], int line) {
  const auto size = static_cast<int64_t>(length_of(whole, line));
  const int64_t step = bounds[2] && bounds[2]->as_int() ? *bounds[2]->as_int() : 1;
  if (step == 0) fail_at(line, "a slice has the step 0");
  const int64_t from = bound(bounds[0], size, step > 0 ? 0 : size - 1, line),
                to = bound(bounds[1], size, step > 0 ? size : -1, line);
  std::vector<int64_t> at;
  for (int64_t i = step > 0 ? std::max<int64_t>(from, 0) : std::min(from, size - 1);
       step > 0 ? i < to : i > to; i += step)
    at.push_back(i);
  if (const Json::Array* a = whole->as_array()) {
    Json::Array out;
    for (const int64_t i : at) out.push_back((*a)[static_cast<size_t>(i)]);
    return made(std::move(out));
  }
  if (!whole->as_string()) fail_at(line, "only lists and texts have slices");
  std::vector<std::string_view> characters;
  const std::string& s = *whole->as_string();
  for (size_t i = 0, n = 0; i < s.size(); i += n) {
    for (n = 1; i + n < s.size() && (s[i + n] & 0xC0) == 0x80;) ++n;
    characters.push_back(std::string_view(s).substr(i, n));
  }
  std::string out;
  for (const int64_t i : at) out += characters[static_cast<size_t>(i)];
  return made(std::move(out));
}

namespace {

Value numbers(const std::string& sign, const Value& a, const Value& b, int line) {
  const double x = number(a), y = number(b);
  const bool whole = !a->as_double() && !b->as_double() && sign != "/";
  if ((sign == "/" || sign == "//" || sign == "%") && y == 0) fail_at(line, "division by zero");
  double r = 0;
  if (sign == "+") r = x + y;
  if (sign == "-") r = x - y;
  if (sign == "*") r = x * y;
  if (sign == "/") r = x / y;
  if (sign == "//") r = std::floor(x / y);
  if (sign == "%") r = x - std::floor(x / y) * y;
  if (whole && std::abs(r) < 9e15) return made(static_cast<int64_t>(r));
  return made(r);
}

}  // namespace

Value arithmetic(const std::string& sign, const Value& a, const Value& b, int line) {
  if (sign == "~") {
    std::string s = text_of(a) + text_of(b);
    if (s.size() > kMostBytes) fail_at(line, "a text grows beyond 16 MB");
    return made(std::move(s));
  }
  if (!a || !b) fail_at(line, fmt::format("'{}' of what is undefined", sign));
  if (is_number(a) && is_number(b)) return numbers(sign, a, b, line);
  if (sign == "+" && a->as_string() && b->as_string()) return arithmetic("~", a, b, line);
  if (sign == "+" && a->as_array() && b->as_array()) {
    Json::Array out = *a->as_array();
    out.insert(out.end(), b->as_array()->begin(), b->as_array()->end());
    if (out.size() > kMostBytes / 64) fail_at(line, "a list grows too long");
    return made(std::move(out));
  }
  if (sign == "*" && a->as_string() && b->as_int()) {
    const auto n = static_cast<size_t>(std::max<int64_t>(*b->as_int(), 0));
    if (n > kMostBytes || n * a->as_string()->size() > kMostBytes)
      fail_at(line, "a text grows beyond 16 MB");
    std::string out;
    for (size_t i = 0; i < n; ++i) out += *a->as_string();
    return made(std::move(out));
  }
  fail_at(line, fmt::format("'{}' of {} and {}", sign, a->kind(), b->kind()));
}

}  // namespace tandem::text::jinja
