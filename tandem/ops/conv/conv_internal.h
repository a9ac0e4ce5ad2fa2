// SPDX-License-Identifier: Apache-2.0
// The references of the convolution rows, named by conv.cpp, and how windows are given: what
// convolution and pooling share.
#pragma once

#include "tandem/graph/kernel.h"
#include "tandem/tensor/shape.h"

namespace tandem::detail {

void conv_reference(const KernelCall& c);
void conv_backward_input_reference(const KernelCall& c);
void conv_backward_weight_reference(const KernelCall& c);

/// Throws Value unless `list` has d entries, all of at least `least`.
void check_list(const char* name, const IntList& list, int d, int64_t least);
/// One entry for each of d dimensions: `list`, or its only entry d times. Throws Value.
IntList spread(const char* name, const IntList& list, int d);

}  // namespace tandem::detail
