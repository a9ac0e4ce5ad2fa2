// SPDX-License-Identifier: Apache-2.0
// Shape arithmetic shared by all ops: element counts, strides, broadcasting, dimension numbers. The
// checks here are for user errors: they name the shapes.
#include "tandem/tensor/shape.h"

#include <algorithm>

namespace tandem {

Dim Shape::numel() const {
  if (is_symbolic()) {
    Dim n = 1;
    for (Dim d : *this) n = n * d;
    return n;
  }
  int64_t n = 1;
  bool overflow = false;
  for (Dim d : *this) {
    if (d.raw() == 0) return 0;
    overflow |= __builtin_mul_overflow(n, d.raw(), &n);
  }
  TD_CHECK(!overflow, Value, "shape {} has more elements than 63 bits can count", to_string());
  return n;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += dims_[i].to_string();
  }
  return text + "]";
}

Strides contiguous_strides(const Shape& shape) {
  Strides s;
  // Unsigned: with a zero size elsewhere the product may exceed 63 bits, and then nothing reads it.
  uint64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    s[i] = static_cast<int64_t>(step);
    step *= static_cast<uint64_t>(std::max<int64_t>(shape[i].value(), 1));
  }
  return s;
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  if (a == b) return a;
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape out = longer;
  const int lead = longer.rank() - shorter.rank();
  for (int i = 0; i < shorter.rank(); ++i) {
    const Dim x = longer[lead + i], y = shorter[i];
    if (x == y || y == Dim(1)) continue;
    if (x == Dim(1)) {
      out[lead + i] = y;
      continue;
    }
    TD_CHECK(dims_equal(x, y), Shape,
             "shapes {} and {} do not broadcast: dimension {} is {} and {}\n"
             "Sizes, counted from the right, must be equal or 1.",
             a.to_string(), b.to_string(), lead + i, (&longer == &a ? x : y).to_string(),
             (&longer == &a ? y : x).to_string());
    if (x.is_symbolic()) out[lead + i] = y;  // prefer a number over a symbol
  }
  return out;
}

int normalize_dim(int64_t d, int rank) {
  TD_CHECK(rank > 0, Index, "dimension {} was asked, but the tensor is a scalar (0 dimensions)", d);
  TD_CHECK(d >= -rank && d < rank, Index,
           "dimension {} is out of range: a tensor of {} dimension{} takes {} to {}", d, rank,
           rank == 1 ? "" : "s", -rank, rank - 1);
  return static_cast<int>(d < 0 ? d + rank : d);
}

IntList normalize_dims(const IntList& dims, int rank) {
  IntList out;
  if (dims.empty()) {
    for (int i = 0; i < rank; ++i) out.push_back(i);
    return out;
  }
  unsigned seen = 0;
  for (Dim d : dims) {
    const int i = normalize_dim(d.value(), rank);
    TD_CHECK(!(seen >> i & 1), Value, "dimension {} appears twice in {}", i, dims.to_string());
    seen |= 1u << i;
    out.push_back(i);
  }
  return out;
}

}  // namespace tandem
