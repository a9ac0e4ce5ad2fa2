// SPDX-License-Identifier: Apache-2.0
// Members of a JSON object with their types checked, for reading the parts of a tokenizer file.
// Every error is Format and names the part.
#pragma once

#include <optional>
#include <string>

#include "tandem/base/error.h"
#include "tandem/io/json.h"

namespace tandem::text {

class Fields {
 public:
  Fields(const io::Json& json, std::string part) : json_(&json), part_(std::move(part)) {
    TD_CHECK(json.as_object(), Format, "{} must be an object, is {}", part_, json.kind());
  }
  const io::Json& json() const { return *json_; }
  const std::string& part() const { return part_; }
  /// The member, or nullptr when it is missing or null.
  const io::Json* find(const char* key) const {
    const io::Json* v = json_->find(key);
    return v && !v->is_null() ? v : nullptr;
  }
  const io::Json& at(const char* key) const {
    const io::Json* v = find(key);
    TD_CHECK(v, Format, "{} has no '{}'", part_, key);
    return *v;
  }
  std::string text(const char* key) const { return text_of(at(key), key); }
  std::string text(const char* key, const char* otherwise) const {
    const io::Json* v = find(key);
    return v ? text_of(*v, key) : otherwise;
  }
  bool flag(const char* key, bool otherwise) const {
    const io::Json* v = find(key);
    if (!v) return otherwise;
    TD_CHECK(v->as_bool(), Format, "{}: '{}' must be true or false, is {}", part_, key, v->kind());
    return *v->as_bool();
  }
  int64_t integer(const char* key, int64_t low, int64_t high) const {
    return integer_of(at(key), key, low, high);
  }
  int64_t integer(const char* key, int64_t low, int64_t high, int64_t otherwise) const {
    const io::Json* v = find(key);
    return v ? integer_of(*v, key, low, high) : otherwise;
  }
  double number(const char* key, double otherwise) const {
    const io::Json* v = find(key);
    if (!v) return otherwise;
    if (v->as_int()) return static_cast<double>(*v->as_int());
    TD_CHECK(v->as_double(), Format, "{}: '{}' must be a number, is {}", part_, key, v->kind());
    return *v->as_double();
  }
  const io::Json::Array& array(const char* key) const {
    const io::Json& v = at(key);
    TD_CHECK(v.as_array(), Format, "{}: '{}' must be an array, is {}", part_, key, v.kind());
    return *v.as_array();
  }
  const io::Json::Object& object(const char* key) const {
    const io::Json& v = at(key);
    TD_CHECK(v.as_object(), Format, "{}: '{}' must be an object, is {}", part_, key, v.kind());
    return *v.as_object();
  }

 private:
  std::string text_of(const io::Json& v, const char* key) const {
    TD_CHECK(v.as_string(), Format, "{}: '{}' must be a string, is {}", part_, key, v.kind());
    return *v.as_string();
  }
  int64_t integer_of(const io::Json& v, const char* key, int64_t low, int64_t high) const {
    TD_CHECK(v.as_int(), Format, "{}: '{}' must be an integer, is {}", part_, key, v.kind());
    TD_CHECK(*v.as_int() >= low && *v.as_int() <= high, Format,
             "{}: '{}' must lie in [{}, {}], is {}", part_, key, low, high, *v.as_int());
    return *v.as_int();
  }
  const io::Json* json_;
  std::string part_;
};

/// The largest token id: ids are 32 bits in the files.
inline constexpr int64_t kMaxTokenId = (int64_t{1} << 31) - 1;

}  // namespace tandem::text
