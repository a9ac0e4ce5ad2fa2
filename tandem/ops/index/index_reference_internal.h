// SPDX-License-Identifier: Apache-2.0
// The loops of the index rows (index_reference.cpp), used as their references. Not installed.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

void run_index(const KernelCall& k);
void run_index_put(const KernelCall& k);
void run_index_backward(const KernelCall& k);
void run_region_put(const KernelCall& k);
void run_gather(const KernelCall& k);
void run_scatter(const KernelCall& k);
void run_scatter_add(const KernelCall& k);
void run_scatter_extreme(const KernelCall& k);
void run_dynamic_update(const KernelCall& k);
void run_dynamic_slice(const KernelCall& k);
void run_nonzero(const KernelCall& k);
void run_one_hot(const KernelCall& k);
void run_bincount(const KernelCall& k);
void run_sort(const KernelCall& k);
void run_topk(const KernelCall& k);

}  // namespace tandem::detail
