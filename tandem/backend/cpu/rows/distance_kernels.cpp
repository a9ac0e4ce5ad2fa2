// SPDX-License-Identifier: Apache-2.0
// cdist: a panel of 64 rows of x2 is turned, so that its rows lie in the lanes of vectors, and
// meets every row of x1.
#include <algorithm>
#include <cstring>
#include <memory>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/matmul/matrix.h"

namespace tandem::detail {
namespace {

constexpr int64_t kPanel = 64, kRows = 128;  // of x2 and of x1 in a unit of work

bool distances_supports(const KernelCall& c) {
  return c.out[0].dtype == DType::f32 && c.in[0].contiguous && c.in[1].contiguous;
}

// x2 [r, m] from row `from` on -> panel [m, 64]. Columns without a row keep what they hold.
void turn_panel(const float* x2, int64_t from, int64_t r, int64_t m, float* panel) {
  micro_table<float>().transpose(panel, kPanel, x2 + from * m, m, std::min(kPanel, r - from), m);
}

void distances_run(const KernelCall& c) {
  const Array &a = c.in[0], &b = c.in[1], &y = c.out[0];
  if (y.numel == 0) return;
  const int64_t m = a.shape[a.rank - 1], p = a.shape[a.rank - 2], r = b.shape[b.rank - 2];
  const int64_t panels = (r + kPanel - 1) / kPanel, pieces = (p + kRows - 1) / kRows;
  const int64_t grain =
      std::max<int64_t>(1, 16384 / (std::min(p, kRows) * std::max<int64_t>(m, 1)));
  parallel_for(0, y.numel / (p * r) * panels * pieces, grain, [&](int64_t first, int64_t last) {
    const auto panel = std::make_unique<float[]>(static_cast<size_t>(m * kPanel));
    float row[kPanel];
    for (int64_t u = first; u < last; ++u) {
      const int64_t piece = u % pieces, from = u / pieces % panels * kPanel;
      const int64_t batch = u / (pieces * panels);
      if (u == first || piece == 0)
        turn_panel(b.as<float>() + batch * r * m, from, r, m, panel.get());
      const size_t bytes = static_cast<size_t>(std::min(kPanel, r - from)) * sizeof(float);
      for (int64_t i = piece * kRows; i < std::min(p, (piece + 1) * kRows); ++i) {
        row_loops().distances(row, a.as<float>() + (batch * p + i) * m, panel.get(), m);
        std::memcpy(y.as<float>() + (batch * p + i) * r + from, row, bytes);
      }
    }
  });
}

}  // namespace

void register_distance_kernels() {
  register_kernel(DeviceKind::cpu, op::cdist,
                  {distances_supports, nullptr, nullptr, distances_run});
}

}  // namespace tandem::detail
