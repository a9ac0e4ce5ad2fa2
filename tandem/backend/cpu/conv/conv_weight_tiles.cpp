// SPDX-License-Identifier: Apache-2.0
// The bf16 derivative of convolutions with respect to the weight in the tile registers of AMX. For
// every tap it is a matmul, gy^T x, whose depth is the pixels of all samples. gy is turned once for
// all threads. A unit of work owns some outputs and 32 channels under all taps: it pairs the
// channels of the pixels that a tap reads, a piece of the pixels at a time, and sums wait in f32.
#include <algorithm>

#include "tandem/backend/cpu/conv/conv_internal.h"
#include "tandem/backend/cpu/conv/pixels_bf16_internal.h"
#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/gemm/tiles_bf16.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/base/half.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/dry_run.h"
#include "tandem/ops/conv/conv.h"

namespace tandem::detail {
namespace {

constexpr int64_t kFewestOutputs = 16;
constexpr double kFewestFull = 0.8;  ///< of the columns of panels
constexpr int64_t kMostTaps = 25;
constexpr int64_t kPiece = 31 * kBf16Block;  ///< of pixels; rows of a power of two share cache sets
constexpr double kFewestMultiplyAdds = 1 << 20;

alignas(64) constexpr uint16_t kOutside[kBf16Panel] = {};

int64_t panels_of(int64_t channels) { return (channels + kBf16Panel - 1) / kBf16Panel; }

struct TapsPlan : Plan {
  Pixels x, gy;
  const Bf16Loops* loops = nullptr;
  int64_t tiles = 0;   ///< over all outputs
  int64_t parts = 1;   ///< of the outputs, for threads
  int64_t blocks = 0;  ///< of channels
  int64_t pieces = 0;  ///< of pixels
  int64_t most = 0;    ///< outputs of a part
  int workers = 1;
  size_t turned = 0, workers_at = 0, worker_bytes = 0;
  size_t sums = 0, lines = 0, row = 0;  ///< in a worker's bytes; panels come first

  int64_t tile_of_part(int64_t part) const { return tiles * part / parts; }
};

bool supports(const KernelCall& c) {
  if (is_dry_run_of_any_device() || !bf16_loops() || !bf16_loops()->by_lines) return false;
  for (const Array* a : {&c.in[0], &c.in[1], static_cast<const Array*>(&c.out[0])})
    if (a->dtype != DType::bf16) return false;
  if (!conv_supports_floats(c)) return false;
  const ConvSizes s = weight_sizes(c);
  const double multiply_adds =
      static_cast<double>(s.n * s.pixels) * static_cast<double>(s.o * s.patch());
  const double full = static_cast<double>(s.c) / static_cast<double>(panels_of(s.c) * kBf16Panel);
  return s.groups == 1 && full >= kFewestFull && s.o >= kFewestOutputs && s.taps <= kMostTaps &&
         multiply_adds >= kFewestMultiplyAdds;
}

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<TapsPlan>();
  const ConvSizes s = weight_sizes(c);
  const auto take = [](size_t& size, int64_t bytes) {
    return take_lines(size, static_cast<size_t>(bytes));
  };
  plan->loops = bf16_loops();
  plan->x = pixels_of(c.in[0], plan->workspace);
  plan->gy = pixels_of(c.in[1], plan->workspace);
  plan->workers = num_threads();
  plan->tiles = (s.o + plan->loops->rows - 1) / plan->loops->rows;
  plan->blocks = panels_of(s.c);
  plan->pieces = (s.n * s.pixels + kPiece - 1) / kPiece;
  const int64_t wanted = plan->blocks % plan->workers && plan->blocks < 4 * plan->workers
                             ? (2 * plan->workers + plan->blocks - 1) / plan->blocks
                             : 1;
  plan->parts = std::clamp<int64_t>(wanted, 1, plan->tiles);
  plan->most = (plan->tiles + plan->parts - 1) / plan->parts * plan->loops->rows;
  plan->turned = take(plan->workspace, plan->pieces * s.o * kPiece * 2);
  take(plan->worker_bytes, s.taps * kPiece * kBf16Panel * 2);
  plan->sums = take(plan->worker_bytes, s.taps * plan->most * kBf16Panel * 4);
  plan->lines = take(plan->worker_bytes, kPiece * static_cast<int64_t>(sizeof(uint16_t*)));
  plan->row = take(plan->worker_bytes, (s.taps + 1) * kBf16Panel * 4);
  plan->workers_at =
      take(plan->workspace, static_cast<int64_t>(plan->worker_bytes) * plan->workers);
  return plan;
}

struct Call {
  const TapsPlan& plan;
  ConvSizes s;
  const uint16_t *x, *gy;
  uint16_t* turned;
  BFloat16* gw;

  int64_t depth(int64_t piece) const { return std::min(kPiece, s.n * s.pixels - piece * kPiece); }
  int64_t row_of(int64_t tile) const { return s.o * tile / plan.tiles; }
  uint16_t* turned_tile(int64_t piece, int64_t tile) const {
    return turned + (piece * s.o + row_of(tile)) * kPiece;
  }

  // Rows of a tile lie a block after another, as deep as this piece.
  void turn(int64_t piece, int64_t tile) const {
    plan.loops->turn(turned_tile(piece, tile), gy + piece * kPiece * plan.gy.step + row_of(tile),
                     plan.gy.step, row_of(tile + 1) - row_of(tile), depth(piece));
  }

  // Where the outputs of a piece read channel c0 under a tap.
  void find_lines(int64_t tap, int64_t piece, int64_t c0, const uint16_t** lines) const {
    const ConvSizes::Axis &d = s.axis[0], &h = s.axis[1], &w = s.axis[2];
    const int64_t kw = tap % w.kernel, kh = tap / w.kernel % h.kernel,
                  kd = tap / w.kernel / h.kernel;
    const int64_t from = piece * kPiece, to = from + depth(piece);
    for (int64_t p = from; p < to;) {
      const int64_t line = p / w.out, id = d.at(line / h.out % d.out, kd),
                    ih = h.at(line % h.out, kh), n = line / h.out / d.out;
      const int64_t last = std::min(to, (line + 1) * w.out);
      const bool inside = id >= 0 && id < d.in && ih >= 0 && ih < h.in;
      const uint16_t* start =
          inside ? x + ((n * d.in + id) * h.in + ih) * w.in * plan.x.step + c0 : kOutside;
      for (int64_t iw = w.at(p % w.out, kw); p < last; ++p, iw += w.stride)
        *lines++ = inside && iw >= 0 && iw < w.in ? start + iw * plan.x.step : kOutside;
    }
    std::fill_n(lines, -depth(piece) & (kBf16Block - 1), kOutside);
  }

  void unit(int64_t u, char* own) const {
    const Bf16Loops& l = *plan.loops;
    const int64_t part = u % plan.parts, c0 = u / plan.parts * kBf16Panel,
                  columns = std::min(kBf16Panel, s.c - c0);
    const int64_t t0 = plan.tile_of_part(part), t1 = plan.tile_of_part(part + 1);
    const int64_t o0 = row_of(t0), outputs = row_of(t1) - o0;
    auto* panels = reinterpret_cast<uint16_t*>(own);
    auto* sums = reinterpret_cast<float*>(own + plan.sums);
    auto* lines = reinterpret_cast<const uint16_t**>(own + plan.lines);
    for (int64_t piece = 0; piece < plan.pieces; ++piece) {
      const int64_t k = (depth(piece) + kBf16Block - 1) / kBf16Block * kBf16Block;
      for (int64_t tap = 0; tap < s.taps; ++tap) {
        find_lines(tap, piece, c0, lines);
        l.pair_lines(panels + tap * kPiece * kBf16Panel, lines, columns, k / 2);
      }
      for (int64_t t = t0; t < t1; ++t)
        for (int64_t tap = 0; tap < s.taps; ++tap)
          l.tile({k, turned_tile(piece, t), k, 2, panels + tap * kPiece * kBf16Panel,
                  sums + (tap * outputs + row_of(t) - o0) * kBf16Panel, piece > 0},
                 static_cast<int>(row_of(t + 1) - row_of(t)));
    }
    l.release();
    auto* row = reinterpret_cast<float*>(own + plan.row);
    for (int64_t o = 0; o < outputs; ++o) {
      const float* from = sums + o * kBf16Panel;
      if (s.taps > 1) {
        micro_table<float>().transpose(row, s.taps, from, outputs * kBf16Panel, s.taps, kBf16Panel);
        from = row;
      }
      row_loops().to_bf16(gw + ((o0 + o) * s.c + c0) * s.taps, from, columns * s.taps);
    }
  }
};

void run(const KernelCall& c) {
  const auto& plan = *static_cast<const TapsPlan*>(c.plan);
  char* scratch = static_cast<char*>(c.scratch);
  const Call call{plan,
                  weight_sizes(c),
                  read_pixels(c, 0, plan.x),
                  read_pixels(c, 1, plan.gy),
                  reinterpret_cast<uint16_t*>(scratch + plan.turned),
                  c.out[0].as<BFloat16>()};
  parallel_for(0, plan.pieces * plan.tiles, 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) call.turn(i / plan.tiles, i % plan.tiles);
  });
  share_units(plan.workers, plan.blocks * plan.parts, [&](size_t w, int64_t u) {
    call.unit(u, scratch + plan.workers_at + w * plan.worker_bytes);
  });
}

}  // namespace

void register_conv_weight_tiles() {
  if (!bf16_amx_loops()) return;
  register_kernel(DeviceKind::cpu, op::conv_backward_weight, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
