// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "tandem/dist/engine.h"
#include "tandem/tensor/tensor.h"

namespace tandem::distributed::detail {

/// all_reduce() with a name for messages, and CallOptions::ordered; x itself where the group is one
/// rank or none.
Tensor all_reduce_labelled(const Tensor& x, ReduceOp op, const std::shared_ptr<Engine>& group,
                           const std::string& label, bool ordered = false,
                           SourceLocation loc = SourceLocation::here());

}  // namespace tandem::distributed::detail
