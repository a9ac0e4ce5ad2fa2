// SPDX-License-Identifier: Apache-2.0
// Constants that lie in a file at an address that their dtype does not allow: they are copied where
// they are needed and only for as long, so that a program which packs them never holds them twice.
#pragma once

#include "tandem/graph/spec.h"
#include "tandem/ops/control.h"

namespace tandem {

/// A TensorBox of which only the bytes are there: `bytes` [n] of u8. Its `value` is undefined.
struct TD_API StoredBox final : TensorBox {
  StoredBox(Tensor bytes, const Spec& spec)
      : TensorBox(Tensor()), bytes(std::move(bytes)), spec(spec) {}
  /// A copy with the Spec's shape and dtype.
  Tensor get() const;
  Tensor bytes;
  Spec spec;
};

/// The value of a constant's attributes; of a StoredBox a copy.
TD_API Tensor constant_value(const ConstantAttrs& a);
/// Its Spec; throws Value when there is no tensor.
TD_API Spec constant_spec(const ConstantAttrs& a);

/// The tensor of that shape and dtype whose bytes are `bytes` [n] of u8: in a trace a constant that
/// is copied where it is needed, else a copy.
TD_API Tensor stored_constant(const Tensor& bytes, const Spec& spec, Where where = Where::here());

}  // namespace tandem
