// SPDX-License-Identifier: Apache-2.0
// JSON values, parsed with limits, and written. The parser itself is nlohmann's, hidden in
// json.cpp. Objects keep their order; a duplicate key is an error.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::io {

class TD_API Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json();
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  Json(bool v);
  template <std::integral I>
    requires(!std::same_as<I, bool>)
  Json(I v) : Json(Integer{static_cast<int64_t>(v)}) {}
  Json(double v);
  Json(const char* v);
  Json(std::string v);
  Json(Array v);
  Json(Object v);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // The value if it has that kind, else nullptr.
  const bool* as_bool() const { return std::get_if<bool>(&value_); }
  const int64_t* as_int() const { return std::get_if<int64_t>(&value_); }
  const double* as_double() const { return std::get_if<double>(&value_); }
  const std::string* as_string() const { return std::get_if<std::string>(&value_); }
  const Array* as_array() const { return std::get_if<Array>(&value_); }
  const Object* as_object() const { return std::get_if<Object>(&value_); }
  /// The member of an object, or nullptr (also when this is not an object).
  const Json* find(std::string_view key) const;
  /// "null", "bool", "integer", "number", "string", "array", "object".
  const char* kind() const;

  /// As text; with `indent` < 0 on one line. Numbers read back to the same bits; NaN and infinities
  /// become null.
  std::string dump(int indent = -1) const;

 private:
  friend struct JsonBuilder;
  struct Integer {
    int64_t v;
  };
  explicit Json(Integer v);
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

struct JsonLimits {
  int depth = 64;
  size_t values = size_t{1} << 22;  ///< numbers, strings, arrays ... in total
};

/// Parse a complete text. Throws Format with `what` (a file's name), the byte and the reason.
TD_API Json parse_json(std::string_view text, std::string_view what = "JSON",
                       JsonLimits limits = {});

/// The number in `j`, whole or not; NaN where there is none, as dump() writes NaN as null.
TD_API double number_of(const Json* j);
/// The whole number in `j`; 0 where there is none.
TD_API int64_t whole_of(const Json* j);
/// The text in `j`; "" where there is none.
TD_API std::string text_of(const Json* j);

/// `text` as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD.
TD_API std::string quote_json(std::string_view text);

/// True when `text` is well-formed UTF-8.
TD_API bool is_utf8(std::string_view text);

}  // namespace tandem::io
