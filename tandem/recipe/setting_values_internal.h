// SPDX-License-Identifier: Apache-2.0
// Values of recipes as records and messages compare and show them. nullptr is null.
#pragma once

#include <string>

#include "tandem/io/yaml.h"

namespace tandem::recipe {

/// YAML in one line: "0.003", "[8, 16]", "{type: adamw, lr: 0.1}", "null".
std::string setting_text(const io::Yaml* y);
/// Is it one number or word, however it is written: 3e-3 and 0.003, 8 and [8]?
bool same_setting(const io::Yaml* a, const io::Yaml* b);

}  // namespace tandem::recipe
