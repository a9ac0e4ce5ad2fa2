// SPDX-License-Identifier: Apache-2.0
// Matmuls and convolutions of 8-bit integers: sums equal the reference in every bit, for all
// dtypes, zero points, layouts, thread counts and instruction sets.
#include "tandem/ops/matmul/integer.h"
#include "tandem/grad/transforms.h"
#include "tests/backend/against_reference_helper.h"
#include "tests/backend/integer_tiles_helper.h"

namespace tandem::cpu_test {
namespace {

struct Integer : testing::Test {
  static void SetUpTestSuite() { init(); }
  void SetUp() override { manual_seed(5); }
  void TearDown() override { detail::use_integer_loops(nullptr); }
};

/// Bytes over their whole range.
Tensor bytes(const Shape& s, DType t) {
  return t == DType::u8 ? randint(0, 256, s).to(t) : randint(-128, 128, s).to(t);
}
Tensor byte(double v, DType t) { return full({}, v, t); }

TEST_F(Integer, Matmul) {
  const int64_t sizes[][3] = {{1, 1, 1},  {1, 9, 40},    {2, 3, 17},   {6, 16, 16},
                              {7, 33, 8}, {26, 532, 75}, {24, 36, 64}, {25, 64, 70},
                              {5, 0, 3},  {13, 127, 33}, {1, 512, 96}, {40, 40, 25}};
  int at = 0;
  for (const auto* loops : all_integer_loops()) {
    detail::use_integer_loops(loops);
    for (auto [m, k, n] : sizes) {
      const DType tx = at % 2 ? DType::i8 : DType::u8, tw = at / 2 % 2 ? DType::u8 : DType::i8;
      const Tensor x = bytes({m, k}, tx), w = bytes({k, n}, tw);
      const std::string what = fmt::format("{}: {} {} {} {}", at, m, k, n, loops->rows);
      const bool kernel = k > 0;
      check(op::matmul_integer, nullptr, {x, w}, what, kernel, 0);
      check(op::matmul_integer, nullptr, {x, w, byte(3, tx), byte(100, tw)}, what, kernel, 0);
      check(op::matmul_integer, nullptr, {x, w, {}, bytes({n}, tw)}, what, kernel, 0);
      check(op::matmul_integer, nullptr, {swapped(x), gapped(w), byte(7, tx)}, what, kernel, 0);
      ++at;
    }
  }
  check(op::matmul_integer, nullptr, {bytes({2, 3, 5}, DType::u8), bytes({5, 4}, DType::i8)}, "3-d",
        true, 0);
}

// VPMADDUBSW would saturate.
TEST_F(Integer, ExtremesDoNotOverflow) {
  for (const auto* loops : all_integer_loops()) {
    detail::use_integer_loops(loops);
    const Tensor x = full({7, 300}, 255, DType::u8);
    EXPECT_EQ(matmul_integer(x, full({300, 20}, 127, DType::i8)).to_vector<int32_t>()[9],
              300 * 255 * 127);
    EXPECT_EQ(matmul_integer(x, full({300, 20}, -128, DType::i8)).to_vector<int32_t>()[139],
              -300 * 255 * 128);
    EXPECT_EQ(matmul_integer(x, full({300, 20}, 0, DType::u8), {}, byte(255, DType::u8))
                  .to_vector<int32_t>()[0],
              -300 * 255 * 255);
    EXPECT_EQ(matmul_integer(full({1, 300}, -128, DType::i8), full({300, 1}, -128, DType::i8),
                             byte(127, DType::i8), byte(127, DType::i8))
                  .to_vector<int32_t>()[0],
              300 * 255 * 255);
  }
}

TEST_F(Integer, Convolution) {
  struct Case {
    Shape x, w;
    IntList stride, before, after;
  };
  const Case cases[] = {{{1, 3, 9, 11}, {5, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
                        {{2, 1, 8, 8}, {24, 1, 3, 3}, {2, 2}, {1, 0}, {0, 1}},
                        {{1, 16, 12, 7}, {40, 16, 1, 1}, {1, 1}, {0, 0}, {0, 0}},
                        {{1, 7, 12, 6}, {33, 7, 1, 1}, {2, 1}, {0, 2}, {0, 0}},
                        {{2, 5, 6, 5}, {70, 5, 5, 4}, {1, 2}, {2, 2}, {2, 1}},
                        {{1, 4, 30, 1}, {3, 4, 3, 1}, {1, 1}, {1, 0}, {1, 0}},
                        {{1, 16, 3, 1}, {40, 16, 1, 1}, {1, 4}, {0, 3}, {0, 0}},
                        {{2, 3, 2, 1}, {5, 3, 1, 2}, {5, 7}, {4, 6}, {1, 1}},
                        // Lines of up to 16 outputs, two in a tile, and of tiles that overlap.
                        {{1, 24, 15, 14}, {40, 24, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
                        {{1, 65, 14, 14}, {33, 65, 3, 3}, {2, 2}, {1, 1}, {1, 1}},
                        {{1, 8, 7, 7}, {32, 8, 7, 1}, {1, 1}, {3, 0}, {3, 0}},
                        {{1, 8, 9, 41}, {20, 8, 3, 3}, {1, 1}, {1, 1}, {1, 1}},
                        {{2, 16, 5, 35}, {32, 16, 1, 3}, {1, 1}, {0, 1}, {0, 1}},
                        {{1, 64, 7, 7}, {70, 64, 1, 1}, {1, 1}, {0, 0}, {0, 0}},
                        {{2, 12, 13, 11}, {65, 12, 3, 3}, {2, 2}, {1, 1}, {1, 1}}};
  int at = 0;
  for (const auto* loops : all_integer_loops()) {
    detail::use_integer_loops(loops);
    for (const Case& c : cases) {
      const DType tx = at % 2 ? DType::i8 : DType::u8, tw = at / 2 % 2 ? DType::u8 : DType::i8;
      const ConvAttrs a{c.stride, c.before, {1, 1}, 1, c.after, {}};
      const Tensor x = bytes(c.x, tx), w = bytes(c.w, tw);
      const std::string what = fmt::format("{}: {} {}", at, c.x.to_string(), loops->rows);
      check(op::conv_integer, &a, {x, w}, what, true, 0);
      check(op::conv_integer, &a, {channels_last(x), w, byte(9, tx), byte(50, tw)}, what, true, 0);
      check(op::conv_integer, &a, {gapped(x), w, byte(9, tx), bytes({c.w[0]}, tw)}, what, true, 0);
      ++at;
    }
  }
  // Groups, holes and one dimension are left to the reference.
  const ConvAttrs grouped{{1, 1}, {1, 1}, {2, 1}, 2, {1, 1}, {}}, line{{1}, {1}, {1}, 1, {1}, {}};
  check(op::conv_integer, &grouped,
        {bytes({1, 4, 6, 6}, DType::u8), bytes({6, 2, 3, 3}, DType::i8)}, "groups", false, 0);
  check(op::conv_integer, &line, {bytes({1, 4, 6}, DType::u8), bytes({6, 4, 3}, DType::i8)}, "line",
        false, 0);
}

TEST_F(Integer, BatchedByVmap) {
  const Tensor x = bytes({3, 4, 6}, DType::u8), w = bytes({6, 5}, DType::i8),
               many = bytes({3, 6, 5}, DType::i8), zero = byte(4, DType::u8);
  auto rows = vmap([&](Tensor v) { return matmul_integer(v, w, zero); });
  expect_same_bits(rows(x), matmul_integer(x, w, zero), "rows");
  auto both = vmap([&](Tensor v, Tensor u) { return matmul_integer(v, u, zero); });
  for (int64_t i = 0; i < 3; ++i)
    expect_same_bits(both(x, many).select(0, i),
                     matmul_integer(x.select(0, i), many.select(0, i), zero), "both");
}

}  // namespace
}  // namespace tandem::cpu_test
