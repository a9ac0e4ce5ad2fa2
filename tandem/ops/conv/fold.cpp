// SPDX-License-Identifier: Apache-2.0
// The rows im2col and col2im, their loops and functions. Every plane is handled by one thread,
// patches in row-major order.
#include "tandem/ops/conv/fold.h"

#include <cstring>

#include "tandem/base/copy_bytes.h"
#include "tandem/ops/conv/conv_internal.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

using detail::floor_div;
using detail::placed;

// ---- shape rules

void check_attrs(const FoldAttrs& a) {
  detail::check_list("kernel_size", a.kernel, 2, 1);
  detail::check_list("dilation", a.dilation, 2, 1);
  detail::check_list("padding", a.padding, 2, 0);
  detail::check_list("stride", a.stride, 2, 1);
}

Dim places(const FoldAttrs& a, int i, Dim in) {
  Dim room = in + 2 * a.padding[i] - (a.dilation[i] * (a.kernel[i] - 1) + 1);
  Dim n = floor_div(room, a.stride[i].value()) + 1;
  TD_CHECK(n.is_symbolic() || n.value() >= 1, Shape,
           "a patch of {} (dilation {}) does not fit size {} with padding {}\nUse a smaller kernel "
           "or more padding.",
           a.kernel.to_string(), a.dilation.to_string(), in.to_string(), a.padding.to_string());
  return n;
}

void check_dtype(const Spec& x) {
  TD_CHECK(!is_bool(x.dtype), DType, "x is bool, expected numbers\nCast it with .to().");
}

void im2col_infer(InferCall& c) {
  const auto& a = c.get_attrs<FoldAttrs>();
  check_attrs(a);
  const Spec& x = c.in[0];
  TD_CHECK(x.rank() == 4, Shape, "x is {}, expected [n, channels, h, w]", x.shape.to_string());
  check_dtype(x);
  Dim columns = places(a, 0, x[2]) * places(a, 1, x[3]);
  c.out[0] = Spec(x.dtype, Shape(x[0], x[1] * a.kernel[0] * a.kernel[1], columns), x.device);
}

void col2im_infer(InferCall& c) {
  const auto& a = c.get_attrs<FoldAttrs>();
  check_attrs(a);
  const Spec& x = c.in[0];
  check_dtype(x);
  TD_CHECK(x.rank() == 3, Shape, "x is {}, expected [n, channels * window, places]",
           x.shape.to_string());
  TD_CHECK(a.size.rank() == 2, Value, "output_size {} has {} entries, expected 2",
           a.size.to_string(), a.size.rank());
  for (Dim v : a.size)
    TD_CHECK(v.is_symbolic() || v.value() >= 1, Value,
             "output_size {} expects numbers of at least 1", a.size.to_string());
  const int64_t window = a.kernel[0].value() * a.kernel[1].value();
  TD_CHECK(x[1].is_symbolic() || x[1].value() % window == 0, Shape,
           "x is {}: {} rows are not a multiple of the window {}", x.shape.to_string(),
           x[1].to_string(), window);
  Dim want = places(a, 0, a.size[0]) * places(a, 1, a.size[1]);
  TD_CHECK(dims_equal(x[2], want), Shape,
           "x is {}, output_size {} expects {} columns\nThe arguments must be those of im2col.",
           x.shape.to_string(), a.size.to_string(), want.to_string());
  c.out[0] = Spec(x.dtype, Shape(x[0], floor_div(x[1], window), a.size[0], a.size[1]), x.device);
}

// ---- derivatives, vmap

void im2col_vjp(VjpCall& c) {
  FoldAttrs a = c.get_attrs<FoldAttrs>();
  a.size = IntList(c.in_shape(0)[2], c.in_shape(0)[3]);
  c.results[0] = call(op::col2im, &a, c.loc(), c.grad());
}
void col2im_vjp(VjpCall& c) {
  FoldAttrs a = c.get_attrs<FoldAttrs>();
  a.size = {};
  c.results[0] = call(op::im2col, &a, c.loc(), c.grad());
}

void fold_batch(BatchCall& c) {
  SourceLocation loc = c.node.loc;
  Dim n = c.in[0].shape(1);
  Tensor y = call(*c.node.op, c.node.attrs.get(), loc, detail::merge_dims(c.in[0], 0, loc));
  c.out[0] = detail::split_dim(y, 0, c.batch_size, n, loc);
}

// ---- loops

struct Geometry {
  int64_t n, c, size[2], out[2], k[2], dilation[2], pad[2], stride[2];

  Geometry(const FoldAttrs& a, const Array& image) : n(image.shape[0]), c(image.shape[1]) {
    for (int i = 0; i < 2; ++i) {
      size[i] = image.shape[i + 2];
      k[i] = a.kernel[i].value();
      dilation[i] = a.dilation[i].value();
      pad[i] = a.padding[i].value();
      stride[i] = a.stride[i].value();
      out[i] = (size[i] + 2 * pad[i] - dilation[i] * (k[i] - 1) - 1) / stride[i] + 1;
    }
  }
  // The positions lo..hi-1 of dimension i whose element under tap `t` is inside.
  void range(int i, int64_t t, int64_t& lo, int64_t& hi) const {
    const int64_t shift = pad[i] - t * dilation[i];
    lo = std::min(shift > 0 ? (shift + stride[i] - 1) / stride[i] : 0, out[i]);
    const int64_t last = size[i] - 1 + shift;
    hi = last < 0 ? lo : std::max(lo, std::min(out[i], last / stride[i] + 1));
  }
  // Calls f(row of the column matrix, position, offset in the image, count) for every run of inside
  // positions, and outside(row, first position, count) for those before, between and after them.
  template <class F, class Outside>
  void lines(const Array& image, int64_t channel, F&& f, Outside&& outside) const {
    const int64_t step_h = image.strides[2], step_w = image.strides[3];
    for (int64_t th = 0; th < k[0]; ++th)
      for (int64_t tw = 0; tw < k[1]; ++tw) {
        const int64_t row = (channel * k[0] + th) * k[1] + tw;
        int64_t h0, h1, w0, w1;
        range(0, th, h0, h1);
        range(1, tw, w0, w1);
        outside(row, 0, h0 * out[1]);
        for (int64_t h = h0; h < h1; ++h) {
          const int64_t y = h * stride[0] - pad[0] + th * dilation[0];
          const int64_t x = w0 * stride[1] - pad[1] + tw * dilation[1];
          outside(row, h * out[1], w0);
          if (w1 > w0) f(row, h * out[1] + w0, y * step_h + x * step_w, w1 - w0);
          outside(row, h * out[1] + w1, out[1] - w1);
        }
        outside(row, h1 * out[1], (out[0] - h1) * out[1]);
      }
  }
};

template <class T>
void im2col_loops(const KernelCall& call) {
  const Array &x = call.in[0], &y = call.out[0];
  const Geometry g(call.get_attrs<FoldAttrs>(), x);
  const int64_t step = g.stride[1] * x.strides[3], s = y.strides[2];
  const int64_t cost = g.k[0] * g.k[1] * g.out[0] * g.out[1];
  detail::parallel_for_rows(g.n * g.c, cost, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t n = u / g.c, ch = u % g.c;
      const T* in = x.as<T>() + n * x.strides[0] + ch * x.strides[1];
      T* out = y.as<T>() + n * y.strides[0];
      auto copy = [&](int64_t row, int64_t place, int64_t from, int64_t count) {
        T* to = out + row * y.strides[1] + place * s;
        const T* source = in + from;
        if (s == 1 && step == 1)
          copy_bytes(to, source, static_cast<size_t>(count) * sizeof(T));
        else
          for (int64_t i = 0; i < count; ++i) to[i * s] = source[i * step];
      };
      auto clear = [&](int64_t row, int64_t place, int64_t count) {
        T* to = out + row * y.strides[1] + place * s;
        for (int64_t i = 0; i < count; ++i) to[i * s] = T(0);
      };
      g.lines(x, ch, copy, clear);
    }
  });
}

template <class T>
void col2im_loops(const KernelCall& call) {
  const Array &x = call.in[0], &y = call.out[0];
  const Geometry g(call.get_attrs<FoldAttrs>(), y);
  const int64_t step = g.stride[1] * y.strides[3], s = x.strides[2];
  const int64_t cost = g.k[0] * g.k[1] * g.out[0] * g.out[1] + g.size[0] * g.size[1];
  detail::parallel_for_rows(g.n * g.c, cost, [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t n = u / g.c, ch = u % g.c;
      const T* in = x.as<T>() + n * x.strides[0];
      T* out = y.as<T>() + n * y.strides[0] + ch * y.strides[1];
      for (int64_t h = 0; h < g.size[0]; ++h)
        for (int64_t w = 0; w < g.size[1]; ++w) out[h * y.strides[2] + w * y.strides[3]] = T(0);
      auto add = [&](int64_t row, int64_t place, int64_t to, int64_t count) {
        const T* source = in + row * x.strides[1] + place * s;
        T* target = out + to;
        for (int64_t i = 0; i < count; ++i)
          target[i * step] = detail::add_as<T>(target[i * step], source[i * s]);
      };
      g.lines(y, ch, add, [](int64_t, int64_t, int64_t) {});
    }
  });
}

void im2col_reference(const KernelCall& c) {
  if (c.out[0].numel)
    visit_dtype(c.in[0].dtype, [&](auto zero) { im2col_loops<decltype(zero)>(c); });
}

// 16-bit floats are accumulated in f32 and rounded once.
void col2im_reference(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  const DType t = c.in[0].dtype;
  if (t != DType::f16 && t != DType::bf16)
    return visit_dtype(t, [&](auto zero) { col2im_loops<decltype(zero)>(c); });
  detail::Dense<float> x(c.in[0]), y(c.out[0].numel);
  Strides sx, sy;
  auto dense = [](const Array& a, float* p, Strides& s) {
    s = contiguous_strides(Shape(std::span<const int64_t>(a.shape, a.rank)));
    Array r = a;
    r.data = p;
    r.strides = s.data();
    r.dtype = DType::f32;
    return r;
  };
  Array in = dense(c.in[0], x.get(), sx), out = dense(c.out[0], y.get(), sy);
  KernelCall wide{c.op, c.attrs, &in, 1, &out, 1, c.error};
  col2im_loops<float>(wide);
  y.store(c.out[0]);
}

IntList pair(const char* name, const IntList& list) {
  TD_CHECK(list.rank() == 1 || list.rank() == 2, Value, "{} {} has {} entries, expected 1 or 2",
           name, list.to_string(), list.rank());
  return IntList(list[0], list[list.rank() - 1]);
}

FoldAttrs complete(const IntList& kernel, const IntList& dilation, const IntList& padding,
                   const IntList& stride) {
  FoldAttrs a;
  a.kernel = pair("kernel_size", kernel);
  a.dilation = pair("dilation", dilation);
  a.padding = pair("padding", padding);
  a.stride = pair("stride", stride);
  return a;
}

}  // namespace

namespace op {
constinit const OpDef im2col = contraction("im2col", {"x"}, fields<FoldAttrs>())
                                   .infer(im2col_infer)
                                   .vjp(im2col_vjp)
                                   .batch(fold_batch)
                                   .reference(im2col_reference)
                                   .doc("Patches of x [n, c, h, w] as columns.");
constinit const OpDef col2im = contraction("col2im", {"x"}, fields<FoldAttrs>())
                                   .infer(col2im_infer)
                                   .vjp(col2im_vjp)
                                   .batch(fold_batch)
                                   .reference(col2im_reference)
                                   .doc("Columns of patches summed into images [n, c, h, w].");
}  // namespace op

std::span<const OpDef* const> fold_rows() {
  static constexpr const OpDef* kRows[] = {&op::im2col, &op::col2im};
  return kRows;
}

Tensor im2col(Tensor x, IntList kernel_size, IntList dilation, IntList padding, IntList stride,
              SourceLocation loc) {
  FoldAttrs a = placed("im2col", loc, [&] {
    TD_CHECK(x.dim() == 3 || x.dim() == 4, Shape,
             "x is {}, expected [n, channels, h, w] or the same without n", x.shape().to_string());
    return complete(kernel_size, dilation, padding, stride);
  });
  const bool single = x.dim() == 3;
  if (single) x = x.unsqueeze(0, loc);
  Tensor y = call(op::im2col, &a, loc, std::move(x));
  return single ? y.squeeze(0, loc) : y;
}

Tensor col2im(Tensor x, IntList output_size, IntList kernel_size, IntList dilation, IntList padding,
              IntList stride, SourceLocation loc) {
  FoldAttrs a = placed("col2im", loc, [&] {
    TD_CHECK(x.dim() == 2 || x.dim() == 3, Shape,
             "x is {}, expected [n, channels * window, places] or the same without n",
             x.shape().to_string());
    FoldAttrs r = complete(kernel_size, dilation, padding, stride);
    r.size = pair("output_size", output_size);
    return r;
  });
  const bool single = x.dim() == 2;
  if (single) x = x.unsqueeze(0, loc);
  Tensor y = call(op::col2im, &a, loc, std::move(x));
  return single ? y.squeeze(0, loc) : y;
}

Tensor fold(Tensor x, IntList output_size, IntList kernel_size, IntList dilation, IntList padding,
            IntList stride, SourceLocation loc) {
  return detail::named("fold", loc, [&] {
    return col2im(std::move(x), output_size, kernel_size, dilation, padding, stride, loc);
  });
}

}  // namespace tandem
