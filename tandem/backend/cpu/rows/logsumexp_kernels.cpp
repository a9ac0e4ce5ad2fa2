// SPDX-License-Identifier: Apache-2.0
// logsumexp of f32: two passes over each line, its largest element and then the sum of
// exponentials, by the loops of the losses. Lines that lie side by side are computed as columns,
// lines whose elements lie apart are copied first; all have the same bits. Few long lines are left
// to the reduction over tiles, which cuts them into blocks.
#include <vector>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/short_rows_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/codegen/reduce_geometry.h"
#include "tandem/ops/reduce/reduce.h"

namespace tandem::detail {
namespace {

using codegen::ReduceGeometry;
using codegen::TileLoop;

constexpr int64_t kFewestColumns = 8, kFewLines = 8, kLongLine = 32768;

bool supports(const KernelCall& c) {
  const Array& x = c.in[0];
  if (x.dtype != DType::f32 || c.out[0].dtype != DType::f32 || x.is_scalar) return false;
  int64_t kept = 1;  // the result has a shape before it has memory
  for (int d = 0; d < c.out[0].rank; ++d) kept *= c.out[0].shape[d];
  const int64_t reduced = kept == 0 ? 0 : x.numel / kept;
  return reduced > 0 && (kept >= kFewLines || reduced < kLongLine);
}

// The lines of a call, in groups of at most kMostColumns.
struct Lines {
  const ReduceGeometry& g;
  const float* x;

  // Do the lines of a group lie side by side?
  bool columns() const {
    return g.reduced.rank == 1 && g.kept.inner_stride(0) == 1 && g.kept.inner() >= kFewestColumns;
  }
  bool dense() const { return g.reduced.rank == 1 && g.reduced.inner_stride(0) == 1; }
  // Do short rows follow one another?
  bool short_rows() const {
    return dense() && g.n_reduced < kShortRow && g.kept.rank == 1 &&
           g.kept.inner_stride(0) == g.n_reduced && g.n_kept >= kFewestColumns;
  }
  const float* at(int64_t line) const { return x + g.kept.offset_of(0, line); }
  // Lines from `line` on that make a group.
  int64_t group(int64_t line, int64_t last) const {
    const int64_t together = columns() ? g.kept.inner() - line % g.kept.inner() : kMostColumns;
    return std::min({kMostColumns, together, last - line});
  }
  // Tops and sums of `n` lines; `room` holds one line, or kShortRows floats.
  void compute(const RowLoops& l, int64_t line, int64_t n, float* room, float* top,
               double* sum) const {
    if (columns())
      return l.column_sum_exp({g.n_reduced, g.reduced.inner_stride(0), n}, at(line), top, sum);
    if (short_rows())
      return l.column_sum_exp(turn_rows(room, at(line), g.n_reduced, n), room, top, sum);
    for (int64_t k = 0; k < n; ++k) {
      const float* row = at(line + k);
      if (!dense()) {
        codegen::gather_flat(g.reduced, 0, room, row, 0, g.n_reduced, sizeof(float));
        row = room;
      }
      sum_exp(l, row, g.n_reduced, top[k], sum[k]);
    }
  }
};

void run(const KernelCall& c) {
  const RowLoops& l = row_loops();
  const ReduceGeometry g = codegen::make_reduce_geometry(c);
  const Lines lines{g, c.in[0].as<float>()};
  const int64_t grain = std::max<int64_t>(1, 8192 / g.n_reduced);
  parallel_for(0, g.n_kept, grain, [&](int64_t first, int64_t last) {
    std::vector<float> room(static_cast<size_t>(std::max(g.n_reduced, kShortRows)));
    float top[kMostColumns], y[kMostColumns];
    double sum[kMostColumns];
    for (int64_t line = first; line < last;) {
      const int64_t n = lines.group(line, last);
      lines.compute(l, line, n, room.data(), top, sum);
      l.log_add(y, top, sum, n);
      codegen::scatter_flat(g.kept, 1, c.out[0].data, y, line, n, sizeof(float));
      line += n;
    }
  });
}

}  // namespace

void register_logsumexp_kernels() {
  register_kernel(DeviceKind::cpu, op::logsumexp, {supports, nullptr, nullptr, run});
}

}  // namespace tandem::detail
