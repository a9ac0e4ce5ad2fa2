// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/plan/record_internal.h"

namespace tandem::plan {
namespace {

// A value as a message shows it.
std::string shown(const io::Json& v) {
  if (v.as_string()) {
    const std::string& s = *v.as_string();
    return "the text " + io::quote_json(s.size() > 40 ? s.substr(0, 37) + "..." : s);
  }
  if (v.as_array()) return fmt::format("a list of {}", v.as_array()->size());
  if (v.as_object()) return "an object";
  return v.dump();
}

std::optional<double> as_number(const io::Json& v) {
  if (v.as_int()) return static_cast<double>(*v.as_int());
  if (v.as_double() && std::isfinite(*v.as_double())) return *v.as_double();
  return {};
}

bool within(const io::Json& v, double low, double high) {
  const std::optional<double> d = as_number(v);
  return d && *d >= low && *d <= high;
}

std::string range(double low, double high) {
  if (low == std::numeric_limits<double>::denorm_min())
    return fmt::format("a number above 0 and up to {}", high);
  return fmt::format("a number from {} to {}", low, high);
}

bool printable(const std::string& s, size_t most) {
  if (s.empty() || s.size() > most) return false;
  for (char c : s)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return false;
  return true;
}

bool digit(const std::string& s, size_t k) { return k < s.size() && s[k] >= '0' && s[k] <= '9'; }

// 19.. or 20.. that stands alone.
bool holds_year(const std::string& s) {
  for (size_t k = 0; k + 4 <= s.size(); ++k) {
    const std::string century = s.substr(k, 2);
    if ((century == "19" || century == "20") && digit(s, k + 2) && digit(s, k + 3) &&
        !digit(s, k + 4) && (k == 0 || !digit(s, k - 1)))
      return true;
  }
  return false;
}

bool is_date(const std::string& s) {
  if (s.size() != 10 || s[4] != '-' || s[7] != '-') return false;
  for (size_t k = 0; k < s.size(); ++k)
    if (k != 4 && k != 7 && !digit(s, k)) return false;
  const int month = std::stoi(s.substr(5, 2)), day = std::stoi(s.substr(8, 2));
  return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

constexpr size_t kLongest = 400;

}  // namespace

Record::Record(const io::Json& j, std::string loc) : loc_(std::move(loc)) {
  object_ = j.as_object();
  TD_CHECK(object_, Format, "{} is {}, expected an object {{\"key\": value, ...}}", loc_, shown(j));
}

void Record::fail(const std::string& reason) const { TD_FAIL(Format, "{}: {}", loc_, reason); }

void Record::refuse(const char* key, const io::Json& came, const std::string& wanted) const {
  fail(fmt::format("'{}' is {}, expected {}", key, shown(came), wanted));
}

bool Record::has(const char* key) const {
  for (const auto& [k, v] : *object_)
    if (k == key) return true;
  return false;
}

const io::Json* Record::get(const char* key, const std::string& wanted, bool optional) {
  known_.insert(key);
  std::vector<std::string> others;
  for (const auto& [k, v] : *object_) {
    if (k == key) return &v;
    if (!known_.count(k)) others.push_back(k);
  }
  if (optional) return nullptr;
  std::string near = nearest_word(key, others);
  if (edit_distance(key, near) > std::max<size_t>(1, std::strlen(key) / 4)) near.clear();
  fail(fmt::format("'{}' is missing, expected {}{}", key, wanted,
                   near.empty() ? "" : "; is '" + near + "' meant to be it?"));
}

double Record::number(const char* key, double low, double high, std::optional<double> otherwise) {
  const std::string wanted = range(low, high);
  const io::Json* v = get(key, wanted, otherwise.has_value());
  if (!v) return *otherwise;
  if (!within(*v, low, high)) refuse(key, *v, wanted);
  return *as_number(*v);
}

int64_t Record::whole(const char* key, int64_t low, int64_t high,
                      std::optional<int64_t> otherwise) {
  const std::string wanted = fmt::format("a whole number from {} to {}", low, high);
  const io::Json* v = get(key, wanted, otherwise.has_value());
  if (!v) return *otherwise;
  const std::optional<double> d = as_number(*v);
  if (!d || *d != std::floor(*d) ||
      !within(*v, static_cast<double>(low), static_cast<double>(high)))
    refuse(key, *v, wanted);
  return static_cast<int64_t>(*d);
}

std::string Record::text(const char* key, std::optional<std::string> otherwise) {
  const std::string wanted = fmt::format("a text of 1 to {} printable characters", kLongest);
  const io::Json* v = get(key, wanted, otherwise.has_value());
  if (!v) return *otherwise;
  if (!v->as_string() || !printable(*v->as_string(), kLongest)) refuse(key, *v, wanted);
  return *v->as_string();
}

std::string Record::date(const char* key) {
  const std::string wanted = "a date as \"2026-11-22\"";
  const io::Json* v = get(key, wanted, false);
  if (!v->as_string() || !is_date(*v->as_string())) refuse(key, *v, wanted);
  return *v->as_string();
}

std::string Record::source(const char* key) {
  const std::string wanted =
      "a public document or page with its year, or \"assumed: \" and the reason";
  const io::Json* v = get(key, wanted, false);
  const std::string assumed = "assumed: ";
  if (!v->as_string() || !printable(*v->as_string(), kLongest)) refuse(key, *v, wanted);
  const std::string& s = *v->as_string();
  const bool reason = s.starts_with(assumed) && s.size() >= assumed.size() + 8;
  if (!reason && !holds_year(s)) refuse(key, *v, wanted);
  return s;
}

const io::Json::Array& Record::list(const char* key, size_t least, size_t most) {
  const std::string wanted = least == most ? fmt::format("a list of {}", least)
                                           : fmt::format("a list of {} to {}", least, most);
  const io::Json* v = get(key, wanted, false);
  if (!v->as_array() || v->as_array()->size() < least || v->as_array()->size() > most)
    refuse(key, *v, wanted);
  return *v->as_array();
}

std::vector<std::string> Record::texts(const char* key, size_t most) {
  std::vector<std::string> out;
  for (const io::Json& v : list(key, 0, most)) {
    if (!v.as_string() || !printable(*v.as_string(), kLongest))
      fail(fmt::format("'{}'[{}] is {}, expected a text of 1 to {} printable characters", key,
                       out.size(), shown(v), kLongest));
    out.push_back(*v.as_string());
  }
  return out;
}

std::vector<double> Record::numbers(const char* key, size_t count, double low, double high) {
  std::vector<double> out;
  for (const io::Json& v : list(key, count, count)) {
    if (!within(v, low, high))
      fail(fmt::format("'{}'[{}] is {}, expected {}", key, out.size(), shown(v), range(low, high)));
    out.push_back(*as_number(v));
  }
  return out;
}

Record Record::object(const char* key) {
  const io::Json* v = get(key, "an object {\"key\": value, ...}", false);
  Record inner(*v, loc_ + (row_ ? ", " : ": ") + key);
  inner.row_ = true;
  return inner;
}

std::vector<Record> Record::rows(const char* key, size_t least, size_t most) {
  std::vector<Record> out;
  for (const io::Json& v : list(key, least, most)) {
    out.emplace_back(v, fmt::format("{}: {}[{}]", loc_, key, out.size()));
    out.back().row_ = true;
  }
  return out;
}

void Record::schema(int version, const std::string& advice) {
  const int64_t came = whole("schema", 0, 1000000);
  if (came != version)
    fail(fmt::format("'schema' is {}, expected {}: it was written for another version; {}", came,
                     version, advice));
}

void Record::finish() const {
  const std::vector<std::string> known(known_.begin(), known_.end());
  for (const auto& [key, v] : *object_) {
    if (known_.count(key)) continue;
    const std::string near = nearest_word(key, known);
    std::string list;
    for (const std::string& k : known) list += (list.empty() ? "" : ", ") + k;
    const std::string name = key.size() > 40 ? key.substr(0, 37) + "..." : key;
    fail(fmt::format("{} is not known here{}; known are {}", io::quote_json(name),
                     near.empty() ? "" : ", did you mean '" + near + "'?", list));
  }
}

}  // namespace tandem::plan
