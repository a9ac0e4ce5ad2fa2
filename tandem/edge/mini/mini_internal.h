// SPDX-License-Identifier: Apache-2.0
// The C API of one model, for the folder of a library and for those of phones.
#pragma once

#include "tandem/edge/edge.h"
#include "tandem/edge/folder_files.h"

namespace tandem::edge {

/// tandem_c.h, tandem_checks.h, tandem_mini.c and mini_net.h of the net called `name`, whose file
/// has no arena of its own.
FolderFiles mini_files(const EdgeSource& net, const std::string& name);

}  // namespace tandem::edge
