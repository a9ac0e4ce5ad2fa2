// SPDX-License-Identifier: Apache-2.0
// Matrix products of 8-bit codes less their zero points, summed in i32: dot products of four
// columns at a time, or a loop over each column. What all products of codes share.
#include "tandem/codegen/tile_loop.h"
#include "tandem/edge/rows/expressions_internal.h"

namespace tandem::edge {

std::string zero_point(const KernelCall& c, int k, const std::string& column) {
  if (k >= c.n_in || !c.in[k].present()) return "";
  const Array& zero = c.in[k];
  if (zero.is_scalar) return std::to_string(static_cast<int64_t>(zero.scalar.to_double()));
  if (zero.numel == 1 || column == "0") return fmt::format("x{}[0]", k);
  return zero.strides[0] == 1 ? fmt::format("x{}[{}]", k, column)
                              : fmt::format("x{}[{} * {}]", k, column, zero.strides[0]);
}

std::string write_sum_loop(const SumLoop& then, const std::string& sum, const std::string& column,
                           int dimension, Lines& to) {
  const KernelCall& c = then.call;
  std::vector<ProgramInput> inputs;
  for (int k = 0; k < c.n_in; ++k) {
    const Array& a = c.in[k];
    if (a.is_scalar) {
      inputs.push_back({.name = "", .is_number = true, .number = a.scalar});
      continue;
    }
    const int d = dimension - (c.out[0].rank - a.rank);
    const bool varies = d >= 0 && a.shape[d] != 1 && column != "0";
    const std::string at = !varies             ? "0"
                           : a.strides[d] == 1 ? column
                                               : fmt::format("{} * {}", column, a.strides[d]);
    inputs.push_back({.name = fmt::format("e{}", k),
                      .load = k == then.sums ? sum : fmt::format("x{}[{}]", kFirstOfLoop + k, at)});
  }
  return write_program(then.program, "", inputs, to)[0];
}

std::string open_rows_of_weights(int64_t rows, Lines& t) {
  t.open("for (int32_t first = 0; first < {}; first += 4)", rows);
  t.line("int32_t sums[8];");
  if (rows % 4 == 0) return "4";
  t.line("const int32_t rows = {0} - first < 4 ? {0} - first : 4;", rows);
  return "rows";
}

void emit_matmul_integer(const KernelCall& c, const SumLoop* then, Body& to) {
  const Array &x = c.in[0], &w = c.in[1], &y = c.out[0];
  codegen::TileLoop rows;  // y without its columns, x without what is summed over
  rows.n_arrays = 2;
  rows.rank = y.rank - 1;
  for (int d = 0; d < rows.rank; ++d) {
    rows.size[d] = y.shape[d];
    rows.stride[0][d] = y.strides[d];
    rows.stride[1][d] = x.strides[d];
  }
  const int64_t k = w.shape[0], n = w.shape[1];
  Lines& t = to.text;
  const std::string x_zero = zero_point(c, 2, "0"), w_zero = zero_point(c, 3, "j");
  if (!x_zero.empty()) t.line("const int32_t x_zero = {};", x_zero);
  t.open_nest(rows);
  t.line("const {} *u = x0 + {};", c_type(x.dtype), place_in(rows, 1));
  const int64_t x_step = x.strides[x.rank - 1];
  const bool dots = x_zero.empty() && w_zero.empty() && w.dtype == DType::i8 &&
                    (k == 1 || (x_step == 1 && w.strides[0] == 1)) && (n == 1 || w.strides[1] == k);
  std::string sum = "sum";
  if (dots) {
    const std::string many = open_rows_of_weights(n, t);
    t.line("{}(u, x1 + first * {}, {}, {}, sums);", dot_of(x.dtype), k, k, many);
    t.open("for (int32_t j = first; j < first + {}; ++j)", many);
    sum = "sums[j - first]";
  } else {
    t.open("for (int32_t j = 0; j < {}; ++j)", n);
    t.line("const {} *column = x1 + {};", c_type(w.dtype), place({{"j", n, w.strides[1]}}));
    if (!w_zero.empty()) t.line("const int32_t w_zero = {};", w_zero);
    const auto less = [](const std::string& v, const char* zero, bool has) {
      return has ? fmt::format("({} - {})", v, zero) : v;
    };
    t.line("int32_t sum = 0;");
    t.line("for (int32_t p = 0; p < {}; ++p) sum += {} * {};", k,
           less(fmt::format("u[{}]", place({{"p", k, x_step}})), "x_zero", !x_zero.empty()),
           less(fmt::format("column[{}]", place({{"p", k, w.strides[0]}})), "w_zero",
                !w_zero.empty()));
  }
  const std::string row = place_in(rows, 0), at = place({{"j", n, y.strides[y.rank - 1]}});
  const std::string result =
      then ? write_sum_loop(*then, sum, n == 1 ? "0" : "j", y.rank - 1, t) : sum;
  t.line("y0[{}] = {};", row == "0" ? at : at == "0" ? row : row + " + " + at, result);
  t.close();
  if (dots) t.close();
  t.close_nest(rows);
}

}  // namespace tandem::edge
