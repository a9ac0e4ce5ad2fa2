// SPDX-License-Identifier: Apache-2.0
// The kernels of the reduce and scan families, for every row, dtype and stride. The order of a
// reduction is set by shape and dims alone, so its bits depend neither on the thread count nor on
// how x lies: as if x were row-major, along memory, 64 lanes in blocks of kRowBlock elements;
// across memory, blocks of kColumnBlock rows; a fold combines four elements of a lane or column
// before it adds them to the state; lanes and blocks are combined pairwise.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::codegen {

inline constexpr int64_t kRowBlock = 16384;
inline constexpr int64_t kColumnBlock = 256;

void run_reduce(const KernelCall& call);
void run_scan(const KernelCall& call);
/// The kernel of the reduce family (attrs ReduceAttrs, of op::sum_to ShapeAttrs).
const Kernel& reduce_kernel();
/// The kernel of the scan family (attrs ScanAttrs).
const Kernel& scan_kernel();

}  // namespace tandem::codegen
