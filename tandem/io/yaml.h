// SPDX-License-Identifier: Apache-2.0
// YAML values with their line numbers. The parser is yaml-cpp, hidden in yaml.cpp. Anchors and
// aliases are expanded within a budget; a duplicate key is an error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/budget.h"
#include "tandem/base/export.h"

namespace tandem::io {

struct TD_API Yaml {
  enum class Kind : unsigned char { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;               ///< of a scalar
  bool quoted = false;            ///< the scalar was quoted: it is a string whatever it looks like
  std::vector<std::string> keys;  ///< of a map: keys[i] belongs to items[i]
  std::vector<Yaml> items;
  int line = 0;  ///< from 1; 0: not from a file

  const Yaml* find(std::string_view key) const;
  std::optional<int64_t> as_int() const;
  std::optional<double> as_double() const;
  std::optional<bool> as_bool() const;  ///< true, false
  /// Back to text; nested maps in block form.
  std::string dump(int indent = 0) const;
};

/// Parse one document. Throws Format naming `what` and the line, or the limit.
TD_API Yaml parse_yaml(std::string_view text, std::string_view what = "YAML",
                       const BudgetLimits& limits = {});

/// Set the value at a dotted path to `value` (YAML itself: a number, a string, "[1, 2]"), creating
/// maps on the way. Throws Value when something on the way is not a map.
TD_API void set_yaml(Yaml& root, std::string_view path, std::string_view value);

}  // namespace tandem::io
