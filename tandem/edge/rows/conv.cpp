// SPDX-License-Identifier: Apache-2.0
// Convolutions as loops over rows of the result: channel by channel and tap by tap a row takes in a
// multiple of a row of x, which compilers make vector code of. Each sum runs over channels, then
// taps, after the bias. Transposed ones add in the same walk to x.
#include <utility>

#include "tandem/edge/rows_internal.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::edge {
namespace {

// A convolution with three spatial dimensions, those in front of size 1.
struct ConvShape {
  int64_t n, groups, c_group, o_group;
  int64_t in[3], out[3], k[3], stride[3], pad[3], dilation[3];
  int64_t x_at[5], y_at[5], w_at[5];  ///< strides of x, y [n, c, d, h, w] and w [o, c, d, h, w]
  const char *type, *w_type;
  const char* sum_type;  ///< of products and their sums

  // Planes become rows of up to `most` pixels where a tap reads pixel by pixel.
  ConvShape(const ConvAttrs& a, const Array& x, const Array& w, const Array& y,
            int64_t most = INT32_MAX)
      : n(x.shape[0]),
        groups(a.groups),
        c_group(w.shape[1]),
        o_group(w.shape[0] / a.groups),
        type(c_type(x.dtype)),
        w_type(c_type(w.dtype)),
        sum_type(c_type(y.dtype)) {
    const int lead = 3 - a.stride.rank();
    for (int i = 0; i < 3; ++i) {
      const bool has = i >= lead;
      const int d = i - lead;
      in[i] = has ? x.shape[d + 2] : 1;
      out[i] = has ? y.shape[d + 2] : 1;
      k[i] = has ? w.shape[d + 2] : 1;
      stride[i] = has ? a.stride[d].value() : 1;
      pad[i] = has ? a.padding[d].value() : 0;
      dilation[i] = has ? a.dilation[d].value() : 1;
    }
    set_places(x, lead, x_at);
    set_places(w, lead, w_at);
    set_places(y, lead, y_at);
    merge_pixels(most);
  }

  bool inside(int i) const {
    return pad[i] == 0 && (out[i] - 1) * stride[i] + (k[i] - 1) * dilation[i] < in[i];
  }
  int64_t taps() const { return c_group * k[0] * k[1] * k[2]; }  ///< that one sum takes in
  int64_t positions() const { return out[0] * out[1] * out[2]; }
  // Does a weight of one channel of the result lie in one piece, and do planes of the result?
  bool dense_taps() const {
    return (k[2] == 1 || w_at[4] == 1) && (k[1] == 1 || w_at[3] == k[2]) &&
           (k[0] == 1 || w_at[2] == k[1] * k[2]) && (c_group == 1 || w_at[1] == k[0] * k[1] * k[2]);
  }
  bool dense_planes() const {
    return (out[1] == 1 || y_at[3] == out[2] * y_at[4]) &&
           (out[0] == 1 || y_at[2] == out[1] * out[2] * y_at[4]);
  }

 private:
  static void set_places(const Array& a, int lead, int64_t* at) {
    for (int i = 0; i < 5; ++i)
      at[i] = i < 2 ? a.strides[i] : i - 2 >= lead ? a.strides[i - lead] : 0;
  }
  // One tap, all pixels: the planes are one row.
  void merge_pixels(int64_t most) {
    for (int i = 1; i >= 0; --i) {
      bool plain = true;
      for (int j : {i, 2})
        plain = plain && k[j] == 1 && stride[j] == 1 && pad[j] == 0 && in[j] == out[j];
      if (!plain || x_at[2 + i] != x_at[4] * in[2] || y_at[2 + i] != y_at[4] * out[2] ||
          out[2] * out[i] > most)
        return;
      in[2] *= std::exchange(in[i], 1);
      out[2] *= std::exchange(out[i], 1);
    }
  }
};

constexpr const char* kOf[] = {"d", "h", "w"};

// `i<d>` is the position in x of output position `o<d>` under tap `k<d>`; those outside are
// skipped.
void position_in_x(const ConvShape& s, int i, Lines& t) {
  const char* d = kOf[i];
  const std::string first = s.out[i] == 1 ? "0" : fmt::format("o{} * {}", d, s.stride[i]);
  const std::string tap = s.k[i] == 1 ? "0" : fmt::format("k{} * {}", d, s.dilation[i]);
  t.line("const int32_t i{} = {} + {} - {};", d, first, tap, s.pad[i]);
  if (!s.inside(i)) t.line("if (i{0} < 0 || i{0} >= {1}) continue;", d, s.in[i]);
}

// Loops over the taps of the first dimensions (d and h) with their positions in x; `continue` may
// leave them.
void open_taps(const ConvShape& s, Lines& t, int dimensions = 2) {
  for (int i = 0; i < dimensions; ++i) {
    if (s.k[i] == 1 && s.in[i] == 1 && s.out[i] == 1) continue;
    t.open("for (int32_t k{0} = 0; k{0} < {1}; ++k{0})", kOf[i], s.k[i]);
    position_in_x(s, i, t);
  }
}
void close_taps(const ConvShape& s, Lines& t, int dimensions = 2) {
  for (int i = dimensions - 1; i >= 0; --i)
    if (!(s.k[i] == 1 && s.in[i] == 1 && s.out[i] == 1)) t.close();
}

// [lo, hi): the positions of the row under tap kw that lie in x.
void range_of_row(const ConvShape& s, Lines& t) {
  if (s.inside(2)) return;
  const int64_t step = s.stride[2];
  t.line("const int32_t gap = {} - kw * {}, last = {} + gap;", s.pad[2], s.dilation[2],
         s.in[2] - 1);
  if (step == 1) {
    t.line("const int32_t lo = gap > 0 ? gap : 0;");
    t.line("const int32_t hi = last < 0 ? 0 : last + 1 < {0} ? last + 1 : {0};", s.out[2]);
  } else {
    t.line("const int32_t lo = gap > 0 ? (gap + {}) / {} : 0;", step - 1, step);
    t.line("const int32_t hi = last < 0 ? 0 : last / {0} + 1 < {1} ? last / {0} + 1 : {1};", step,
           s.out[2]);
  }
}

// "j * 2 + kw - 1": the place in a row of x, times its stride.
std::string place_in_row(const ConvShape& s) {
  std::string at = s.out[2] == 1 ? "" : s.stride[2] == 1 ? "j" : fmt::format("j * {}", s.stride[2]);
  if (s.k[2] != 1)
    at += fmt::format("{}kw{}", at.empty() ? "" : " + ",
                      s.dilation[2] == 1 ? "" : fmt::format(" * {}", s.dilation[2]));
  if (s.pad[2]) at += fmt::format(" - {}", s.pad[2]);
  if (at.empty()) return "0";
  return s.x_at[4] == 1 ? at : fmt::format("({}) * {}", at, s.x_at[4]);
}
std::string place_in_result(const ConvShape& s) {
  return s.out[2] == 1 ? "0" : s.y_at[4] == 1 ? "j" : fmt::format("j * {}", s.y_at[4]);
}

std::string channel(const char* group, int64_t size, const char* in_group, int64_t groups) {
  if (groups == 1) return in_group;
  return size == 1 ? group : fmt::format("({} * {} + {})", group, size, in_group);
}

std::string plus_terms(std::string first, const std::string& terms) {
  if (terms == "0") return first;
  return first == "0" ? terms : first + " + " + terms;
}
std::string times(const std::string& v, int64_t size, int64_t stride) {
  return size == 1 ? "0" : stride == 1 ? v : fmt::format("{} * {}", v, stride);
}

// Offsets of the row of x and of the result that the loops stand at, and of the taps.
std::string x_row(const ConvShape& s) {
  return plus_terms(
      times(channel("g", s.c_group, "c", s.groups), s.groups * s.c_group, s.x_at[1]),
      place({{"n", s.n, s.x_at[0]}, {"id", s.in[0], s.x_at[2]}, {"ih", s.in[1], s.x_at[3]}}));
}
std::string y_row(const ConvShape& s) {
  return plus_terms(
      times(channel("g", s.o_group, "o", s.groups), s.groups * s.o_group, s.y_at[1]),
      place({{"n", s.n, s.y_at[0]}, {"od", s.out[0], s.y_at[2]}, {"oh", s.out[1], s.y_at[3]}}));
}
std::string taps(const ConvShape& s) {
  return plus_terms(
      times(channel("g", s.o_group, "o", s.groups), s.groups * s.o_group, s.w_at[0]),
      place({{"c", s.c_group, s.w_at[1]}, {"kd", s.k[0], s.w_at[2]}, {"kh", s.k[1], s.w_at[3]}}));
}

// The loops over rows of y.
void open_rows(const ConvShape& s, Lines& t) {
  t.loop("n", s.n);
  t.loop("g", s.groups);
  t.loop("o", s.o_group);
  for (int i = 0; i < 2; ++i) t.loop(fmt::format("o{}", kOf[i]), s.out[i]);
  t.open("");
}
void close_rows(const ConvShape& s, Lines& t) {
  t.close();
  for (int i = 1; i >= 0; --i) t.end_loop(s.out[i]);
  t.end_loop(s.o_group);
  t.end_loop(s.groups);
  t.end_loop(s.n);
}

// `update` for every channel, tap and position j of a row, with the tap's weight in v. `x`
// declares `in`; `w_zero` is " - z" where a zero point is taken off the weight.
void write_taps(const ConvShape& s, const std::string& x, const std::string& update, Lines& t,
                const char* w_zero = "") {
  t.loop("c", s.c_group);
  open_taps(s, t);
  t.line("{} + {};", x, x_row(s));
  t.line("const {} *taps = x1 + {};", s.w_type, taps(s));
  t.open("for (int32_t kw = 0; kw < {}; ++kw)", s.k[2]);
  t.line("const {} v = taps[{}]{};", s.sum_type,
         s.w_at[4] == 1 ? "kw" : fmt::format("kw * {}", s.w_at[4]), w_zero);
  range_of_row(s, t);
  t.line("for (int32_t j = {}; j < {}; ++j) {};", s.inside(2) ? "0" : "lo",
         s.inside(2) ? std::to_string(s.out[2]) : "hi", update);
  t.close();
  close_taps(s, t);
  t.end_loop(s.c_group);
}

// Rows of sums, tap by tap, as floats are summed.
void sums_by_rows(const ConvShape& s, const KernelCall& c, const SumLoop* then,
                  const std::string& column, Lines& t) {
  const std::string x_zero = zero_point(c, 2, "0"), w_zero = zero_point(c, 3, column);
  if (!x_zero.empty()) t.line("const int32_t x_zero = {};", x_zero);
  open_rows(s, t);
  if (!w_zero.empty()) t.line("const int32_t w_zero = {};", w_zero);
  if (then)
    t.line("int32_t row[{}];", s.out[2]);
  else
    t.line("int32_t *row = y0 + {};", y_row(s));
  t.line("for (int32_t j = 0; j < {}; ++j) row[{}] = 0;", s.out[2], place_in_result(s));
  write_taps(s, fmt::format("const {} *in = x0", s.type),
             fmt::format("row[{}] += v * {}", place_in_result(s),
                         x_zero.empty() ? fmt::format("in[{}]", place_in_row(s))
                                        : fmt::format("(in[{}] - x_zero)", place_in_row(s))),
             t, w_zero.empty() ? "" : " - w_zero");
  if (then) {
    t.open("for (int32_t j = 0; j < {}; ++j)", s.out[2]);
    const std::string y =
        write_sum_loop(*then, fmt::format("row[{}]", place_in_result(s)), column, 1, t);
    t.line("y0[{}] = {};", plus_terms(y_row(s), place_in_result(s)), y);
    t.close();
  }
  close_rows(s, t);
}

// od, oh and ow of result position `to`.
void position_of(const ConvShape& s, Lines& t) {
  std::string rest = "to";
  for (int i = 2; i >= 0; --i) {
    if (s.out[i] == 1) continue;
    const bool last = (i == 0 || s.out[0] == 1) && (i <= 1 || s.out[1] == 1);
    t.line("const int32_t o{} = {}{};", kOf[i], rest, last ? "" : fmt::format(" % {}", s.out[i]));
    rest += fmt::format(" / {}", s.out[i]);
  }
}

// Two positions at a time: the taps that they see lie in two columns, less the zero point and 0
// where there is padding, and each channel of the result is a dot product with either.
void sums_by_positions(const ConvShape& s, const KernelCall& c, const SumLoop* then,
                       const std::string& column, Lines& t) {
  const int64_t n = s.taps(), positions = s.positions();
  const std::string zero = zero_point(c, 2, "0"),
                    next = fmt::format("at + b < {0} ? at + b : {1}", positions, positions - 1);
  t.line("int16_t taps[{}];", 2 * n);
  if (!zero.empty()) t.line("const int32_t x_zero = {};", zero);
  t.loop("n", s.n);
  t.loop("g", s.groups);
  t.open("for (int32_t at = 0; at < {}; at += 2)", positions);
  t.open("for (int32_t b = 0; b < 2; ++b)");
  t.line("const int32_t to = {};", next);
  position_of(s, t);
  const bool padded = !(s.inside(0) && s.inside(1) && s.inside(2));
  if (padded) t.line("for (int32_t p = 0; p < {0}; ++p) taps[b * {0} + p] = 0;", n);
  t.loop("c", s.c_group);
  open_taps(s, t, 3);
  const std::string tap = place({{"b", 2, n},
                                 {"c", s.c_group, s.w_at[1]},
                                 {"kd", s.k[0], s.w_at[2]},
                                 {"kh", s.k[1], s.w_at[3]},
                                 {"kw", s.k[2], s.w_at[4]}});
  t.line("taps[{}] = (int16_t)(x0[{}]{});", tap,
         plus_terms(x_row(s), place({{"iw", s.in[2], s.x_at[4]}})),
         zero.empty() ? "" : " - x_zero");
  close_taps(s, t, 3);
  t.end_loop(s.c_group);
  t.close();
  t.open("for (int32_t o = 0; o < {}; ++o)", s.o_group);
  t.line("int32_t sums[2];");
  t.line("{}(taps, x1 + {}, {}, sums);", kDotsOfTaps,
         times(channel("g", s.o_group, "o", s.groups), s.groups * s.o_group, s.w_at[0]), n);
  t.open("for (int32_t b = 0; b < 2; ++b)");
  t.line("const int32_t to = {};", next);
  const bool dense = s.dense_planes();
  if (!dense) position_of(s, t);
  const std::string y = then ? write_sum_loop(*then, "sums[b]", column, 1, t) : "sums[b]";
  const std::string at = dense ? place({{"to", positions, s.y_at[4]}})
                               : place({{"od", s.out[0], s.y_at[2]},
                                        {"oh", s.out[1], s.y_at[3]},
                                        {"ow", s.out[2], s.y_at[4]}});
  t.line("y0[{}] = {};",
         plus_terms(plus_terms(times(channel("g", s.o_group, "o", s.groups), s.groups * s.o_group,
                                     s.y_at[1]),
                               place({{"n", s.n, s.y_at[0]}})),
                    at),
         y);
  t.close();
  t.close();
  t.close();
  t.end_loop(s.groups);
  t.end_loop(s.n);
}

}  // namespace

void emit_conv(const KernelCall& c, Body& to) {
  const ConvShape s(c.get_attrs<ConvAttrs>(), c.in[0], c.in[1], c.out[0]);
  const bool bias = c.n_in > 2 && c.in[2].present();
  Lines& t = to.text;
  open_rows(s, t);
  t.line("{} *row = y0 + {};", s.type, y_row(s));
  const std::string o = channel("g", s.o_group, "o", s.groups);
  const std::string first =
      bias ? fmt::format("x2[{}]", times(o, s.groups * s.o_group, c.in[2].strides[0])) : "0";
  t.line("for (int32_t j = 0; j < {}; ++j) row[{}] = {};", s.out[2], place_in_result(s), first);
  write_taps(s, fmt::format("const {} *in = x0", s.type),
             fmt::format("row[{}] += v * in[{}]", place_in_result(s), place_in_row(s)), t);
  close_rows(s, t);
}

void emit_conv_integer(const KernelCall& c, const SumLoop* then, Body& to) {
  constexpr int64_t kMostSums = 256;     // of a row that lies on the stack
  constexpr int64_t kMostTaps = 1024;    // of a position, twice on the stack
  constexpr int64_t kLeastChannels = 4;  // that read what is gathered
  const Array &x = c.in[0], &w = c.in[1], &y = c.out[0];
  const auto& a = c.get_attrs<ConvAttrs>();
  const ConvShape s(a, x, w, y);
  const auto column_of = [](const ConvShape& of) {
    return times(channel("g", of.o_group, of.o_group == 1 ? "0" : "o", of.groups), 0, 1);
  };
  const bool by_positions = s.o_group >= kLeastChannels && s.positions() > 1 &&
                            s.taps() <= kMostTaps && w.dtype == DType::i8 && s.dense_taps() &&
                            zero_point(c, 3, "0").empty();
  if (by_positions) return sums_by_positions(s, c, then, column_of(s), to.text);
  const ConvShape rows(a, x, w, y, then ? kMostSums : INT32_MAX);
  sums_by_rows(rows, c, then, column_of(rows), to.text);
}

void emit_transposed(const KernelCall& c, Body& to) {
  const ConvShape s(c.get_attrs<ConvAttrs>(), c.out[0], c.in[1], c.in[0]);
  Lines& t = to.text;
  t.line("for (int32_t j = 0; j < {}; ++j) y0[j] = 0;", c.out[0].numel);
  open_rows(s, t);
  t.line("const {} *row = x0 + {};", s.type, y_row(s));
  write_taps(s, fmt::format("{} *in = y0", s.type),
             fmt::format("in[{}] += v * row[{}]", place_in_row(s), place_in_result(s)), t);
  close_rows(s, t);
}

}  // namespace tandem::edge
