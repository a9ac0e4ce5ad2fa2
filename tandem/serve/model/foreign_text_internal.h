// SPDX-License-Identifier: Apache-2.0
// Configuration files in protobuf's text format, field by field.
#pragma once

#include "tandem/io/text_proto.h"
#include "tandem/serve/model/foreign_internal.h"

namespace tandem::serve {

struct FieldNotes {
  std::string what;  ///< the file, for messages
  std::vector<std::string> notes = {};
  void unused(const io::TextField& f, const std::string& why = "");
  /// The value of a field. Throws Format.
  int64_t whole(const io::TextField& f, int64_t least, int64_t most) const;
  const io::TextMessage& message(const io::TextField& f) const;
  /// latest { num_versions: 2 }, all {}, specific { versions: [1, 3] }.
  void version_policy(const io::TextField& f, ModelSettings& s);
};

/// Folders with a number as their name.
std::map<int64_t, std::string> version_folders(const std::string& folder);

}  // namespace tandem::serve
