// SPDX-License-Identifier: Apache-2.0
// Convolutions of codes, summed in i32: where several channels read the same taps, these are
// gathered and multiplied as dot products; else row by row, as floats are.
#include "tandem/edge/rows/conv_text_internal.h"

namespace tandem::edge {
namespace {

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
// where there is padding, and each channel of the result is a dot product with either; four
// channels go through the columns at once.
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
  const std::string rows = open_rows_of_weights(s.o_group, t);
  t.line("{}(taps, x1 + {}, {}, {}, sums);", kDotsOfTaps,
         times(channel("g", s.o_group, "first", s.groups), 0, n), n, rows);
  t.open("for (int32_t o = first; o < first + {}; ++o)", rows);
  t.open("for (int32_t b = 0; b < 2; ++b)");
  t.line("const int32_t to = {};", next);
  const bool dense = s.dense_planes();
  if (!dense) position_of(s, t);
  const std::string y = then ? write_sum_loop(*then, "sums[b * 4 + o - first]", column, 1, t)
                             : "sums[b * 4 + o - first]";
  const std::string at = dense ? place({{"to", positions, s.y_at[4]}})
                               : place({{"od", s.out[0], s.y_at[2]},
                                        {"oh", s.out[1], s.y_at[3]},
                                        {"ow", s.out[2], s.y_at[4]}});
  t.line("y0[{}] = {};",
         plus_terms(plus_terms(result_channel(s, s.y_at[1]), place({{"n", s.n, s.y_at[0]}})), at),
         y);
  t.close();
  t.close();
  t.close();
  t.close();
  t.end_loop(s.groups);
  t.end_loop(s.n);
}

}  // namespace

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
                            s.w_at[0] == s.taps() && zero_point(c, 3, "0").empty();
  if (by_positions) return sums_by_positions(s, c, then, column_of(s), to.text);
  if (w.dtype == DType::i8 && conv_by_planes(c, s, then, column_of(s), to.text)) return;
  const ConvShape rows(a, x, w, y, then ? kMostSums : INT32_MAX);
  sums_by_rows(rows, c, then, column_of(rows), to.text);
}

}  // namespace tandem::edge
