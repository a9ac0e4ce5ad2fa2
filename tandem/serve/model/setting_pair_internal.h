// SPDX-License-Identifier: Apache-2.0
// Entries of settings that map one name to another: [h_in=h_out], [x=image].
#pragma once

#include <string>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::serve {

/// The names on both sides of '='; throws Value where one is missing, with `setting` in the text
/// as it is, in quotes.
inline std::pair<std::string, std::string> setting_pair(const std::string& entry,
                                                        const std::string& setting,
                                                        const char* example) {
  const size_t is = entry.find('=');
  TD_CHECK(is != entry.npos && is > 0 && is + 1 < entry.size(), Value,
           "{} expects entries as {}, got '{}'", setting, example, entry);
  return {entry.substr(0, is), entry.substr(is + 1)};
}

}  // namespace tandem::serve
