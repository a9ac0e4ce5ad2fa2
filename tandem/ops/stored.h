// SPDX-License-Identifier: Apache-2.0
// Constants stored in a file at an address unsuitable for their dtype: they are copied where needed
// and only for that time, so that a program which packs them never holds them twice.
#pragma once

#include "tandem/graph/spec.h"
#include "tandem/ops/control.h"

namespace tandem {

/// A TensorBox that only has the bytes: `bytes` [n] of u8. Its `value` is undefined.
struct TD_API StoredBox final : TensorBox {
  StoredBox(Tensor bytes, const Spec& spec)
      : TensorBox(Tensor()), bytes(std::move(bytes)), spec(spec) {}
  /// A copy with the Spec's shape and dtype.
  Tensor get() const;
  Tensor bytes;
  Spec spec;
};

/// The value of a constant's attributes; for a StoredBox a copy.
TD_API Tensor constant_value(const ConstantAttrs& a);
/// Its Spec; throws Value when there is no tensor.
TD_API Spec constant_spec(const ConstantAttrs& a);

/// The tensor of that shape and dtype whose bytes are `bytes` [n] of u8: in a trace a constant that
/// is copied where needed, otherwise a copy.
TD_API Tensor stored_constant(const Tensor& bytes, const Spec& spec,
                              SourceLocation loc = SourceLocation::here());

}  // namespace tandem
