// SPDX-License-Identifier: Apache-2.0
// The reference page of all ops, generated from the table; a test compares docs/ops.md with it.
#pragma once

#include <string>

#include "tandem/graph/op_def.h"

namespace tandem {

/// docs/ops.md: one section per family, one line per op.
TD_API std::string op_reference_page();
/// A few lines on one op: inputs, outputs, types, derivative, kernels, doc.
TD_API std::string describe_op(const OpDef& op);

}  // namespace tandem
