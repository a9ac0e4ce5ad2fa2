// SPDX-License-Identifier: Apache-2.0
// Matrix products. Where the second matrix lies row by row, rows of the result take in multiples of
// its rows; where it lies column by column, results are dot products. Compilers make vector code of
// both.
#include "tandem/ops/matmul/matmul.h"
#include "tandem/codegen/tile_loop.h"
#include "tandem/edge/rows_internal.h"

namespace tandem::edge {
namespace {

// y[m, n] = sum over k of a[m, k] b[k, n], all at offsets given as text.
struct ProductText {
  const char* type;
  int64_t m, n, k;
  int64_t a_m, a_k, b_k, b_n, y_m, y_n;
  std::string a, b, y;  ///< offsets of the matrices
  std::string bias;     ///< place of the bias of column j, or ""
  DType dtype;
  const SumLoop* then = nullptr;  ///< where the second matrix lies column by column
  int rank = 0;                   ///< of the result

  void write(Lines& t) const {
    t.loop("i", m);
    t.open("");
    t.line("const {} *u = x0 + {};", type, sum(a, place({{"i", m, a_m}})));
    t.line("const {} *w = x1 + {};", type, b);
    t.line("{} *row = y0 + {};", then ? c_type(then->call.out[0].dtype) : type,
           sum(y, place({{"i", m, y_m}})));
    if (b_k == 1 && (b_n != 1 || then))
      by_dots(t);
    else
      by_rows(t);
    t.close();
    t.end_loop(m);
  }

 private:
  static std::string sum(const std::string& a, const std::string& b) {
    return a == "0" ? b : b == "0" ? a : a + " + " + b;
  }
  std::string result() const { return y_n == 1 ? "row[j]" : fmt::format("row[j * {}]", y_n); }

  void by_rows(Lines& t) const {
    t.line("for (int32_t j = 0; j < {}; ++j) {} = 0;", n, result());
    t.open("for (int32_t p = 0; p < {}; ++p)", k);
    t.line("const {} v = u[{}];", type, place({{"p", k, a_k}}));
    t.line("for (int32_t j = 0; j < {}; ++j) {} += v * w[{}];", n, result(),
           place({{"p", k, b_k}, {"j", n, b_n}}));
    t.close();
    if (!bias.empty()) t.line("for (int32_t j = 0; j < {}; ++j) {} += {};", n, result(), bias);
  }

  void by_dots(Lines& t) const {
    t.open("for (int32_t j = 0; j < {}; ++j)", n);
    const std::string added = bias.empty() ? "" : " + " + bias;
    if (a_k == 1) {
      t.line("const {} sum = {}(u, w + j * {}, {}){};", type, dot_of(dtype), b_n, k, added);
    } else {
      t.line("{} sum = 0;", type);
      t.line("for (int32_t p = 0; p < {}; ++p) sum += u[p * {}] * w[j * {} + p];", k, a_k, b_n);
      if (!added.empty()) t.line("sum = sum{};", added);
    }
    t.line("{} = {};", result(),
           then ? write_sum_loop(*then, "sum", n == 1 ? "0" : "j", rank - 1, t) : "sum");
    t.close();
  }
};

// The dimensions in front of the last `kept` of y, over which a and b are broadcast.
codegen::TileLoop batch_loop(const Array& y, int kept, std::initializer_list<const Array*> inputs) {
  codegen::TileLoop loop;
  loop.n_arrays = 1 + static_cast<int>(inputs.size());
  loop.rank = y.rank - kept;
  for (int d = 0; d < loop.rank; ++d) {
    loop.size[d] = y.shape[d];
    loop.stride[0][d] = y.strides[d];
    int array = 1;
    for (const Array* a : inputs) {
      const int of = d - (y.rank - a->rank);
      loop.stride[array++][d] = of < 0 || a->shape[of] == 1 ? 0 : a->strides[of];
    }
  }
  return loop;
}

}  // namespace

void emit_matmul(const KernelCall& c, const SumLoop* then, Body& to) {
  const auto& attrs = c.get_attrs<MatmulAttrs>();
  const Array &a = c.in[0], &b = c.in[1], &y = c.out[0];
  const int ar = a.rank - 2, br = b.rank - 2, yr = y.rank - 2;
  const int am = attrs.trans_a ? ar + 1 : ar, bk = attrs.trans_b ? br + 1 : br;
  const int ak = 2 * ar + 1 - am, bn = 2 * br + 1 - bk;
  const codegen::TileLoop batch = batch_loop(y, 2, {&a, &b});
  ProductText p{.type = c_type(y.dtype),
                .m = y.shape[yr],
                .n = y.shape[yr + 1],
                .k = a.shape[ak],
                .a_m = a.strides[am],
                .a_k = a.strides[ak],
                .b_k = b.strides[bk],
                .b_n = b.strides[bn],
                .y_m = y.strides[yr],
                .y_n = y.strides[yr + 1],
                .a = place_in(batch, 1, "n"),
                .b = place_in(batch, 2, "n"),
                .y = place_in(batch, 0, "n"),
                .bias = "",
                .dtype = y.dtype,
                .then = then,
                .rank = y.rank};
  to.text.open_nest(batch, "n");
  p.write(to.text);
  to.text.close_nest(batch);
}

void emit_linear(const KernelCall& c, const SumLoop* then, Body& to) {
  const Array &x = c.in[0], &w = c.in[1], &y = c.out[0];
  const codegen::TileLoop rows = batch_loop(y, 1, {&x});
  const bool bias = c.n_in > 2 && c.in[2].present();
  ProductText p{
      .type = c_type(y.dtype),
      .m = 1,
      .n = w.shape[0],
      .k = w.shape[1],
      .a_m = 0,
      .a_k = x.strides[x.rank - 1],
      .b_k = w.strides[1],
      .b_n = w.strides[0],
      .y_m = 0,
      .y_n = y.strides[y.rank - 1],
      .a = place_in(rows, 1, "n"),
      .b = "0",
      .y = place_in(rows, 0, "n"),
      .bias = bias ? fmt::format("x2[{}]", place({{"j", w.shape[0], c.in[2].strides[0]}})) : "",
      .dtype = x.dtype,
      .then = then,
      .rank = y.rank};
  to.text.open_nest(rows, "n");
  p.write(to.text);
  to.text.close_nest(rows);
}

}  // namespace tandem::edge
