// SPDX-License-Identifier: Apache-2.0
// Spec: the abstract value of a tensor, as shape rules see it. May include the known contents of a
// small integer tensor (a list of Dims), so that shapes computed by tensors stay known.
#pragma once

#include <memory>
#include <string>

#include "tandem/tensor/tensor.h"

namespace tandem {

struct Spec {
  DType dtype = DType::f32;
  Device device{};
  Shape shape;
  /// Known elements in row-major order, or null.
  std::shared_ptr<const std::vector<Dim>> contents;

  Spec() = default;
  Spec(DType dtype, const Shape& shape, Device device = {})
      : dtype(dtype), device(device), shape(shape) {}
  int rank() const { return shape.rank(); }
  Dim operator[](int i) const { return shape[i]; }
  friend bool operator==(const Spec& a, const Spec& b) {
    return a.dtype == b.dtype && a.device == b.device && a.shape == b.shape;
  }
  /// "f32[8, 3]"
  TD_API std::string to_string() const;
};

/// The Spec of a defined tensor.
inline Spec spec_of(const Tensor& t) { return Spec(t.dtype(), t.shape(), t.device()); }

}  // namespace tandem
