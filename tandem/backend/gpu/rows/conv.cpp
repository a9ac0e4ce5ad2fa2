// SPDX-License-Identifier: Apache-2.0
// Convolution and its two derivatives: by the library of the device's vendor where it takes them,
// else as tiled matmuls whose operands are found by index (implicit GEMM), one per group: no
// patches are stored. Every spatial rank is three, with ones in front.
#include <fmt/format.h>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/conv_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/spatial_internal.h"
#include "tandem/backend/gpu/rows/tiled_internal.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::gpu {
namespace {

// x [n, c, in], w [o, c / groups, k], y [n, o, out] with their strides.
struct Convolution {
  const Array *x, *w, *y, *bias = nullptr;
  int64_t batch, groups, c_group, o_group;
  int64_t in[kSpatial], out[kSpatial], kernel[kSpatial];
  int64_t by[kSpatial], pad[kSpatial], dilation[kSpatial];

  Convolution(const ConvAttrs& a, const Array& x_, const Array& w_, const Array& y_)
      : x(&x_),
        w(&w_),
        y(&y_),
        batch(x_.shape[0]),
        groups(a.groups),
        c_group(w_.shape[1]),
        o_group(w_.shape[0] / a.groups) {
    const int lead = kSpatial - a.stride.rank();
    for (int i = 0; i < kSpatial; ++i) {
      const bool has = i >= lead;
      const int d = i - lead;
      in[i] = has ? x->shape[d + 2] : 1;
      out[i] = has ? y->shape[d + 2] : 1;
      kernel[i] = has ? w->shape[d + 2] : 1;
      by[i] = has ? a.stride[d].value() : 1;
      pad[i] = has ? a.padding[d].value() : 0;
      dilation[i] = has ? a.dilation[d].value() : 1;
    }
  }
  static int64_t product(const int64_t* v) { return v[0] * v[1] * v[2]; }
};

// Names of sizes and strides, and their values in the same order.
std::vector<std::string> number_names() {
  std::vector<std::string> names{"c_group", "o_group"};
  for (const char* what : {"in", "out", "k", "by", "pad", "dil"}) {
    for (const char* axis : kAxes) names.push_back(fmt::format("{}_{}", what, axis));
  }
  for (const char* array : {"x", "w", "y"}) {
    for (const char* axis : {"0", "1", "d", "h", "w"}) {
      names.push_back(fmt::format("{}s_{}", array, axis));
    }
  }
  return names;
}

void argue_numbers(Arguments& a, const Convolution& v) {
  a.value(v.c_group).value(v.o_group);
  for (const int64_t* sizes : {v.in, v.out, v.kernel, v.by, v.pad, v.dilation}) {
    for (int i = 0; i < kSpatial; ++i) a.value(sizes[i]);
  }
  for (const Array* array : {v.x, v.w, v.y}) {
    a.value(array->strides[0]).value(array->strides[1]);
    const int lead = kSpatial + 2 - array->rank;
    for (int i = 0; i < kSpatial; ++i) {
      a.value(i >= lead ? array->strides[i - lead + 2] : int64_t{0});
    }
  }
}

// Lines that take `from` apart: its last three parts are positions of `sizes`, named by prefix and
// axis, what is left is `rest`.
std::string apart(const std::string& from, const char* sizes, const char* prefix,
                  const char* rest) {
  return fmt::format(
      "const td_i64 {2}w = {0} % {1}_w, {2}1 = {0} / {1}_w; "
      "const td_i64 {2}h = {2}1 % {1}_h, {2}2 = {2}1 / {1}_h; "
      "const td_i64 {2}d = {2}2 % {1}_d, {3} = {2}2 / {1}_d; ",
      from, sizes, prefix, rest);
}

// Where a tap meets the input: i = o * by - pad + tap * dil.
std::string input_positions() {
  std::string s;
  for (const char* axis : kAxes) {
    s += fmt::format("const td_i64 i{0} = o{0} * by_{0} - pad_{0} + t{0} * dil_{0}; ", axis);
  }
  return s;
}
constexpr const char* kInside =
    "if (id >= 0 && id < in_d && ih >= 0 && ih < in_h && iw >= 0 && iw < in_w) ";

std::string place(const char* array, const std::string& first, const std::string& second,
                  const char* prefix) {
  return fmt::format(
      "({1}) * {0}s_0 + ({2}) * {0}s_1 + {3}d * {0}s_d + {3}h * {0}s_h + {3}w * {0}s_w", array,
      first, second, prefix);
}

constexpr const char *kChannel = "tile * c_group + c", *kFilter = "tile * o_group + o";

// Rows are (n, output position), columns filters of the group, k is (channel, tap).
TiledText forward_text(const Convolution& v) {
  TiledText t;
  t.name = "conv";
  t.a_along_k = false;
  if (v.bias) t.inputs.push_back({Parameter::in, word_of(v.y->dtype), "bias"});
  t.y = v.y->dtype;
  t.load_a = apart("row", "out", "o", "n0") + apart("at", "k", "t", "c") + input_positions() +
             kInside + "v = " + t.element("a", place("x", "n0", kChannel, "i")) + ";";
  t.load_b = apart("at", "k", "t", "c") +
             "v = " + t.element("b", place("w", "tile * o_group + col", "c", "t")) + ";";
  t.place = "at_y";
  if (v.bias) t.added = t.element("bias", "tile * o_group + col");
  t.before_store = apart("row", "out", "o", "n0") +
                   "const td_i64 at_y = " + place("y", "n0", "tile * o_group + col", "o") + ";";
  return t;
}

// Rows are (n, input position), columns channels of the group, k is (filter, tap).
TiledText input_text(const Convolution& v) {
  TiledText t;
  t.name = "conv_backward_input";
  t.a_along_k = false;
  t.y = v.x->dtype;
  std::string outputs, inside;
  for (const char* axis : kAxes) {
    outputs += fmt::format(
        "const td_i64 m{0} = i{0} + pad_{0} - t{0} * dil_{0}, o{0} = m{0} / by_{0}; ", axis);
    inside += fmt::format("{1}m{0} >= 0 && o{0} * by_{0} == m{0} && o{0} < out_{0}", axis,
                          inside.empty() ? "if (" : " && ");
  }
  t.load_a = apart("row", "in", "i", "n0") + apart("at", "k", "t", "o") + outputs + inside +
             ") v = " + t.element("a", place("y", "n0", kFilter, "o")) + ";";
  t.load_b =
      apart("at", "k", "t", "o") + "v = " + t.element("b", place("w", kFilter, "col", "t")) + ";";
  t.place = "at_y";
  t.before_store = apart("row", "in", "i", "n0") +
                   "const td_i64 at_y = " + place("x", "n0", "tile * c_group + col", "i") + ";";
  return t;
}

// Rows are filters of the group, columns (channel, tap), k is (n, output position).
TiledText weight_text(const Convolution& v) {
  TiledText t;
  t.name = "conv_backward_weight";
  t.y = v.w->dtype;
  t.load_a = apart("at", "out", "o", "n0") +
             "v = " + t.element("a", place("y", "n0", "tile * o_group + row", "o")) + ";";
  t.load_b = apart("at", "out", "o", "n0") + apart("col", "k", "t", "c") + input_positions() +
             kInside + "v = " + t.element("b", place("x", "n0", kChannel, "i")) + ";";
  t.place = "at_y";
  t.before_store = apart("col", "k", "t", "c") +
                   "const td_i64 at_y = " + place("w", "tile * o_group + row", "c", "t") + ";";
  return t;
}

// One kind of matmul: its text, and what it multiplies.
struct Tiled {
  TiledText (*text)(const Convolution&);
  const Array &y, &a, &b;
  int64_t m, n, k;
};

void run_tiled(const KernelCall& c, const Convolution& v, const Tiled& t) {
  if (t.y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const int per_thread = tile_per_thread(t.m, t.n);
  const uint64_t variant = static_cast<uint64_t>(per_thread) << 8 |
                           static_cast<uint64_t>(t.y.dtype) << 1 | uint64_t{v.bias != nullptr};
  const KernelRef kernel = plain_kernel(e, {&c.op, 0, variant}, [&] {
    TiledText text = t.text(v);
    text.a = text.b = text.y;
    text.per_thread = per_thread;
    text.numbers = number_names();
    return text.source();
  });
  Arguments a;
  argue_array(a, t.y);
  argue_array(a, t.a);
  argue_array(a, t.b);
  if (v.bias) argue_array(a, *v.bias);
  const Extent blocks = argue_tiles(a, per_thread, v.groups, t.m, t.n, t.k);
  argue_numbers(a, v);
  e.launch(kernel, blocks, {TiledText::kBlock}, a, e.stream(c.stream));
}

// The library of the device's vendor first.
template <ConvResult result>
void run_conv(const KernelCall& c) {
  if (run_conv_by_library(c, result)) return;
  const ConvArrays v = arrays_of_conv(c, result);
  Convolution p(c.get_attrs<ConvAttrs>(), *v.x, *v.w, *v.y);
  p.bias = v.bias;
  const int64_t outputs = p.batch * p.product(p.out), taps = p.product(p.kernel);
  if constexpr (result == ConvResult::y) {
    run_tiled(c, p, {forward_text, *p.y, *p.x, *p.w, outputs, p.o_group, p.c_group * taps});
  } else if constexpr (result == ConvResult::x) {
    run_tiled(
        c, p,
        {input_text, *p.x, *p.y, *p.w, p.batch * p.product(p.in), p.c_group, p.o_group * taps});
  } else {
    run_tiled(c, p, {weight_text, *p.w, *p.y, *p.x, p.o_group, p.c_group * taps, outputs});
  }
}
template <ConvResult result>
std::shared_ptr<const Plan> prepare_conv(const KernelCall& c) {
  return plan_conv(c, result);
}

bool conv_supports(const KernelCall& c) {
  return has_types(c) && (c.n_in < 3 || !c.in[2].present() || c.in[2].contiguous);
}

template <ConvResult result>
void register_row(DeviceKind kind, const OpDef& row) {
  register_kernel(kind, row,
                  {conv_supports, result == ConvResult::w ? nullptr : conv_layout,
                   prepare_conv<result>, run_conv<result>});
}

}  // namespace

void register_conv(DeviceKind kind) {
  register_row<ConvResult::y>(kind, op::conv);
  register_row<ConvResult::x>(kind, op::conv_backward_input);
  register_row<ConvResult::w>(kind, op::conv_backward_weight);
}

}  // namespace tandem::gpu
