// SPDX-License-Identifier: Apache-2.0
// packed_matmul: a matmul whose weight is stored in panels. Few rows: they are brought into tile
// order once for all threads, which share the panels, so each part of the weight is read by one
// thread. Many rows: threads share them in blocks that stay in the cache. Sums are split by the
// shape alone: bits do not depend on the thread count.
#include <algorithm>

#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"

namespace tandem::detail {
namespace {

constexpr int64_t kRowBlock = 112;          ///< most rows of one unit of work
constexpr int64_t kBlockBytes = 48 << 10;   ///< of the result: it is used while in cache
constexpr int64_t kNearWeight = 256 << 10;  ///< bytes of a weight that may be reread for each block
constexpr int64_t kTilesPerWorker = 2;      ///< at least, to share rows over a near weight
constexpr int64_t kPanelGroup = 8;          ///< most panels of one unit of work
constexpr int64_t kFewPanels = 2;           ///< with fewer, packing rows costs more than it saves
constexpr int64_t kAliasBytes = 2048;       ///< rows this far apart share a few cache sets
constexpr double kMultiplyAddsPerThread = 65536;

struct MatmulPlan : EpiloguePlan {
  PackedGemm g;
  int workers = 1;
  bool by_rows = false, pack = false;
  int64_t blocks = 1;  ///< of rows, when workers share them
  size_t part = 0;     ///< floats of scratch per worker, or of all rows
};

void run_with(const KernelCall& c, const Epilogue& e);

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<MatmulPlan>();
  PackedGemm& g = plan->g;
  g.k = c.in[1].shape[1];
  g.n = c.get_attrs<PackedAttrs>().columns;
  g.m = c.in[0].numel / g.k;
  g.y_row = g.n;
  const double multiply_adds = static_cast<double>(g.m) * static_cast<double>(g.n * g.k);
  plan->workers = std::max(
      1, static_cast<int>(std::min<double>(num_threads(), multiply_adds / kMultiplyAddsPerThread)));
  const int64_t tile = micro_table<float>().rows, tiles = packed_tiles(g.m);
  const bool near_weight = g.k * g.n * 4 <= kNearWeight;
  int64_t rows = kRowBlock;
  if (near_weight) rows = std::clamp(kBlockBytes / (g.n * 4) / tile * tile, tile, kRowBlock);
  plan->blocks = (g.m + rows - 1) / rows;
  plan->by_rows = plan->blocks >= 4 * plan->workers || g.panels() < plan->workers ||
                  (near_weight && tiles >= kTilesPerWorker * plan->workers);
  plan->blocks = std::min(even_units(plan->blocks, plan->workers), tiles);
  plan->pack =
      g.m >= tile / 2 && g.panels() > kFewPanels && (!plan->by_rows || g.k * 4 % kAliasBytes == 0);
  if (plan->pack)
    plan->part = static_cast<size_t>(packed_tile_size(plan->by_rows ? rows : g.m, g.k));
  plan->workspace =
      plan->part * sizeof(float) * static_cast<size_t>(plan->by_rows ? plan->workers : 1);
  plan->run_with = run_with;
  return plan;
}

// Workers share rows, in blocks of whole tiles.
void run_rows(const MatmulPlan& p, const PackedGemm& g, const float* a, float* scratch,
              const Epilogue* e) {
  const int64_t count = p.blocks, tiles = packed_tiles(g.m), tile = micro_table<float>().rows;
  share_units(p.workers, count, [&](size_t w, int64_t b) {
    const int64_t r0 = tiles * b / count * tile;
    const int64_t r1 = std::min(g.m, tiles * (b + 1) / count * tile);
    if (p.pack) {
      float* to = scratch + w * p.part;
      PackedRows rows{to, packed_tile_size(1, g.k), r0, r1, packed_tiles(r1 - r0)};
      pack_rows(rows, a, g.k, g.k, 0, rows.tiles, to);
      packed_panels(g, rows, 0, g.panels());
    } else {
      direct_panels(g, a, g.k, r0, r1, 0, g.panels());
    }
    if (e) e->run(*e, r0, r1, 0, g.n);
  });
}

// Workers share columns.
void run_columns(const MatmulPlan& p, const PackedGemm& g, const float* a, float* scratch,
                 const Epilogue* e) {
  PackedRows rows{scratch, packed_tile_size(1, g.k), 0, g.m, packed_tiles(g.m)};
  if (p.pack)
    parallel_for(0, p.workers, 1, [&](int64_t first, int64_t last) {
      pack_rows(rows, a, g.k, g.k, rows.tiles * first / p.workers, rows.tiles * last / p.workers,
                scratch);
    });
  const int64_t group = std::clamp<int64_t>(g.panels() / (4 * p.workers), 1, kPanelGroup);
  const int64_t groups = (g.panels() + group - 1) / group;
  share_units(p.workers, groups, [&](size_t, int64_t u) {
    const int64_t j = u * group, next = std::min(j + group, g.panels());
    if (p.pack)
      packed_panels(g, rows, j, next);
    else
      direct_panels(g, a, g.k, 0, g.m, j, next);
    if (e) e->run(*e, 0, g.m, j * kPackedPanel, std::min(next * kPackedPanel, g.n));
  });
}

void run_matmul(const KernelCall& c, const Epilogue* e) {
  const auto& p = *static_cast<const MatmulPlan*>(c.plan);
  PackedGemm g = p.g;
  g.w = c.in[1].as<float>();
  g.bias = c.n_in > 2 && c.in[2].present() ? c.in[2].as<float>() : nullptr;
  g.y = c.out[0].as<float>();
  g.fused = fused_epilogue_of(c);
  (p.by_rows ? run_rows : run_columns)(p, g, c.in[0].as<float>(), static_cast<float*>(c.scratch),
                                       e);
}
void run_with(const KernelCall& c, const Epilogue& e) { run_matmul(c, &e); }
void run(const KernelCall& c) { run_matmul(c, nullptr); }

EpilogueKind blocks(const KernelCall&) { return EpilogueKind::blocks; }

struct TileRows {
  int64_t first, count;
};

// Panels p0..p1-1 of the result. `place` (tile, depth, c) lets c.a begin at the rows of a tile and
// gives these rows; `ahead_floats` of the weight are fetched meanwhile.
template <class Place>
inline void run_panels(const PackedGemm& g, MicroCall<float> c, int64_t tiles, int64_t ahead_floats,
                       int64_t p0, int64_t p1, const Place& place) {
  c.b_row = kPackedPanel;
  c.c_row = g.y_row;
  for (int64_t p = p0; p < p1; ++p) {
    const int64_t columns = std::min(kPackedPanel, g.n - p * kPackedPanel);
    c.bias = g.bias ? g.bias + p * kPackedPanel : nullptr;
    for (int64_t k = 0; k < g.k; k += kPackedDepth) {
      c.k = std::min(kPackedDepth, g.k - k);
      c.b = g.w + (p * g.k + k) * kPackedPanel;
      c.accumulate = k > 0;
      c.add = nullptr;
      c.clamp = false;
      const bool last = k + kPackedDepth >= g.k;
      Ahead ahead(last && p + 1 >= p1 ? nullptr : c.b + c.k * kPackedPanel, ahead_floats, tiles);
      FinishedTiles finished(g.fused, g.y, columns);
      for (int64_t t = 0; t < tiles; ++t) {
        ahead.step(c);
        const TileRows rows = place(t, k, c);
        c.c = g.y + rows.first * g.y_row + p * kPackedPanel;
        if (last)
          finished.run(c, rows.count);
        else
          packed_tile(c, rows.count, columns);
      }
    }
  }
}

}  // namespace

bool all_dense_f32(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && (c.in[i].is_scalar || c.in[i].dtype != DType::f32 ||
                              !c.in[i].contiguous || c.in[i].numel == 0))
      return false;
  return true;
}

FusedEpilogue fused_epilogue_of(const KernelCall& c) {
  const auto& a = c.get_attrs<PackedAttrs>();
  FusedEpilogue t;
  t.kind = static_cast<PackedEpilogue>(a.epilogue);
  t.low = static_cast<float>(a.low);
  t.high = static_cast<float>(a.high);
  const auto numbers = [](double scale, double shift) {
    ScaleShift s;
    s.scale = static_cast<float>(scale);
    if (shift != 0) s.shift = static_cast<float>(shift);
    return s;
  };
  t.before = numbers(a.scale, a.shift);
  t.after = numbers(a.scale_after, a.shift_after);
  if (c.n_in > 3 && c.in[3].present()) t.residual = c.in[3].as<float>();
  return t;
}

int64_t packed_tiles(int64_t rows) {
  const int64_t most = micro_table<float>().rows;
  return (rows + most - 1) / most;
}
int64_t packed_tile_size(int64_t rows, int64_t k) {
  // transpose() writes whole vectors, so there must be room after a tile.
  return packed_tiles(rows) * ((k * micro_table<float>().rows + 2 * 16 + 15) / 16 * 16);
}

void pack_rows(const PackedRows& rows, const float* a, int64_t am, int64_t k, int64_t t0,
               int64_t t1, float* to) {
  for (int64_t t = t0; t < t1; ++t) {
    const int64_t r0 = rows.row(t), n = rows.row(t + 1) - r0;
    micro_table<float>().transpose(to + t * rows.tile_step, n, a + r0 * am, am, n, k);
  }
}

void packed_tile(MicroCall<float> c, int64_t rows, int64_t columns) {
  const MicroTable<float>& t = micro_table<float>();
  if (rows == 1 && columns % t.panel() == 0) {
    c.ahead_lines *= columns / t.panel();  // one call fetches for all
    t.run_row(c, columns / t.panel(), t.panel(), t.panel());
    return;
  }
  for (int64_t j = 0; j < columns; j += t.panel()) {
    c.columns = static_cast<int>(std::min(t.panel(), columns - j));
    t.run(rows, c);
    c.b += t.panel();
    c.c += t.panel();
    if (c.ahead) c.ahead += Ahead::floats_of(c);
    if (c.bias) c.bias += t.panel();
    if (c.add) c.add += t.panel();
  }
}

void packed_panels(const PackedGemm& g, const PackedRows& rows, int64_t p0, int64_t p1) {
  MicroCall<float> c;
  c.am = 1;
  run_panels(g, c, rows.tiles, kPackedDepth * kPackedPanel, p0, p1,
             [&](int64_t t, int64_t k, MicroCall<float>& tile) {
               const TileRows r{rows.row(t), rows.row(t + 1) - rows.row(t)};
               tile.a = rows.data + t * rows.tile_step + k * r.count;
               tile.ak = r.count;
               return r;
             });
}

void direct_panels(const PackedGemm& g, const float* a, int64_t am, int64_t r0, int64_t r1,
                   int64_t p0, int64_t p1) {
  const int64_t tiles = packed_tiles(r1 - r0);
  MicroCall<float> c;
  c.am = am;
  c.ak = 1;
  run_panels(g, c, tiles, std::min(kPackedDepth, g.k) * kPackedPanel, p0, p1,
             [&](int64_t t, int64_t k, MicroCall<float>& tile) {
               const int64_t first = r0 + (r1 - r0) * t / tiles;
               tile.a = a + first * am + k;
               return TileRows{first, r0 + (r1 - r0) * (t + 1) / tiles - first};
             });
}

void register_packed_matmul() {
  register_epilogue(prepare, blocks);
  register_kernel(DeviceKind::cpu, op::packed_matmul, {all_dense_f32, nullptr, prepare, run});
}

void register_packed_kernels() {
  for (const OpDef* pack :
       {&op::read_bytes, &op::pack_matrix, &op::pack_conv, &op::pack_depthwise, &op::pack_winograd})
    runtime_of(*pack);
  register_packed_matmul();
  register_packed_conv();
  register_depthwise_conv();
  register_winograd_conv();
  register_packed_bf16();
}

}  // namespace tandem::detail
