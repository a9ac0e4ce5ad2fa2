// SPDX-License-Identifier: Apache-2.0
// What a rank does wrong in the scenarios of faults, by name.
#pragma once

#include <map>
#include <string>

#include "tandem/dist/engine.h"

namespace tandem::distributed {

using Deed = void (*)(Engine& e);
const std::map<std::string, Deed>& deeds();

}  // namespace tandem::distributed
