// SPDX-License-Identifier: Apache-2.0
// The text format of protocol buffers, read without a schema, as configuration files use it.
// https://protobuf.dev/reference/protobuf/textformat-spec
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::io {

struct TextField;

/// The fields of a message in their order; a list of several values is as many fields.
struct TD_API TextMessage {
  std::vector<TextField> fields;
  const TextField* find(std::string_view name) const;  ///< the last of that name, or nullptr
};

struct TD_API TextField {
  std::string name;
  std::string text;                  ///< of a scalar, without quotes and escapes
  bool quoted = false;               ///< the scalar is a string
  std::vector<TextMessage> message;  ///< one, or none for a scalar
  int line = 0;
  std::optional<int64_t> as_int() const;
  std::optional<bool> as_bool() const;  ///< true, t, 1; false, f, 0
};

/// Throws Format naming `what` and the line; for messages more than 32 deep, too.
TD_API TextMessage parse_text_proto(std::string_view text, std::string_view what);

}  // namespace tandem::io
