// SPDX-License-Identifier: Apache-2.0
// Pooling: the window of each result, cut to the plane. Maxima are those of eager code to the bit;
// means add in the element's own type.
#include "tandem/ops/conv/pool.h"
#include "tandem/edge/rows_internal.h"

namespace tandem::edge {
namespace {

constexpr const char* kAxes[] = {"d", "h", "w"};

struct PoolText {
  const PoolAttrs& a;
  const Array &x, &y;
  Lines& t;
  int dims;

  PoolText(const KernelCall& c, Body& to)
      : a(c.get_attrs<PoolAttrs>()), x(c.in[0]), y(c.out[0]), t(to.text), dims(c.in[0].rank - 2) {}

  std::string place_of(const Array& array, const char* prefix) const {
    std::string s =
        place({{"n", array.shape[0], array.strides[0]}, {"c", array.shape[1], array.strides[1]}});
    for (int i = 0; i < dims; ++i) {
      const std::string v = std::string(prefix) + axis(i);
      const std::string term = place({{v.c_str(), array.shape[2 + i], array.strides[2 + i]}});
      if (term != "0") s = s == "0" ? term : s + " + " + term;
    }
    return s;
  }
  const char* axis(int i) const { return kAxes[3 - dims + i]; }

  void open_results() const {
    t.loop("n", y.shape[0]);
    t.loop("c", y.shape[1]);
    for (int i = 0; i < dims; ++i) {
      t.open("for (int32_t o{0} = 0; o{0} < {1}; ++o{0})", axis(i), y.shape[2 + i]);
      window(i);
    }
  }
  void close_results() const {
    for (int i = 0; i < dims; ++i) t.close();
    t.end_loop(y.shape[1]);
    t.end_loop(y.shape[0]);
  }
  void open_window() const {
    for (int i = 0; i < dims; ++i)
      t.open("for (int32_t i{0} = from{0}; i{0} < to{0}; i{0} += {1})", axis(i), step(i));
  }
  void close_window() const {
    for (int i = 0; i < dims; ++i) t.close();
  }
  // The number of elements that a mean divides by, as text.
  std::string divisor() const {
    if (a.divisor_override) return std::to_string(a.divisor_override);
    std::string s;
    for (int i = 0; i < dims; ++i) {
      const bool full = a.output.empty() && a.count_include_pad;
      s += fmt::format(
          "{}{}", s.empty() ? "" : " * ",
          full ? fmt::format("full{}", axis(i)) : fmt::format("(to{0} - from{0})", axis(i)));
    }
    return s;
  }

 private:
  int64_t step(int i) const {
    return a.output.empty() && !a.dilation.empty() ? a.dilation[i].value() : 1;
  }

  void window(int i) const {
    const char* d = axis(i);
    const int64_t in = x.shape[2 + i], out = y.shape[2 + i];
    if (!a.output.empty()) {
      t.line("const int32_t from{0} = o{0} * {1} / {2};", d, in, out);
      t.line("const int32_t to{0} = ((o{0} + 1) * {1} + {2}) / {3};", d, in, out - 1, out);
      return;
    }
    const int64_t pad = a.padding[i].value(), s = a.stride[i].value();
    const int64_t last = (a.kernel[i].value() - 1) * step(i) + 1;
    t.line("const int32_t start{0} = o{0} * {1} - {2}, end{0} = start{0} + {3};", d, s, pad, last);
    if (pad == 0)
      t.line("const int32_t from{0} = start{0};", d);
    else
      t.line(
          "const int32_t from{0} = start{0} < 0 ? start{0} + (-start{0} + {1}) / {2} * {2} : "
          "start{0};",
          d, step(i) - 1, step(i));
    t.line("const int32_t to{0} = end{0} < {1} ? end{0} : {1};", d, in);
    t.line("const int32_t full{0} = (end{0} < {1} ? end{0} : {1}) - start{0};", d, in + pad);
    t.line("(void)full{};", d);
  }
};

}  // namespace

void emit_max_pool(const KernelCall& c, Body& to) {
  const PoolText p(c, to);
  const bool keep = c.n_out > 1 && c.out[1].present();
  p.open_results();
  p.t.line("{} best = 0;", c_type(p.x.dtype));
  p.t.line("int32_t at = -1;");
  p.open_window();
  p.t.line("const {} v = x0[{}];", c_type(p.x.dtype), p.place_of(p.x, "i"));
  p.t.open("if (at < 0 || v > best{})", is_floating(p.x.dtype) ? " || v != v" : "");
  p.t.line("best = v;");
  std::string plane = fmt::format("i{}", p.axis(0));
  for (int i = 1; i < p.dims; ++i)
    plane = fmt::format("({}) * {} + i{}", plane, p.x.shape[2 + i], p.axis(i));
  p.t.line("at = {};", plane);
  p.t.close();
  p.close_window();
  p.t.line("y0[{}] = best;", p.place_of(p.y, "o"));
  if (keep) p.t.line("y1[{}] = at;", p.place_of(c.out[1], "o"));
  p.close_results();
}

void emit_avg_pool(const KernelCall& c, Body& to) {
  const PoolText p(c, to);
  const char* type = c_type(p.x.dtype);
  p.open_results();
  p.t.line("{} sum = 0;", type);
  p.open_window();
  p.t.line("sum += x0[{}];", p.place_of(p.x, "i"));
  p.close_window();
  p.t.line("y0[{}] = sum / ({})({});", p.place_of(p.y, "o"), type, p.divisor());
  p.close_results();
}

}  // namespace tandem::edge
