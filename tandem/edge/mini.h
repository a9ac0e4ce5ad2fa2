// SPDX-License-Identifier: Apache-2.0
// libtandem-mini: the C99 file of one model with the functions of tandem_c.h over it, so that a
// program in C links with libtandem or with this. `tandem compile --target mini` writes it to a
// folder; nothing is compiled here.
#pragma once

#include "tandem/edge/edge.h"
#include "tandem/edge/folder_files.h"

namespace tandem::edge {

struct MiniOptions {
  std::string name = "net";  ///< that of EdgeOptions
};

/// NAME.c and NAME.h, tandem_c.h and its functions for this model (tandem_mini.c, tandem_checks.h,
/// mini_net.h), CMakeLists.txt and a README.md with the line that builds the library.
TD_API FolderFiles write_mini(const EdgeSource& net, const MiniOptions& options = {});

}  // namespace tandem::edge
