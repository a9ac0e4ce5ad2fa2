// SPDX-License-Identifier: Apache-2.0
// Pooling rows and their functions. max_pool's derivative scatters to the positions saved by the
// forward pass; average pooling is linear, so its derivative's derivative is itself.
#include "tandem/ops/conv/pool.h"

#include "tandem/ops/conv/conv_internal.h"
#include "tandem/ops/conv/pool_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/rule_internal.h"

namespace tandem {
namespace {

using detail::check_list;
using detail::floor_div;
using detail::merge_dims;
using detail::named;
using detail::placed;
using detail::split_dim;
using detail::spread;

// ---- shape rules

int spatial_rank(const PoolAttrs& a) {
  return a.output.empty() ? a.kernel.rank() : a.output.rank();
}

void check_attrs(const PoolAttrs& a) {
  int d = spatial_rank(a);
  TD_CHECK(d >= 1 && d <= 3, Value, "{} spatial dimensions, one to three are possible", d);
  if (!a.output.empty()) {
    for (Dim v : a.output)
      TD_CHECK(v.is_symbolic() || v.value() >= 0, Value, "output_size {} has a negative entry",
               a.output.to_string());
    return;
  }
  check_list("kernel_size", a.kernel, d, 1);
  check_list("stride", a.stride, d, 1);
  check_list("padding", a.padding, d, 0);
  check_list("dilation", a.dilation, d, 1);
  TD_CHECK(a.divisor_override >= 0, Value, "divisor_override is {}, expected at least 1",
           a.divisor_override);
  for (int i = 0; i < d; ++i)
    TD_CHECK(2 * a.padding[i].value() <= a.dilation[i].value() * (a.kernel[i].value() - 1) + 1,
             Value,
             "padding {} is more than half of kernel_size {}\nA window would lie in the "
             "padding alone.",
             a.padding.to_string(), a.kernel.to_string());
}

// PyTorch's size: with ceil_mode a last window must start inside the input or the left padding.
Dim out_size(const PoolAttrs& a, int i, Dim in) {
  if (!a.output.empty()) return a.output[i];
  int64_t s = a.stride[i].value(), window = a.dilation[i].value() * (a.kernel[i].value() - 1) + 1;
  Dim room = in + 2 * a.padding[i] - window;
  if (!a.ceil_mode) return floor_div(room, s) + 1;
  Dim n = floor_div(room + (s - 1), s) + 1;
  Dim most = floor_div(in + a.padding[i] - 1, s) + 1;
  return n.is_symbolic() || most.is_symbolic() ? min(n, most) : Dim(std::min(n.raw(), most.raw()));
}

// With dilation a window that starts in the padding may skip a short input entirely.
void check_windows(const PoolAttrs& a, int i, int64_t in) {
  int64_t s = a.stride[i].value(), p = a.padding[i].value(), d = a.dilation[i].value();
  for (int64_t start = -p; start < 0; start += s)
    TD_CHECK((start % d + d) % d < in, Shape,
             "a window of dimension {} (size {}) lies entirely in the padding\nUse less padding or "
             "dilation.",
             i + 2, in);
}

Shape out_shape(const PoolAttrs& a, const Shape& x) {
  int d = spatial_rank(a);
  TD_CHECK(x.rank() == d + 2, Shape, "x is {}, expected {} dimensions", x.to_string(), d + 2);
  Shape y{x[0], x[1]};
  for (int i = 0; i < d; ++i) {
    Dim in = x[i + 2], n = out_size(a, i, in);
    TD_CHECK(n.is_symbolic() || n.value() >= (a.output.empty() ? 1 : 0), Shape,
             "a window of {} does not fit x {} in dimension {}\nUse a smaller kernel or more "
             "padding.",
             a.kernel.to_string(), x.to_string(), i + 2);
    TD_CHECK(in.is_symbolic() || in.value() > 0, Shape, "x {} is empty in dimension {}",
             x.to_string(), i + 2);
    if (a.output.empty() && !in.is_symbolic()) check_windows(a, i, in.value());
    y.push_back(n);
  }
  return y;
}

void max_pool_infer(InferCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  check_attrs(a);
  const Spec& x = c.in[0];
  TD_CHECK(!is_bool(x.dtype), DType, "x is bool, expected numbers\nCast it with .to().");
  Shape y = out_shape(a, x.shape);
  int64_t plane = 1;
  for (int i = 2; i < x.rank(); ++i)
    if (!x[i].is_symbolic()) plane *= x[i].value();
  TD_CHECK(plane <= INT32_MAX, Shape, "a plane of x {} has more than 2^31 - 1 elements",
           x.shape.to_string());
  c.out[0] = Spec(x.dtype, y, x.device);
  c.out[1] = Spec(DType::i32, y, x.device);
}

void avg_pool_infer(InferCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  check_attrs(a);
  const Spec& x = c.in[0];
  TD_CHECK(is_floating(x.dtype), DType,
           "x is {}, a mean expects a floating dtype\nCast it with "
           ".to(float32).",
           to_string(x.dtype));
  c.out[0] = Spec(x.dtype, out_shape(a, x.shape), x.device);
}

Shape input_shape(const PoolAttrs& a, const Shape& gy) {
  int d = spatial_rank(a);
  TD_CHECK(gy.rank() == d + 2 && a.size.rank() == d, Shape,
           "gradient is {}, size {}: expected {} spatial dimensions", gy.to_string(),
           a.size.to_string(), d);
  Shape x{gy[0], gy[1]};
  for (Dim v : a.size) x.push_back(v);
  Shape y = out_shape(a, x);
  for (int i = 2; i < y.rank(); ++i)
    TD_CHECK(dims_equal(y[i], gy[i]), Shape, "gradient is {}, pooling gives {}", gy.to_string(),
             y.to_string());
  return x;
}

void max_backward_infer(InferCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  check_attrs(a);
  const Shape &g = c.in[0].shape, &i = c.in[1].shape;
  TD_CHECK(c.in[1].dtype == DType::i32, DType, "idx is {}, expected int32",
           to_string(c.in[1].dtype));
  bool same = g.rank() == i.rank();
  for (int k = 0; same && k < g.rank(); ++k) same = dims_equal(g[k], i[k]);
  TD_CHECK(same, Shape, "gradient is {}, idx {}", g.to_string(), i.to_string());
  c.out[0] = Spec(c.in[0].dtype, input_shape(a, g), c.in[0].device);
}

void avg_backward_infer(InferCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  check_attrs(a);
  c.out[0] = Spec(c.in[0].dtype, input_shape(a, c.in[0].shape), c.in[0].device);
}

// ---- derivatives

PoolAttrs sized(PoolAttrs a, const Shape& x) {
  a.size = {};
  for (int i = 2; i < x.rank(); ++i) a.size.push_back(x[i]);
  return a;
}

void max_pool_vjp(VjpCall& c) {
  if (!c.grad().defined()) return;
  PoolAttrs a = sized(c.get_attrs<PoolAttrs>(), c.in_shape(0));
  c.results[0] = max_pool_backward(c.grad(), c.out(1), a, c.loc());
}

Tensor planes_flat(const Tensor& t, SourceLocation loc) {
  return t.reshape(detail::merged(t.shape(), 2, t.dim()), loc);
}

void max_backward_vjp(VjpCall& c) {
  SourceLocation loc = c.loc();
  Tensor idx = planes_flat(c.in(1), loc).to(DType::i64, loc);
  Tensor g = gather(planes_flat(c.grad(), loc), 2, idx, loc);
  c.results[0] = g.reshape(c.in_shape(0), loc);
}

void avg_pool_vjp(VjpCall& c) {
  PoolAttrs a = sized(c.get_attrs<PoolAttrs>(), c.in_shape(0));
  c.results[0] = avg_pool_backward(c.grad(), a, c.loc());
}

void avg_backward_vjp(VjpCall& c) {
  PoolAttrs a = c.get_attrs<PoolAttrs>();
  a.size = {};
  c.results[0] = call(op::avg_pool, &a, c.loc(), c.grad());
}

// All rows work plane by plane, so the batch folds into n.
void pool_batch(BatchCall& c) {
  SourceLocation loc = c.node.loc;
  Tensor x = detail::with_batch(c, 0);
  Dim n = x.shape(1);
  std::vector<Operand> ins;
  ins.emplace_back(merge_dims(x, 0, loc), loc);
  if (c.n_in() == 2) ins.emplace_back(merge_dims(detail::with_batch(c, 1), 0, loc), loc);
  Tensor out[kMaxOpOuts];
  detail::call_again(c, c.node.attrs.get(), ins, out);
  for (int i = 0; i < c.node.op->n_out; ++i)
    if (out[i].defined()) c.out[i] = split_dim(out[i], 0, c.batch_size, n, loc);
}

double pool_flops(const InferCall& c) {
  const auto& a = c.get_attrs<PoolAttrs>();
  if (!a.output.empty()) return static_cast<double>(c.in[0].shape.numel().value());
  double n = static_cast<double>(c.out[0].shape.numel().value());
  for (Dim k : a.kernel) n *= static_cast<double>(k.value());
  return n;
}

// ---- functions

PoolAttrs complete(int d, const IntList& kernel, const IntList& stride, const IntList& padding,
                   const IntList& dilation, bool ceil_mode) {
  PoolAttrs a;
  a.kernel = spread("kernel_size", kernel, d);
  a.stride = stride.empty() ? a.kernel : spread("stride", stride, d);
  a.padding = spread("padding", padding, d);
  a.dilation = spread("dilation", dilation, d);
  a.ceil_mode = ceil_mode;
  return a;
}

// Applies `row` to x with or without a batch dimension; stores n outputs.
void run(const char* name, const OpDef& row, int d, Tensor x, const PoolAttrs& a, Tensor* out,
         SourceLocation loc) {
  bool single = x.dim() == d + 1;
  if (single) x = x.unsqueeze(0, loc);
  Tensor y[kMaxOpOuts];
  Operand ins[] = {Operand(std::move(x), loc)};
  named(name, loc, [&] { apply(row, &a, ins, y, loc); });
  for (int i = 0; i < row.shown(); ++i) out[i] = single ? y[i].squeeze(0, loc) : std::move(y[i]);
}

Tensor max_nd(const char* name, int d, Tensor x, const IntList& kernel, const IntList& stride,
              const IntList& padding, const IntList& dilation, bool ceil_mode, SourceLocation loc) {
  PoolAttrs a = placed(name, loc, [&] {
    detail::check_pool_input(x, d);
    return complete(d, kernel, stride, padding, dilation, ceil_mode);
  });
  Tensor y;
  run(name, op::max_pool, d, std::move(x), a, &y, loc);
  return y;
}

Tensor avg_nd(const char* name, int d, Tensor x, const IntList& kernel, const IntList& stride,
              const IntList& padding, bool ceil_mode, bool count_include_pad, int64_t divisor,
              SourceLocation loc) {
  PoolAttrs a = placed(name, loc, [&] {
    detail::check_pool_input(x, d);
    return complete(d, kernel, stride, padding, {1}, ceil_mode);
  });
  a.count_include_pad = count_include_pad;
  a.divisor_override = divisor;
  Tensor y;
  run(name, op::avg_pool, d, std::move(x), a, &y, loc);
  return y;
}

// Windows of equal size where the output divides the input, else adaptive ones.
PoolAttrs adaptive_attrs(const Tensor& x, int d, const IntList& output_size) {
  detail::check_pool_input(x, d);
  IntList out = spread("output_size", output_size, d);
  int lead = x.dim() - d;
  bool even = true;
  for (int i = 0; i < d; ++i) {
    Dim in = x.shape(lead + i);
    if (out[i] == Dim(-1)) out[i] = in;
    even &= !in.is_symbolic() && !out[i].is_symbolic() && out[i].value() > 0 && in.value() > 0 &&
            in.value() % out[i].value() == 0;
  }
  PoolAttrs a;
  if (!even) {
    a.output = out;
    return a;
  }
  for (int i = 0; i < d; ++i) {
    a.kernel.push_back(x.size(lead + i) / out[i].value());
    a.padding.push_back(0);
    a.dilation.push_back(1);
  }
  a.stride = a.kernel;
  return a;
}

Tensor adaptive_nd(const char* name, const OpDef& row, int d, Tensor x, const IntList& size,
                   SourceLocation loc) {
  PoolAttrs a = placed(name, loc, [&] { return adaptive_attrs(x, d, size); });
  Tensor y;
  run(name, row, d, std::move(x), a, &y, loc);
  return y;
}

OutputAndIndices with_positions(const char* name, int d, Tensor x, const PoolAttrs& a,
                                SourceLocation loc) {
  Tensor y[2];
  run(name, op::max_pool_with_indices, d, std::move(x), a, y, loc);
  return {std::move(y[0]), y[1].to(DType::i64, loc)};
}

}  // namespace

namespace op {
constinit const OpDef max_pool = contraction("max_pool", {"x"}, fields<PoolAttrs>())
                                     .outputs({"y", "idx!"})
                                     .type_rule(Types::custom)
                                     .infer(max_pool_infer)
                                     .vjp(max_pool_vjp, 0, 2)
                                     .batch(pool_batch)
                                     .reference(detail::max_pool_reference)
                                     .flag(kFollowsLayout)
                                     .flops(pool_flops)
                                     .onnx("MaxPool")
                                     .doc("Largest element of each window of x [n, c, ...].");
constinit const OpDef max_pool_with_indices =
    contraction("max_pool_with_indices", {"x"}, fields<PoolAttrs>())
        .outputs({"y", "idx"})
        .type_rule(Types::custom)
        .infer(max_pool_infer)
        .vjp(max_pool_vjp, 0, 2)
        .batch(pool_batch)
        .reference(detail::max_pool_reference)
        .flops(pool_flops)
        .doc("max_pool and the position of each result in its spatial plane (int32).");
constinit const OpDef max_pool_backward =
    contraction("max_pool_backward", {"gy", "idx"}, fields<PoolAttrs>())
        .outputs({"gx"})
        .type_rule(Types::custom)
        .infer(max_backward_infer)
        .vjp(max_backward_vjp, 2)
        .batch(pool_batch)
        .reference(detail::max_pool_backward_reference)
        .errors({"index {} lies outside the plane"})
        .doc("Gradient of max_pool: gy added at the positions idx of planes of zeros.");
constinit const OpDef avg_pool = contraction("avg_pool", {"x"}, fields<PoolAttrs>())
                                     .infer(avg_pool_infer)
                                     .vjp(avg_pool_vjp)
                                     .batch(pool_batch)
                                     .reference(detail::avg_pool_reference)
                                     .flag(kFollowsLayout)
                                     .flops(pool_flops)
                                     .onnx("AveragePool")
                                     .doc("Mean of each window of x [n, c, ...].");
constinit const OpDef avg_pool_backward =
    contraction("avg_pool_backward", {"gy"}, fields<PoolAttrs>())
        .outputs({"gx"})
        .infer(avg_backward_infer)
        .vjp(avg_backward_vjp)
        .batch(pool_batch)
        .reference(detail::avg_pool_backward_reference)
        .doc("Gradient of avg_pool: gy spread over its windows.");
}  // namespace op

std::span<const OpDef* const> pool_rows() {
  static constexpr const OpDef* kRows[] = {&op::max_pool, &op::max_pool_with_indices,
                                           &op::max_pool_backward, &op::avg_pool,
                                           &op::avg_pool_backward};
  return kRows;
}

Tensor max_pool_backward(Tensor gy, Tensor idx, const PoolAttrs& attrs, SourceLocation loc) {
  return call(op::max_pool_backward, &attrs, loc, std::move(gy), std::move(idx));
}
Tensor avg_pool_backward(Tensor gy, const PoolAttrs& attrs, SourceLocation loc) {
  return call(op::avg_pool_backward, &attrs, loc, std::move(gy));
}

#define TD_POOL(n)                                                                                \
  Tensor max_pool##n##d(Tensor x, IntList kernel_size, IntList stride, IntList padding,           \
                        IntList dilation, bool ceil_mode, SourceLocation loc) {                   \
    return max_nd("max_pool" #n "d", n, std::move(x), kernel_size, stride, padding, dilation,     \
                  ceil_mode, loc);                                                                \
  }                                                                                               \
  Tensor adaptive_avg_pool##n##d(Tensor x, IntList output_size, SourceLocation loc) {             \
    return adaptive_nd("adaptive_avg_pool" #n "d", op::avg_pool, n, std::move(x), output_size,    \
                       loc);                                                                      \
  }                                                                                               \
  Tensor adaptive_max_pool##n##d(Tensor x, IntList output_size, SourceLocation loc) {             \
    return adaptive_nd("adaptive_max_pool" #n "d", op::max_pool, n, std::move(x), output_size,    \
                       loc);                                                                      \
  }                                                                                               \
  OutputAndIndices max_pool##n##d_with_indices(Tensor x, IntList kernel_size, IntList stride,     \
                                               IntList padding, IntList dilation, bool ceil_mode, \
                                               SourceLocation loc) {                              \
    PoolAttrs a = placed("max_pool" #n "d_with_indices", loc, [&] {                               \
      detail::check_pool_input(x, n);                                                             \
      return complete(n, kernel_size, stride, padding, dilation, ceil_mode);                      \
    });                                                                                           \
    return with_positions("max_pool" #n "d_with_indices", n, std::move(x), a, loc);               \
  }                                                                                               \
  OutputAndIndices adaptive_max_pool##n##d_with_indices(Tensor x, IntList output_size,            \
                                                        SourceLocation loc) {                     \
    PoolAttrs a = placed("adaptive_max_pool" #n "d_with_indices", loc,                            \
                         [&] { return adaptive_attrs(x, n, output_size); });                      \
    return with_positions("adaptive_max_pool" #n "d_with_indices", n, std::move(x), a, loc);      \
  }
TD_POOL(1)
TD_POOL(2)
TD_POOL(3)
#undef TD_POOL

Tensor avg_pool1d(Tensor x, IntList kernel_size, IntList stride, IntList padding, bool ceil_mode,
                  bool count_include_pad, SourceLocation loc) {
  return avg_nd("avg_pool1d", 1, std::move(x), kernel_size, stride, padding, ceil_mode,
                count_include_pad, 0, loc);
}
Tensor avg_pool2d(Tensor x, IntList kernel_size, IntList stride, IntList padding, bool ceil_mode,
                  bool count_include_pad, int64_t divisor_override, SourceLocation loc) {
  return avg_nd("avg_pool2d", 2, std::move(x), kernel_size, stride, padding, ceil_mode,
                count_include_pad, divisor_override, loc);
}
Tensor avg_pool3d(Tensor x, IntList kernel_size, IntList stride, IntList padding, bool ceil_mode,
                  bool count_include_pad, int64_t divisor_override, SourceLocation loc) {
  return avg_nd("avg_pool3d", 3, std::move(x), kernel_size, stride, padding, ceil_mode,
                count_include_pad, divisor_override, loc);
}

}  // namespace tandem
