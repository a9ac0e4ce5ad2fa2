// SPDX-License-Identifier: Apache-2.0
// Reductions over tiles: rows (a kept element at a time, lanes along the reduced elements) or
// columns (many kept elements at a time, one reduced element after the other) fill partial states
// that are combined and finished.
#include "tandem/codegen/reduce.h"

#include <memory>

#include "tandem/base/parallel.h"
#include "tandem/codegen/reduce_worker_internal.h"
#include "tandem/tensor/allocator.h"

namespace tandem::codegen {
namespace {

constexpr double kSerialWork = 96 * 1024;

int64_t grain_of(double unit_work) {
  return static_cast<int64_t>(std::max(1.0, kSerialWork / 2 / std::max(unit_work, 1.0)));
}

// Partial states of many blocks: state k of block b and kept element i.
struct Partials {
  const ReduceProgram& p;
  int64_t kept, blocks;
  char* data[kMaxStates];
  size_t bytes = 0;
  void* memory = nullptr;

  Partials(const ReduceProgram& p, int64_t kept, int64_t blocks)
      : p(p), kept(kept), blocks(blocks) {
    for (int k = 0; k < p.n_states; ++k) bytes += size(k);
    memory = detail::allocate(bytes);
    char* at = static_cast<char*>(memory);
    for (int k = 0; k < p.n_states; ++k) {
      data[k] = at;
      at += size(k);
    }
  }
  Partials(const Partials&) = delete;
  Partials& operator=(const Partials&) = delete;
  ~Partials() { detail::deallocate(memory, bytes); }
  size_t size(int k) const {
    const int64_t n = kept * blocks * reg_size(p.state[k]);
    return static_cast<size_t>((n + 63) / 64 * 64);
  }
  void* at(int k, int64_t block, int64_t i) const {
    return data[k] + (block * kept + i) * reg_size(p.state[k]);
  }
};

// Combine the blocks pairwise and write the outputs.
void finish_partials(const ReduceRun& run, const Partials& part) {
  const ReduceProgram& p = run.p;
  const auto by_tiles = [&](int64_t n, double cost, auto&& body) {
    const int64_t n_tiles = (n + kTileMax - 1) / kTileMax;
    parallel_for(0, n_tiles, grain_of(cost * kTileMax), [&](int64_t begin, int64_t end) {
      ReduceWorker w(run, kTileMax);
      for (int64_t t = begin; t < end; ++t) {
        body(w, t * kTileMax, std::min(kTileMax, n - t * kTileMax));
      }
    });
  };
  for (int64_t count = part.blocks; count > 1;) {
    int64_t half = 1;
    while (half * 2 < count) half *= 2;
    const int64_t n = (count - half) * part.kept;
    by_tiles(n, run.plans.combine.cost, [&](ReduceWorker& w, int64_t at, int64_t m) {
      char *a[kMaxStates], *b[kMaxStates];
      for (int k = 0; k < p.n_states; ++k) {
        a[k] = static_cast<char*>(part.at(k, 0, at));
        b[k] = static_cast<char*>(part.at(k, half, at));
      }
      w.combine_states(a, b, m);
    });
    count = half;
  }
  by_tiles(part.kept, run.plans.finish.cost, [&](ReduceWorker& w, int64_t at, int64_t m) {
    char* a[kMaxStates];
    for (int k = 0; k < p.n_states; ++k) a[k] = static_cast<char*>(part.at(k, 0, at));
    w.write(a, at, m);
  });
}

void keep_state(const ReduceWorker& w, int64_t from, char* const* to, int64_t at, int64_t n) {
  const ReduceProgram& p = w.run.p;
  for (int k = 0; k < p.n_states; ++k) {
    const int64_t size = reg_size(p.state[k]);
    std::memcpy(to[k] + at * size, w.state[k] + from * size, static_cast<size_t>(n * size));
  }
}

// Rows that lie side by side: strips of them, block by block.
void run_strips(const ReduceRun& run) {
  const TileLoop& kept = run.g.kept;
  const int64_t strip = run.strip(), inner = kept.inner(), per_row = (inner + strip - 1) / strip;
  const int64_t strips = kept.rows() * per_row;
  const double unit =
      run.cost * static_cast<double>(std::min(run.block, run.g.n_reduced) * strip) + 100;
  std::unique_ptr<Partials> part;
  if (run.blocks > 1) part = std::make_unique<Partials>(run.p, run.g.n_kept, run.blocks);
  parallel_for(0, strips * run.blocks, grain_of(unit), [&](int64_t begin, int64_t end) {
    ReduceWorker w(run, kTileMax, strip * kLanes);
    for (int64_t u = begin; u < end; ++u) {
      const int64_t b = u / strips, s = u % strips;
      const int64_t from = s % per_row * strip, n = std::min(strip, inner - from);
      const int64_t first = s / per_row * inner + from;  // kept element
      w.strip_block(kept.offset_of(0, first), b, n);
      if (part) {
        char* to[] = {static_cast<char*>(part->at(0, b, first))};
        keep_state(w, 0, to, 0, n);
      } else {
        w.write(w.state, first, n);
      }
    }
  });
  if (part) finish_partials(run, *part);
}

void run_rows(const ReduceRun& run) {
  if (run.in_strips()) return run_strips(run);
  const int64_t kept = run.g.n_kept;
  const double unit = run.cost * static_cast<double>(std::min(run.block, run.g.n_reduced)) + 100;
  if (run.blocks == 1) {
    // Groups of rows: as many as states of 64 lanes fit a tile.
    const int64_t group = run.p.is_fold ? kLanes : kTileMax / kLanes;
    parallel_for(0, kept, grain_of(unit), [&](int64_t begin, int64_t end) {
      ReduceWorker w(run, run.p.is_fold ? kLanes : kTileMax);
      for (int64_t i = begin; i < end; i += group) {
        const int64_t n = std::min(group, end - i);
        w.row_blocks(i, n, 0);
        w.write(w.state, i, n);
      }
    });
    return;
  }
  const Partials part(run.p, kept, run.blocks);
  parallel_for(0, kept * run.blocks, grain_of(unit), [&](int64_t begin, int64_t end) {
    ReduceWorker w(run, kLanes);
    for (int64_t u = begin; u < end; ++u) {
      const int64_t i = u / run.blocks, b = u % run.blocks;
      char* to[kMaxStates];
      for (int k = 0; k < run.p.n_states; ++k) to[k] = static_cast<char*>(part.at(k, b, i));
      w.row_blocks(i, 1, b);
      keep_state(w, 0, to, 0, 1);
    }
  });
  finish_partials(run, part);
}

void run_columns(const ReduceRun& run) {
  const TileLoop& kept = run.g.kept;
  const int64_t width = run.column_width();
  const int64_t inner = kept.inner(), per_row = (inner + width - 1) / width;
  const int64_t tiles_of_kept = kept.rows() * per_row;
  const double unit = run.cost * static_cast<double>(std::min(run.block, run.g.n_reduced)) *
                          static_cast<double>(std::min(inner, width)) +
                      100;
  std::unique_ptr<Partials> part;
  if (run.blocks > 1) part = std::make_unique<Partials>(run.p, run.g.n_kept, run.blocks);
  parallel_for(0, tiles_of_kept * run.blocks, grain_of(unit), [&](int64_t begin, int64_t end) {
    ReduceWorker w(run, std::min(inner, width));
    for (int64_t u = begin; u < end; ++u) {
      const int64_t b = u / tiles_of_kept, t = u % tiles_of_kept;
      const int64_t from = t % per_row * width, n = std::min(width, inner - from);
      const int64_t first = t / per_row * inner + from;  // kept element
      w.column_block(kept.offset_of(0, first), b, n);
      if (!part) {
        w.write(w.state, first, n);
        continue;
      }
      char* to[kMaxStates];
      for (int k = 0; k < run.p.n_states; ++k) to[k] = static_cast<char*>(part->at(k, b, first));
      keep_state(w, 0, to, 0, n);
    }
  });
  if (part) finish_partials(run, *part);
}

// Nothing to reduce: every output is finish(init).
void run_empty(const ReduceRun& run) {
  ReduceWorker w(run, kLanes);
  w.start(w.state, kLanes);
  for (int64_t i = 0; i < run.g.n_kept; i += kLanes) {
    w.write(w.state, i, std::min(kLanes, run.g.n_kept - i));
  }
}

}  // namespace

void run_reduce(const KernelCall& call) {
  DType outs[kMaxOpOuts];
  for (int k = 0; k < call.n_out; ++k) outs[k] = call.out[k].dtype;
  const ReduceProgram& p =
      reduce_program_of(call.op, call.in[0].dtype, outs, call.n_out, call.n_in - 1);
  TD_ASSERT(call.n_out <= 2);
  if (call.out[0].numel == 0) return;
  const ReduceGeometry g = make_reduce_geometry(call);
  const ReduceRun run(p, call, g);
  if (g.n_reduced == 0) return run_empty(run);
  g.rows ? run_rows(run) : run_columns(run);
}

const Kernel& reduce_kernel() {
  static constexpr Kernel kernel{nullptr, nullptr, nullptr, run_reduce};
  return kernel;
}

}  // namespace tandem::codegen
