// SPDX-License-Identifier: Apache-2.0
// Which rows run on the device, as docs/gpu.md shows it: asked from the op table, so it cannot be
// out of date (a test compares).
#pragma once

#include <string>

#include "tandem/base/export.h"
#include "tandem/graph/op_def.h"

namespace tandem::gpu {

enum class RowSupport : uint8_t {
  kernel,  ///< by a kernel of its own or of its family
  body,    ///< a composite: as the rows of its body
  view,    ///< no bytes are moved
  host,    ///< by the CPU's kernel, between copies
  none,    ///< inputs of graphs, control flow: not run on a device
};
TD_API RowSupport support_of(const OpDef& op);

/// The table: for each family what is native and what the host runs.
TD_API std::string rows_page();

}  // namespace tandem::gpu
