// SPDX-License-Identifier: Apache-2.0
// What one thread does of a reduction: fills states from blocks of rows or columns, combines them
// and writes finished outputs. Used by the reduce kernel only.
#pragma once

#include <algorithm>
#include <cstring>

#include "tandem/base/copy_bytes.h"
#include "tandem/codegen/plan_runner.h"
#include "tandem/codegen/reduce.h"
#include "tandem/codegen/reduce_geometry.h"
#include "tandem/codegen/reduce_plans.h"

namespace tandem::codegen {

inline constexpr int64_t kStrip = kTileMax / kLanes;  ///< rows of a strip: its lanes fill a tile
/// Rows that are read as they lie: wide enough to read memory in order, with their lanes in L1.
inline constexpr int64_t kWideStrip = 64;

// One call.
struct ReduceRun {
  const ReduceProgram& p;
  const ReducePlans& plans;
  const KernelCall& call;
  const Array& x;
  const ReduceGeometry& g;
  const PlanUse step, map, combine, finish;
  const int64_t element;        // bytes of an element of x
  const int64_t block, blocks;  // reduced elements of a block; number of blocks
  const double cost;            // of an element

  ReduceRun(const ReduceProgram& p, const KernelCall& call, const ReduceGeometry& g)
      : p(p),
        plans(plans_of(p)),
        call(call),
        x(call.in[0]),
        g(g),
        step(g.rows ? plans.step_rows : plans.step_columns),
        map(g.rows ? plans.map_rows : plans.map_columns),
        combine(plans.combine),
        finish(plans.finish),
        element(static_cast<int64_t>(size_of(x.dtype))),
        block(g.rows ? kRowBlock : kColumnBlock),
        blocks((g.n_reduced + block - 1) / block),
        cost(p.is_fold ? (p.map_is_x ? 1 : plans.map_rows.cost + 1) : plans.step_rows.cost + 2) {}

  // Rows of a fold whose elements lie side by side are taken together.
  bool in_strips() const {
    return g.rows && p.is_fold && !p.uses_index && g.kept.inner() > 1 &&
           g.kept.inner_stride(0) == 1 && g.n_reduced > 1;
  }
  // Rows of a strip.
  int64_t strip() const {
    const bool as_they_lie = p.map_is_x && g.reduced.rank == 1;
    return as_they_lie ? std::clamp(g.kept.inner(), kStrip, kWideStrip) : kStrip;
  }
  // Do columns of a fold take x's rows as they lie?
  bool direct_columns() const {
    const TileLoop& r = g.reduced;
    return g.kept.inner_stride(0) == 1 && (r.rank == 1 || r.inner() % g.run == 0);
  }
  // Four rows of a column are combined first: in a row-major x they could be read as they lie.
  bool fourfold() const { return p.is_fold && p.map_is_x && g.kept_is_inner; }
  // Columns that a thread takes at a time; those that are fetched leave room for several rows.
  int64_t column_width() const { return fourfold() && !direct_columns() ? kLanes : kTileMax; }

  int64_t block_size(int64_t b) const { return std::min(block, g.n_reduced - b * block); }
  const char* x_at(int64_t offset) const { return x.as<char>() + offset * element; }
};

// A thread's tools: states, tiles of x and index, and the runners that it needs.
struct ReduceWorker {
  const ReduceRun& run;
  const bool rows;
  const int64_t width;  // states in a tile
  const int64_t strip;  // rows of a strip
  TileScratch scratch;
  char* state[kMaxStates];
  char* done[kMaxStates];  // rows only: a second set of states
  char* moved;             // gathered x
  char* mapped;            // map(x)
  int64_t* index;
  PlanRunner step, map, combine, finish;

  static int64_t bytes(const ReduceRun& r, bool rows, int64_t width, int64_t states) {
    const ReducePlans& q = r.plans;
    int64_t n = PlanRunner::scratch_bytes(rows ? q.step_rows : q.step_columns, width) +
                PlanRunner::scratch_bytes(rows ? q.map_rows : q.map_columns, kTileMax) +
                PlanRunner::scratch_bytes(q.combine, width) +
                PlanRunner::scratch_bytes(q.finish, width);
    for (int k = 0; k < r.p.n_states; ++k) n += 2 * (states * reg_size(r.p.state[k]) + 64);
    return n + kTileMax * (r.element + 8 + (rows ? 8 : 0)) + 4096;
  }

  // `width`: elements that plans take at a time; `states`: room for states, at least `width`.
  ReduceWorker(const ReduceRun& r, int64_t width, int64_t states = 0)
      : run(r),
        rows(r.g.rows),
        width(width),
        strip(r.strip()),
        scratch(bytes(r, rows, width, std::max(width, states))),
        step(r.step, width, scratch),
        map(r.map, kTileMax, scratch),
        combine(r.combine, width, scratch),
        finish(r.finish, width, scratch) {
    for (int k = 0; k < r.p.n_states; ++k) {
      const int64_t size = std::max(width, states) * reg_size(r.p.state[k]);
      state[k] = static_cast<char*>(scratch.take(size));
      done[k] = rows ? static_cast<char*>(scratch.take(size)) : nullptr;
    }
    moved = static_cast<char*>(scratch.take(kTileMax * r.element));
    mapped = static_cast<char*>(scratch.take(kTileMax * 8));
    index = rows ? static_cast<int64_t*>(scratch.take(kTileMax * 8)) : nullptr;
    set_finish_values();
    step.compute_values(nullptr);
    if (r.p.is_fold) map.compute_values(nullptr);
    combine.compute_values(nullptr);
  }

  void set_finish_values() {
    const int n = run.p.n_states;
    finish.set_value(n, run.g.n_reduced);
    for (int k = 1; k < run.call.n_in; ++k) {
      const Array& s = run.call.in[k];
      finish.set_value(n + k, register_bits(s.is_scalar ? s.scalar : scalar_at(s), Reg::f64));
    }
    finish.compute_values(nullptr);
  }
  static Scalar scalar_at(const Array& a) {
    int64_t bits = 0;
    tiles().load[static_cast<int>(a.dtype)](&bits, a.data, a.data, a.data, a.data, 1);
    double v = 0;
    const int from = static_cast<int>(reg_of(a.dtype));
    tiles().convert[from][static_cast<int>(Reg::f64)](&v, &bits, &bits, &bits, &bits, 1);
    return Scalar(v);
  }

  ColumnFn column() const {
    return tiles().column[static_cast<int>(run.p.fold)][static_cast<int>(run.p.state[0])];
  }

  void start(char* const* states, int64_t n) {
    for (int k = 0; k < run.p.n_states; ++k) {
      const void* v = &run.p.init[k];
      tiles().fill[static_cast<int>(run.p.state[k])](states[k], v, v, v, v, n);
    }
  }

  // states[0 .. n) op= states[half .. half + n) for the given pointers.
  void combine_states(char* const* a, char* const* b, int64_t n) {
    for (int k = 0; k < run.p.n_states; ++k) {
      combine.set_in(k, a[k]);
      combine.set_in(run.p.n_states + k, b[k]);
      combine.set_out(k, a[k]);
    }
    combine.run(n, nullptr);
  }

  void combine_lanes(int64_t n) {
    const ReduceProgram& p = run.p;
    if (p.is_fold) {
      tiles().tree[static_cast<int>(p.fold)][static_cast<int>(p.state[0])](state[0], nullptr, n);
      return;
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      if (n <= half) continue;
      char* upper[kMaxStates];
      for (int k = 0; k < p.n_states; ++k) upper[k] = state[k] + half * reg_size(p.state[k]);
      combine_states(state, upper, n - half);
      n = half;
    }
  }

  // Finished outputs of kept elements [i, i + n), whose states are given.
  void write(char* const* states, int64_t i, int64_t n) {
    const TileLoop& kept = run.g.kept;
    for (int k = 0; k < run.p.n_states; ++k) finish.set_in(k, states[k]);
    for (int k = 0; k < run.call.n_out; ++k) {
      const Array& y = run.call.out[k];
      const int64_t size = static_cast<int64_t>(size_of(y.dtype));
      finish.set_out(k, kept.dense(1 + k) ? y.as<char>() + i * size : out_tile(k));
    }
    finish.run(n, nullptr);
    for (int k = 0; k < run.call.n_out; ++k) {
      const Array& y = run.call.out[k];
      if (kept.dense(1 + k)) continue;
      scatter_flat(kept, 1 + k, y.data, out_tile(k), i, n, size_of(y.dtype));
    }
  }
  // x's tiles are free when outputs are written; two outputs at most need one.
  void* out_tile(int k) { return k == 0 ? mapped : moved_out; }
  char moved_out[kTileMax * 8];

  // ---- rows
  // How many of the `limit` elements from `at` on belong together: long runs of a row-major x each
  // start with lane 0, shorter ones are taken as one.
  int64_t piece(int64_t at, int64_t limit) const {
    const int64_t length = run.g.run;
    const bool apart = length % kLanes == 0 || (run.p.is_fold && length >= 4 * kLanes);
    return apart || run.g.one_run() ? std::min(limit, length - at % length) : limit;
  }
  // Elements from `at` on of the row at `base`: their address and how many there are, a multiple of
  // 256 but at the end of a piece.
  const char* row_tile(int64_t base, int64_t at, int64_t limit, int64_t& n) {
    const TileLoop& r = run.g.reduced;
    n = piece(at, limit);
    if (r.inner_stride(0) == 1 && r.inner() - at % r.inner() >= n)
      return run.x_at(base + (r.rank == 1 ? at : r.offset_of(0, at)));
    n = std::min(n, kTileMax);
    gather_flat(r, 0, moved, run.x_at(base), at, n, static_cast<size_t>(run.element));
    return moved;
  }

  // Blocks b of the rows of kept elements i .. i + n; state[.][k] is that of i + k.
  void row_blocks(int64_t i, int64_t n, int64_t b) {
    if (run.p.is_fold && plain_rows()) return fold_rows(i, n, b);
    if (run.p.is_fold || n == 1) {
      for (int64_t k = 0; k < n; ++k) {
        row_block(i + k, b);
        for (int s = 0; s < run.p.n_states; ++s) {
          const int64_t size = reg_size(run.p.state[s]);
          std::memcpy(done[s] + k * size, state[s], static_cast<size_t>(size));
        }
      }
      for (int s = 0; s < run.p.n_states; ++s) {
        std::memcpy(state[s], done[s], static_cast<size_t>(n * reg_size(run.p.state[s])));
      }
      return;
    }
    step_group(i, n, b);
  }

  // One dense line per row, folded as it lies.
  bool plain_rows() const {
    const TileLoop& r = run.g.reduced;
    return run.p.map_is_x && run.g.one_run() && r.rank == 1 &&
           (r.inner_stride(0) == 1 || r.inner() == 1);
  }
  void fold_rows(int64_t i, int64_t n, int64_t b) {
    const TileLoop& kept = run.g.kept;
    const ReduceProgram& p = run.p;
    const RowsFn rows = tiles().rows[static_cast<int>(p.fold)][static_cast<int>(p.state[0])];
    for (int64_t k = 0; k < n;) {
      const int64_t m = std::min(n - k, kept.inner() - (i + k) % kept.inner());
      const char* x = run.x_at(kept.offset_of(0, i + k) + b * run.block);
      rows(state[0] + k * reg_size(p.state[0]), x, kept.inner_stride(0), m, run.block_size(b),
           &p.init[0]);
      k += m;
    }
  }

  // ---- strips: lane l of column c is state l * strip + c
  char* lane(int64_t l) { return state[0] + l * strip * reg_size(run.p.state[0]); }
  // state[0][0 .. n) = block b of the n rows at `base`.
  void strip_block(int64_t base, int64_t b, int64_t n) {
    const int64_t first = b * run.block, total = run.block_size(b);
    start(state, strip * kLanes);
    for (int64_t done = 0; done < total;) {
      const int64_t m = piece(first + done, total - done);
      strip_piece(base, first + done, m, n);
      done += m;
    }
    for (int64_t half = kLanes / 2, left = std::min(total, kLanes); half > 0; half /= 2) {
      if (left <= half) continue;
      column()(state[0], lane(half), 0, 1, (left - half) * strip);
      left = half;
    }
  }
  // As fold_lanes does: four elements of a lane at a time, then one.
  void strip_piece(int64_t base, int64_t at, int64_t m, int64_t n) {
    constexpr int64_t kTogether = 16;  // lanes whose four elements of each row fill a tile
    int64_t i = 0;
    for (; m - i >= 4 * kLanes; i += 4 * kLanes)
      for (int64_t l = 0; l < kLanes; l += kTogether)
        strip_step(base, at + i + l, l, kTogether, 4, n);
    for (; i < m; i += kTogether)
      strip_step(base, at + i, i % kLanes, std::min(kTogether, m - i), 1, n);
  }
  // Lanes l .. l + some of n rows take `deep` elements each, 64 apart, from element `at` on.
  void strip_step(int64_t base, int64_t at, int64_t l, int64_t some, int64_t deep, int64_t n) {
    const TileLoop& r = run.g.reduced;
    if (run.p.map_is_x && r.rank == 1) {
      const int64_t stride = r.inner_stride(0);
      for (int64_t k = 0; k < some; ++k)
        column()(lane(l + k), run.x_at(base + (at + k) * stride), kLanes * stride, deep, n);
      return;
    }
    char* to = moved;
    for (int64_t j = 0; j < deep; ++j)
      for (int64_t k = 0; k < some; ++k, to += n * run.element)
        copy_bytes(to, run.x_at(base + r.offset_of(0, at + k + j * kLanes)),
                   static_cast<size_t>(n * run.element));
    const char* x = moved;
    if (!run.p.map_is_x) {
      map.set_in(0, moved);
      map.set_in(1, index);
      map.set_out(0, mapped);
      map.run(deep * some * n, nullptr);
      x = mapped;
    }
    const int64_t row = n * (run.p.map_is_x ? run.element : reg_size(run.p.state[0]));
    for (int64_t k = 0; k < some; ++k) column()(lane(l + k), x + k * row, some * n, deep, n);
  }

  // Several rows at a time, 64 elements of each: states are [row][lane] while they step, and
  // [lane][row] while lanes are combined.
  void step_group(int64_t i, int64_t n, int64_t b) {
    const ReduceProgram& p = run.p;
    const int64_t first = b * run.block, total = run.block_size(b);
    start(state, n * kLanes);
    for (int64_t at = 0; at < total; at += kLanes) {
      const int64_t m = std::min(kLanes, total - at);
      if (p.uses_index) {
        for (int64_t k = 0; k < (m == kLanes ? n : 1); ++k) {
          for (int64_t e = 0; e < m; ++e) index[k * kLanes + e] = first + at + e;
        }
      }
      for (int64_t k = 0; k < n; ++k) group_chunk(run.g.kept.offset_of(0, i + k), first + at, m, k);
      if (m == kLanes) step_at(0, moved, n * kLanes);
    }
    turn_states(n);
    for (int64_t half = kLanes / 2, left = std::min(total, kLanes); half > 0; half /= 2) {
      if (left <= half) continue;
      char* upper[kMaxStates];
      for (int k = 0; k < p.n_states; ++k) upper[k] = state[k] + half * n * reg_size(p.state[k]);
      combine_states(state, upper, (left - half) * n);
      left = half;
    }
  }
  // Brings m elements of row k of the group into place; a last piece steps at once.
  void group_chunk(int64_t base, int64_t at, int64_t m, int64_t k) {
    const TileLoop& r = run.g.reduced;
    char* to = moved + k * kLanes * run.element;
    const auto size = static_cast<size_t>(run.element);
    if (r.rank == 1) {
      gather_run(to, run.x_at(base + at * r.inner_stride(0)), r.inner_stride(0), m, size);
    } else {
      gather_flat(r, 0, to, run.x_at(base), at, m, size);
    }
    if (m < kLanes) step_at(k * kLanes, to, m);
  }
  void step_at(int64_t lane, const char* x, int64_t n) {
    const ReduceProgram& p = run.p;
    for (int k = 0; k < p.n_states; ++k) {
      char* s = state[k] + lane * reg_size(p.state[k]);
      step.set_in(k, s);
      step.set_out(k, s);
    }
    step.set_in(p.n_states, x);
    step.set_in(p.n_states + 1, index);
    step.run(n, nullptr);
  }
  void turn_states(int64_t n) {
    for (int k = 0; k < run.p.n_states; ++k) {
      const auto size = static_cast<size_t>(reg_size(run.p.state[k]));
      for (int64_t row = 0; row < n; ++row) {
        const char* from = state[k] + row * kLanes * static_cast<int64_t>(size);
        scatter_run(done[k] + row * static_cast<int64_t>(size), from, n, kLanes, size);
      }
      std::swap(state[k], done[k]);
    }
  }

  // state[.][0] = block b of the row of kept element i.
  void row_block(int64_t i, int64_t b) {
    const int64_t base = run.g.kept.offset_of(0, i), first = b * run.block;
    const int64_t total = run.block_size(b);
    start(state, kLanes);
    for (int64_t done = 0; done < total;) {
      int64_t n = 0;
      const char* tile = row_tile(base, first + done, total - done, n);
      run.p.is_fold ? fold_tile(tile, first + done, n) : step_tile(tile, first + done, n);
      done += n;
    }
    combine_lanes(std::min(total, kLanes));
  }

  void set_index(int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; ++i) index[i] = first + i;
  }

  void fold_tile(const char* tile, int64_t first, int64_t n) {
    const ReduceProgram& p = run.p;
    const LanesFn lanes = tiles().lanes[static_cast<int>(p.fold)][static_cast<int>(p.state[0])];
    if (p.map_is_x) return lanes(state[0], tile, n);
    for (int64_t at = 0; at < n; at += kTileMax) {
      const int64_t m = std::min(kTileMax, n - at);
      if (p.uses_index) set_index(first + at, m);
      map.set_in(0, tile + at * run.element);
      map.set_in(1, index);
      map.set_out(0, mapped);
      map.run(m, nullptr);
      lanes(state[0], mapped, m);
    }
  }

  void step_tile(const char* tile, int64_t first, int64_t n) {
    const ReduceProgram& p = run.p;
    for (int k = 0; k < p.n_states; ++k) {
      step.set_in(k, state[k]);
      step.set_out(k, state[k]);
    }
    step.set_in(p.n_states + 1, index);
    for (int64_t at = 0; at < n; at += kLanes) {
      const int64_t m = std::min(kLanes, n - at);
      if (p.uses_index) set_index(first + at, m);
      step.set_in(p.n_states, tile + at * run.element);
      step.run(m, nullptr);
    }
  }

  // ---- columns
  // state = block b of n columns from kept row position (cursor offset `base`).
  void column_block(int64_t base, int64_t b, int64_t n) {
    const TileLoop& r = run.g.reduced;
    const int64_t stride = r.inner_stride(0), total = run.block_size(b);
    const bool fourfold = run.fourfold();
    start(state, n);
    for (int64_t done = 0; done < total;) {
      const int64_t at = b * run.block + done, together = fourfold ? run.g.run : r.inner();
      const int64_t m = std::min(total - done, together - at % together);
      const int64_t offset = base + r.offset_of(0, at);
      if (!fourfold) {
        for (int64_t i = 0; i < m; ++i) one_row(offset + i * stride, at + i, n);
      } else if (run.direct_columns()) {
        column()(state[0], run.x_at(offset), stride, m, n);
      } else {
        fetched_rows(base, at, m, n);
      }
      done += m;
    }
  }

  // The same m rows, brought side by side first.
  void fetched_rows(int64_t base, int64_t at, int64_t m, int64_t n) {
    const TileLoop& r = run.g.reduced;
    const int64_t across = run.g.kept.inner_stride(0), most = kTileMax / n / 4 * 4;
    const auto size = static_cast<size_t>(run.element);
    for (int64_t i = 0; i < m; i += most) {
      const int64_t some = std::min(most, m - i), place = (at + i) % r.inner();
      if (r.inner_stride(0) == 1 && r.inner() - place >= some) {
        const int64_t offset = base + r.offset_of(0, at + i);
        for (int64_t c = 0; c < n; ++c)
          scatter_run(moved + c * run.element, run.x_at(offset + c * across), n, some, size);
      } else {
        for (int64_t k = 0; k < some; ++k)
          gather_run(moved + k * n * run.element, run.x_at(base + r.offset_of(0, at + i + k)),
                     across, n, size);
      }
      column()(state[0], moved, n, some, n);
    }
  }

  void one_row(int64_t offset, int64_t at, int64_t n) {
    const ReduceProgram& p = run.p;
    const char* tile = run.x_at(offset);
    if (run.g.kept.inner_stride(0) != 1) {
      gather_run(moved, tile, run.g.kept.inner_stride(0), n, static_cast<size_t>(run.element));
      tile = moved;
    }
    if (!p.is_fold) {
      for (int k = 0; k < p.n_states; ++k) {
        step.set_in(k, state[k]);
        step.set_out(k, state[k]);
      }
      step.set_in(p.n_states, tile);
      if (p.uses_index) {
        step.set_value(p.n_states + 1, at);
        step.compute_values(nullptr);
      }
      return step.run(n, nullptr);
    }
    if (!p.map_is_x) {
      if (p.uses_index) {
        map.set_value(1, at);
        map.compute_values(nullptr);
      }
      map.set_in(0, tile);
      map.set_out(0, mapped);
      map.run(n, nullptr);
      tile = mapped;
    }
    column()(state[0], tile, 0, 1, n);
  }
};

}  // namespace tandem::codegen
