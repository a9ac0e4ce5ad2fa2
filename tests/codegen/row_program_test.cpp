// SPDX-License-Identifier: Apache-2.0
// Row programs (softmax, norms, forward and backward) against plain loops in f64: dtypes, strides,
// odd lengths, absent operands; equal bits for every thread count and kernel table.
#include "tandem/codegen/row_program.h"

#include "codegen_helper.h"
#include "tandem/codegen/row_programs.h"

namespace tandem {
namespace {

using codegen::NormArrays;

double row_tolerance(DType t) { return t == DType::f64 ? 1e-12 : t == DType::f32 ? 5e-5 : 2e-2; }

void expect_close(const std::vector<double>& want, const Buffer8& got, const std::string& what) {
  ASSERT_EQ(static_cast<int64_t>(want.size()), got.array.numel) << what;
  for (int64_t i = 0; i < got.array.numel; ++i) {
    const double a = want[static_cast<size_t>(i)], b = got.get(i);
    if (std::isnan(a) && std::isnan(b)) continue;
    ASSERT_NEAR(a, b, row_tolerance(got.array.dtype) * (1 + std::fabs(a)))
        << what << " element " << i;
  }
}

// The matrix [rows, n] that a buffer is, when its row is dimension `dim`.
struct Matrix {
  const Buffer8& b;
  int64_t outer = 1, n, inner = 1;
  Matrix(const Buffer8& buffer, int dim) : b(buffer), n(buffer.shape[static_cast<size_t>(dim)]) {
    for (int d = 0; d < dim; ++d) outer *= b.shape[static_cast<size_t>(d)];
    for (size_t d = static_cast<size_t>(dim) + 1; d < b.shape.size(); ++d) inner *= b.shape[d];
  }
  int64_t rows() const { return outer * inner; }
  int64_t at(int64_t r, int64_t j) const { return (r / inner * n + j) * inner + r % inner; }
  double get(int64_t r, int64_t j) const { return b.get(at(r, j)); }
};

std::vector<double> softmax_of(const Matrix& x, bool log) {
  std::vector<double> y(static_cast<size_t>(x.rows() * x.n));
  for (int64_t r = 0; r < x.rows(); ++r) {
    double top = -HUGE_VAL, sum = 0;
    for (int64_t j = 0; j < x.n; ++j)
      top = std::isnan(x.get(r, j)) ? NAN : std::fmax(top, x.get(r, j));
    for (int64_t j = 0; j < x.n; ++j) sum += std::exp(x.get(r, j) - top);
    for (int64_t j = 0; j < x.n; ++j) {
      const double d = x.get(r, j) - top;
      y[static_cast<size_t>(x.at(r, j))] = log ? d - std::log(sum) : std::exp(d) / sum;
    }
  }
  return y;
}
std::vector<double> softmax_grad_of(const Matrix& g, const Matrix& y, bool log) {
  std::vector<double> gx(static_cast<size_t>(y.rows() * y.n));
  for (int64_t r = 0; r < y.rows(); ++r) {
    double sum = 0;
    for (int64_t j = 0; j < y.n; ++j) sum += log ? g.get(r, j) : g.get(r, j) * y.get(r, j);
    for (int64_t j = 0; j < y.n; ++j) {
      gx[static_cast<size_t>(y.at(r, j))] =
          log ? g.get(r, j) - std::exp(y.get(r, j)) * sum : y.get(r, j) * (g.get(r, j) - sum);
    }
  }
  return gx;
}

TEST(RowProgram, SoftmaxEqualsPlainLoops) {
  struct Shape {
    std::vector<int64_t> shape, strides;
    int dim;
  };
  const Shape kShapes[] = {{{9, 10}, {}, 1},      {{5, 3000}, {}, 1},
                           {{70, 6}, {1, 70}, 1}, {{4, 33, 5}, {}, 1},
                           {{33}, {}, 0},         {{2, 3, 4, 65}, {1000, 300, 70, 1}, 3},
                           {{1, 1}, {}, 1}};
  for (DType t : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const Shape& s : kShapes) {
      Buffer8 x(t, s.shape, s.strides), g(t, s.shape, s.strides), y(t, s.shape), gx(t, s.shape);
      x.fill(1);
      g.fill(2);
      for (bool log : {false, true}) {
        codegen::run_softmax(x.array, y.array, s.dim, log);
        expect_close(softmax_of(Matrix(x, s.dim), log), y, "softmax");
        codegen::run_softmax_backward(g.array, y.array, gx.array, s.dim, log);
        expect_close(softmax_grad_of(Matrix(g, s.dim), Matrix(y, s.dim), log), gx, "its gradient");
      }
    }
  }
}

TEST(RowProgram, SoftmaxOfSpecialLines) {
  const double inf = HUGE_VAL;
  const double lines[][3] = {{1000, 1000, -1000}, {-inf, 0, 1}, {-inf, -inf, -inf}, {1, NAN, 2}};
  Buffer8 x(DType::f32, {4, 3}), y(DType::f32, {4, 3});
  for (int64_t i = 0; i < 12; ++i) x.set(i, lines[i / 3][i % 3]);
  codegen::run_softmax(x.array, y.array, 1, false);
  EXPECT_EQ(y.get(0), 0.5);
  EXPECT_EQ(y.get(2), 0);
  EXPECT_EQ(y.get(3), 0);
  for (int64_t i = 6; i < 12; ++i) EXPECT_TRUE(std::isnan(y.get(i))) << i;
}

TEST(RowProgram, SoftmaxMayWriteOverItsInput) {
  Buffer8 x(DType::f32, {20, 1500}), y(DType::f32, {20, 1500});
  x.fill(8);
  for (bool log : {false, true}) {
    Buffer8 same(x);
    codegen::run_softmax(x.array, y.array, 1, log);
    codegen::run_softmax(same.array, same.array, 1, log);
    EXPECT_TRUE(same_bits(y, same));
  }
}

struct NormCase {
  DType t, wt;
  std::vector<int64_t> shape;
  int dims;
  bool centred, weight, bias;
};

struct NormBuffers {
  std::vector<int64_t> tail, stats;
  int64_t n = 1;
  Buffer8 x, gy, w, b, y, gx, mean, rstd, gw, gb;

  static std::vector<int64_t> tail_of(const NormCase& c) {
    return {c.shape.end() - c.dims, c.shape.end()};
  }
  static std::vector<int64_t> stats_of(const NormCase& c) {
    std::vector<int64_t> s = c.shape;
    for (size_t d = s.size() - static_cast<size_t>(c.dims); d < s.size(); ++d) s[d] = 1;
    return s;
  }
  static DType wide(DType t) { return t == DType::f64 ? DType::f64 : DType::f32; }

  explicit NormBuffers(const NormCase& c)
      : tail(tail_of(c)),
        stats(stats_of(c)),
        x(c.t, c.shape),
        gy(c.t, c.shape),
        w(c.wt, tail),
        b(c.wt, tail),
        y(c.t, c.shape),
        gx(c.t, c.shape),
        mean(wide(c.t), stats),
        rstd(wide(c.t), stats),
        gw(c.wt, tail),
        gb(c.wt, tail) {
    for (int64_t d : tail) n *= d;
    x.fill(1);
    gy.fill(2);
    w.fill(3);
    b.fill(4);
  }
  NormArrays arrays(const NormCase& c) const {
    NormArrays a;
    a.dims = c.dims;
    a.eps = 1e-5;
    a.centred = c.centred;
    a.x = &x.array;
    a.gy = &gy.array;
    if (c.weight) a.w = &w.array;
    if (c.bias) a.b = &b.array;
    if (c.centred) a.mean = &mean.array;
    a.rstd = &rstd.array;
    a.y = &y.array;
    a.gx = &gx.array;
    if (c.weight) a.gw = &gw.array;
    if (c.bias) a.gb = &gb.array;
    return a;
  }
};

void check_norm(const NormCase& c) {
  NormBuffers m(c);
  const NormArrays a = m.arrays(c);
  ASSERT_TRUE(codegen::norm_supported(a));
  codegen::run_norm(a);
  codegen::run_norm_backward(a);
  const int64_t n = m.n, rows = m.x.array.numel / n;
  const auto size = static_cast<size_t>(m.x.array.numel);
  std::vector<double> y(size), gx(size), mean, rstd, gw(static_cast<size_t>(n)), gb(gw);
  for (int64_t r = 0; r < rows; ++r) {
    double mu = 0, squares = 0, along = 0, level = 0;
    for (int64_t j = 0; j < n; ++j)
      mu += c.centred ? m.x.get(r * n + j) / static_cast<double>(n) : 0;
    for (int64_t j = 0; j < n; ++j) squares += std::pow(m.x.get(r * n + j) - mu, 2);
    const double s = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    mean.push_back(mu);
    rstd.push_back(s);
    const auto weight = [&](int64_t j) { return c.weight ? m.w.get(j) : 1; };
    for (int64_t j = 0; j < n; ++j) {
      const double hat = (m.x.get(r * n + j) - mu) * s, g = m.gy.get(r * n + j);
      y[static_cast<size_t>(r * n + j)] = hat * weight(j) + (c.bias ? m.b.get(j) : 0);
      along += g * weight(j) * hat / static_cast<double>(n);
      level += c.centred ? g * weight(j) / static_cast<double>(n) : 0;
      gw[static_cast<size_t>(j)] += g * hat;
      gb[static_cast<size_t>(j)] += g;
    }
    for (int64_t j = 0; j < n; ++j) {
      const double hat = (m.x.get(r * n + j) - mu) * s;
      gx[static_cast<size_t>(r * n + j)] =
          s * (m.gy.get(r * n + j) * weight(j) - level - hat * along);
    }
  }
  expect_close(y, m.y, "y");
  if (c.centred) expect_close(mean, m.mean, "mean");
  expect_close(rstd, m.rstd, "rstd");
  expect_close(gx, m.gx, "gx");
  if (c.weight) expect_close(gw, m.gw, "gw");
  if (c.bias) expect_close(gb, m.gb, "gb");
}

TEST(RowProgram, NormsEqualPlainLoops) {
  for (DType t : {DType::f32, DType::f64, DType::bf16}) {
    for (bool centred : {true, false}) {
      for (int affine : {0, 1, 3}) {
        const DType wt = t == DType::bf16 && affine == 3 ? DType::f32 : t;
        const bool weight = affine & 1, bias = centred && affine & 2;
        check_norm({t, wt, {6, 50}, 1, centred, weight, bias});
        check_norm({t, wt, {3, 4, 5, 7}, 2, centred, weight, bias});
        if (t == DType::bf16) continue;
        check_norm({t, wt, {90, 1100}, 1, centred, weight, bias});
        check_norm({t, wt, {2000, 3}, 1, centred, weight, bias});
        check_norm({t, wt, {40}, 1, centred, weight, bias});
      }
    }
  }
}

TEST(RowProgram, NormOfNoRowsGivesZeroGradients) {
  const NormCase c{DType::f32, DType::f32, {0, 8}, 1, true, true, true};
  NormBuffers m(c);
  m.gw.fill(1);
  codegen::run_norm(m.arrays(c));
  codegen::run_norm_backward(m.arrays(c));
  for (int64_t j = 0; j < 8; ++j) EXPECT_EQ(m.gw.get(j), 0);
}

TEST(RowProgram, ThreadsAndTablesGiveTheSameBits) {
  const NormCase c{DType::f32, DType::f32, {777, 130}, 1, true, true, true};
  Buffer8 x(DType::f32, {777, 130}), want_soft(DType::f32, {777, 130}), soft(want_soft);
  x.fill(6);
  NormBuffers want(c);
  {
    ThreadsGuard one(1);
    codegen::run_norm(want.arrays(c));
    codegen::run_norm_backward(want.arrays(c));
    codegen::run_softmax(x.array, want_soft.array, 1, false);
  }
  const auto compare = [&](const std::string& what) {
    NormBuffers got(c);
    codegen::run_norm(got.arrays(c));
    codegen::run_norm_backward(got.arrays(c));
    codegen::run_softmax(x.array, soft.array, 1, false);
    EXPECT_TRUE(same_bits(want.y, got.y)) << what;
    EXPECT_TRUE(same_bits(want.gx, got.gx)) << what;
    EXPECT_TRUE(same_bits(want.gw, got.gw)) << what;
    EXPECT_TRUE(same_bits(want.gb, got.gb)) << what;
    EXPECT_TRUE(same_bits(want_soft, soft)) << what;
  };
  for (int threads : {2, 8}) {
    ThreadsGuard many(threads);
    compare(std::to_string(threads) + " threads");
  }
  const codegen::TileTable* tables[3];
  const int n = codegen::all_tiles(tables);
  for (int t = 0; t < n; ++t) {
    TilesGuard use(tables[t]);
    compare(tables[t]->name);
  }
}

}  // namespace
}  // namespace tandem
