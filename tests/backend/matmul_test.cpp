// SPDX-License-Identifier: Apache-2.0
// matmul and linear: sizes around the tiles, every layout of both operands, dtypes, batches.
#include <thread>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/gemm/tiles_bf16.h"
#include "tests/backend/against_reference_helper.h"
#include "tests/support/bits.h"

namespace tandem::cpu_test {
namespace {

struct Matmul : testing::Test {
  static void SetUpTestSuite() { init(); }
  void SetUp() override { manual_seed(3); }
  void TearDown() override { detail::use_bf16_loops(nullptr); }
};

std::string name(const Tensor& a, const Tensor& b, MatmulAttrs at) {
  return a.shape().to_string() + (at.trans_a ? "^T " : " ") + b.shape().to_string() +
         (at.trans_b ? "^T " : " ") + to_string(a.dtype());
}

void check_product(Tensor a, Tensor b, MatmulAttrs at, const char* how) {
  check(op::matmul, &at, {a, b}, name(a, b, at) + how);
}

const int64_t kSizes[][3] = {{1, 1, 1},      {1, 5, 1},    {2, 3, 17},    {7, 16, 33},
                             {14, 64, 32},   {15, 65, 31}, {29, 300, 70}, {64, 10, 128},
                             {130, 257, 40}, {1, 600, 90}, {90, 600, 1},  {3, 2, 700},
                             {256, 128, 64}};

TEST_F(Matmul, SizesAndTransposes) {
  for (auto [m, k, n] : kSizes)
    for (int t = 0; t < 4; ++t) {
      MatmulAttrs at{(t & 1) != 0, (t & 2) != 0};
      for (DType d : {DType::f32, DType::f64}) {
        Tensor a = random(at.trans_a ? Shape{k, m} : Shape{m, k}, d);
        Tensor b = random(at.trans_b ? Shape{n, k} : Shape{k, n}, d);
        check_product(a, b, at, "");
      }
    }
}

TEST_F(Matmul, LayoutsOfBothOperands) {
  for (auto [m, k, n] : {std::array<int64_t, 3>{20, 40, 36}, {64, 300, 128}}) {
    Tensor a = random({m, k}), b = random({k, n});
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j)
        check_product(i == 0   ? a
                      : i == 1 ? swapped(a)
                               : gapped(a),
                      j == 0   ? b
                      : j == 1 ? swapped(b)
                               : gapped(b),
                      {}, " strided");
    check_product(random({1, k}).expand({m, k}), b, {}, " expanded");
    check_product(flip(a, {0}), b, {}, " flipped");
  }
}

TEST_F(Matmul, SixteenBits) {
  for (DType d : {DType::bf16, DType::f16})
    for (auto [m, k, n] : {std::array<int64_t, 3>{5, 7, 9}, {64, 128, 48}, {32, 33, 40}}) {
      MatmulAttrs at;
      Tensor a = random({m, k}, d), b = random({k, n}, d);
      check(op::matmul, &at, {a, b}, name(a, b, at), false);
      check(op::matmul, &at, {swapped(a), swapped(b)}, name(a, b, at) + " swapped", false);
      check(op::linear, nullptr, {a, random({n, k}, d), random({n}, d)}, "linear", false);
    }
  // Derivatives by a weight: odd depths, parts of vectors, rows that lie apart.
  for (auto [m, k, n] : {std::array<int64_t, 3>{14, 33, 32}, {65, 131, 97}, {128, 768, 40}}) {
    MatmulAttrs at{true, false};
    Tensor a = random({k, m}, DType::bf16), b = random({k, n}, DType::bf16);
    check(op::matmul, &at, {a, b}, name(a, b, at), false);
    check(op::matmul, &at, {gapped(a), gapped(b)}, name(a, b, at) + " gapped", false);
  }
}

// A few rows with a large weight: to the bit what the f32 matmul of the same numbers rounds to, on
// any number of threads, alone and among other rows.
TEST_F(Matmul, FewRowsOfNarrowWeights) {
  const auto wide = [](const Tensor& t) { return t.to(DType::f32); };
  for (const DType d : {DType::bf16, DType::f16}) {
    const CpuFeatures& f = cpu_features();
    if (d == DType::bf16 ? f.avx512 : f.f16) continue;  // oneDNN computes it
    for (const auto& [k, n] :
         {std::pair<int64_t, int64_t>{300, 257}, {700, 250}, {64, 1040}, {3000, 72}}) {
      const Tensor w = random({n, k}, d), b = random({k, n}, d), bias = random({n}, d),
                   wide_rows = random({n, k + 5}, d).narrow(1, 0, k),
                   wide_inputs = random({k, n + 5}, d).narrow(1, 0, n);
      for (const int64_t m : {1, 2, 3, 4, 7, 8, 14, 64}) {
        if (m > 14 && d == DType::bf16) continue;  // other kernels may take them
        const Tensor x = random({m, k}, d), apart = gapped(x), cube = x.reshape({1, m, k}),
                     same = random({1, k}, d).expand({m, k});
        const Tensor linear_want = linear(wide(x), wide(w), wide(bias)).to(d),
                     plain_want = linear(wide(x), wide(w)).to(d),
                     matmul_want = matmul(wide(x), wide(b)).to(d),
                     rows_want = linear(wide(x), wide(wide_rows)).to(d),
                     inputs_want = matmul(wide(x), wide(wide_inputs)).to(d),
                     same_want = matmul(wide(same), wide(b)).to(d).expand({3, m, n});
        for (const int threads : {1, 2, 8}) {
          const Threads t(threads);
          const std::string what =
              fmt::format("{} {} {} {} {} threads", to_string(d), m, k, n, threads);
          EXPECT_TRUE(same_bits(linear(x, w, bias), linear_want)) << what;
          EXPECT_TRUE(same_bits(linear(apart, w), plain_want)) << what;
          EXPECT_TRUE(same_bits(linear(x, wide_rows), rows_want)) << what;
          EXPECT_TRUE(same_bits(linear(cube, w, bias), linear_want.reshape({1, m, n}))) << what;
          EXPECT_TRUE(same_bits(matmul(x, b), matmul_want)) << what;
          EXPECT_TRUE(same_bits(matmul(apart, b), matmul_want)) << what;
          EXPECT_TRUE(same_bits(matmul(x, wide_inputs), inputs_want)) << what;
          EXPECT_TRUE(same_bits(matmul(x, w.t()), plain_want)) << what;
          EXPECT_TRUE(same_bits(matmul(same, b.expand({3, k, n})), same_want)) << what;
        }
      }
    }
  }
}

std::vector<const detail::Bf16Loops*> all_bf16_loops() {
  std::vector<const detail::Bf16Loops*> all;
  for (const auto* l : {detail::bf16_vector_loops(), detail::bf16_amx_loops()})
    if (l) all.push_back(l);
  return all;
}

// Every layout of both matrices; depths off the blocks of 32, and those that are cut into pieces.
TEST_F(Matmul, TilesOfBf16) {
  for (const auto* loops : all_bf16_loops()) {
    detail::use_bf16_loops(loops);
    for (auto [m, k, n] : {std::array<int64_t, 3>{32, 32, 32},
                           {33, 97, 63},
                           {16, 130, 40},
                           {131, 64, 300},
                           {40, 6201, 33}}) {
      const Tensor a = random({m, k}, DType::bf16), b = random({k, n}, DType::bf16);
      const Tensor at = random({k, m}, DType::bf16).t(), bt = random({n, k}, DType::bf16).t();
      for (const Tensor& x : {a, at, gapped(a)})
        for (const Tensor& y : {b, bt, gapped(b)}) {
          MatmulAttrs plain;
          const std::string what =
              fmt::format("{} strides {} and {}{}", name(a, b, plain), x.stride(1), y.stride(1),
                          loops->by_lines ? " amx" : "");
          check(op::matmul, &plain, {x, y}, what, false, 2e-2);
          check(op::linear, nullptr, {x, y.t(), random({n}, DType::bf16)}, what, false, 2e-2);
        }
    }
    MatmulAttrs turned{true, false};
    check(op::matmul, &turned, {random({6, 40, 70}, DType::bf16), random({6, 40, 33}, DType::bf16)},
          "batch", false);
    const Tensor heads = random({2, 50, 3, 40}, DType::bf16).transpose(1, 2);
    MatmulAttrs scores{false, true};
    check(op::matmul, &scores, {heads, heads}, "heads", false);
  }
}

// What a text gets does not depend on those that are computed beside it.
TEST_F(Matmul, RowsOfBf16HaveTheirOwnBits) {
  const Tensor x = random({205, 96}, DType::bf16), w = random({70, 96}, DType::bf16);
  for (const auto* loops : all_bf16_loops()) {
    if (!loops->by_lines) continue;
    detail::use_bf16_loops(loops);
    const Tensor all = linear(x, w, {});
    for (auto [from, to] : {std::pair<int64_t, int64_t>{0, 32}, {7, 71}, {100, 205}})
      EXPECT_TRUE(equal(linear(x.slice(0, from, to), w, {}), all.slice(0, from, to))) << from;
  }
}

TEST_F(Matmul, Batches) {
  check_product(random({3, 5, 6}), random({3, 6, 7}), {}, "");
  check_product(random({3, 5, 6}), random({6, 7}), {}, "");
  check_product(random({5, 6}), random({4, 6, 7}), {}, "");
  check_product(random({2, 1, 5, 6}), random({1, 3, 6, 7}), {}, "");
  check_product(random({2, 3, 65, 70}), random({2, 3, 70, 66}), {}, "");
  check_product(random({4, 70, 80}), random({4, 70, 90}), {true, false}, "");
  check_product(random({8, 2, 16, 32}).transpose(1, 2), random({8, 16, 32, 16}), {}, " heads");
  check_product(random({1, 100, 100}).expand({5, 100, 100}), random({5, 100, 100}), {},
                " expanded");
  MatmulAttrs at;
  check(op::matmul, &at, {random({2, 0, 6}), random({2, 6, 7})}, "empty", false);
  check(op::matmul, &at, {random({3, 0}), random({0, 4})}, "no inner", false);
}

TEST_F(Matmul, Integers) {
  for (DType d : {DType::i64, DType::i32, DType::u8}) {
    MatmulAttrs at;
    Tensor a = (random({9, 11}) * 9).to(d), b = (random({11, 8}) * 9).to(d);
    check(op::matmul, &at, {a, b}, name(a, b, at), false);
  }
}

TEST_F(Matmul, Linear) {
  for (auto [rows, in, out] : kSizes)
    for (bool bias : {false, true}) {
      Tensor x = random({rows, in}), w = random({out, in}), b = bias ? random({out}) : Tensor();
      check(op::linear, nullptr, {x, w, b}, "linear " + x.shape().to_string());
      check(op::linear, nullptr, {gapped(x), swapped(w), b}, "linear strided");
    }
  check(op::linear, nullptr, {random({2, 3, 8}), random({5, 8}), random({5})}, "linear 3-d");
  check(op::linear, nullptr, {random({3, 4, 8}).transpose(0, 1), random({5, 8}), Tensor()},
        "linear transposed rows", false);
  check(op::linear, nullptr, {random({8}), random({5, 8}), random({5})}, "linear 1-d");
  check(op::linear, nullptr, {random({4, 8}), random({5, 8}), random({1}).expand({5})},
        "linear expanded bias", false);
}

// A row alone gives the same bits as in a batch: an answer does not depend on the other requests.
TEST_F(Matmul, RowsAloneAreRowsOfABatch) {
  Tensor w = random({96, 700}), x = random({50, 700});
  Tensor all = linear(x, w);
  for (int64_t i : {0, 13, 49})
    expect_same_bits(linear(x.narrow(0, i, 1), w), all.narrow(0, i, 1), "row");
}

// One row or one column transposes rows in registers: the same sums as next to other columns.
TEST_F(Matmul, SingleRowsAndColumnsHaveTheBitsOfMany) {
  const auto& f = cpu_features();
  // The widest first: plans are kept by shape, with the scratch of the table that made them.
  for (const detail::GemmTables* t : {f.avx512 ? &detail::kGemmAvx512 : nullptr,
                                      f.avx2 ? &detail::kGemmAvx2 : nullptr, &detail::kGemmBase}) {
    if (!t) continue;
    detail::use_gemm_tables(t);
    for (int64_t n : {1, 7, 16, 33, 1100})
      for (int64_t k : {1, 15, 16, 259, 600}) {
        const Tensor w = random({n, k}), x = random({3, k}), b = random({n});
        const Tensor all = linear(x, w, b), plain = matmul(w, x.t());
        const std::string what = fmt::format("{} {}x{}", t->name, n, k);
        expect_same_bits(linear(x.narrow(0, 1, 1), w, b), all.narrow(0, 1, 1), "row " + what);
        expect_same_bits(matmul(w, x.select(0, 1)), plain.select(1, 1), "column " + what);
        expect_same_bits(matmul(w, x.t().select(1, 2)), plain.select(1, 2), "strided " + what);
      }
  }
  detail::use_gemm_tables(nullptr);
}

TEST_F(Matmul, LongSumsDoNotDependOnThreads) {
  check_product(random({5000, 40}), random({5000, 30}), {true, false}, "");
  check_product(random({20, 20000}), random({20000, 20}), {}, "");
  check_product(random({2048, 64}), random({2048, 64}), {true, false}, "");
  check_product(random({3, 800, 100}), random({3, 800, 70}), {true, false}, "");
  for (DType d : {DType::bf16, DType::f16}) {
    MatmulAttrs at{true, false};
    Tensor a = random({4096, 100}, d), b = random({4096, 200}, d);
    check(op::matmul, &at, {a, b}, name(a, b, at), false);
    check(op::linear, nullptr, {random({70, 3000}, d), random({90, 3000}, d), random({90}, d)},
          "long linear", false);
  }
}

// Threads share the packed operand of large products, and take blocks as they become free: the bits
// are those of one thread, also where several callers want the pool and chunks run one by one.
TEST_F(Matmul, LargeOnesAreSharedByThreads) {
  for (DType d : {DType::f32, DType::f64})
    for (const int t : {0, 1, 2, 3}) {
      const MatmulAttrs at{(t & 1) != 0, (t & 2) != 0};
      const int64_t m = 470, k = 300 + 256 * t, n = t == 1 ? 1024 : t == 3 ? 150 : 505;
      const Tensor a = random(at.trans_a ? Shape{k, m} : Shape{m, k}, d);
      const Tensor b = random(at.trans_b ? Shape{n, k} : Shape{k, n}, d);
      const auto product = [&] { return matmul(a, b, at); };
      Tensor one;
      {
        const Threads alone(1);
        one = product();
      }
      if (t == 2)
        expect_close(one, matmul(a.to(DType::f64), b.to(DType::f64), at).to(d), tolerance(d),
                     "f64");
      for (const int threads : {2, 3, 8}) {
        const Threads some(threads);
        expect_same_bits(product(), one, fmt::format("{} threads", threads).c_str());
        std::vector<Tensor> both(2);
        std::vector<std::thread> callers;
        for (Tensor& y : both) callers.emplace_back([&] { y = product(); });
        for (std::thread& c : callers) c.join();
        for (const Tensor& y : both)
          expect_same_bits(y, one, fmt::format("two callers, {} threads", threads).c_str());
      }
    }
}

// copy of swapped dimensions shares the matmul's transposing loops.
TEST_F(Matmul, TransposingCopies) {
  for (const Shape& s :
       {Shape{4, 16}, Shape{33, 50}, Shape{200, 17}, Shape{3, 70, 65}, Shape{2, 3, 5, 16}})
    check(op::copy, nullptr, {swapped(random(s))}, "copy " + s.to_string(), true, 0);
  for (const Shape& s : {Shape{2, 16, 5, 5}, Shape{3, 5, 4, 4}, Shape{1, 100, 9, 7}})
    check(op::copy, nullptr, {channels_last(random(s))}, "copy " + s.to_string(), true, 0);
  check(op::copy, nullptr, {swapped(random({50, 40})).narrow(0, 3, 20)}, "copy of a part", true, 0);
  check(op::copy, nullptr, {swapped(random({3, 5}))}, "small copy", false, 0);
  check(op::copy, nullptr, {swapped(random({40, 50}, DType::f64))}, "f64 copy", false, 0);
}

// The tables of all available instruction sets agree; those with FMA bit for bit.
TEST_F(Matmul, InstructionSets) {
  const CpuFeatures& f = cpu_features();
  std::vector<const detail::GemmTables*> tables{&detail::kGemmBase};
  if (f.avx2) tables.push_back(&detail::kGemmAvx2);
  if (f.avx512) tables.push_back(&detail::kGemmAvx512);
  for (DType d : {DType::f32, DType::f64}) {
    Tensor a = random({37, 45}, d), b = random({29, 45}, d);
    MatmulAttrs at{false, true};
    Tensors results;
    for (const detail::GemmTables* t : tables) {
      detail::use_gemm_tables(t);
      results.push_back(matmul(a, b, at));
      expect_close(results.back(), results[0], tolerance(d), t->name);
    }
    detail::use_gemm_tables(nullptr);
    if (results.size() == 3) expect_same_bits(results[2], results[1], "AVX2 and AVX-512");
  }
}

}  // namespace
}  // namespace tandem::cpu_test
