// SPDX-License-Identifier: Apache-2.0
// What to do about an input whose channels are not where they are wanted: images as other programs
// hold them have their channels last.
#pragma once

#include <string>

#include "tandem/tensor/shape.h"

namespace tandem::detail {

/// The remedy for x, of `spatial` dimensions beside channels and perhaps a batch, that should have
/// `channels` of them: how to permute it where its last dimension has that size, else `otherwise`.
TD_API std::string layout_hint(const Shape& x, int spatial, Dim channels, std::string otherwise);

}  // namespace tandem::detail
