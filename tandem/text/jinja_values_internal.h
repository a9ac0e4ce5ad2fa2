// SPDX-License-Identifier: Apache-2.0
// Values of templates with Python's rules: what is true, how things read as text, how they compare,
// and the filters, tests and methods that need nothing else.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/io/json.h"

namespace tandem::text::jinja {

/// Shared, never changed; nullptr: undefined.
using Value = std::shared_ptr<const io::Json>;
inline Value made(io::Json j) { return std::make_shared<const io::Json>(std::move(j)); }
/// A part of a value, which keeps the whole alive.
inline Value part_of(const Value& whole, const io::Json& part) { return Value(whole, &part); }

/// Of a call: values by place and by name.
struct Arguments {
  std::vector<Value> all = {};
  std::vector<std::pair<std::string, Value>> named = {};
  Value find(size_t place, std::string_view name = "") const;
};

bool is_true(const Value& v);
/// As Python's str(); "" of what is undefined.
std::string text_of(const Value& v);
/// As Python's json.dumps(..., ensure_ascii=False).
std::string dumps(const io::Json& j, int indent = -1, int depth = 0);
bool equal(const Value& a, const Value& b);
/// Less than; throws where the two cannot be compared.
bool less(const Value& a, const Value& b, int line);
bool contains(const Value& whole, const Value& item, int line);
size_t length_of(const Value& v, int line);
Value item_of(const Value& whole, const Value& key, int line);
Value attribute_of(const Value& whole, const std::string& name);
Value slice_of(const Value& whole, const Value (&bounds)[3], int line);
Value arithmetic(const std::string& sign, const Value& a, const Value& b, int line);

Value apply_filter(const std::string& name, const Value& v, const Arguments& a, int line);
bool apply_test(const std::string& name, const Value& v, const Arguments& a, int line);
Value call_method(const Value& object, const std::string& name, const Arguments& a, int line);

}  // namespace tandem::text::jinja
