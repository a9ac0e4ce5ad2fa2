// SPDX-License-Identifier: Apache-2.0
// Pooling: a thread an output, or for derivatives a thread an input, which looks at the windows
// that it lies in, in order. Every spatial rank is three, with ones in front.
#include <fmt/format.h>

#include "tandem/backend/gpu/rows/call_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/spatial_internal.h"
#include "tandem/graph/run/channels_last.h"
#include "tandem/ops/conv/pool.h"

namespace tandem::gpu {
namespace {

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
  void argue(Arguments& a) const {
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
void argue_planes(Arguments& a, const Array& x) {
  a.value(x.strides[0]).value(x.strides[1]);
  const int lead = kSpatial + 2 - x.rank;
  for (int i = 0; i < kSpatial; ++i) a.value(i >= lead ? x.strides[i - lead + 2] : int64_t{0});
}
std::string plane_place(const std::string& name, const char* position) {
  return fmt::format("n0 * {0}s_0 + c0 * {0}s_1 + {1}d * {0}s_d + {1}h * {0}s_h + {1}w * {0}s_w",
                     name, position);
}

// The thread's position: plane and place of `sizes`, named by `position` and axis. Neighbouring
// threads take neighbouring elements: channels where these are innermost (`last`), else columns.
std::string position_lines(const char* sizes, const char* position, bool last) {
  const std::string start =
      "  const td_i64 me = (td_i64)td_block(x) * td_threads(x) + td_thread(x);\n"
      "  if (me >= threads) return;\n";
  const auto place = [&](const char* from, const char* batch) {
    return fmt::format(
        "  const td_i64 {1}w = {2} % {0}_w, left1 = {2} / {0}_w;\n"
        "  const td_i64 {1}h = left1 % {0}_h, left2 = left1 / {0}_h;\n"
        "  const td_i64 {1}d = left2 % {0}_d, {3} = left2 / {0}_d;\n",
        sizes, position, from, batch);
  };
  if (last) {
    return start + "  const td_i64 c0 = me % channels, left0 = me / channels;\n" +
           place("left0", "n0");
  }
  return start + place("me", "left3") +
         "  const td_i64 c0 = left3 % channels, n0 = left3 / channels;\n";
}

// The window of output o along each axis: from<axis>, to<axis>, and full<axis> with padding.
std::string window_lines(bool adaptive) {
  std::string s;
  for (const char* axis : kAxes) {
    s += adaptive ? fmt::format(
                        "  const td_i64 from{0} = o{0} * in_{0} / out_{0};\n"
                        "  const td_i64 to{0} = ((o{0} + 1) * in_{0} + out_{0} - 1) / out_{0};\n"
                        "  const td_i64 full{0} = to{0} - from{0};\n",
                        axis)
                  : fmt::format(
                        "  const td_i64 first{0} = o{0} * by_{0} - pad_{0};\n"
                        "  const td_i64 end{0} = first{0} + (k_{0} - 1) * dil_{0} + 1;\n"
                        "  const td_i64 full{0} = (end{0} < in_{0} + pad_{0} ? end{0} : in_{0} + "
                        "pad_{0}) - "
                        "first{0};\n"
                        "  const td_i64 from{0} = first{0} >= 0 ? first{0}\n"
                        "      : first{0} + (-first{0} + dil_{0} - 1) / dil_{0} * dil_{0};\n"
                        "  const td_i64 to{0} = end{0} < in_{0} ? end{0} : in_{0};\n",
                        axis);
  }
  return s;
}
std::string window_loops(const std::string& body) {
  std::string s;
  for (const char* axis : kAxes) {
    s += fmt::format("  for (td_i64 i{0} = from{0}; i{0} < to{0}; i{0} += dil_{0})\n", axis);
  }
  return s + "  {\n" + body + "  }\n";
}

// The outputs whose windows may hold input i: lo<axis> to hi<axis>.
std::string outputs_loops(bool adaptive, const std::string& body) {
  std::string s;
  for (const char* axis : kAxes) {
    s += adaptive
             ? fmt::format(
                   "  const td_i64 lo{0} = i{0} * out_{0} / in_{0};\n"
                   "  const td_i64 hi{0} = ((i{0} + 1) * out_{0} + in_{0} - 1) / in_{0};\n",
                   axis)
             : fmt::format(
                   "  const td_i64 reach{0} = i{0} + pad_{0} - (k_{0} - 1) * dil_{0};\n"
                   "  const td_i64 lo{0} = reach{0} > 0 ? (reach{0} + by_{0} - 1) / by_{0} : 0;\n"
                   "  const td_i64 top{0} = (i{0} + pad_{0}) / by_{0} + 1;\n"
                   "  const td_i64 hi{0} = top{0} < out_{0} ? top{0} : out_{0};\n",
                   axis);
  }
  for (const char* axis : kAxes) {
    s += fmt::format("  for (td_i64 o{0} = lo{0}; o{0} < hi{0}; ++o{0})\n", axis);
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
  const Array &x, &y;  // the larger and the smaller array
  const bool last = detail::channels_innermost(x);
  KernelSource source(const char* name) const { return {.name = name, .prelude = true}; }
  static void declare_rest(KernelSource& k) {
    k.parameters.push_back({Parameter::value, DType::i64, "threads"});
    k.parameters.push_back({Parameter::value, DType::i64, "channels"});
    declare_sizes(k);
    declare_planes(k, "x");
    declare_planes(k, "y");
  }
  void argue_rest(Arguments& a, int64_t threads) const {
    a.value(threads).value(x.shape[1]);
    p.argue(a);
    argue_planes(a, x);
    argue_planes(a, y);
  }
  KernelId id(uint64_t variant) const {
    return {&c.op,
            uint64_t{p.adaptive} | uint64_t{p.attrs.count_include_pad} << 1 | uint64_t{last} << 2,
            variant << 8 | static_cast<uint64_t>(x.dtype)};
  }
};

void run_max_pool(const KernelCall& c) {
  const Array &x = c.in[0], &y = c.out[0];
  if (y.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Pooling p(c.get_attrs<PoolAttrs>(), x, y);
  const bool keeps = c.n_out > 1 && c.out[1].data;
  const PoolLaunch l{c, p, x, y};
  const KernelRef k = plain_kernel(e, l.id(keeps), [&] {
    KernelSource s = l.source("max_pool");
    s.parameters = {{Parameter::out, word_of(y.dtype), "y"},
                    {Parameter::in, word_of(x.dtype), "x"}};
    if (keeps) s.parameters.push_back({Parameter::out, DType::i32, "chosen"});
    l.declare_rest(s);
    if (keeps) declare_planes(s, "c");
    const std::string type = register_type(x.dtype);
    s.body = position_lines("out", "o", l.last) + window_lines(p.adaptive) +
             fmt::format("  td_i64 best = -1;\n  {} top = 0;\n", type) +
             window_loops(
                 fmt::format("    const {} v = {};\n"
                             "    if (best < 0 || v > top || v != v) {{\n      top = v;\n"
                             "      best = (id * in_h + ih) * in_w + iw;\n    }}\n",
                             type, loaded(fmt::format("x[{}]", plane_place("x", "i")), x.dtype))) +
             fmt::format("  y[{}] = {};\n", plane_place("y", "o"), stored("top", y.dtype));
    if (keeps) s.body += fmt::format("  chosen[{}] = (td_i32)best;\n", plane_place("c", "o"));
    return s;
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  if (keeps) argue_array(a, c.out[1]);
  l.argue_rest(a, y.numel);
  if (keeps) argue_planes(a, c.out[1]);
  launch_each(e, k, y.numel, a, c.stream);
}

// A thread a plane: the positions may be any, so windows do not tell which outputs chose an input.
void run_max_pool_backward(const KernelCall& c) {
  const Array &g = c.in[0], &chosen = c.in[1], &gx = c.out[0];
  if (gx.numel == 0) return;
  start_with(c, nullptr);
  if (g.numel == 0) return;
  Engine& e = engine_of(c.device);
  const Pooling p(c.get_attrs<PoolAttrs>(), gx, g);
  const PoolLaunch l{c, p, gx, g};
  const KernelRef k = plain_kernel(e, l.id(0), [&] {
    KernelSource s = l.source("max_pool_backward");
    s.parameters = {{Parameter::out, word_of(gx.dtype), "x"},
                    {Parameter::in, word_of(g.dtype), "y"},
                    {Parameter::in, DType::i32, "chosen"}};
    l.declare_rest(s);
    declare_planes(s, "c");
    declare_reports(s);
    std::string outputs;
    for (const char* axis : kAxes) {
      outputs += fmt::format("  for (td_i64 o{0} = 0; o{0} < out_{0}; ++o{0})\n", axis);
    }
    const std::string x = fmt::format("x[{}]", plane_place("x", "i"));
    s.body =
        "  const td_i64 me = (td_i64)td_block(x) * td_threads(x) + td_thread(x);\n"
        "  if (me >= threads) return;\n"
        "  const td_i64 c0 = me % channels, n0 = me / channels;\n" +
        outputs +
        fmt::format(
            "  {{\n    const td_i64 at = chosen[{}];\n"
            "    if (at < 0 || at >= in_d * in_h * in_w) {{\n      td_report(1, at);\n"
            "    }} else {{\n"
            "      const td_i64 iw = at % in_w, ih = at / in_w % in_h, id = at / in_w / in_h;\n"
            "      const {} sum = {} + {};\n      {} = {};\n    }}\n  }}\n",
            plane_place("c", "o"), register_type(gx.dtype), loaded(x, gx.dtype),
            loaded(fmt::format("y[{}]", plane_place("y", "o")), g.dtype), x,
            stored("sum", gx.dtype));
    return s;
  });
  const int64_t planes = gx.shape[0] * gx.shape[1];
  Arguments a;
  argue_array(a, gx);
  argue_array(a, g);
  argue_array(a, chosen);
  l.argue_rest(a, planes);
  argue_planes(a, chosen);
  argue_reports(a, e, c);
  launch_each(e, k, planes, a, c.stream);
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
    s.body =
        position_lines("out", "o", l.last) + window_lines(p.adaptive) +
        fmt::format("  {} sum = 0;\n", type) +
        window_loops(fmt::format("    sum += {};\n",
                                 loaded(fmt::format("x[{}]", plane_place("x", "i")), x.dtype))) +
        divisor_lines(p.attrs.count_include_pad, type) +
        fmt::format("  y[{}] = {};\n", plane_place("y", "o"), stored("sum / parts", y.dtype));
    return s;
  });
  Arguments a;
  argue_array(a, y);
  argue_array(a, x);
  l.argue_rest(a, y.numel);
  launch_each(e, k, y.numel, a, c.stream);
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
    s.body = position_lines("in", "i", l.last) + fmt::format("  {} sum = 0;\n", type) +
             outputs_loops(
                 p.adaptive,
                 window_lines(p.adaptive) + divisor_lines(p.attrs.count_include_pad, type) +
                     fmt::format("    if ({}) sum += {} / parts;\n", inside,
                                 loaded(fmt::format("y[{}]", plane_place("y", "o")), g.dtype))) +
             fmt::format("  x[{}] = {};\n", plane_place("x", "i"), stored("sum", gx.dtype));
    return s;
  });
  Arguments a;
  argue_array(a, gx);
  argue_array(a, g);
  l.argue_rest(a, gx.numel);
  launch_each(e, k, gx.numel, a, c.stream);
}

bool floating(const KernelCall& c) { return has_types(c) && is_floating(c.in[0].dtype); }

}  // namespace

void register_pooling(DeviceKind kind) {
  constexpr auto of_input = detail::keep_most_channels_last;
  register_kernel(kind, op::max_pool, {has_types, of_input, nullptr, run_max_pool});
  register_kernel(kind, op::max_pool_with_indices, {has_types, of_input, nullptr, run_max_pool});
  register_kernel(kind, op::max_pool_backward,
                  {floating, detail::keep_channels_last<1>, nullptr, run_max_pool_backward});
  register_kernel(kind, op::avg_pool, {floating, of_input, nullptr, run_avg_pool});
  register_kernel(kind, op::avg_pool_backward,
                  {floating, of_input, nullptr, run_avg_pool_backward});
}

}  // namespace tandem::gpu
