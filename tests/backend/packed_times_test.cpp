// SPDX-License-Identifier: Apache-2.0
// How fast a few rows are multiplied by weights that come from memory, as in decoding, and by one
// that lies in the cache:
//   build/release/tests/tandem_test_backend --gtest_also_run_disabled_tests
//   --gtest_filter='*TimesOfFewRows'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/gemm/tiles_bf16.h"
#include "tandem/base/clock.h"
#include "tandem/tandem.h"

namespace tandem::detail {
namespace {

constexpr int64_t kDepth = 2048, kColumns = 5632, kWeights = 24;
constexpr int64_t kPanels = kColumns / kPackedPanel, kNear = 4;  // panels that stay in the cache

// The least time of five, in seconds.
template <class F>
double least(const F& f) {
  double out = 1e9;
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point begin = Clock::now();
    f();
    out = std::min(out, seconds_since(begin));
  }
  return out;
}

// multiply(weight, first panel, last panel): each of kWeights weights once, and as much near.
template <class F>
void show(const char* what, int64_t rows, double bytes, const F& multiply) {
  const double far = least([&] {
    for (int64_t w = 0; w < kWeights; ++w) multiply(w, 0, kPanels);
  });
  const double near = least([&] {
    for (int64_t i = 0; i < kWeights * kPanels / kNear; ++i) multiply(0, 0, kNear);
  });
  const double flop = 2.0 * static_cast<double>(rows * kDepth * kColumns * kWeights);
  fmt::print(
      "{:5} {:2} rows: {:5.1f} GFLOP/s at {:4.1f} GB/s from memory, {:5.1f} GFLOP/s in the cache\n",
      what, rows, flop / far / 1e9, bytes / far / 1e9, flop / near / 1e9);
}

TEST(PackedMatmul, DISABLED_TimesOfFewRows) {
  init();
  const Tensor w = full({kWeights, kPanels, kDepth, kPackedPanel}, 0.01);
  const Tensor a = ones({64, kDepth});
  std::vector<float> y(64 * kColumns), tiles(static_cast<size_t>(packed_tile_size(64, kDepth)));
  for (const int64_t m : {1, 4, 8, 16, 28, 64}) {
    PackedGemm g{.m = m, .n = kColumns, .k = kDepth, .y = y.data(), .y_row = kColumns};
    const PackedRows rows{tiles.data(), packed_tile_size(1, kDepth), 0, m, packed_tiles(m)};
    pack_rows(rows, a.data<float>(), kDepth, kDepth, 0, rows.tiles, tiles.data());
    show("f32", m, static_cast<double>(w.numel() * 4), [&](int64_t i, int64_t p0, int64_t p1) {
      g.w = w.data<float>() + i * kPanels * kDepth * kPackedPanel;
      packed_panels(g, rows, p0, p1);
    });
  }
  const Bf16Loops* l = bf16_loops();
  if (!l) return;
  const Tensor wb = w.to(DType::bf16), ab = a.to(DType::bf16);
  const auto *weight = reinterpret_cast<const uint16_t*>(wb.data_ptr()),
             *x = reinterpret_cast<const uint16_t*>(ab.data_ptr());
  alignas(64) float sums[kMostBf16Rows * kPackedPanel];
  for (const int64_t m : {1, 4, 8, 16, 28, 64}) {
    const int64_t count = (m + l->rows - 1) / l->rows;
    show("bf16", m, static_cast<double>(wb.numel() * 2), [&](int64_t i, int64_t p0, int64_t p1) {
      for (int64_t p = p0; p < p1; ++p)
        for (int64_t t = 0; t < count; ++t) {
          const int64_t r0 = m * t / count, r1 = m * (t + 1) / count;
          l->tile({.k = kDepth,
                   .a = x + r0 * kDepth,
                   .am = kDepth,
                   .w = weight + (i * kPanels + p) * kDepth * kPackedPanel,
                   .c = sums,
                   .far = t == 0},
                  static_cast<int>(r1 - r0));
        }
    });
  }
  l->release();
}

}  // namespace
}  // namespace tandem::detail
