// SPDX-License-Identifier: Apache-2.0
// Rows whose elements follow from their position: arange, linspace, eye, tril, triu, one_hot.
#include <fmt/format.h>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem::gpu {
namespace {

// A dense output walked in row-major order.
Walk row_major(const Array& y) {
  const Array* arrays[] = {&y};
  return {y.numel, arrays, 1};
}

KernelSource source_for(const char* name, const Array& y, const Walk& walk) {
  KernelSource k{
      .name = name, .parameters = {{Parameter::out, word_of(y.dtype), "y"}}, .prelude = true};
  walk.declare(k);
  return k;
}

Arguments arguments_for(const Array& y, const Walk& walk) {
  Arguments a;
  argue_array(a, y);
  walk.argue(a);
  return a;
}

void run_arange(const KernelCall& c) {
  const auto& attrs = c.get_attrs<ArangeAttrs>();
  const Array& y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Walk walk = row_major(y);
  const bool whole = attrs.start.kind != 2 && attrs.step.kind != 2;
  const DType number = whole ? DType::i64 : DType::f64;
  const KernelRef k =
      plain_kernel(e, {&op::arange, walk.ways(), variant_of(walk, y.dtype, whole)}, [&] {
        KernelSource s = source_for("arange", y, walk);
        s.parameters.push_back({Parameter::value, number, "start"});
        s.parameters.push_back({Parameter::value, number, "step"});
        const std::string v = whole ? "(td_i64)((td_u64)start + (td_u64)i * (td_u64)step)"
                                    : "start + (td_f64)i * step";
        s.body =
            walk.lines() + fmt::format("  const {} v = {};\n  y[i] = {};\n", td_type(number), v,
                                       whole ? stored_i64("v", y.dtype) : stored_f64("v", y.dtype));
        return s;
      });
  Arguments a = arguments_for(y, walk);
  whole ? a.value(attrs.start.i).value(attrs.step.i)
        : a.value(attrs.start.to_double()).value(attrs.step.to_double());
  launch_each(e, k, y.numel, a, c.stream);
}

void run_linspace(const KernelCall& c) {
  const auto& attrs = c.get_attrs<LinspaceAttrs>();
  const Array& y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Walk walk = row_major(y);
  const KernelRef k = plain_kernel(e, {&op::linspace, walk.ways(), variant_of(walk, y.dtype)}, [&] {
    KernelSource s = source_for("linspace", y, walk);
    for (const char* name : {"start", "end", "step"}) {
      s.parameters.push_back({Parameter::value, DType::f64, name});
    }
    s.body = walk.lines() +
             "  const td_f64 v = i < (n + 1) / 2 ? start + step * (td_f64)i\n"
             "                                   : end - step * (td_f64)(n - 1 - i);\n" +
             fmt::format("  y[i] = {};\n", stored_f64("v", y.dtype));
    return s;
  });
  const double step =
      attrs.steps > 1 ? (attrs.end - attrs.start) / static_cast<double>(attrs.steps - 1) : 0;
  Arguments a = arguments_for(y, walk);
  a.value(attrs.start).value(attrs.end).value(step);
  launch_each(e, k, y.numel, a, c.stream);
}

void run_eye(const KernelCall& c) {
  const Array& y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Walk walk = row_major(y);
  const KernelRef k = plain_kernel(e, {&op::eye, walk.ways(), variant_of(walk, y.dtype)}, [&] {
    KernelSource s = source_for("eye", y, walk);
    s.parameters.push_back({Parameter::value, DType::i64, "columns"});
    s.body = walk.lines() + "  const td_i64 v = i / columns == i % columns;\n" +
             fmt::format("  y[i] = {};\n", stored_i64("v", y.dtype));
    return s;
  });
  Arguments a = arguments_for(y, walk);
  a.value(c.get_attrs<EyeAttrs>().m);
  launch_each(e, k, y.numel, a, c.stream);
}

template <bool kUpper>
void run_triangle(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Array* arrays[] = {&y, &x};
  const Walk walk(y.shape, y.rank, arrays, 2, -1);
  const KernelRef k = plain_kernel(e, {&c.op, walk.ways(), variant_of(walk, y.dtype)}, [&] {
    KernelSource s = source_for(kUpper ? "triu" : "tril", y, walk);
    s.parameters.insert(s.parameters.begin() + 1, {Parameter::in, word_of(x.dtype), "x"});
    for (const char* name : {"rows", "columns", "diagonal"}) {
      s.parameters.push_back({Parameter::value, DType::i64, name});
    }
    s.body = walk.lines() + fmt::format(
                                "  const td_i64 above = i % columns - i / columns % rows;\n"
                                "  y[{}] = above {} diagonal ? x[{}] : ({})0;\n",
                                walk.place(0), kUpper ? ">=" : "<=", walk.place(1),
                                td_type(word_of(x.dtype)));
    return s;
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  walk.argue(a);
  a.value(x.shape[x.rank - 2]).value(x.shape[x.rank - 1]);
  a.value(c.get_attrs<TriAttrs>().diagonal);
  launch_each(e, k, y.numel, a, c.stream);
}

// A thread for each label; y is [labels, classes].
void run_one_hot(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Array* arrays[] = {&x};
  const Walk walk(x.shape, x.rank, arrays, 1, -1);
  const KernelRef k = plain_kernel(e, {&op::one_hot, walk.ways(), variant_of(walk, x.dtype)}, [&] {
    KernelSource s = source_for("one_hot", y, walk);
    s.parameters.insert(s.parameters.begin() + 1, {Parameter::in, x.dtype, "x"});
    s.parameters.push_back({Parameter::value, DType::i64, "classes"});
    declare_reports(s);
    s.body = walk.lines() +
             fmt::format(
                 "  const td_i64 label = x[{}];\n"
                 "  if (label < 0 || label >= classes) td_report(1, label);\n"
                 "  for (td_i64 j = 0; j < classes; ++j) y[i * classes + j] = j == label;\n",
                 walk.place(0));
    return s;
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  walk.argue(a);
  a.value(c.get_attrs<OneHotAttrs>().num_classes);
  argue_reports(a, e, c);
  launch_each(e, k, x.numel, a, c.stream);
}

}  // namespace

void register_creation(DeviceKind kind) {
  register_kernel(kind, op::arange, {has_f64, nullptr, nullptr, run_arange});
  register_kernel(kind, op::linspace, {has_f64, nullptr, nullptr, run_linspace});
  register_kernel(kind, op::eye, {has_f64, nullptr, nullptr, run_eye});
  register_kernel(kind, op::tril, {has_f64, nullptr, nullptr, run_triangle<false>});
  register_kernel(kind, op::triu, {has_f64, nullptr, nullptr, run_triangle<true>});
  register_kernel(kind, op::one_hot, {has_f64, nullptr, nullptr, run_one_hot});
}

}  // namespace tandem::gpu
