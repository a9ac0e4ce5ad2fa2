// SPDX-License-Identifier: Apache-2.0
#include "tandem/ops/view/stacking.h"

#include "tandem/ops/function_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::composed;

std::vector<Tensor> each(const std::vector<Tensor>& xs, Tensor (*f)(Tensor, SourceLocation),
                         SourceLocation loc) {
  std::vector<Tensor> out;
  out.reserve(xs.size());
  for (const Tensor& x : xs) out.push_back(f(x, loc));
  return out;
}

void check_any(const std::vector<Tensor>& xs) {
  TD_CHECK(!xs.empty(), Value, "the list of tensors is empty");
}

// The parts of hsplit, vsplit and dsplit; `least` is the number of dimensions that x must have.
template <class Parts>
std::vector<Tensor> split_equally(const char* name, const Tensor& x, const Parts& parts, int dim,
                                  int least, SourceLocation loc) {
  return composed(name, loc, [&] {
    TD_CHECK(x.dim() >= least, Shape, "expected at least {} dimension{}, got shape {}", least,
             least == 1 ? "" : "s", x.shape().to_string());
    if constexpr (std::is_same_v<Parts, int64_t>)
      TD_CHECK(parts > 0 && x.size(dim) % parts == 0, Shape,
               "dimension {} of {} cannot be split into {} equal parts\nUse tensor_split for parts "
               "of nearly equal size.",
               dim, x.shape().to_string(), parts);
    return tensor_split(x, parts, dim);
  });
}

}  // namespace

Tensor atleast_1d(Tensor x, SourceLocation loc) {
  return detail::named("atleast_1d", loc,
                       [&] { return x.dim() == 0 ? reshape(std::move(x), Shape(1), loc) : x; });
}
Tensor atleast_2d(Tensor x, SourceLocation loc) {
  return detail::named("atleast_2d", loc, [&] {
    return x.dim() >= 2 ? x : unsqueeze(atleast_1d(std::move(x), loc), 0, loc);
  });
}
Tensor atleast_3d(Tensor x, SourceLocation loc) {
  return detail::named("atleast_3d", loc, [&] {
    return x.dim() >= 3 ? x : unsqueeze(atleast_2d(std::move(x), loc), -1, loc);
  });
}
std::vector<Tensor> atleast_1d(const std::vector<Tensor>& xs, SourceLocation loc) {
  return detail::named("atleast_1d", loc, [&] { return each(xs, atleast_1d, loc); });
}
std::vector<Tensor> atleast_2d(const std::vector<Tensor>& xs, SourceLocation loc) {
  return detail::named("atleast_2d", loc, [&] { return each(xs, atleast_2d, loc); });
}
std::vector<Tensor> atleast_3d(const std::vector<Tensor>& xs, SourceLocation loc) {
  return detail::named("atleast_3d", loc, [&] { return each(xs, atleast_3d, loc); });
}

Tensor hstack(const std::vector<Tensor>& xs, SourceLocation loc) {
  return composed("hstack", loc, [&] {
    check_any(xs);
    const std::vector<Tensor> parts = atleast_1d(xs);
    return cat(parts, parts[0].dim() == 1 ? 0 : 1);
  });
}
Tensor vstack(const std::vector<Tensor>& xs, SourceLocation loc) {
  return composed("vstack", loc, [&] {
    check_any(xs);
    return cat(atleast_2d(xs), 0);
  });
}
Tensor dstack(const std::vector<Tensor>& xs, SourceLocation loc) {
  return composed("dstack", loc, [&] {
    check_any(xs);
    return cat(atleast_3d(xs), 2);
  });
}
Tensor column_stack(const std::vector<Tensor>& xs, SourceLocation loc) {
  return composed("column_stack", loc, [&] {
    check_any(xs);
    std::vector<Tensor> columns;
    for (const Tensor& x : xs)
      columns.push_back(x.dim() >= 2 ? x : reshape(x, Shape(x.shape().numel(), 1)));
    return cat(columns, 1);
  });
}

std::vector<Tensor> tensor_split(const Tensor& x, int64_t sections, int64_t dim,
                                 SourceLocation loc) {
  return composed("tensor_split", loc, [&] {
    TD_CHECK(sections > 0, Value, "the number of sections is {}, it must be positive", sections);
    TD_CHECK(x.dim() > 0, Shape, "x has no dimension to split");
    const int64_t n = x.size(dim), size = n / sections, longer = n % sections;
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < sections; ++i) sizes.push_back(size + (i < longer));
    return split(x, sizes, dim);
  });
}
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<int64_t>& indices, int64_t dim,
                                 SourceLocation loc) {
  return composed("tensor_split", loc, [&] {
    TD_CHECK(x.dim() > 0, Shape, "x has no dimension to split");
    std::vector<Tensor> parts;
    int64_t start = 0;
    for (int64_t end : indices) {
      parts.push_back(slice(x, dim, start, end));
      start = end;
    }
    parts.push_back(slice(x, dim, start));
    return parts;
  });
}

std::vector<Tensor> hsplit(const Tensor& x, int64_t sections, SourceLocation loc) {
  return detail::named("hsplit", loc, [&] {
    return split_equally("hsplit", x, sections, x.dim() == 1 ? 0 : 1, 1, loc);
  });
}
std::vector<Tensor> hsplit(const Tensor& x, const std::vector<int64_t>& indices,
                           SourceLocation loc) {
  return detail::named("hsplit", loc, [&] {
    return split_equally("hsplit", x, indices, x.dim() == 1 ? 0 : 1, 1, loc);
  });
}
std::vector<Tensor> vsplit(const Tensor& x, int64_t sections, SourceLocation loc) {
  return split_equally("vsplit", x, sections, 0, 2, loc);
}
std::vector<Tensor> vsplit(const Tensor& x, const std::vector<int64_t>& indices,
                           SourceLocation loc) {
  return split_equally("vsplit", x, indices, 0, 2, loc);
}
std::vector<Tensor> dsplit(const Tensor& x, int64_t sections, SourceLocation loc) {
  return split_equally("dsplit", x, sections, 2, 3, loc);
}
std::vector<Tensor> dsplit(const Tensor& x, const std::vector<int64_t>& indices,
                           SourceLocation loc) {
  return split_equally("dsplit", x, indices, 2, 3, loc);
}

Tensor ravel(Tensor x, SourceLocation loc) {
  return detail::named("ravel", loc, [&] { return reshape(std::move(x), Shape(-1), loc); });
}

Tensor fliplr(const Tensor& x, SourceLocation loc) {
  return composed("fliplr", loc, [&] {
    TD_CHECK(x.dim() >= 2, Shape, "expected at least 2 dimensions, got shape {}",
             x.shape().to_string());
    return flip(x, {1});
  });
}
Tensor flipud(const Tensor& x, SourceLocation loc) {
  return composed("flipud", loc, [&] {
    TD_CHECK(x.dim() >= 1, Shape, "expected at least 1 dimension, got a 0-d tensor");
    return flip(x, {0});
  });
}
Tensor adjoint(Tensor x, SourceLocation loc) {
  return composed("adjoint", loc, [&] {
    TD_CHECK(x.dim() >= 2, Shape, "expected a matrix or a stack of them, got shape {}",
             x.shape().to_string());
    return transpose(std::move(x), -2, -1);
  });
}
Tensor reshape_as(Tensor x, const Tensor& other, SourceLocation loc) {
  return detail::named("reshape_as", loc,
                       [&] { return reshape(std::move(x), other.shape(), loc); });
}

}  // namespace tandem
