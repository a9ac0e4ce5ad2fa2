// SPDX-License-Identifier: Apache-2.0
// update_many_: the updates of many cells (an optimizer's step) in one parallel region. The bits
// equal those of separate update_() calls.
#pragma once

#include "tandem/base/small_vec.h"
#include "tandem/graph/cell.h"

namespace tandem {

/// One update_(): the row's inputs are the first cell, `other`, the other cells, the numbers.
struct CellUpdate {
  const OpDef* row = nullptr;
  SmallVec<Cell*, 5> cells;
  Tensor other;
  SmallVec<Scalar, 12> numbers;
};

/// Run every update of `list`; no cell may be in two of them. Pointwise rows over dense arrays of
/// one shape and dtype share one parallel region, the others run one by one before it.
TD_API void update_many_(std::span<CellUpdate> list, SourceLocation loc);

}  // namespace tandem
