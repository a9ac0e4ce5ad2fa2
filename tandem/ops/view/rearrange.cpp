// SPDX-License-Identifier: Apache-2.0
// The functions that copy: concatenation, padding, repeats, rolls, grids. Those without a row of
// their own are composed of views and one copy.
#include <algorithm>

#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {

using detail::placed;

Tensor contiguous(Tensor x, SourceLocation loc) {
  return detail::named("contiguous", loc, [&]() -> Tensor {
    if (x.is_contiguous() || values_hidden()) return x;
    if (is_tracing() || !is_grad_enabled() || !x.requires_grad())
      return call(op::copy, nullptr, loc, std::move(x));
    // The same value in another layout: its gradient is x's, without a node that a trace lacks.
    NoGradGuard no_grad;
    Tensor y = call(op::copy, nullptr, loc, x);
    set_node(y, Ref<Node>::share(node_of(x)), static_cast<uint32_t>(x.impl()->out_index));
    y.impl()->flags |= detail::kRequiresGrad;
    return y;
  });
}

Tensor clone(const Tensor& x, SourceLocation loc) {
  return detail::named("clone", loc, [&] { return call(op::copy, nullptr, loc, x); });
}

Tensor cat(const std::vector<Tensor>& xs, int64_t dim, SourceLocation loc) {
  std::vector<Tensor> ts;
  placed("cat", loc, [&] {
    TD_CHECK(!xs.empty(), Value, "expected at least one tensor, the list is empty");
    DType dtype = xs[0].dtype();
    const Tensor* other = nullptr;
    for (const Tensor& x : xs) {
      dtype = promote(dtype, x.dtype());
      if (!other && x.dim() != 1) other = &x;
    }
    for (const Tensor& x : xs) {
      ts.push_back(x.dtype() == dtype ? x : x.to(dtype, loc));
      if (!other || other->dim() == 0 || x.dim() != 1 || !(x.shape(0) == Dim(0))) continue;
      // PyTorch's rule: an empty vector concatenates with tensors of any rank (and gets a
      // gradient).
      Shape none = other->shape();
      none[normalize_dim(dim, none.rank())] = 0;
      ts.back() = reshape(std::move(ts.back()), none, loc);
    }
    for (const Tensor& t : ts)
      TD_CHECK(
          t.dim() > 0, Shape,
          "tensors of 0 dimensions cannot be concatenated\nUse stack(), or unsqueeze them first.");
  });
  if (ts.size() == 1) return ts[0];
  DimAttrs a{dim};
  return call_list(op::cat, &a, loc, ts);
}

Tensor concat(const std::vector<Tensor>& xs, int64_t dim, SourceLocation loc) {
  return detail::named("concat", loc, [&] { return cat(xs, dim, loc); });
}

Tensor stack(const std::vector<Tensor>& xs, int64_t dim, SourceLocation loc) {
  std::vector<Tensor> ts;
  int d = 0;
  placed("stack", loc, [&] {
    TD_CHECK(!xs.empty(), Value, "expected at least one tensor, the list is empty");
    d = normalize_dim(dim, xs[0].dim() + 1);
    for (size_t i = 0; i < xs.size(); ++i) {
      bool same = xs[i].dim() == xs[0].dim();
      for (int k = 0; same && k < xs[0].dim(); ++k)
        same = dims_equal(xs[i].shape()[k], xs[0].shape()[k]);
      TD_CHECK(same, Shape, "tensor 0 is {}, tensor {} is {}: shapes must be equal",
               xs[0].shape().to_string(), i, xs[i].shape().to_string());
      ts.push_back(unsqueeze(xs[i], d, loc));
    }
  });
  return cat(ts, d, loc);
}

namespace {

// x with `before` and `after` more elements of dimension d, concatenated from pieces of x.
Tensor pad_dim(Tensor x, int d, std::string_view mode, int64_t before, int64_t after,
               SourceLocation loc) {
  const Dim n = x.shape(d);
  const bool reflect = mode == "reflect", circular = mode == "circular";
  const int64_t most = std::max(before, after);
  TD_CHECK(
      n.is_symbolic() || (n.value() > 0 && (n.value() - reflect >= most || mode == "replicate")),
      Shape, "{} padding of {} and {} is too large for dimension {} of x {}", mode, before, after,
      d, x.shape().to_string());
  auto part = [&](Dim start, int64_t length) { return narrow(x, d, start, length, loc); };
  auto piece = [&](bool front, int64_t length) {
    if (circular) return part(front ? n - length : Dim(0), length);
    if (reflect) return flip(part(front ? Dim(1) : n - 1 - length, length), IntList(d), loc);
    Shape wide = x.shape();
    wide[d] = length;
    return expand(part(front ? Dim(0) : n - 1, 1), wide, loc);
  };
  std::vector<Tensor> parts;
  if (before) parts.push_back(piece(true, before));
  parts.push_back(x);
  if (after) parts.push_back(piece(false, after));
  return cat(parts, d, loc);
}

}  // namespace

Tensor pad(Tensor x, IntList pad, std::string_view mode, Scalar value, SourceLocation loc) {
  PadAttrs a;
  a.value = value;
  placed("pad", loc, [&] {
    const int rank = x.dim(), n = pad.rank() / 2;
    TD_CHECK(pad.rank() % 2 == 0 && n <= rank, Shape,
             "expected (before, after) for at most {} dimensions of x {}, got {}", rank,
             x.shape().to_string(), pad.to_string());
    TD_CHECK(mode == "constant" || mode == "reflect" || mode == "replicate" || mode == "circular",
             Value, "mode '{}' must be constant, reflect, replicate or circular", mode);
    a.before.resize(rank);
    a.after.resize(rank);
    for (int i = 0; i < rank; ++i) a.before[i] = a.after[i] = 0;
    for (int i = 0; i < n; ++i) {
      a.before[rank - 1 - i] = pad[2 * i];
      a.after[rank - 1 - i] = pad[2 * i + 1];
    }
  });
  if (mode == "constant") return call(op::pad, &a, loc, std::move(x));
  return placed("pad", loc, [&] {
    for (int d = 0; d < x.dim(); ++d) {
      const int64_t before = a.before[d].value(), after = a.after[d].value();
      if (before == 0 && after == 0) continue;
      // Crop first, then add.
      if (before < 0 || after < 0) {
        const Dim left = x.shape(d) + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
        TD_CHECK(left.is_symbolic() || left.value() >= 0, Shape,
                 "padding {} and {} leaves {} elements of dimension {} of x {}", before, after,
                 left.value(), d, x.shape().to_string());
        const int64_t end = after < 0 ? x.size(d) + after : Slice::kEnd;
        x = slice(std::move(x), d, std::max<int64_t>(-before, 0), end, 1, loc);
      }
      if (before > 0 || after > 0)
        x = pad_dim(std::move(x), d, mode, std::max<int64_t>(before, 0),
                    std::max<int64_t>(after, 0), loc);
    }
    return x;
  });
}

Tensor flip(const Tensor& x, IntList dims, SourceLocation loc) {
  PermuteAttrs a{dims};
  return call(op::flip, &a, loc, x);
}

Tensor roll(const Tensor& x, IntList shifts, IntList dims, SourceLocation loc) {
  if (dims.empty()) {
    placed("roll", loc, [&] {
      TD_CHECK(shifts.rank() == 1, Value, "without dims, expected one shift, got {}",
               shifts.to_string());
    });
    RollAttrs a{shifts, IntList(0)};
    return reshape(call(op::roll, &a, loc, reshape(x, Shape(-1), loc)), x.shape(), loc);
  }
  RollAttrs a{shifts, dims};
  return call(op::roll, &a, loc, x);
}

Tensor rot90(const Tensor& x, int64_t k, IntList dims, SourceLocation loc) {
  int a = 0, b = 0;
  placed("rot90", loc, [&] {
    TD_CHECK(dims.rank() == 2, Value, "expected two dims, got {}", dims.to_string());
    const IntList d = normalize_dims(dims, x.dim());
    a = static_cast<int>(d[0].raw());
    b = static_cast<int>(d[1].raw());
  });
  switch ((k % 4 + 4) % 4) {
    case 1:
      return flip(transpose(x, a, b, loc), IntList(a), loc);
    case 2:
      return flip(x, IntList(a, b), loc);
    case 3:
      return flip(transpose(x, a, b, loc), IntList(b), loc);
    default:
      return x;
  }
}

Tensor tril(Tensor x, int64_t diagonal, SourceLocation loc) {
  TriAttrs a{diagonal};
  return call(op::tril, &a, loc, std::move(x));
}

Tensor triu(Tensor x, int64_t diagonal, SourceLocation loc) {
  TriAttrs a{diagonal};
  return call(op::triu, &a, loc, std::move(x));
}

Tensor diag(Tensor x, int64_t diagonal, SourceLocation loc) {
  Dim n;
  placed("diag", loc, [&] {
    TD_CHECK(x.dim() == 1 || x.dim() == 2, Shape, "expected a vector or a matrix, x is {}",
             x.shape().to_string());
    n = x.shape(0);
    if (x.dim() == 1) n = diagonal < 0 ? n - Dim(diagonal) : n + Dim(diagonal);
  });
  if (x.dim() == 2) return tandem::diagonal(std::move(x), diagonal, 0, 1, loc);
  DiagonalAttrs a{diagonal, 0, 1, Shape(n, n)};
  return call(op::diagonal_backward, &a, loc, std::move(x));
}

namespace {

// Repeats every element (each = true) or the whole of dimension `d` n times.
Tensor repeat_dim(Tensor x, int d, int64_t n, bool each, SourceLocation loc) {
  Shape wide = x.shape(), out = x.shape();
  const int at = each ? d + 1 : d;
  wide.insert(at, 1);
  x = reshape(std::move(x), wide, loc);
  wide[at] = n;
  out[d] = out[d] * Dim(n);
  return reshape(expand(std::move(x), wide, loc), out, loc);
}

}  // namespace

Tensor repeat(Tensor x, IntList repeats, SourceLocation loc) {
  return placed("repeat", loc, [&] {
    TD_CHECK(repeats.rank() >= x.dim(), Shape, "expected at least {} repeats for x {}, got {}",
             x.dim(), x.shape().to_string(), repeats.to_string());
    Shape s = x.shape();
    while (s.rank() < repeats.rank()) s.insert(0, 1);
    x = reshape(std::move(x), s, loc);
    for (int d = 0; d < repeats.rank(); ++d) {
      const int64_t n = repeats[d].value();
      TD_CHECK(n >= 0, Value, "repeats must not be negative, got {}", repeats.to_string());
      if (n == 1) continue;
      if (x.shape(d) == Dim(1)) {
        Shape wide = x.shape();
        wide[d] = n;
        x = expand(std::move(x), wide, loc);
      } else {
        x = repeat_dim(std::move(x), d, n, false, loc);
      }
    }
    return contiguous(std::move(x), loc);
  });
}

Tensor tile(Tensor x, IntList dims, SourceLocation loc) {
  return detail::named("tile", loc, [&] {
    while (dims.rank() < x.dim()) dims.insert(0, 1);
    return repeat(std::move(x), dims, loc);
  });
}

Tensor repeat_interleave(Tensor x, int64_t repeats, int64_t dim, SourceLocation loc) {
  return detail::named("repeat_interleave", loc, [&] {
    TD_CHECK(repeats >= 0, Value, "repeats must not be negative, got {}", repeats);
    const int d = normalize_dim(dim, x.dim());
    return repeat_dim(std::move(x), d, repeats, true, loc);
  });
}

Tensor repeat_interleave(Tensor x, const Tensor& repeats, int64_t dim, SourceLocation loc) {
  return detail::named("repeat_interleave", loc, [&] {
    TD_CHECK(is_integral(repeats.dtype()) && repeats.dim() == 1 &&
                 (repeats.size(0) == x.size(dim) || repeats.size(0) == 1),
             Shape, "repeats must be an integer vector of {} elements, got {}{}", x.size(dim),
             to_string(repeats.dtype()), repeats.shape().to_string());
    const std::vector<int64_t> counts = repeats.to_vector<int64_t>(loc);
    const auto count_of = [&](int64_t i) {
      return counts[counts.size() == 1 ? 0 : static_cast<size_t>(i)];
    };
    Dim total = 0;
    for (int64_t i = 0; i < x.size(dim); ++i) {
      TD_CHECK(count_of(i) >= 0, Value, "repeats must not be negative, got {}", count_of(i));
      total = total + Dim(count_of(i));
    }
    TD_CHECK(total.value() < int64_t{1} << 48, Memory,
             "{} elements are more than this machine can address", total.value());
    std::vector<int64_t> from;
    for (int64_t i = 0; i < x.size(dim); ++i)
      from.insert(from.end(), static_cast<size_t>(count_of(i)), i);
    return index_select(std::move(x), dim, tensor(from, loc), loc);
  });
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& xs, std::string_view indexing,
                             SourceLocation loc) {
  Shape grid;
  const bool xy = indexing == "xy";
  placed("meshgrid", loc, [&] {
    TD_CHECK(xy || indexing == "ij", Value, "indexing '{}' must be ij or xy", indexing);
    for (const Tensor& x : xs) {
      TD_CHECK(x.dim() <= 1, Shape, "expected vectors, got {}", x.shape().to_string());
      grid.push_back(x.dim() ? x.shape(0) : Dim(1));
    }
  });
  std::vector<Tensor> out;
  for (size_t i = 0; i < xs.size(); ++i) {
    Shape own;
    for (size_t k = 0; k < xs.size(); ++k)
      own.push_back(k == i ? grid[static_cast<int>(i)] : Dim(1));
    Tensor g = expand(reshape(xs[i], own, loc), grid, loc);
    out.push_back(xy && xs.size() >= 2 ? transpose(std::move(g), 0, 1, loc) : std::move(g));
  }
  return out;
}

Tensor pixel_shuffle(Tensor x, int64_t upscale_factor, SourceLocation loc) {
  return placed("pixel_shuffle", loc, [&] {
    const int r = x.dim();
    const Dim f = upscale_factor;
    TD_CHECK(r >= 3 && r <= 6 && upscale_factor > 0 && dims_equal(mod(x.shape(-3), f * f), 0),
             Shape, "expected [*, c * {0} * {0}, h, w], x is {1}", upscale_factor,
             x.shape().to_string());
    Shape split, out;
    for (int i = 0; i < r - 3; ++i) split.push_back(x.shape()[i]);
    out = split;
    const Dim c = floordiv(x.shape(-3), f * f), h = x.shape(-2), w = x.shape(-1);
    for (Dim d : {c, f, f, h, w}) split.push_back(d);
    for (Dim d : {c, h * f, w * f}) out.push_back(d);
    IntList order;
    for (int i = 0; i < r - 3; ++i) order.push_back(i);
    for (int i : {0, 3, 1, 4, 2}) order.push_back(r - 3 + i);
    return reshape(permute(reshape(std::move(x), split, loc), order, loc), out, loc);
  });
}

Tensor pixel_unshuffle(Tensor x, int64_t downscale_factor, SourceLocation loc) {
  return placed("pixel_unshuffle", loc, [&] {
    const int r = x.dim();
    const Dim f = downscale_factor;
    TD_CHECK(r >= 3 && r <= 6 && downscale_factor > 0 && dims_equal(mod(x.shape(-2), f), 0) &&
                 dims_equal(mod(x.shape(-1), f), 0),
             Shape, "expected [*, c, h * {0}, w * {0}], x is {1}", downscale_factor,
             x.shape().to_string());
    Shape split, out;
    for (int i = 0; i < r - 3; ++i) split.push_back(x.shape()[i]);
    out = split;
    const Dim c = x.shape(-3), h = floordiv(x.shape(-2), f), w = floordiv(x.shape(-1), f);
    for (Dim d : {c, h, f, w, f}) split.push_back(d);
    for (Dim d : {c * f * f, h, w}) out.push_back(d);
    IntList order;
    for (int i = 0; i < r - 3; ++i) order.push_back(i);
    for (int i : {0, 2, 4, 1, 3}) order.push_back(r - 3 + i);
    return reshape(permute(reshape(std::move(x), split, loc), order, loc), out, loc);
  });
}

Tensor channel_shuffle(Tensor x, int64_t groups, SourceLocation loc) {
  return placed("channel_shuffle", loc, [&] {
    TD_CHECK(x.dim() >= 3 && groups > 0 && dims_equal(mod(x.shape(1), groups), 0), Shape,
             "expected [n, groups * c, ...] with spatial dimensions and groups {}, x is {}", groups,
             x.shape().to_string());
    const Shape shape = x.shape();
    const Dim inner = floordiv(shape[1], groups);
    Tensor split = detail::split_dim(x, 1, groups, inner, loc);
    return reshape(transpose(std::move(split), 1, 2, loc), shape, loc);
  });
}

}  // namespace tandem
