// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of ops/matmul/packed.h: tiles over packed weights, and the division of
// work.
#pragma once

#include <atomic>
#include <memory>

#include "tandem/backend/cpu/conv/channel_loops.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/epilogue.h"
#include "tandem/ops/matmul/packed.h"

namespace tandem::detail {

inline constexpr int64_t kPackedDepth = 256;  ///< of one chain of multiply-adds

/// One call: y[r, j] = bias[j] + sum over k of a[r, k] w[k, j], w [panels, k, 32].
struct PackedGemm {
  int64_t m = 0, n = 0, k = 0;
  const float* w = nullptr;
  const float* bias = nullptr;
  float* y = nullptr;
  int64_t y_row = 0;
  FusedEpilogue fused;
  int64_t panels() const { return (n + kPackedPanel - 1) / kPackedPanel; }
};

/// Rows of a in the tiles' order: [tile][k][rows of the tile], `tile_step` floats apart.
struct PackedRows {
  const float* data = nullptr;
  int64_t tile_step = 0, first = 0, last = 0, tiles = 0;  ///< rows first..last-1
  int64_t row(int64_t tile) const { return first + (last - first) * tile / tiles; }
};
/// Number of tiles for `rows` rows, and the floats that they take.
int64_t packed_tiles(int64_t rows);
int64_t packed_tile_size(int64_t rows, int64_t k);
/// Tiles t0..t1-1 of rows a[r * am + k] for r in [rows.first, rows.last) to `to`.
void pack_rows(const PackedRows& rows, const float* a, int64_t am, int64_t k, int64_t t0,
               int64_t t1, float* to);
/// Panels p0..p1-1 of the matmul, for the packed rows.
void packed_panels(const PackedGemm& g, const PackedRows& rows, int64_t p0, int64_t p1);
/// The same directly from rows that are am floats apart.
void direct_panels(const PackedGemm& g, const float* a, int64_t am, int64_t r0, int64_t r1,
                   int64_t p0, int64_t p1);

/// Runs tile `c` (b in panels of 32 columns) for all columns up to 32, however wide tiles are.
void packed_tile(MicroCall<float> c, int64_t rows, int64_t columns);

/// Are all operands dense f32 tensors with elements?
bool all_dense_f32(const KernelCall& c);

/// The epilogue of a call whose result is y and whose fourth operand is the residual.
FusedEpilogue fused_epilogue_of(const KernelCall& c);
/// Applies it to a block of y, which begins at `y`, while it is in cache.
inline void finish_block(const FusedEpilogue& t, const float* whole, float* y, int64_t y_row,
                         int64_t rows, int64_t columns) {
  if (t.any())
    channel_loops().finish(t, y, t.residual ? t.residual + (y - whole) : nullptr, y_row, rows,
                           columns);
}

/// Lets tile `c` of the result that begins at `whole` apply the epilogue; false: it cannot, and
/// finish_block() must follow.
inline bool finish_in_tile(const FusedEpilogue& t, const float* whole, MicroCall<float>& c) {
  if (t.scaled() || (t.kind != PackedEpilogue::none && t.kind != PackedEpilogue::clamp))
    return false;
  c.add = t.residual ? t.residual + (c.c - whole) : nullptr;
  c.clamp = t.kind == PackedEpilogue::clamp;
  c.low = t.low;
  c.high = t.high;
  return true;
}

/// Computes tiles of a panel, row after row, with their epilogue: in the tile where that is
/// possible, else for several tiles at once, while they are in cache.
class FinishedTiles {
 public:
  /// The panel has `columns` columns of the result that begins at `whole`.
  FinishedTiles(const FusedEpilogue& t, const float* whole, int64_t columns)
      : fused_(t), whole_(whole), columns_(columns) {}
  FinishedTiles(const FinishedTiles&) = delete;
  FinishedTiles& operator=(const FinishedTiles&) = delete;
  ~FinishedTiles() { finish(); }

  /// The tile `c` of the given rows, below the one before.
  void run(MicroCall<float>& c, int64_t rows) {
    const bool done = finish_in_tile(fused_, whole_, c);
    packed_tile(c, rows, columns_);
    if (done) return;
    if (rows_ == 0) first_ = c.c;
    y_row_ = c.c_row;
    rows_ += rows;
    if (rows_ >= kMostRows) finish();
  }

 private:
  static constexpr int64_t kMostRows = 48;  // of at most 32 columns: 6 KB

  void finish() {
    if (rows_ > 0) finish_block(fused_, whole_, first_, y_row_, rows_, columns_);
    rows_ = 0;
  }

  const FusedEpilogue& fused_;
  const float* whole_;
  int64_t columns_;
  float* first_ = nullptr;
  int64_t rows_ = 0, y_row_ = 0;  // that wait for their epilogue
};

/// `units` of work, or a few more where there are few: as many for each worker, so that none waits
/// for another's last one.
inline int64_t even_units(int64_t units, int workers) {
  constexpr int64_t kMany = 4;  // for each worker: one more or less is little
  return units >= kMany * workers ? units : (units + workers - 1) / workers * workers;
}

/// Calls f(worker, unit) for all units: each worker processes its own part, so that it finds the
/// rows of the last call in its cache, and then takes over what is left of others' parts, so that a
/// busy processor holds up nobody for long.
template <class F>
void share_units(int workers, int64_t units, const F& f) {
  struct alignas(64) Part {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  constexpr int kFew = 16;
  Part few[kFew];
  const std::unique_ptr<Part[]> many(workers > kFew ? new Part[static_cast<size_t>(workers)]
                                                    : nullptr);
  Part* parts = many ? many.get() : few;
  for (int w = 0; w < workers; ++w) {
    parts[w].next.store(units * w / workers, std::memory_order_relaxed);
    parts[w].end = units * (w + 1) / workers;
  }
  parallel_for(0, workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w)
      for (int v = 0; v < workers; ++v) {
        Part& p = parts[(w + v) % workers];
        for (int64_t u; (u = p.next.fetch_add(1, std::memory_order_relaxed)) < p.end;)
          f(static_cast<size_t>(w), u);
      }
  });
}

/// Prefetches what will be read next, a piece with every tile, since weights come from far away.
/// Tiles prefetch between their multiply-adds, as many lines at a time as a piece needs: more at
/// once than a processor can wait for would hold up the tile's own loads, and reading and computing
/// would take turns.
class Ahead {
 public:
  Ahead(const float* from, int64_t floats, int64_t pieces)
      : at_(from),
        left_(from ? floats : 0),
        piece_((left_ / (pieces > 0 ? pieces : 1) + kLine - 1) / kLine * kLine) {}
  /// Call before tile `c`.
  void step(MicroCall<float>& c) {
    c.ahead = left_ > 0 ? at_ : nullptr;
    c.ahead_lines = 1;
    const int64_t most = floats_of(c) * (kPackedPanel / micro_table<float>().panel());
    if (left_ <= 0 || most == 0) return;
    c.ahead_lines = (std::min(left_, piece_) + most - 1) / most;
    at_ += std::min(left_, most * c.ahead_lines);
    left_ -= std::min(left_, most * c.ahead_lines);
  }
  /// What a call of a tile prefetches.
  static int64_t floats_of(const MicroCall<float>& c) {
    return c.k / kAheadSteps * c.segments * c.ahead_lines * kLine;
  }

 private:
  static constexpr int64_t kLine = 16;
  const float* at_;
  int64_t left_, piece_;
};

void register_packed_matmul();
void register_packed_conv();
void register_depthwise_conv();
void register_winograd_conv();
void register_packed_bf16();

}  // namespace tandem::detail
