// SPDX-License-Identifier: Apache-2.0
// A view is a choice of flat positions: the view of 0, 1, 2 ... in x's shape. Reading takes these
// positions, writing puts to them.
#include "tandem/ops/view/strided.h"

#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/scatter.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::composed;

// 0, 1, 2 ... in x's shape.
Tensor flat_positions(const Tensor& x) { return reshape(arange_dim(x.shape().numel()), x.shape()); }

// x with src at `places`, flat positions of src's shape.
Tensor write_at(const Tensor& x, const Tensor& places, const Tensor& src) {
  TD_CHECK(detail::same_sizes(places.shape(), src.shape()), Shape,
           "src is {}, the view of x {} that it is written to is {}", src.shape().to_string(),
           x.shape().to_string(), places.shape().to_string());
  return put(x, places, src.to(x.dtype()));
}

Tensor strided_places(const Tensor& x, const IntList& size, const IntList& stride, int64_t offset) {
  TD_CHECK(size.rank() == stride.rank(), Shape, "size is {}, stride {}: they must have one length",
           size.to_string(), stride.to_string());
  detail::check_sizes(size);
  int64_t last = offset;
  bool none = false;
  for (int d = 0; d < size.rank(); ++d) {
    TD_CHECK(stride[d].value() >= 0, Value, "strides must not be negative, got {}",
             stride.to_string());
    none |= size[d].value() == 0;
    last += (size[d].value() - 1) * stride[d].value();
  }
  TD_CHECK(none || (offset >= 0 && last < x.numel()), Index,
           "size {}, stride {} and offset {} lead to element {} of x {}, which has {}",
           size.to_string(), stride.to_string(), offset, last, x.shape().to_string(), x.numel());
  Tensor places = full(Shape(), offset, DType::i64);
  for (int d = 0; d < size.rank(); ++d)
    places = unsqueeze(places, -1) + arange_dim(size[d]) * stride[d].value();
  return places;
}

}  // namespace

Tensor as_strided(const Tensor& x, IntList size, IntList stride, int64_t storage_offset,
                  SourceLocation loc) {
  return composed("as_strided", loc, x,
                  [&] { return take(x, strided_places(x, size, stride, storage_offset)); });
}
Tensor as_strided_scatter(const Tensor& x, const Tensor& src, IntList size, IntList stride,
                          int64_t storage_offset, SourceLocation loc) {
  return composed("as_strided_scatter", loc, x, [&] {
    return write_at(x, strided_places(x, size, stride, storage_offset), src);
  });
}
Tensor slice_scatter(const Tensor& x, const Tensor& src, int64_t dim, std::optional<int64_t> start,
                     std::optional<int64_t> end, int64_t step, SourceLocation loc) {
  return composed("slice_scatter", loc, x, [&] {
    return write_at(
        x, slice(flat_positions(x), dim, start.value_or(0), end.value_or(Slice::kEnd), step), src);
  });
}
Tensor select_scatter(const Tensor& x, const Tensor& src, int64_t dim, int64_t index,
                      SourceLocation loc) {
  return composed("select_scatter", loc, x,
                  [&] { return write_at(x, select(flat_positions(x), dim, index), src); });
}
Tensor diagonal_scatter(const Tensor& x, const Tensor& src, int64_t offset, int64_t dim1,
                        int64_t dim2, SourceLocation loc) {
  return composed("diagonal_scatter", loc, x, [&] {
    return write_at(x, diagonal(flat_positions(x), offset, dim1, dim2), src);
  });
}

Tensor argwhere(const Tensor& x, SourceLocation loc) {
  return detail::named("argwhere", loc, [&] { return nonzero(x, loc); });
}
Tensor nonzero_static(const Tensor& x, int64_t size, int64_t fill_value, SourceLocation loc) {
  return detail::named("nonzero_static", loc, [&] { return nonzero(x, size, fill_value, loc); });
}
std::vector<Tensor> unravel_index(const Tensor& indices, IntList shape, SourceLocation loc) {
  return composed("unravel_index", loc, indices, [&] {
    TD_CHECK(is_integral(indices.dtype()), DType, "indices are {}, expected integers",
             to_string(indices.dtype()));
    TD_CHECK(!shape.empty(), Shape, "the shape has no dimension");
    detail::check_sizes(shape);
    std::vector<Tensor> coordinates(shape.size());
    Tensor rest = indices;
    for (int d = shape.rank() - 1; d >= 0; --d) {
      const int64_t n = shape[d].value();
      coordinates[static_cast<size_t>(d)] = remainder(rest, n);
      if (d > 0) rest = floor_divide(rest, n);
    }
    return coordinates;
  });
}

}  // namespace tandem
