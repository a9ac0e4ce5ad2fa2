// SPDX-License-Identifier: Apache-2.0
// What the attention kernels share: blocks of scores by matmul tiles, and softmax over blocks of
// keys that are met one after the other.
#pragma once

#include <algorithm>
#include <cmath>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/math_prelude.h"

namespace tandem::detail {

constexpr int64_t kQueries = 64, kKeys = 256;
constexpr int64_t kRow = kKeys + 16;  ///< of a block of scores: avoids a power of two between rows

// c [m, n] = a b by tiles. b lies in panels of two vectors, `b_panel` apart, with rows b_row apart.
struct TileMatmul {
  int64_t m, n, k;
  const float* a;
  int64_t am, ak;
  const float* b;
  int64_t b_row, b_panel;
  float* c;
  int64_t c_row;
  bool accumulate = false;

  void run() const {
    const MicroTable<float>& t = micro_table<float>();
    const int64_t panel = t.panel(), tiles = (m + t.rows - 1) / t.rows;
    MicroCall<float> call;
    call.k = k;
    call.am = am;
    call.ak = ak;
    call.b_row = b_row;
    call.c_row = c_row;
    call.accumulate = accumulate;
    for (int64_t j = 0; j < n; j += panel) {
      call.columns = static_cast<int>(std::min(panel, n - j));
      call.b = b + j / panel * b_panel;
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t r0 = m * i / tiles, r1 = m * (i + 1) / tiles;
        call.a = a + r0 * am;
        call.c = c + r0 * c_row + j;
        t.run(r1 - r0, call);
      }
    }
  }
};
inline int64_t panel_width() { return micro_table<float>().panel(); }

// Rows k0.. (n of them) of a matrix as columns, times `scale`: to[panel][e][column].
inline void pack_columns(const float* from, int64_t row, int64_t n, int64_t e, float scale,
                         float* to) {
  const int64_t panel = panel_width();
  for (int64_t j = 0; j < n; j += panel)
    micro_table<float>().transpose(to + j * e, panel, from + j * row, row, std::min(panel, n - j),
                                   e);
  const int64_t all = (n + panel - 1) / panel * panel * e;
  if (scale != 1.0f) row_loops().scale(to, to, scale, all);
}

// Floats of packed keys or values.
inline int64_t packed_size(int64_t e) { return kKeys * e + 64; }

constexpr int64_t kPiece = 16;  ///< floats; the row loops are only fast on whole pieces

// Pads the entries after n up to a whole piece.
inline int64_t filled(float* s, int64_t n, float with) {
  const int64_t whole = (n + kPiece - 1) / kPiece * kPiece;
  for (int64_t i = n; i < whole; ++i) s[i] = with;
  return whole;
}

// Softmax of a row of scores merged with the row's earlier blocks: s becomes the weights.
inline void merge_row(const RowLoops& l, float* s, int64_t seen, int64_t n, float& top, float& sum,
                      float* y, int64_t f, bool first) {
  const int64_t whole = filled(s, seen, -INFINITY);
  const float here = l.max(s, whole);
  const float best = here > top || here != here ? here : top;
  if (best == -INFINITY) {
    std::fill_n(s, n, 0.0f);
    return;
  }
  const float keep = first ? 0.0f : tdm_expf(top - best);
  sum = (first ? 0.0f : sum * keep) + l.exp(s, s, best, whole);
  if (n > whole) std::fill_n(s + whole, n - whole, 0.0f);
  if (!first && keep != 1.0f) l.scale(y, y, keep, f);
  top = best;
}

}  // namespace tandem::detail
