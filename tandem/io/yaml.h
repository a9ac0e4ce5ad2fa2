// SPDX-License-Identifier: Apache-2.0
// YAML values with the lines they stand on. The parser is yaml-cpp, hidden in yaml.cpp. Anchors and
// aliases are expanded up to a limit; a key that comes twice is an error.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::io {

struct TD_API Yaml {
  enum class Kind : unsigned char { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;     ///< of a scalar
  bool quoted = false;  ///< the scalar stood in quotes: it is a text whatever it looks like
  std::vector<std::string> keys;  ///< of a map: keys[i] is that of items[i]
  std::vector<Yaml> items;
  int line = 0;  ///< from 1; 0: not from a file

  const Yaml* find(std::string_view key) const;
  std::optional<int64_t> as_int() const;
  std::optional<double> as_double() const;
  std::optional<bool> as_bool() const;  ///< true, false
  /// Back to text; maps inside maps in block form.
  std::string dump(int indent = 0) const;
};

/// Parse one document. Throws Format naming `what` and the line.
TD_API Yaml parse_yaml(std::string_view text, std::string_view what = "YAML");

/// Put `value` (YAML itself: a number, a text, "[1, 2]") at a dotted path, making maps on the way.
/// Throws Value when something on the way is no map.
TD_API void set_yaml(Yaml& root, std::string_view path, std::string_view value);

}  // namespace tandem::io
