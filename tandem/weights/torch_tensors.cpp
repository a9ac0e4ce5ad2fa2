// SPDX-License-Identifier: Apache-2.0
#include "tandem/weights/torch_tensors_internal.h"

#include <cstring>

#include "tandem/base/budget.h"
#include "tandem/tensor/strided.h"

namespace tandem::weights {
namespace {

using Impl = Ref<detail::TensorImpl>;

Tensor new_host_tensor(const Shape& shape, DType dtype) {
  return Tensor(Impl::adopt(detail::new_tensor(shape, dtype, cpu)));
}

template <class T>
std::vector<T> row_major(const Tensor& t, DType as) {
  Budget::take(static_cast<uint64_t>(t.numel()) * sizeof(T));
  std::vector<T> out(static_cast<size_t>(t.numel()));
  detail::copy_row_major(*t.impl(), out.data(), as);
  return out;
}

// Indices as pairs of a row's and a column's: what `pointers` say of the first.
std::vector<int64_t> unpacked(const std::vector<int64_t>& pointers, size_t count) {
  std::vector<int64_t> out;
  Budget::take(count * sizeof(int64_t));
  for (size_t row = 0; row + 1 < pointers.size(); ++row) {
    TD_CHECK(pointers[row] >= 0 && pointers[row] <= pointers[row + 1] &&
                 static_cast<uint64_t>(pointers[row + 1]) <= count,
             Format, "the rows of its values overlap");
    out.insert(out.end(), static_cast<size_t>(pointers[row + 1] - pointers[row]),
               static_cast<int64_t>(row));
  }
  TD_CHECK(out.size() == count, Format, "it has {} values in {} places", count, out.size());
  return out;
}

template <class T>
void add_to(T& to, T v) {
  if constexpr (std::is_same_v<T, bool>)
    to = to || v;
  else
    to = static_cast<T>(to + v);
}

// Adds each value, itself a block of `block` elements, at its place; equal places add up.
Tensor scattered(const std::vector<std::vector<int64_t>>& places, const Tensor& values,
                 const std::vector<int64_t>& sizes) {
  Shape shape;
  uint64_t all = 1;
  for (const int64_t n : sizes) {
    TD_CHECK(n >= 0 && !__builtin_mul_overflow(all, static_cast<uint64_t>(n), &all) &&
                 all < uint64_t{1} << 40,
             Format, "a size is out of range");
    shape.push_back(n);
  }
  const size_t width = size_of(values.dtype());
  Budget::take(all * width);
  Budget::work(static_cast<double>(all));
  const Tensor out = new_host_tensor(shape, values.dtype());
  if (all == 0) return out;
  std::memset(out.impl()->data, 0, all * width);
  int64_t block = 1;
  for (size_t d = places.size(); d < sizes.size(); ++d) block *= sizes[d];
  const auto count = static_cast<int64_t>(places.empty() ? 0 : places[0].size());
  TD_CHECK(values.numel() == count * block, Format, "it has {} values of {} elements, not {}",
           count, block, values.numel());
  visit_dtype(values.dtype(), [&](auto tag) {
    using T = decltype(tag);
    std::vector<unsigned char> dense(static_cast<size_t>(values.numel()) * sizeof(T));
    detail::copy_row_major(*values.impl(), dense.data(), values.dtype());
    const T* from = reinterpret_cast<const T*>(dense.data());
    T* to = static_cast<T*>(out.impl()->data);
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < places.size(); ++d) {
        const int64_t index = places[d][static_cast<size_t>(i)];
        TD_CHECK(index >= 0 && index < sizes[d], Format, "index {} is outside of dimension {}",
                 index, d);
        at = at * sizes[d] + index;
      }
      for (int64_t k = 0; k < block; ++k) add_to(to[at * block + k], from[i * block + k]);
    }
  });
  return out;
}

}  // namespace

Tensor converted(const Tensor& raw, const StoredType& type) {
  Budget::take(static_cast<uint64_t>(raw.numel()) * (type.bytes + size_of(type.dtype)));
  const Tensor out = new_host_tensor(raw.shape(), type.dtype);
  std::vector<char> dense(static_cast<size_t>(raw.numel()) * type.bytes);
  detail::copy_row_major(*raw.impl(), dense.data(), raw.dtype());
  auto* to = static_cast<char*>(out.impl()->data);
  for (size_t i = 0; i < static_cast<size_t>(raw.numel()); ++i)
    type.convert(dense.data() + i * type.bytes, to + i * size_of(type.dtype));
  return out;
}

Tensor dequantized(const Tensor& q, const Tensor& scales, const Tensor& zero_points, int64_t axis) {
  const std::vector<double> s = row_major<double>(scales, DType::f64),
                            z = row_major<double>(zero_points, DType::f64);
  const std::vector<int64_t> sizes(q.sizes().begin(), q.sizes().end());
  const bool one = s.size() == 1 && z.size() == 1;
  TD_CHECK(one || (axis >= 0 && axis < q.dim() && s.size() == z.size() &&
                   static_cast<int64_t>(s.size()) == sizes[static_cast<size_t>(axis)]),
           Format, "it has {} scales and {} zero points along dimension {} of {}", s.size(),
           z.size(), axis, q.shape().to_string());
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(axis) + 1; !one && d < sizes.size(); ++d) inner *= sizes[d];
  const std::vector<int64_t> v = row_major<int64_t>(q, DType::i64);
  const Tensor out = new_host_tensor(q.shape(), DType::f32);
  auto* to = static_cast<float*>(out.impl()->data);
  for (size_t i = 0; i < v.size(); ++i) {
    const size_t c = one ? 0 : static_cast<int64_t>(i) / inner % static_cast<int64_t>(s.size());
    to[i] = (static_cast<float>(v[i]) - static_cast<float>(z[c])) * static_cast<float>(s[c]);
  }
  return out;
}

Tensor dense_of(std::string_view layout, std::span<const Tensor> parts,
                const std::vector<int64_t>& sizes) {
  std::vector<std::vector<int64_t>> places;
  if (layout == "torch.sparse_coo" && parts.size() == 2) {
    const Tensor& indices = parts[0];
    TD_CHECK(indices.dim() == 2 && indices.size(0) <= static_cast<int64_t>(sizes.size()), Format,
             "its indices are {} and its sizes {}", indices.shape().to_string(), sizes.size());
    const std::vector<int64_t> all = row_major<int64_t>(indices, DType::i64);
    const auto n = static_cast<std::ptrdiff_t>(indices.size(1));
    for (int64_t d = 0; d < indices.size(0); ++d)
      places.emplace_back(all.begin() + d * n, all.begin() + (d + 1) * n);
    return scattered(places, parts[1], sizes);
  }
  const bool rows = layout == "torch.sparse_csr";
  TD_CHECK((rows || layout == "torch.sparse_csc") && parts.size() == 3 && sizes.size() == 2, Format,
           "its layout is {} with {} dimensions, which is not supported in this version", layout,
           sizes.size());
  const std::vector<int64_t> pointers = row_major<int64_t>(parts[0], DType::i64),
                             other = row_major<int64_t>(parts[1], DType::i64);
  TD_CHECK(static_cast<int64_t>(pointers.size()) == sizes[rows ? 0 : 1] + 1, Format,
           "it has {} pointers for {} rows", pointers.size(), sizes[rows ? 0 : 1]);
  places = {unpacked(pointers, other.size()), other};
  if (!rows) std::swap(places[0], places[1]);
  return scattered(places, parts[2], sizes);
}

}  // namespace tandem::weights
