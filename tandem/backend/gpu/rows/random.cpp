// SPDX-License-Identifier: Apache-2.0
// Random rows: element i of a draw is Philox of (seed, offset, i) as on the CPU (base/philox.h), so
// the bits are those of the CPU, whatever the grid.
#include <fmt/format.h>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/philox_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/run/channels_last.h"
#include "tandem/ops/random/random.h"

namespace tandem::gpu {
namespace {

// The block of element i.
constexpr const char* kDraw =
    "  const td_block_of_words b = td_philox(TD_SEED, TD_OFFSET, (td_u64)i, 0);\n";

// Elements in row-major order, which draws are numbered by; the result is dense.
Walk drawn(const Array& y, const Array* x = nullptr, const Array* z = nullptr) {
  const Array* arrays[] = {&y, x, z};
  return {y.shape, y.rank, arrays, 1 + (x != nullptr) + (z != nullptr), -1};
}

// Uniform in [0, 1) with as many bits as the dtype has.
std::string uniform_of(DType t) {
  switch (t) {
    case DType::f64:
      return "td_uniform_f64(td_word64(b.w0, b.w1))";
    case DType::f16:
      return "td_uniform_f16(b.w0)";
    case DType::bf16:
      return "td_uniform_bf16(b.w0)";
    default:
      return "td_uniform_f32(b.w0)";
  }
}

// a + draw * b in the type in which elements are computed.
void run_scaled(const KernelCall& c, bool normal, double first, double factor) {
  const Array& y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Walk walk = drawn(y);
  const DType wide = y.dtype == DType::f64 ? DType::f64 : DType::f32;
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), variant_of(walk, y.dtype)}, [&] {
    KernelSource s{.name = normal ? "randn" : "rand",
                   .parameters = {{Parameter::out, word_of(y.dtype), "y"},
                                  {Parameter::value, wide, "first"},
                                  {Parameter::value, wide, "factor"}},
                   .prelude = true};
    declare_key(s);
    walk.declare(s);
    const std::string draw = !normal              ? uniform_of(y.dtype)
                             : wide == DType::f64 ? "td_normal_f64(b)"
                                                  : "td_normal_f32(b)";
    s.body = walk.lines() + kDraw +
             fmt::format("  const {} v = first + {} * factor;\n  y[{}] = {};\n", td_type(wide),
                         draw, walk.place(0), stored("v", y.dtype));
    return s;
  });
  Arguments a;
  argue_array(a, y);
  wide == DType::f64 ? a.value(first).value(factor)
                     : a.value(static_cast<float>(first)).value(static_cast<float>(factor));
  argue_key(a, c);
  walk.argue(a);
  launch_each(e, k, y.numel, a, c.stream);
}
void run_rand(const KernelCall& c) {
  const auto& attrs = c.get_attrs<RandAttrs>();
  run_scaled(c, false, attrs.a, attrs.b - attrs.a);
}
void run_randn(const KernelCall& c) {
  const auto& attrs = c.get_attrs<RandAttrs>();
  run_scaled(c, true, attrs.a, attrs.b);
}

void run_randint(const KernelCall& c) {
  const Array& y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Walk walk = drawn(y);
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), variant_of(walk, y.dtype)}, [&] {
    KernelSource s{.name = "randint",
                   .parameters = {{Parameter::out, word_of(y.dtype), "y"},
                                  {Parameter::value, DType::i64, "low"},
                                  {Parameter::value, DType::i64, "high"}},
                   .prelude = true};
    declare_key(s);
    walk.declare(s);
    s.body = walk.lines() + kDraw +
             "  const td_u64 range = (td_u64)high - (td_u64)low;\n"
             "  const td_i64 v = (td_i64)((td_u64)low +\n"
             "      td_uniform_u64(td_word64(b.w0, b.w1), range));\n" +
             fmt::format("  y[{}] = {};\n", walk.place(0), stored_i64("v", y.dtype));
    return s;
  });
  const auto& attrs = c.get_attrs<RandintAttrs>();
  Arguments a;
  argue_array(a, y);
  a.value(attrs.low).value(attrs.high);
  argue_key(a, c);
  walk.argue(a);
  launch_each(e, k, y.numel, a, c.stream);
}

void run_bernoulli(const KernelCall& c) {
  const Array &p = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Walk walk = drawn(y, &p);
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), variant_of(walk, y.dtype)}, [&] {
    KernelSource s{.name = "bernoulli",
                   .parameters = {{Parameter::out, word_of(y.dtype), "y"},
                                  {Parameter::in, word_of(p.dtype), "p"}},
                   .prelude = true};
    declare_key(s);
    walk.declare(s);
    declare_reports(s);
    const std::string type = register_type(p.dtype);
    const char* draw =
        p.dtype == DType::f64 ? "td_uniform_f64(td_word64(b.w0, b.w1))" : "td_uniform_f32(b.w0)";
    s.body = walk.lines() + kDraw +
             fmt::format(
                 "  const {0} v = {1};\n"
                 "  if (!(v >= 0 && v <= 1)) td_report(1, i);\n"
                 "  const {0} r = {2} < v ? 1 : 0;\n  y[{3}] = {4};\n",
                 type, loaded(fmt::format("p[{}]", walk.place(1)), p.dtype), draw, walk.place(0),
                 stored("r", y.dtype));
    return s;
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, p);
  argue_key(a, c);
  walk.argue(a);
  argue_reports(a, e, c);
  launch_each(e, k, y.numel, a, c.stream);
}

double scale_of(double p) { return p < 1 ? 1 / (1 - p) : 0; }

void argue_scale(Arguments& a, DType t, double p) {
  t == DType::f64 ? a.value(scale_of(p)) : a.value(static_cast<float>(scale_of(p)));
}

void run_dropout(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Array* mask = c.n_out > 1 && c.out[1].data ? &c.out[1] : nullptr;
  const Walk walk = drawn(y, &x, mask);
  const DType wide = x.dtype == DType::f64 ? DType::f64 : DType::f32;
  const KernelRef k =
      plain_kernel(e, {&c.op, walk.ways(), variant_of(walk, y.dtype, mask != nullptr)}, [&] {
        KernelSource s{.name = "dropout",
                       .parameters = {{Parameter::out, word_of(y.dtype), "y"},
                                      {Parameter::in, word_of(x.dtype), "x"},
                                      {Parameter::value, DType::f32, "keep"},
                                      {Parameter::value, wide, "scale"}},
                       .prelude = true};
        if (mask) s.parameters.push_back({Parameter::out, DType::u8, "mask"});
        declare_key(s);
        walk.declare(s);
        s.body = walk.lines() + kDraw +
                 fmt::format(
                     "  const td_i32 kept = td_uniform_f32(b.w0) < keep;\n"
                     "  const {0} v = {1};\n  const {0} r = kept ? v * scale : 0;\n"
                     "  y[{2}] = {3};\n",
                     td_type(wide), loaded(fmt::format("x[{}]", walk.place(1)), x.dtype),
                     walk.place(0), stored("r", y.dtype));
        if (mask) s.body += fmt::format("  mask[{}] = kept;\n", walk.place(2));
        return s;
      });
  const double p = c.get_attrs<DropoutAttrs>().p;
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  a.value(static_cast<float>(1 - p));
  argue_scale(a, x.dtype, p);
  if (mask) argue_array(a, *mask);
  argue_key(a, c);
  walk.argue(a);
  launch_each(e, k, y.numel, a, c.stream);
}

void run_dropout_backward(const KernelCall& c) {
  const Array &g = c.in[0], &mask = c.in[1], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Walk walk = drawn(y, &g, &mask);
  const DType wide = g.dtype == DType::f64 ? DType::f64 : DType::f32;
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), variant_of(walk, y.dtype)}, [&] {
    KernelSource s{.name = "dropout_backward",
                   .parameters = {{Parameter::out, word_of(y.dtype), "y"},
                                  {Parameter::in, word_of(g.dtype), "g"},
                                  {Parameter::in, DType::u8, "mask"},
                                  {Parameter::value, wide, "scale"}},
                   .prelude = true};
    walk.declare(s);
    s.body = walk.lines() + fmt::format(
                                "  const {0} v = {1};\n  const {0} r = mask[{2}] ? v * scale : 0;\n"
                                "  y[{3}] = {4};\n",
                                td_type(wide), loaded(fmt::format("g[{}]", walk.place(1)), g.dtype),
                                walk.place(2), walk.place(0), stored("r", y.dtype));
    return s;
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, g);
  argue_array(a, mask);
  argue_scale(a, g.dtype, c.get_attrs<DropoutAttrs>().p);
  walk.argue(a);
  launch_each(e, k, y.numel, a, c.stream);
}

}  // namespace

void register_random(DeviceKind kind) {
  register_kernel(kind, op::rand, {has_f64, nullptr, nullptr, run_rand});
  register_kernel(kind, op::randn, {has_f64, nullptr, nullptr, run_randn});
  register_kernel(kind, op::randint, {has_f64, nullptr, nullptr, run_randint});
  register_kernel(kind, op::bernoulli, {has_f64, nullptr, nullptr, run_bernoulli});
  constexpr auto of_images = detail::keep_most_channels_last;
  register_kernel(kind, op::dropout, {has_f64, of_images, nullptr, run_dropout});
  register_kernel(kind, op::dropout_backward, {has_f64, of_images, nullptr, run_dropout_backward});
}

}  // namespace tandem::gpu
