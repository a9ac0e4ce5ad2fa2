// SPDX-License-Identifier: Apache-2.0
// matmul_nbits against the product with its weight as numbers in f64: bits, groups that fill
// vectors or share them, the last group beyond k, zero points, few and many rows, dtypes, strides;
// at accuracy level 4 with x as codes, every kernel against the body to the bit; gradients by
// finite differences; compiled, batched and on any number of threads the same bits.
#include "tandem/ops/matmul/nbits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tandem/backend/cpu/gemm/nbits_integer_internal.h"
#include "tandem/backend/cpu/gemm/nbits_internal.h"
#include "tandem/base/processor.h"
#include "tandem/tandem.h"
#include "tests/support/errors.h"
#include "tests/support/init.h"

namespace tandem {
namespace {

PackedCodes random_codes(int64_t n, int64_t groups, int64_t group, int64_t bits, bool zero) {
  const auto codes = [&](const Shape& s) {
    return pack_codes(randint(0, int64_t{1} << bits, s).to(DType::u8), bits);
  };
  PackedCodes w{codes({n, groups, group}), rand({n, groups}) * 0.1 + 0.01, {}, bits};
  if (!zero) return w;
  const int64_t whole = 8 / bits;
  w.zero = codes({n, (groups + whole - 1) / whole * whole});
  return w;
}

// The largest difference from the product in f64, relative to the largest value.
double relative_error(const Tensor& y, const Tensor& x, const PackedCodes& w) {
  const Tensor all = dequantize_codes(w).to(float64).narrow(1, 0, x.size(-1));
  const Tensor want = matmul(x.to(float64), all.t());
  EXPECT_EQ(y.shape(), want.shape());
  EXPECT_EQ(y.dtype(), x.dtype());
  return (max(abs(y.to(float64) - want)) / (max(abs(want)) + 1e-30)).item<double>();
}

std::vector<const detail::NBitsLoops*> all_loops() {
  std::vector<const detail::NBitsLoops*> all{&detail::kNBitsBase};
  if (cpu_features().avx2) all.push_back(&detail::kNBitsAvx2);
  if (cpu_features().avx512) all.push_back(&detail::kNBitsAvx512);
  return all;
}

std::vector<const detail::NBitsIntegerLoops*> all_integer_loops() {
  std::vector<const detail::NBitsIntegerLoops*> all{&detail::kNBitsIntegerBase};
  if (cpu_features().avx2) all.push_back(&detail::kNBitsIntegerAvx2);
  if (cpu_features().vnni) all.push_back(&detail::kNBitsIntegerVnni);
  return all;
}

// x [m, k] as accuracy level 4 reads it: in each group multiples of its largest magnitude / 127.
Tensor rounded(const Tensor& x, int64_t group) {
  std::vector<float> v = x.to_vector<float>();
  const int64_t k = x.size(1);
  for (int64_t r = 0; r < x.size(0); ++r)
    for (int64_t from = 0; from < k; from += group) {
      float *const first = v.data() + r * k + from, *const last = first + std::min(group, k - from);
      float most = 0;
      for (const float* p = first; p < last; ++p) most = std::max(most, std::abs(*p));
      if (most == 0) continue;
      for (float* p = first; p < last; ++p) *p = std::nearbyint(*p * (127 / most)) * (most / 127);
    }
  return tensor(v, x.shape());
}

// No kernel takes scales of 16 bits, so this is the row's body.
Tensor by_body(const Tensor& x, PackedCodes w) {
  w.scale = w.scale.to(float16);
  return matmul_nbits(x, w);
}

struct NBits : ::testing::Test {
  void SetUp() override { manual_seed(3); }
  void TearDown() override {
    detail::use_nbits_loops(nullptr);
    detail::use_nbits_integer_loops(nullptr);
  }
};

TEST_F(NBits, CodesComeBackFromTheirBytes) {
  for (const int64_t bits : {2, 4, 8}) {
    const Tensor codes = randint(0, int64_t{1} << bits, {3, 16}).to(DType::u8);
    const Tensor bytes = pack_codes(codes, bits);
    EXPECT_EQ(bytes.size(1), 2 * bits);
    EXPECT_EQ(unpack_codes(bytes, bits).to_vector<int>(), codes.to_vector<int>());
  }
  const Tensor two = tensor(std::vector<int64_t>{0x3, 0xa}).to(DType::u8);
  EXPECT_EQ(pack_codes(two, 4).to_vector<int>(), std::vector<int>{0xa3});
}

TEST_F(NBits, IsTheProductWithTheNumbers) {
  struct {
    int64_t m, k, n, group;
  } const cases[] = {{1, 128, 8, 128},  {1, 96, 7, 32}, {2, 250, 33, 64}, {5, 512, 70, 16},
                     {30, 300, 9, 300}, {1, 7, 1, 16},  {4, 513, 5, 256}, {40, 256, 21, 32}};
  int64_t at = 0;
  for (const auto* loops : all_loops()) {
    detail::use_nbits_loops(loops);
    ++at;
    for (const auto& [m, k, n, group] : cases)
      for (const int64_t bits : {2, 4, 8})
        for (const bool zero : {false, true}) {
          if (group * bits % 8 != 0) continue;
          // Eager code keeps plans by shape: another n for each instruction set.
          const PackedCodes w = random_codes(n + at, (k + group - 1) / group, group, bits, zero);
          const Tensor x = randn({m, k});
          EXPECT_LT(relative_error(matmul_nbits(x, w), x, w), 2e-6)
              << loops->lanes << " lanes, " << m << " " << k << " " << n << " " << group << " "
              << bits << " " << zero;
        }
  }
}

TEST_F(NBits, EveryIntegerKernelHasTheBitsOfTheBody) {
  struct {
    int64_t m, k, n, group;
  } const cases[] = {{1, 128, 8, 128},   {1, 96, 7, 32},   {2, 250, 33, 64},  {5, 512, 70, 16},
                     {3, 7, 1, 16},      {4, 513, 5, 256}, {2, 2176, 9, 128}, {33, 320, 6, 64},
                     {1, 3000, 3, 1024}, {2, 1100, 3, 32}};
  int64_t at = 0;
  for (const auto* loops : all_integer_loops()) {
    detail::use_nbits_integer_loops(loops);
    ++at;
    for (const auto& [m, k, n, group] : cases)
      for (const int64_t bits : {2, 4, 8})
        for (const bool zero : {false, true}) {
          PackedCodes w = random_codes(n + at, (k + group - 1) / group, group, bits, zero);
          w.scale = w.scale.to(float16).to(float32);
          w.accuracy_level = 4;
          const Tensor x = randn({m, k}), y = matmul_nbits(x, w);
          EXPECT_EQ(y.to_vector<float>(), by_body(x, w).to_vector<float>())
              << loops->name << ", " << m << " " << k << " " << n << " " << group << " " << bits
              << " " << zero;
          EXPECT_LT(relative_error(y, rounded(x, group), w), 2e-6);
        }
  }
}

// Rounding all of a group to 8 bits: zeros, tiny and huge values stay what they are, and what is
// not finite spoils its own row alone.
TEST_F(NBits, GroupsOfInputsAreRoundedByTheirLargest) {
  PackedCodes w = random_codes(6, 3, 32, 4, true);
  w.scale = w.scale.to(float16).to(float32);
  w.accuracy_level = 4;
  const Tensor one = randn({1, 96});
  const Tensor x = cat({one, one * 1e-33, one * 1e30, zeros({1, 96}),
                        one + cat({zeros({1, 95}), full({1, 1}, INFINITY)}, 1), one * NAN},
                       0);
  for (const auto* loops : all_integer_loops()) {
    detail::use_nbits_integer_loops(loops);
    const Tensor y = matmul_nbits(x, w), body = by_body(x, w);
    EXPECT_EQ(y.narrow(0, 0, 4).to_vector<float>(), body.narrow(0, 0, 4).to_vector<float>());
    const Tensor want = matmul_nbits(one, w);
    EXPECT_LT(max(abs(y.narrow(0, 2, 1) * 1e-30 - want)).item<double>(), 1e-5);
    EXPECT_EQ(max(abs(y.narrow(0, 3, 1))).item<float>(), 0);
    for (const Tensor& t : {y, body}) EXPECT_TRUE(all(isnan(t.narrow(0, 4, 2))).item<bool>());
    // Two codes at most apart in the last digits of a hundred and twenty-seven.
    EXPECT_LT(relative_error(want, one, w), 0.02);
  }
}

TEST_F(NBits, TakesOtherDtypesAndStrides) {
  const PackedCodes w = random_codes(20, 3, 128, 4, true);
  const Tensor b = randn({3, 384}).to(bfloat16);
  EXPECT_LT(relative_error(matmul_nbits(b, w), b, w), 4e-3);
  const Tensor h = randn({3, 384}).to(float16);
  EXPECT_LT(relative_error(matmul_nbits(h, w), h, w), 5e-4);
  const Tensor turned = randn({384, 2, 3}).permute({2, 1, 0});
  EXPECT_LT(relative_error(matmul_nbits(turned, w), turned, w), 2e-6);
  EXPECT_EQ(matmul_nbits(turned, w).to_vector<float>(),
            matmul_nbits(turned.contiguous(), w).to_vector<float>());
  PackedCodes level = w;
  level.accuracy_level = 4;
  EXPECT_EQ(matmul_nbits(turned, level).to_vector<float>(),
            matmul_nbits(turned.contiguous(), level).to_vector<float>());
  EXPECT_EQ(matmul_nbits(b, level).to_vector<float>(),
            matmul_nbits(b.to(float32), level).to(bfloat16).to_vector<float>());
  PackedCodes half = w;
  half.scale = w.scale.to(float16);
  const Tensor x = randn({2, 384});
  EXPECT_LT(relative_error(matmul_nbits(x, half), x, half), 2e-6);
}

// A text's numbers must not depend on those that are decoded beside it.
TEST_F(NBits, RowsDoNotDependOnTheOthers) {
  for (const int64_t bits : {4, 8})
    for (const int64_t level : {0, 4}) {
      PackedCodes w = random_codes(50, 5, 64, bits, true);
      w.accuracy_level = level;
      const Tensor x = randn({37, 320}), all = matmul_nbits(x, w);
      for (const int64_t i : {0, 1, 17, 36})
        EXPECT_EQ(matmul_nbits(x.narrow(0, i, 1), w).to_vector<float>(),
                  all.narrow(0, i, 1).to_vector<float>());
    }
}

void same_bits_compiled_and_threaded(int64_t level) {
  PackedCodes w = random_codes(300, 4, 128, 4, true);
  w.accuracy_level = level;
  const Tensor x = randn({9, 512}), want = matmul_nbits(x, w);
  const auto held = [&] {
    return PackedCodes{constant(w.codes), constant(w.scale), constant(w.zero), w.bits, level};
  };
  auto f = compile([&](Tensor t) { return relu(matmul_nbits(t * 2.0, held())) + 1.0; });
  EXPECT_EQ(f(x).to_vector<float>(), (relu(matmul_nbits(x * 2.0, w)) + 1.0).to_vector<float>());
  const int before = num_threads();
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    EXPECT_EQ(matmul_nbits(x, w).to_vector<float>(), want.to_vector<float>()) << threads;
  }
  set_num_threads(before);
  auto rows = vmap([&](Tensor t) { return matmul_nbits(t, held()); });
  EXPECT_LT(relative_error(rows(x), level == 4 ? rounded(x, 128) : x, w), 2e-6);
}
TEST_F(NBits, CompiledAndThreadedGiveTheSameBits) {
  for (const int64_t level : {0, 4}) same_bits_compiled_and_threaded(level);
}

TEST_F(NBits, GradientsReachInputAndScale) {
  const PackedCodes w = random_codes(3, 2, 16, 4, true);
  const Tensor x = randn({2, 27}), g = randn({2, 3});
  auto by_both = grad(
      [&](Tensor in, Tensor scale) {
        return sum(matmul_nbits(in, {w.codes, scale, w.zero, 4}) * g);
      },
      std::vector<int>{0, 1});
  const std::vector<Tensor> gradients = by_both(x, w.scale);
  // The function is linear in each: the product with any direction is the function of it.
  const Tensor dx = randn({2, 27}), ds = randn({3, 2});
  const auto by = [](const Tensor& a, const Tensor& b) { return sum(a * b).item<double>(); };
  EXPECT_NEAR(by(gradients[0], dx), by(matmul_nbits(dx, w), g), 1e-4);
  EXPECT_NEAR(by(gradients[1], ds), by(matmul_nbits(x, {w.codes, ds, w.zero, 4}), g), 1e-4);
}

TEST_F(NBits, RefusesWhatDoesNotFit) {
  const PackedCodes w = random_codes(4, 2, 16, 4, true);
  const auto refused = [&](const char* text, const PackedCodes& codes, int64_t k = 32) {
    const std::string got = thrown([&] { matmul_nbits(ones({1, k}), codes); });
    EXPECT_TRUE(has(got, text)) << got;
  };
  refused("3 bits", {w.codes, w.scale, w.zero, 3});
  refused("x has 33 inputs", w, 33);
  refused("x has 16 inputs", w, 16);
  refused("a scale for each group", {w.codes, ones({4, 3}), w.zero, 4});
  refused("accuracy level is 5", {w.codes, w.scale, w.zero, 4, 5});
  refused("codes are int8", {w.codes.to(DType::i8), w.scale, w.zero, 4});
  refused("zero points for each output", {w.codes, w.scale, w.codes.select(1, 0), 4});
}

}  // namespace
}  // namespace tandem
