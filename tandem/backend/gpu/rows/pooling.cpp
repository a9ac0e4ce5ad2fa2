// SPDX-License-Identifier: Apache-2.0
// Pooling: a thread an output, or for derivatives a thread an input, which looks at the windows
// that it lies in, in order. Every spatial rank is three, with ones in front. Where channels are
// innermost a thread takes a group of them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/spatial_internal.h"
#include "tandem/graph/run/channels_last.h"
#include "tandem/ops/conv/pool.h"

namespace tandem::gpu {
namespace {

// Places in 32 bits where these do: td_index in the text.
struct PlaceNumbers {
  Arguments& a;
  bool narrow;
  void value(int64_t v) { narrow ? a.value(static_cast<int32_t>(v)) : a.value(v); }
};

// Sizes of the planes of the larger array, of the smaller one, and the windows.
struct Pooling {
  int64_t in[kSpatial], out[kSpatial], kernel[kSpatial], by[kSpatial], pad[kSpatial],
      dilation[kSpatial];
  const PoolAttrs& attrs;
  bool adaptive;

  Pooling(const PoolAttrs& a, const Array& x, const Array& y)
      : attrs(a), adaptive(!a.output.empty()) {
    const int lead = kSpatial - (adaptive ? a.output : a.kernel).rank();
    for (int i = 0; i < kSpatial; ++i) {
      const bool has = i >= lead, fixed = has && !adaptive;
      const int d = i - lead;
      in[i] = has ? x.shape[d + 2] : 1;
      out[i] = has ? y.shape[d + 2] : 1;
      kernel[i] = fixed ? a.kernel[d].value() : 1;
      by[i] = fixed ? a.stride[d].value() : 1;
      pad[i] = fixed ? a.padding[d].value() : 0;
      dilation[i] = fixed ? a.dilation[d].value() : 1;
    }
  }
  void argue(PlaceNumbers& a) const {
    for (const int64_t* v : {in, out, kernel, by, pad, dilation}) {
      for (int i = 0; i < kSpatial; ++i) a.value(v[i]);
    }
    a.value(attrs.divisor_override);
  }
};

void declare_sizes(KernelSource& k) {
  for (const char* what : {"in", "out", "k", "by", "pad", "dil"}) {
    for (const char* axis : kAxes) {
      k.parameters.push_back({Parameter::value, DType::i64, fmt::format("{}_{}", what, axis)});
    }
  }
  k.parameters.push_back({Parameter::value, DType::i64, "divisor"});
}

// Strides of an array's spatial dimensions, and of its planes.
void declare_planes(KernelSource& k, const std::string& name) {
  for (const char* axis : {"0", "1", "d", "h", "w"}) {
    k.parameters.push_back({Parameter::value, DType::i64, fmt::format("{}s_{}", name, axis)});
  }
}
void argue_planes(PlaceNumbers& a, const Array& x) {
  a.value(x.strides[0]);
  a.value(x.strides[1]);
  const int lead = kSpatial + 2 - x.rank;
  for (int i = 0; i < kSpatial; ++i) a.value(i >= lead ? x.strides[i - lead + 2] : int64_t{0});
}
std::string plane_place(const std::string& name, const char* position) {
  return fmt::format("n0 * {0}s_0 + c0 * {0}s_1 + {1}d * {0}s_d + {1}h * {0}s_h + {1}w * {0}s_w",
                     name, position);
}

// The thread's position: plane and place of `sizes`, named by `position` and axis. Neighbouring
// threads take neighbouring elements: groups of channels where these are innermost (`last`), else
// columns.
std::string position_lines(const char* sizes, const char* position, bool last, int group) {
  const std::string start =
      "  const td_index me = (td_index)td_block(x) * (td_index)td_threads(x) + "
      "(td_index)td_thread(x);\n"
      "  if (me >= threads) return;\n";
  const auto place = [&](const char* from, const char* batch) {
    return fmt::format(
        "  const td_index {1}w = {2} % {0}_w, left1 = {2} / {0}_w;\n"
        "  const td_index {1}h = left1 % {0}_h, left2 = left1 / {0}_h;\n"
        "  const td_index {1}d = left2 % {0}_d, {3} = left2 / {0}_d;\n",
        sizes, position, from, batch);
  };
  const auto channel = [&](const char* from, const char* rest) {
    return fmt::format("  const td_index c0 = {0} % channels * {1}, {2} = {0} / channels;\n", from,
                       group, rest);
  };
  return last ? start + channel("me", "left0") + place("left0", "n0")
              : start + place("me", "left3") + channel("left3", "n0");
}

// The window of output o along each axis: from<axis>, to<axis>, and full<axis> with padding.
std::string window_lines(bool adaptive) {
  std::string s;
  for (const char* axis : kAxes) {
    s += adaptive ? fmt::format(
                        "  const td_index from{0} = o{0} * in_{0} / out_{0};\n"
                        "  const td_index to{0} = ((o{0} + 1) * in_{0} + out_{0} - 1) / out_{0};\n"
                        "  const td_index full{0} = to{0} - from{0};\n",
                        axis)
                  : fmt::format(
                        "  const td_index first{0} = o{0} * by_{0} - pad_{0};\n"
                        "  const td_index end{0} = first{0} + (k_{0} - 1) * dil_{0} + 1;\n"
                        "  const td_index full{0} = (end{0} < in_{0} + pad_{0} ? end{0} : in_{0} + "
                        "pad_{0}) - "
                        "first{0};\n"
                        "  const td_index from{0} = first{0} >= 0 ? first{0}\n"
                        "      : first{0} + (-first{0} + dil_{0} - 1) / dil_{0} * dil_{0};\n"
                        "  const td_index to{0} = end{0} < in_{0} ? end{0} : in_{0};\n",
                        axis);
  }
  return s;
}
std::string window_loops(const std::string& body) {
  std::string s;
  for (const char* axis : kAxes) {
    s += fmt::format("  for (td_index i{0} = from{0}; i{0} < to{0}; i{0} += dil_{0})\n", axis);
  }
  return s + "  {\n" + body + "  }\n";
}

// The outputs whose windows may hold input i: lo<axis> to hi<axis>.
std::string outputs_loops(bool adaptive, const std::string& body) {
  std::string s;
  for (const char* axis : kAxes) {
    s += adaptive
             ? fmt::format(
                   "  const td_index lo{0} = i{0} * out_{0} / in_{0};\n"
                   "  const td_index hi{0} = ((i{0} + 1) * out_{0} + in_{0} - 1) / in_{0};\n",
                   axis)
             : fmt::format(
                   "  const td_index reach{0} = i{0} + pad_{0} - (k_{0} - 1) * dil_{0};\n"
                   "  const td_index lo{0} = reach{0} > 0 ? (reach{0} + by_{0} - 1) / by_{0} : 0;\n"
                   "  const td_index top{0} = (i{0} + pad_{0}) / by_{0} + 1;\n"
                   "  const td_index hi{0} = top{0} < out_{0} ? top{0} : out_{0};\n",
                   axis);
  }
  for (const char* axis : kAxes) {
    s += fmt::format("  for (td_index o{0} = lo{0}; o{0} < hi{0}; ++o{0})\n", axis);
  }
  return s + "  {\n" + body + "  }\n";
}

std::string divisor_lines(bool padded, const std::string& type) {
  std::string n;
  for (const char* axis : kAxes) {
    n += padded ? fmt::format("{1}full{0}", axis, n.empty() ? "" : " * ")
                : fmt::format("{1}(to{0} > from{0} ? (to{0} - from{0}) : 0)", axis,
                              n.empty() ? "" : " * ");
  }
  return fmt::format("  const {} parts = divisor ? divisor : {};\n", type, n);
}

struct PoolLaunch {
  const KernelCall& c;
  const Pooling& p;
  const Array &x, &y;             // the larger and the smaller array
  const Array* chosen = nullptr;  // the places of maxima, like y
  const bool last = detail::channels_innermost(x);
  const bool narrow = fits_narrow(x) && fits_narrow(y) && (!chosen || fits_narrow(*chosen));
  const int group = group_of();

  static bool fits_narrow(const Array& a) {
    return std::max(span_of(a), static_cast<size_t>(a.numel)) < size_t{1} << 30;
  }
  // Channels of a thread: 16 bytes of the larger array where all arrays have them side by side.
  int group_of() const {
    for (int e = static_cast<int>(std::min<size_t>(16 / size_of(x.dtype), 8)); last && e > 1;
         e /= 2) {
      bool fits = x.shape[1] % e == 0;
      for (const Array* a : {&x, &y, chosen}) {
        if (!a) continue;
        fits &= a->strides[1] == 1 && lies_on_groups(*a, e);
        for (int d = 0; d < a->rank; ++d)
          fits &= d == 1 || a->shape[d] == 1 || a->strides[d] % e == 0;
      }
      if (fits) return e;
    }
    return 1;
  }

  KernelSource source(const char* name) const { return {.name = name, .prelude = true}; }
  void declare_rest(KernelSource& k) const {
    k.parameters.push_back({Parameter::value, DType::i64, "threads"});
    k.parameters.push_back({Parameter::value, DType::i64, "channels"});
    declare_sizes(k);
    declare_planes(k, "x");
    declare_planes(k, "y");
    if (chosen) declare_planes(k, "c");
  }
  /// The type of places becomes what it is.
  KernelSource finished(KernelSource k) const {
    for (Parameter& q : k.parameters) {
      if (narrow && q.kind == Parameter::value && q.type == DType::i64) q.type = DType::i32;
    }
    k.body = fmt::format("#undef td_index\n#define td_index {}\n", narrow ? "td_i32" : "td_i64") +
             k.body + "#undef td_index\n";
    return k;
  }
  void argue_rest(Arguments& a, int64_t threads, int of_thread) const {
    PlaceNumbers numbers{a, narrow};
    numbers.value(threads);
    numbers.value(x.shape[1] / of_thread);
    p.argue(numbers);
    argue_planes(numbers, x);
    argue_planes(numbers, y);
    if (chosen) argue_planes(numbers, *chosen);
  }
  KernelId id(uint64_t variant) const {
    const uint64_t cut = static_cast<uint64_t>(group) << 2 | uint64_t{last} << 1 | uint64_t{narrow};
    return {&c.op, uint64_t{p.adaptive} | uint64_t{p.attrs.count_include_pad} << 1 | cut << 2,
            (variant << 8 | static_cast<uint64_t>(x.dtype)) << 8 | static_cast<uint64_t>(y.dtype)};
  }

  // Text for the group's elements.
  std::string each(const std::string& text) const {
    return fmt::format("    td_unroll\n    for (td_i32 e = 0; e < {}; ++e) ", group) + text;
  }
  std::string line(DType t, const char* name) const {
    return fmt::format("    td_line({}, {}, {});\n", td_type(word_of(t)), name, group);
  }
  std::string load(DType t, const char* name, const char* array, const std::string& place) const {
    return line(t, name) + (group > 1 ? fmt::format("    td_load({0}, {1}, {2}, ({3}) / {0});\n",
                                                    group, name, array, place)
                                      : fmt::format("    {}[0] = {}[{}];\n", name, array, place));
  }
  std::string store(const char* name, const char* array, const std::string& place) const {
    return group > 1 ? fmt::format("    td_store({0}, {1}, ({2}) / {0}, {3});\n", group, array,
                                   place, name)
                     : fmt::format("    {}[{}] = {}[0];\n", array, place, name);
  }
  std::string variables(const std::string& type, const char* name) const {
    return fmt::format("  {} {}[{}];\n", type, name, group) +
           each(fmt::format("{}[e] = 0;\n", name));
  }
};

void run_max_pool(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Pooling p(c.get_attrs<PoolAttrs>(), x, y);
  const bool keeps = c.n_out > 1 && c.out[1].data;
  const PoolLaunch l{c, p, x, y, keeps ? &c.out[1] : nullptr};
  const KernelRef k = plain_kernel(e, l.id(keeps), [&] {
    KernelSource s = l.source("max_pool");
    s.parameters = {{Parameter::out, word_of(y.dtype), "y"},
                    {Parameter::in, word_of(x.dtype), "x"}};
    if (keeps) s.parameters.push_back({Parameter::out, DType::i32, "chosen"});
    l.declare_rest(s);
    const std::string type = register_type(x.dtype);
    s.body = position_lines("out", "o", l.last, l.group) + window_lines(p.adaptive) +
             l.variables(type, "top") + l.line(DType::i32, "best") + l.each("best[e] = -1;\n") +
             window_loops("    const td_i32 flat = (td_i32)((id * in_h + ih) * in_w + iw);\n" +
                          l.load(x.dtype, "line", "x", plane_place("x", "i")) +
                          l.each(fmt::format(
                              "{{\n      const {} v = {};\n"
                              "      if (best[e] < 0 || v > top[e] || v != v) {{\n"
                              "        top[e] = v;\n        best[e] = flat;\n      }}\n    }}\n",
                              type, loaded("line[e]", x.dtype)))) +
             l.line(y.dtype, "made") +
             l.each(fmt::format("made[e] = {};\n", stored("top[e]", y.dtype))) +
             l.store("made", "y", plane_place("y", "o"));
    if (keeps) s.body += l.store("best", "chosen", plane_place("c", "o"));
    return l.finished(std::move(s));
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  if (keeps) argue_array(a, *l.chosen);
  l.argue_rest(a, y.numel / l.group, l.group);
  launch_each(e, k, y.numel / l.group, a, c.stream);
}

// Is the place `at` in the window of output o? Sizes are dense: aw, ah, ad are its parts.
constexpr const char* kPartsOfPlace =
    "      const td_index aw = at % in_w, ah = at / in_w % in_h, ad = at / in_w / in_h;\n";
std::string in_window() {
  std::string s;
  for (const char* axis : kAxes) {
    s += fmt::format("{1}a{0} >= from{0} && a{0} < to{0} && (a{0} - from{0}) % dil_{0} == 0", axis,
                     s.empty() ? "" : " && ");
  }
  return s;
}

// An input adds up the outputs that chose it, of those whose windows it lies in. The first input
// of a window looks whether its output chose anything else, and says so in `others`.
KernelSource max_pool_backward_source(const PoolLaunch& l) {
  const DType gx = l.x.dtype, g = l.y.dtype;
  KernelSource s = l.source("max_pool_backward");
  s.parameters = {{Parameter::out, word_of(gx), "x"},
                  {Parameter::in, word_of(g), "y"},
                  {Parameter::in, DType::i32, "chosen"},
                  {Parameter::out, DType::i32, "others"}};
  l.declare_rest(s);
  declare_reports(s);
  std::string first;
  for (const char* axis : kAxes) {
    first += fmt::format("{1}i{0} == from{0}", axis, first.empty() ? "" : " && ");
  }
  s.body =
      position_lines("in", "i", l.last, l.group) + l.variables(register_type(gx), "sum") +
      "  const td_i32 flat = (td_i32)((id * in_h + ih) * in_w + iw);\n" +
      outputs_loops(
          l.p.adaptive,
          window_lines(l.p.adaptive) +
              l.load(DType::i32, "at_line", "chosen", plane_place("c", "o")) +
              l.load(g, "line", "y", plane_place("y", "o")) +
              l.each(fmt::format("if (at_line[e] == flat) sum[e] += {};\n", loaded("line[e]", g))) +
              fmt::format("    if ({}) {{\n", first) +
              l.each(fmt::format("{{\n      const td_index at = at_line[e];\n"
                                 "      if (at < 0 || at >= in_d * in_h * in_w) {{\n"
                                 "        td_report(1, at);\n        continue;\n      }}\n{}"
                                 "      if (!({})) others[0] = 1;\n    }}\n",
                                 kPartsOfPlace, in_window())) +
              "    }\n") +
      l.line(gx, "made") + l.each(fmt::format("made[e] = {};\n", stored("sum[e]", gx))) +
      l.store("made", "x", plane_place("x", "i"));
  return l.finished(std::move(s));
}

// A thread a plane: outputs that chose a place outside of their windows, if there are any.
KernelSource max_pool_rest_source(const PoolLaunch& l) {
  const DType gx = l.x.dtype, g = l.y.dtype;
  KernelSource s = l.source("max_pool_rest");
  s.parameters = {{Parameter::out, word_of(gx), "x"},
                  {Parameter::in, word_of(g), "y"},
                  {Parameter::in, DType::i32, "chosen"},
                  {Parameter::in, DType::i32, "others"}};
  l.declare_rest(s);
  std::string outputs;
  for (const char* axis : kAxes) {
    outputs += fmt::format("  for (td_index o{0} = 0; o{0} < out_{0}; ++o{0})\n", axis);
  }
  const std::string x = fmt::format("x[{}]", plane_place("x", "a"));
  s.body =
      "  const td_index me = (td_index)td_block(x) * (td_index)td_threads(x) + "
      "(td_index)td_thread(x);\n"
      "  if (me >= threads || others[0] == 0) return;\n"
      "  const td_index c0 = me % channels, n0 = me / channels;\n" +
      outputs + "  {\n" + window_lines(l.p.adaptive) +
      fmt::format(
          "    const td_index at = chosen[{}];\n"
          "    if (at < 0 || at >= in_d * in_h * in_w) continue;\n{}"
          "    if ({}) continue;\n"
          "    const {} sum = {} + {};\n    {} = {};\n  }}\n",
          plane_place("c", "o"), kPartsOfPlace, in_window(), register_type(gx), loaded(x, gx),
          loaded(fmt::format("y[{}]", plane_place("y", "o")), g), x, stored("sum", gx));
  return l.finished(std::move(s));
}

constexpr size_t kFlagBytes = 4;

std::shared_ptr<const Plan> prepare_max_pool_backward(const KernelCall&) {
  auto plan = std::make_shared<Plan>();
  plan->workspace = kFlagBytes;
  return plan;
}

void run_max_pool_backward(const KernelCall& c) {
  const Array &g = c.in[0], &gx = c.out[0];
  if (gx.numel == 0) return;
  if (g.numel == 0) return start_with(c, nullptr);
  Engine& e = engine_of(c.device);
  const Pooling p(c.get_attrs<PoolAttrs>(), gx, g);
  const PoolLaunch l{c, p, gx, g, &c.in[1]};
  const Address flag = address_of(c.scratch);
  e.check(e.context().fill(flag, 0, kFlagBytes, e.stream(c.stream)));
  const auto argue = [&](Arguments& a, int64_t threads, int of_thread) {
    argue_array(a, gx);
    argue_array(a, g);
    argue_array(a, *l.chosen);
    a.address(flag, kFlagBytes);
    l.argue_rest(a, threads, of_thread);
  };
  Arguments a, rest;
  argue(a, gx.numel / l.group, l.group);
  argue_reports(a, e, c);
  launch_each(e, plain_kernel(e, l.id(0), [&] { return max_pool_backward_source(l); }),
              gx.numel / l.group, a, c.stream);
  const int64_t planes = gx.shape[0] * gx.shape[1];
  argue(rest, planes, 1);
  launch_each(e, plain_kernel(e, l.id(1), [&] { return max_pool_rest_source(l); }), planes, rest,
              c.stream);
}

void run_avg_pool(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Pooling p(c.get_attrs<PoolAttrs>(), x, y);
  const PoolLaunch l{c, p, x, y};
  const KernelRef k = plain_kernel(e, l.id(0), [&] {
    KernelSource s = l.source("avg_pool");
    s.parameters = {{Parameter::out, word_of(y.dtype), "y"},
                    {Parameter::in, word_of(x.dtype), "x"}};
    l.declare_rest(s);
    const std::string type = register_type(x.dtype);
    s.body = position_lines("out", "o", l.last, l.group) + window_lines(p.adaptive) +
             l.variables(type, "sum") +
             window_loops(l.load(x.dtype, "line", "x", plane_place("x", "i")) +
                          l.each(fmt::format("sum[e] += {};\n", loaded("line[e]", x.dtype)))) +
             divisor_lines(p.attrs.count_include_pad, type) + l.line(y.dtype, "made") +
             l.each(fmt::format("made[e] = {};\n", stored("sum[e] / parts", y.dtype))) +
             l.store("made", "y", plane_place("y", "o"));
    return l.finished(std::move(s));
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  l.argue_rest(a, y.numel / l.group, l.group);
  launch_each(e, k, y.numel / l.group, a, c.stream);
}

void run_avg_pool_backward(const KernelCall& c) {
  const Array &g = c.in[0], &gx = c.out[0];
  if (gx.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Pooling p(c.get_attrs<PoolAttrs>(), gx, g);
  const PoolLaunch l{c, p, gx, g};
  const KernelRef k = plain_kernel(e, l.id(0), [&] {
    KernelSource s = l.source("avg_pool_backward");
    s.parameters = {{Parameter::out, word_of(gx.dtype), "x"},
                    {Parameter::in, word_of(g.dtype), "y"}};
    l.declare_rest(s);
    const std::string type = register_type(gx.dtype);
    std::string inside;
    for (const char* axis : kAxes) {
      inside += fmt::format("{1}i{0} >= from{0} && i{0} < to{0} && (i{0} - from{0}) % dil_{0} == 0",
                            axis, inside.empty() ? "" : " && ");
    }
    s.body = position_lines("in", "i", l.last, l.group) + l.variables(type, "sum") +
             outputs_loops(
                 p.adaptive,
                 window_lines(p.adaptive) + divisor_lines(p.attrs.count_include_pad, type) +
                     fmt::format("    if (!({})) continue;\n", inside) +
                     l.load(g.dtype, "line", "y", plane_place("y", "o")) +
                     l.each(fmt::format("sum[e] += {} / parts;\n", loaded("line[e]", g.dtype)))) +
             l.line(gx.dtype, "made") +
             l.each(fmt::format("made[e] = {};\n", stored("sum[e]", gx.dtype))) +
             l.store("made", "x", plane_place("x", "i"));
    return l.finished(std::move(s));
  });
  Arguments a;
  argue_array(a, gx);
  argue_array(a, g);
  l.argue_rest(a, gx.numel / l.group, l.group);
  launch_each(e, k, gx.numel / l.group, a, c.stream);
}

bool floating(const KernelCall& c) { return has_types(c) && is_floating(c.in[0].dtype); }

}  // namespace

void register_pooling(DeviceKind kind) {
  constexpr auto of_input = detail::keep_most_channels_last;
  register_kernel(kind, op::max_pool, {has_types, of_input, nullptr, run_max_pool});
  register_kernel(kind, op::max_pool_with_indices, {has_types, of_input, nullptr, run_max_pool});
  register_kernel(
      kind, op::max_pool_backward,
      {floating, detail::keep_channels_last<1>, prepare_max_pool_backward, run_max_pool_backward});
  register_kernel(kind, op::avg_pool, {floating, of_input, nullptr, run_avg_pool});
  register_kernel(kind, op::avg_pool_backward,
                  {floating, of_input, nullptr, run_avg_pool_backward});
}

}  // namespace tandem::gpu
