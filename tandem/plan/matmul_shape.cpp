// SPDX-License-Identifier: Apache-2.0
// Tiles and waves as NVIDIA's "Matrix Multiplication Background" (DU-09799-001, 2023) describes
// them: the result is cut into tiles, each multiprocessor computes one at a time, and the last tile
// of a row and the last wave of tiles take as long as full ones. A tile is written after its sum is
// complete, which is a larger part of the time the shorter the sum is.
#include "tandem/plan/matmul_shape_internal.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tandem::plan {
namespace {

struct Tile {
  double m, n;
};
// Those of cuBLAS by that guide (section 2.3), and smaller ones for results that are smaller still.
constexpr Tile kTiles[] = {{256, 128}, {128, 256}, {128, 128}, {128, 64}, {64, 128}, {64, 64},
                           {64, 32},   {32, 64},   {32, 32},   {16, 64},  {64, 16}};
// A sum may be cut for several multiprocessors, into parts of at least so many terms.
constexpr double kMostParts = 32, kLeastTerms = 128;
// FLOPs in 16 bits of a multiprocessor for each byte that comes from the second-level cache: on an
// A100 2,048 and 5,120 / 108 a cycle (NVIDIA A100 white paper, 2020).
constexpr double kFlopsPerByte = 43;

}  // namespace

std::optional<MatmulShape> matmul_shape(const Work& w) {
  const double terms = w.flops / 2, a = w.sizes[0], b = w.sizes[1], c = w.sizes[2];
  if (!w.contraction || std::min({terms, a, b, c}) < 1) return {};
  MatmulShape s;
  if (!w.convolution) s.batch = std::max(1.0, std::round(a * b / terms * (c / terms)));
  s.k = terms / c;
  s.n = b / s.batch / s.k;
  s.m = c / s.batch / s.n;
  if (std::min({s.m, s.n, s.k}) < 0.5) return {};
  return s;
}

MatmulShape matmul_slice(MatmulShape s, const Work& w, int ways,
                         const std::function<bool(double)>& parameter) {
  if (s.batch > 1) {
    s.batch = std::max(1.0, s.batch / ways);
    return s;
  }
  const bool of_weights = parameter(w.sizes[2]);  // a derivative: its sum is over the samples
  double& other = of_weights ? s.m : s.k;
  double& larger = other >= s.n ? other : s.n;
  larger = std::max(1.0, larger / ways);
  return s;
}

double matmul_seconds(const MatmulShape& s, const MatmulRates& r) {
  const double p = r.processors, cache = r.narrow / kFlopsPerByte;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& t : kTiles) {
    const double tiles =
        s.batch * std::ceil(std::round(s.m) / t.m) * std::ceil(std::round(s.n) / t.n);
    for (double parts = 1; parts <= kMostParts; parts *= 2) {
      const double k = s.k / parts;
      if (parts > 1 && k < kLeastTerms) break;
      const double sum =
          std::max(2 * t.m * t.n * k / r.flops, (t.m + t.n) * k * r.width / cache) * p;
      // Parts of a sum are written in f32 and read again.
      const double written = t.m * t.n * (parts > 1 ? 8 : r.width) / r.bytes * p;
      best = std::min(best, std::ceil(std::max(1.0, tiles) * parts / p) * (sum + written));
    }
  }
  return best;
}

}  // namespace tandem::plan
