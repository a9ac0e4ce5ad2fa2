// SPDX-License-Identifier: Apache-2.0
// The rows conv, conv_backward_input and conv_backward_weight: three forms of one trilinear map, so
// each one's derivative is the other two. The reference is in conv_reference.cpp.
#include "tandem/ops/conv/conv.h"

#include "tandem/base/divisors.h"
#include "tandem/ops/conv/conv_internal.h"
#include "tandem/ops/layout.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace detail {

void check_list(const char* name, const IntList& list, int d, int64_t least) {
  TD_CHECK(list.rank() == d, Value, "{} {} has {} entries, expected {}", name, list.to_string(),
           list.rank(), d);
  for (Dim v : list)  // products of two then fit 63 bits
    TD_CHECK(!v.is_symbolic() && v.value() >= least && v.value() <= INT32_MAX, Value,
             "{} {} expects numbers of at least {} and at most 2^31 - 1", name, list.to_string(),
             least);
}

IntList spread(const char* name, const IntList& list, int d) {
  if (list.rank() == d) return list;
  TD_CHECK(list.rank() == 1, Value, "{} {} has {} entries, expected 1 or {}", name,
           list.to_string(), list.rank(), d);
  IntList r;
  for (int i = 0; i < d; ++i) r.push_back(list[0]);
  return r;
}

}  // namespace detail
namespace {

using detail::check_list;
using detail::floor_div;
using detail::merge_dims;
using detail::named;
using detail::placed;
using detail::split_dim;
using detail::spread;
using detail::with_batch;

// ---- shape rules

int spatial_of(const InferCall& c) { return c.get_attrs<ConvAttrs>().stride.rank(); }

void check_attrs(const ConvAttrs& a) {
  int d = a.stride.rank();
  TD_CHECK(d >= 1 && d <= 3, Value, "{} spatial dimensions, one to three are possible", d);
  check_list("stride", a.stride, d, 1);
  check_list("padding", a.padding, d, 0);
  check_list("padding_end", a.padding_end, d, 0);
  check_list("dilation", a.dilation, d, 1);
  TD_CHECK(a.groups >= 1, Value, "groups is {}, expected at least 1", a.groups);
}

void check_rank(const char* name, const Shape& s, int d) {
  TD_CHECK(s.rank() == d + 2, Shape, "{} is {}, expected {} dimensions", name, s.to_string(),
           d + 2);
}

void check_dtypes(const InferCall& c, const char* a, const char* b) {
  TD_CHECK(c.in[0].dtype == c.in[1].dtype, DType,
           "{} is {}, {} is {}\nCast one of them with .to().", a, to_string(c.in[0].dtype), b,
           to_string(c.in[1].dtype));
  TD_CHECK(!is_bool(c.in[0].dtype), DType, "{} is bool, expected numbers", a);
}

// Output size of one dimension. `k` is the kernel's size.
Dim out_size(const ConvAttrs& a, int i, Dim in, Dim k) {
  Dim padded = in + a.padding[i] + a.padding_end[i];
  Dim window = a.dilation[i] * (k - 1) + 1;
  return floor_div(padded - window, a.stride[i].value()) + 1;
}

void check_window(const ConvAttrs& a, int i, Dim in, Dim k) {
  if (in.is_symbolic() || k.is_symbolic()) return;
  int64_t padded = in.value() + a.padding[i].value() + a.padding_end[i].value();
  int64_t window = a.dilation[i].value() * (k.value() - 1) + 1;
  TD_CHECK(k.value() >= 1, Shape, "the kernel is empty in spatial dimension {}", i);
  TD_CHECK(window <= padded, Shape,
           "a kernel of {} does not fit an input of {} (with padding) in spatial dimension {}\n"
           "Add padding, or use a smaller kernel or dilation.",
           window, padded, i);
}

void check_channels(const Shape& x, const char* name, Dim per_group, const ConvAttrs& a) {
  Dim want = per_group * Dim(a.groups);
  TD_CHECK(dims_equal(x[1], want), Shape, "weight expects {} input channels, {} is {} ({})\n{}",
           want.to_string(), name, x.to_string(), x[1].to_string(),
           detail::layout_hint(x, a.stride.rank(), want,
                               a.groups == 1 ? "Change in_channels, or set groups."
                                             : "Input channels are weight.size(1) * groups."));
}

void check_groups(Dim o, const ConvAttrs& a) {
  TD_CHECK(o.is_symbolic() || o.value() % a.groups == 0, Shape,
           "{} output channels do not divide into {} groups\n{}", o.to_string(), a.groups,
           divisor_hint("groups", a.groups, o.value()));
}

// Checks that gy has the size of the convolution of x [.., in] with a kernel of size k.
void check_grad_size(const ConvAttrs& a, const Shape& gy, const IntList& in, const IntList& k) {
  for (int i = 0; i < a.stride.rank(); ++i) {
    check_window(a, i, in[i], k[i]);
    Dim want = out_size(a, i, in[i], k[i]);
    TD_CHECK(
        dims_equal(gy[i + 2], want), Shape,
        "gradient is {}, expected size {} in dimension {}\nThe attributes must be those of the "
        "convolution.",
        gy.to_string(), want.to_string(), i + 2);
  }
}

IntList spatial(const Shape& s) {
  IntList r;
  for (int i = 2; i < s.rank(); ++i) r.push_back(s[i]);
  return r;
}

Shape with_spatial(Dim a, Dim b, const IntList& size) {
  Shape s{a, b};
  for (Dim v : size) s.push_back(v);
  return s;
}

void conv_infer(InferCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  check_attrs(a);
  const Shape &x = c.in[0].shape, &w = c.in[1].shape;
  int d = spatial_of(c);
  check_rank("x", x, d);
  check_rank("weight", w, d);
  check_dtypes(c, "x", "weight");
  check_channels(x, "x", w[1], a);
  check_groups(w[0], a);
  if (c.has(2)) {
    const Spec& b = c.in[2];
    TD_CHECK(b.rank() == 1 && dims_equal(b[0], w[0]), Shape, "bias is {}, expected [{}]",
             b.shape.to_string(), w[0].to_string());
    TD_CHECK(b.dtype == c.in[0].dtype, DType, "x is {}, bias is {}\nCast one of them with .to().",
             to_string(c.in[0].dtype), to_string(b.dtype));
  }
  Shape y{x[0], w[0]};
  for (int i = 0; i < d; ++i) {
    check_window(a, i, x[i + 2], w[i + 2]);
    y.push_back(out_size(a, i, x[i + 2], w[i + 2]));
  }
  c.out[0] = Spec(c.in[0].dtype, y, c.in[0].device);
}

void backward_input_infer(InferCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  check_attrs(a);
  const Shape &gy = c.in[0].shape, &w = c.in[1].shape;
  int d = spatial_of(c);
  check_rank("gradient", gy, d);
  check_rank("weight", w, d);
  check_dtypes(c, "gradient", "weight");
  TD_CHECK(a.size.rank() == d, Value, "size {} expects {} entries", a.size.to_string(), d);
  TD_CHECK(dims_equal(gy[1], w[0]), Shape, "weight {} has {} output channels, gradient is {} ({})",
           w.to_string(), w[0].to_string(), gy.to_string(), gy[1].to_string());
  check_groups(w[0], a);
  check_grad_size(a, gy, a.size, spatial(w));
  c.out[0] = Spec(c.in[0].dtype, with_spatial(gy[0], w[1] * Dim(a.groups), a.size), c.in[0].device);
}

void backward_weight_infer(InferCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  check_attrs(a);
  const Shape &x = c.in[0].shape, &gy = c.in[1].shape;
  int d = spatial_of(c);
  check_rank("x", x, d);
  check_rank("gradient", gy, d);
  check_dtypes(c, "x", "gradient");
  TD_CHECK(a.size.rank() == d, Value, "size {} expects {} entries", a.size.to_string(), d);
  TD_CHECK(dims_equal(x[0], gy[0]), Shape, "x {} has {} samples, gradient {} has {}", x.to_string(),
           x[0].to_string(), gy.to_string(), gy[0].to_string());
  TD_CHECK(x[1].is_symbolic() || x[1].value() % a.groups == 0, Shape,
           "{} input channels do not divide into {} groups", x[1].to_string(), a.groups);
  check_groups(gy[1], a);
  check_grad_size(a, gy, spatial(x), a.size);
  c.out[0] =
      Spec(c.in[0].dtype, with_spatial(gy[1], floor_div(x[1], a.groups), a.size), c.in[0].device);
}

// ---- derivatives

ConvAttrs sized(ConvAttrs a, const IntList& size) {
  a.size = size;
  return a;
}

void conv_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  const Tensor& g = c.grad();
  SourceLocation loc = c.loc();
  if (c.needs(0))
    c.results[0] = conv_backward_input(g, c.in(1), sized(a, spatial(c.in_shape(0))), loc);
  if (c.needs(1))
    c.results[1] = conv_backward_weight(c.in(0), g, sized(a, spatial(c.in_shape(1))), loc);
  if (c.has(2) && c.needs(2)) {
    IntList dims{0};
    for (int i = 2; i < g.dim(); ++i) dims.push_back(i);
    c.results[2] = g.sum(dims, false, loc);
  }
}

void backward_input_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  const Tensor& g = c.grad();
  if (c.needs(0)) c.results[0] = conv(g, c.in(1), {}, sized(a, {}), c.loc());
  if (c.needs(1))
    c.results[1] = conv_backward_weight(g, c.in(0), sized(a, spatial(c.in_shape(1))), c.loc());
}

void backward_weight_vjp(VjpCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  const Tensor& g = c.grad();
  if (c.needs(0))
    c.results[0] = conv_backward_input(c.in(1), g, sized(a, spatial(c.in_shape(0))), c.loc());
  if (c.needs(1)) c.results[1] = conv(c.in(0), g, {}, sized(a, {}), c.loc());
}

// ---- vmap: samples fold into n, batched weights into groups

// [B, n, c, ...] -> [n, B * c, ...]
Tensor into_channels(const Tensor& t, SourceLocation loc) {
  return merge_dims(t.transpose(0, 1, loc), 1, loc);
}
// [n, B * c, ...] -> [B, n, c, ...]
Tensor out_of_channels(const Tensor& t, Dim batch, Dim channels, SourceLocation loc) {
  return split_dim(t, 1, batch, channels, loc).transpose(0, 1, loc);
}

ConvAttrs more_groups(ConvAttrs a, Dim batch) {
  a.groups *= batch.value();
  return a;
}

void conv_batch(BatchCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  SourceLocation loc = c.node.loc;
  Dim n = c.batch_size;
  bool with_bias = c.has(2);
  if (!c.batched[1]) {
    Tensor x = c.in[0];
    Tensor b = with_bias && !c.batched[2] ? c.in[2] : Tensor();
    if (c.batched[0]) {
      Dim samples = x.shape(1);
      Tensor y = conv(merge_dims(x, 0, loc), c.in[1], b, a, loc);
      c.out[0] = split_dim(y, 0, n, samples, loc);
    } else {
      c.out[0] = conv(x, c.in[1], b, a, loc).unsqueeze(0, loc);
    }
    with_bias = with_bias && c.batched[2];
  } else {
    Dim o = c.in[1].shape(1);
    Tensor w = merge_dims(c.in[1], 0, loc);
    bool shared = !c.batched[0] && a.groups == 1;
    Tensor x = shared ? c.in[0] : into_channels(with_batch(c, 0), loc);
    Tensor y = conv(x, w, {}, shared ? a : more_groups(a, n), loc);
    c.out[0] = out_of_channels(y, n, o, loc);
  }
  if (!with_bias) return;
  Shape s;
  if (c.batched[2]) s.push_back(n);
  s.push_back(1);
  s.push_back(c.in[2].shape(-1));
  for (int i = 0; i < a.stride.rank(); ++i) s.push_back(1);
  c.out[0] = std::move(c.out[0]) + c.in[2].reshape(s, loc);
}

void backward_input_batch(BatchCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  SourceLocation loc = c.node.loc;
  if (!c.batched[1]) {
    Dim samples = c.in[0].shape(1);
    Tensor y = conv_backward_input(merge_dims(c.in[0], 0, loc), c.in[1], a, loc);
    c.out[0] = split_dim(y, 0, c.batch_size, samples, loc);
    return;
  }
  Dim channels = c.in[1].shape(2) * Dim(a.groups);
  Tensor y = conv_backward_input(into_channels(with_batch(c, 0), loc), merge_dims(c.in[1], 0, loc),
                                 more_groups(a, c.batch_size), loc);
  c.out[0] = out_of_channels(y, c.batch_size, channels, loc);
}

void backward_weight_batch(BatchCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  SourceLocation loc = c.node.loc;
  Tensor x = with_batch(c, 0), g = with_batch(c, 1);
  Dim o = g.shape(2);
  Tensor y = conv_backward_weight(into_channels(x, loc), into_channels(g, loc),
                                  more_groups(a, c.batch_size), loc);
  c.out[0] = split_dim(y, 0, c.batch_size, o, loc);
}

// ---- costs: one multiply and one add per (output element, tap, input channel of the group)

double taps(const Shape& y, const Shape& w) {
  double n = 2.0 * static_cast<double>(y.numel().value());
  for (int i = 1; i < w.rank(); ++i) n *= static_cast<double>(w[i].value());
  return n;
}
double conv_flops(const InferCall& c) { return taps(c.out[0].shape, c.in[1].shape); }
double backward_input_flops(const InferCall& c) { return taps(c.in[0].shape, c.in[1].shape); }
double backward_weight_flops(const InferCall& c) { return taps(c.in[1].shape, c.out[0].shape); }

// ---- functions

ConvAttrs complete(int d, const IntList& stride, const IntList& padding, const IntList& dilation,
                   int64_t groups) {
  ConvAttrs a;
  a.stride = spread("stride", stride, d);
  a.padding = spread("padding", padding, d);
  a.dilation = spread("dilation", dilation, d);
  a.padding_end = a.padding;
  a.groups = groups;
  return a;
}

// Half of the window on each side; an odd remainder goes to the end.
void pad_same(ConvAttrs& a, const Tensor& w) {
  for (int i = 0; i < a.stride.rank(); ++i) {
    TD_CHECK(a.stride[i] == Dim(1), Value, "padding \"same\" expects stride 1, stride is {}",
             a.stride.to_string());
    int64_t total = a.dilation[i].value() * (w.size(i + 2) - 1);
    a.padding[i] = total / 2;
    a.padding_end[i] = total - total / 2;
  }
}

// Convolution over d spatial dimensions; x may lack the batch dimension.
Tensor conv_nd(const char* name, int d, Tensor x, Tensor w, Tensor b, const ConvAttrs& a,
               SourceLocation loc) {
  bool single = x.defined() && x.dim() == d + 1;
  placed(name, loc, [&] {
    TD_CHECK(!x.defined() || single || x.dim() == d + 2, Shape,
             "x is {}, expected [n, channels{}] or the same without n", x.shape().to_string(),
             d == 1   ? ", l"
             : d == 2 ? ", h, w"
                      : ", d, h, w");
    if (!single || !w.defined() || w.dim() != d + 2) return;
    const Dim want = w.shape(1) * Dim(a.groups);
    const std::string hint = detail::layout_hint(x.shape(), d, want, "");
    TD_CHECK(hint.empty(), Shape, "weight expects {} input channels, x is {} ({})\n{}",
             want.to_string(), x.shape().to_string(), x.shape(0).to_string(), hint);
  });
  if (single) x = x.unsqueeze(0, loc);
  Tensor y =
      named(name, loc, [&] { return conv(std::move(x), std::move(w), std::move(b), a, loc); });
  return single ? y.squeeze(0, loc) : y;
}

Tensor conv_sized(const char* name, int d, Tensor x, Tensor w, Tensor b, const IntList& stride,
                  const IntList& padding, const IntList& dilation, int64_t groups,
                  SourceLocation loc) {
  ConvAttrs a = placed(name, loc, [&] { return complete(d, stride, padding, dilation, groups); });
  return conv_nd(name, d, std::move(x), std::move(w), std::move(b), a, loc);
}

Tensor conv_named(const char* name, int d, Tensor x, Tensor w, Tensor b, const IntList& stride,
                  PaddingMode mode, const IntList& dilation, int64_t groups, SourceLocation loc) {
  ConvAttrs a = placed(name, loc, [&] {
    TD_CHECK(mode.text() == "same" || mode.text() == "valid", Value,
             "padding is \"{}\", expected \"same\", \"valid\" or sizes", mode.text());
    ConvAttrs r = complete(d, stride, {0}, dilation, groups);
    TD_CHECK(w.dim() == d + 2, Shape, "weight is {}, expected {} dimensions", w.shape().to_string(),
             d + 2);
    if (mode.text() == "same") pad_same(r, w);
    return r;
  });
  return conv_nd(name, d, std::move(x), std::move(w), std::move(b), a, loc);
}

ConvAttrs transpose_attrs(int d, const Tensor& x, const Tensor& w, const IntList& stride,
                          const IntList& padding, const IntList& output_padding, int64_t groups,
                          const IntList& dilation, IntList& zeros) {
  ConvAttrs a = complete(d, stride, padding, dilation, groups);
  check_attrs(a);
  IntList extra = spread("output_padding", output_padding, d);
  TD_CHECK(x.dim() == d + 1 || x.dim() == d + 2, Shape, "x is {}, expected {} or {} dimensions",
           x.shape().to_string(), d + 2, d + 1);
  TD_CHECK(w.dim() == d + 2, Shape, "weight is {}, expected {} dimensions", w.shape().to_string(),
           d + 2);
  int lead = x.dim() - d;
  TD_CHECK(dims_equal(x.shape(lead - 1), w.shape(0)), Shape,
           "weight expects {} input channels, x is {} ({})\n{}", w.shape(0).to_string(),
           x.shape().to_string(), x.shape(lead - 1).to_string(),
           detail::layout_hint(x.shape(), d, w.shape(0), "Change in_channels."));
  for (int i = 0; i < d; ++i) {
    const int64_t e = extra[i].value(), p = a.padding[i].value();
    TD_CHECK(e >= 0 && e < std::max(a.stride[i].value(), a.dilation[i].value()), Value,
             "output_padding {} must be smaller than stride {} or dilation {}", extra.to_string(),
             a.stride.to_string(), a.dilation.to_string());
    // If it is at least the stride, reduce the end padding first, then add zeros (in transpose_nd).
    int64_t rest = e;
    if (e >= a.stride[i].value()) {
      rest = std::max<int64_t>(e - p, 0);
      a.padding_end[i] = std::max<int64_t>(p - e, 0);
      zeros[i] = rest < a.stride[i].value() ? 0 : rest;
      rest -= zeros[i].value();
    }
    a.size.push_back((x.shape(lead + i) - 1) * a.stride[i] - a.padding[i] - a.padding_end[i] +
                     a.dilation[i] * (w.shape(i + 2) - 1) + rest + 1);
    TD_CHECK(a.size[i].is_symbolic() || a.size[i].value() >= 1, Shape,
             "the output would have size {} in spatial dimension {}\nUse less padding.",
             a.size[i].to_string(), i);
  }
  return a;
}

Tensor transpose_nd(const char* name, int d, Tensor x, Tensor w, Tensor b, const IntList& stride,
                    const IntList& padding, const IntList& output_padding, int64_t groups,
                    const IntList& dilation, SourceLocation loc) {
  IntList zeros;
  zeros.resize(d);
  for (Dim& v : zeros) v = 0;
  ConvAttrs a = placed(name, loc, [&] {
    return transpose_attrs(d, x, w, stride, padding, output_padding, groups, dilation, zeros);
  });
  bool single = x.dim() == d + 1;
  if (single) x = x.unsqueeze(0, loc);
  Tensor y =
      named(name, loc, [&] { return conv_backward_input(std::move(x), std::move(w), a, loc); });
  IntList ends;
  for (int i = d - 1; i >= 0; --i) {
    ends.push_back(0);
    ends.push_back(zeros[i]);
  }
  for (Dim v : zeros)
    if (!(v == Dim(0))) {
      y = pad(std::move(y), ends, "constant", 0, loc);
      break;
    }
  if (b.defined()) {
    placed(name, loc, [&] {
      TD_CHECK(b.dim() == 1 && dims_equal(b.shape(0), y.shape(1)), Shape,
               "bias is {}, expected [{}]", b.shape().to_string(), y.shape(1).to_string());
    });
    Shape s{Dim(1), b.shape(0)};
    for (int i = 0; i < d; ++i) s.push_back(1);
    y = Operand(std::move(y), loc) + Operand(b.reshape(s, loc), loc);
  }
  return single ? y.squeeze(0, loc) : y;
}

}  // namespace

namespace op {
constinit const OpDef conv =
    contraction("conv", {"x", "w", "b?"}, fields<ConvAttrs>())
        .infer(conv_infer)
        .vjp(conv_vjp, 3)
        .batch(conv_batch)
        .reference(detail::conv_reference)
        .autocast(Autocast::low)
        .flops(conv_flops)
        .flag(kNotDeterministic | kConvolution)
        .onnx("Conv")
        .doc(
            "Convolution of x [n, c, ...] with w [o, c / groups, ...] in one to three spatial "
            "dimensions, plus b [o].");
constinit const OpDef conv_backward_input =
    contraction("conv_backward_input", {"gy", "w"}, fields<ConvAttrs>())
        .infer(backward_input_infer)
        .vjp(backward_input_vjp, 3)
        .batch(backward_input_batch)
        .reference(detail::conv_backward_input_reference)
        .autocast(Autocast::low)
        .flops(backward_input_flops)
        .flag(kNotDeterministic | kConvolution)
        .doc(
            "Gradient of conv with respect to x: [n, o, ...] to [n, c, ...size]; the transposed "
            "convolution.");
constinit const OpDef conv_backward_weight =
    contraction("conv_backward_weight", {"x", "gy"}, fields<ConvAttrs>())
        .infer(backward_weight_infer)
        .vjp(backward_weight_vjp, 3)
        .batch(backward_weight_batch)
        .reference(detail::conv_backward_weight_reference)
        .autocast(Autocast::low)
        .flops(backward_weight_flops)
        .flag(kConvolution)
        .doc(
            "Gradient of conv with respect to w: x and the result's gradient to [o, c / groups, "
            "...size].");
}  // namespace op

std::span<const OpDef* const> conv_rows() {
  static constexpr const OpDef* kRows[] = {&op::conv, &op::conv_backward_input,
                                           &op::conv_backward_weight};
  return kRows;
}

Tensor conv(Tensor x, Tensor w, Tensor b, const ConvAttrs& attrs, SourceLocation loc) {
  return call(op::conv, &attrs, loc, std::move(x), std::move(w), std::move(b));
}
Tensor conv_backward_input(Tensor gy, Tensor w, const ConvAttrs& attrs, SourceLocation loc) {
  return call(op::conv_backward_input, &attrs, loc, std::move(gy), std::move(w));
}
Tensor conv_backward_weight(Tensor x, Tensor gy, const ConvAttrs& attrs, SourceLocation loc) {
  return call(op::conv_backward_weight, &attrs, loc, std::move(x), std::move(gy));
}

#define TD_CONV(n)                                                                                 \
  Tensor conv##n##d(Tensor x, Tensor w, Tensor b, IntList stride, IntList padding,                 \
                    IntList dilation, int64_t groups, SourceLocation loc) {                        \
    return conv_sized("conv" #n "d", n, std::move(x), std::move(w), std::move(b), stride, padding, \
                      dilation, groups, loc);                                                      \
  }                                                                                                \
  Tensor conv##n##d(Tensor x, Tensor w, Tensor b, IntList stride, PaddingMode padding,             \
                    IntList dilation, int64_t groups, SourceLocation loc) {                        \
    return conv_named("conv" #n "d", n, std::move(x), std::move(w), std::move(b), stride, padding, \
                      dilation, groups, loc);                                                      \
  }                                                                                                \
  Tensor conv_transpose##n##d(Tensor x, Tensor w, Tensor b, IntList stride, IntList padding,       \
                              IntList output_padding, int64_t groups, IntList dilation,            \
                              SourceLocation loc) {                                                \
    return transpose_nd("conv_transpose" #n "d", n, std::move(x), std::move(w), std::move(b),      \
                        stride, padding, output_padding, groups, dilation, loc);                   \
  }
TD_CONV(1)
TD_CONV(2)
TD_CONV(3)
#undef TD_CONV

}  // namespace tandem
