// SPDX-License-Identifier: Apache-2.0
#include "tandem/edge/rows/conv_text_internal.h"

namespace tandem::edge {

void position_in_x(const ConvShape& s, int i, Lines& t) {
  const char* d = kOf[i];
  const std::string first = s.out[i] == 1 ? "0" : fmt::format("o{} * {}", d, s.stride[i]);
  const std::string tap = s.k[i] == 1 ? "0" : fmt::format("k{} * {}", d, s.dilation[i]);
  t.line("const int32_t i{} = {} + {} - {};", d, first, tap, s.pad[i]);
  if (!s.inside(i)) t.line("if (i{0} < 0 || i{0} >= {1}) continue;", d, s.in[i]);
}

void open_taps(const ConvShape& s, Lines& t, int dimensions) {
  for (int i = 0; i < dimensions; ++i) {
    if (s.k[i] == 1 && s.in[i] == 1 && s.out[i] == 1) continue;
    t.open("for (int32_t k{0} = 0; k{0} < {1}; ++k{0})", kOf[i], s.k[i]);
    position_in_x(s, i, t);
  }
}
void close_taps(const ConvShape& s, Lines& t, int dimensions) {
  for (int i = dimensions - 1; i >= 0; --i)
    if (!(s.k[i] == 1 && s.in[i] == 1 && s.out[i] == 1)) t.close();
}

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

std::string result_channel(const ConvShape& s, int64_t stride) {
  return times(channel("g", s.o_group, "o", s.groups), s.groups * s.o_group, stride);
}
std::string x_channel(const ConvShape& s, int64_t stride) {
  return times(channel("g", s.c_group, "c", s.groups), s.groups * s.c_group, stride);
}
std::string x_row(const ConvShape& s) {
  return plus_terms(
      x_channel(s, s.x_at[1]),
      place({{"n", s.n, s.x_at[0]}, {"id", s.in[0], s.x_at[2]}, {"ih", s.in[1], s.x_at[3]}}));
}
std::string y_row(const ConvShape& s) {
  return plus_terms(
      result_channel(s, s.y_at[1]),
      place({{"n", s.n, s.y_at[0]}, {"od", s.out[0], s.y_at[2]}, {"oh", s.out[1], s.y_at[3]}}));
}
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

namespace {

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

std::string taps(const ConvShape& s) {
  return plus_terms(
      result_channel(s, s.w_at[0]),
      place({{"c", s.c_group, s.w_at[1]}, {"kd", s.k[0], s.w_at[2]}, {"kh", s.k[1], s.w_at[3]}}));
}

}  // namespace

void write_taps(const ConvShape& s, const std::string& x, const std::string& update, Lines& t,
                const char* w_zero) {
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

}  // namespace tandem::edge
