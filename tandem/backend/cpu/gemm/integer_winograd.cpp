// SPDX-License-Identifier: Apache-2.0
// integer_winograd_conv: tiles of codes are transformed, then each panel of the weight takes 16
// matmuls, whose sums are transformed back while they lie in the cache. Workers share bands of
// tiles, or, where all tiles fit a cache, panels, so that each weight is read once.
#include <algorithm>

#include "tandem/backend/cpu/conv/winograd_tiling_internal.h"
#include "tandem/backend/cpu/gemm/integer_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/matmul/integer.h"
#include "tandem/ops/matmul/integer_winograd.h"

namespace tandem::detail {
namespace {

constexpr int64_t kOut = kIntegerWinogradOut, kIn = kIntegerWinogradIn,
                  kMatmuls = kIntegerWinogradMatmuls;
constexpr int64_t kBandBytes = 384 << 10;  ///< of transformed tiles of a worker
constexpr int64_t kAllBytes = 1 << 20;     ///< of those of all, which workers then share
constexpr int64_t kChannelBlock = 16;
constexpr int64_t kPairs = 128;  ///< of channels: 16 KB of a panel stay in the nearest cache

// `rows` rows of a panel.
void short_tiles(IntegerTile t, int64_t rows) {
  const int16_t* a = t.a;
  int32_t* c = t.c;
  const int64_t tiles = (rows + kShortRows - 1) / kShortRows;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t r0 = rows * i / tiles, r1 = rows * (i + 1) / tiles;
    t.a = a + r0 * t.am;
    t.c = c + r0 * t.c_row;
    kIntegerAvx2.short_tile[r1 - r0 - 1](t);
  }
}

struct TileSizes : WinogradTiling {
  explicit TileSizes(const KernelCall& call) : WinogradTiling(call, kOut) {}
  int64_t pairs() const { return (c + 1) / 2; }
  int64_t panels() const { return (o + kPackedPanel - 1) / kPackedPanel; }
  int64_t v_row() const { return (c + kChannelBlock - 1) / kChannelBlock * kChannelBlock + 16; }
  int64_t m_plane(int64_t tiles) const { return tiles * kPackedPanel + 16; }
  size_t v_bytes(int64_t bands) const {
    return whole_lines(static_cast<size_t>(kMatmuls * bands * tiles_w * v_row()) * sizeof(int16_t));
  }
  size_t m_bytes(int64_t bands) const {
    return whole_lines(static_cast<size_t>(kMatmuls * m_plane(bands * tiles_w)) * sizeof(int32_t));
  }
};

// The first row of outputs that belongs to a band.
int64_t first_row(const TileSizes& s, int64_t band) {
  const int64_t n = band / s.tiles_h, r = band % s.tiles_h * kOut;
  return (n * s.out_h + r) * s.out_w;
}

struct TilePlan : EpiloguePlan {
  int workers = 1;
  int64_t units = 1;                        ///< of bands; 0: workers share all tiles, then panels
  size_t v = 0, m = 0, bias = 0, sums = 0;  ///< bytes: of a worker but for the bias
};

void run_tiles_with(const KernelCall& c, const Epilogue& e);

std::shared_ptr<const Plan> prepare_tiles(const KernelCall& c) {
  auto plan = std::make_shared<TilePlan>();
  const TileSizes s(c);
  plan->workers = num_threads();
  const auto workers = static_cast<size_t>(plan->workers);
  plan->bias = whole_lines(static_cast<size_t>(s.panels() * kPackedPanel) * sizeof(int32_t));
  if (plan->workers > 1 && s.panels() >= plan->workers &&
      s.v_bytes(s.bands()) <= static_cast<size_t>(kAllBytes)) {
    plan->units = 0;
    plan->v = s.v_bytes(s.bands()), plan->m = s.m_bytes(s.bands());
    plan->workspace = plan->bias + plan->v + plan->m * workers;
  } else {
    const int64_t most = std::max<int64_t>(1, kBandBytes / static_cast<int64_t>(s.v_bytes(1)));
    plan->units = std::min(even_units((s.bands() + most - 1) / most, plan->workers), s.bands());
    const int64_t bands = (s.bands() + plan->units - 1) / plan->units;
    plan->v = s.v_bytes(bands), plan->m = s.m_bytes(bands);
    plan->sums = whole_lines(static_cast<size_t>(bands * kOut * s.out_w * s.o) * sizeof(int32_t));
    plan->workspace = plan->bias + (plan->v + plan->m + plan->sums) * workers;
  }
  plan->run_with = run_tiles_with;
  return plan;
}

// Bands first..first + bands - 1, with the room for their transformed tiles.
class TileBands {
 public:
  /// y: the first output of the first band.
  TileBands(const KernelCall& c, const TileSizes& s, const int32_t* bias, int64_t first,
            int64_t bands, char* v, int32_t* y)
      : s_(s),
        loops_(*integer_winograd_loops()),
        x_(c.in[0]),
        zero_(integer_zero(c.n_in > 2 && c.in[2].present() ? &c.in[2] : nullptr, 0)),
        w_(c.in[1].as<int16_t>()),
        bias_(bias),
        y_(y),
        first_(first),
        tiles_(bands * s.tiles_w),
        v_(reinterpret_cast<int16_t*>(v)) {}

  int64_t tiles() const { return tiles_; }

  void transform(int64_t t0, int64_t t1) const {
    IntegerWinogradLoops::In in;
    in.row = s_.w * s_.c, in.step = s_.c, in.c = s_.c, in.plane = tiles_ * s_.v_row();
    in.zero = zero_;
    const auto* x = x_.as<uint8_t>();
    for (int64_t t = t0; t < t1; ++t) {
      const Place p(*this, t);
      const int64_t r = p.h - s_.top, q = p.w - s_.left;
      in.r0 = inside(-r), in.r1 = inside(s_.h - r), in.q0 = inside(-q), in.q1 = inside(s_.w - q);
      in.x = x + ((p.n * s_.h + r) * s_.w + q) * s_.c;
      in.v = v_ + t * s_.v_row();
      (x_.dtype == DType::i8 ? loops_.in_i8 : loops_.in_u8)(in);
    }
  }

  void multiply(int64_t panel, int32_t* m) const {
    const int64_t plane = s_.m_plane(tiles_), pairs = s_.pairs();
    IntegerTile tile;
    tile.am = s_.v_row(), tile.c_row = tile.columns = kPackedPanel;
    for (int64_t e = 0; e < kMatmuls; ++e)
      for (int64_t q = 0; q < pairs; q += kPairs) {
        tile.pairs = std::min(kPairs, pairs - q);
        tile.accumulate = q > 0;
        tile.w = w_ + ((panel * kMatmuls + e) * pairs + q) * 2 * kPackedPanel;
        tile.a = v_ + e * tiles_ * s_.v_row() + 2 * q;
        tile.c = m + e * plane;
        short_tiles(tile, tiles_);
      }
    IntegerWinogradLoops::Out out;
    out.plane = plane, out.row = s_.out_w * s_.o, out.step = s_.o;
    out.channels = std::min(kPackedPanel, s_.o - panel * kPackedPanel);
    out.bias = bias_ + panel * kPackedPanel;
    for (int64_t t = 0; t < tiles_; ++t) {
      const Place p(*this, t);
      out.m = m + t * kPackedPanel;
      out.rows = static_cast<int>(std::min(kOut, s_.out_h - p.h));
      out.columns = static_cast<int>(std::min(kOut, s_.out_w - p.w));
      const int64_t pixel = (p.n * s_.out_h + p.h) * s_.out_w + p.w - first_row(s_, first_);
      out.y = y_ + pixel * s_.o + panel * kPackedPanel;
      loops_.out(out);
    }
  }

 private:
  // The sample of a tile, and its first output.
  struct Place {
    Place(const TileBands& b, int64_t tile) {
      const int64_t band = b.first_ + tile / b.s_.tiles_w;
      n = band / b.s_.tiles_h;
      h = band % b.s_.tiles_h * kOut;
      w = tile % b.s_.tiles_w * kOut;
    }
    int64_t n, h, w;
  };
  static int inside(int64_t k) { return static_cast<int>(std::clamp<int64_t>(k, 0, kIn)); }

  const TileSizes& s_;
  const IntegerWinogradLoops& loops_;
  const Array& x_;
  int32_t zero_;
  const int16_t* w_;
  const int32_t* bias_;
  int32_t* y_;
  int64_t first_, tiles_;
  int16_t* v_;
};

void run_tiles(const KernelCall& c, const Epilogue* e) {
  const auto& plan = *static_cast<const TilePlan*>(c.plan);
  const TileSizes s(c);
  auto* bias = static_cast<int32_t*>(c.scratch);
  std::fill_n(bias, s.panels() * kPackedPanel, 0);
  if (c.n_in > 3 && c.in[3].present()) {
    const Array& b = c.in[3];
    for (int64_t j = 0; j < s.o; ++j) bias[j] = b.as<int32_t>()[j * b.strides[b.rank - 1]];
  }
  char* scratch = static_cast<char*>(c.scratch) + plan.bias;
  if (plan.units > 0) {
    share_units(plan.workers, plan.units, [&](size_t worker, int64_t u) {
      const int64_t b0 = s.bands() * u / plan.units, b1 = s.bands() * (u + 1) / plan.units;
      char* v = scratch + worker * (plan.v + plan.m + plan.sums);
      const int64_t row = first_row(s, b0);
      int32_t* y = e && e->run_at ? reinterpret_cast<int32_t*>(v + plan.v + plan.m)
                                  : c.out[0].as<int32_t>() + row * s.o;
      const TileBands bands(c, s, bias, b0, b1 - b0, v, y);
      bands.transform(0, bands.tiles());
      for (int64_t panel = 0; panel < s.panels(); ++panel)
        bands.multiply(panel, reinterpret_cast<int32_t*>(v + plan.v));
      if (e) e->run_block(y, row, first_row(s, b1), s.o);
    });
    return;
  }
  const TileBands all(c, s, bias, 0, s.bands(), scratch, c.out[0].as<int32_t>());
  share_units(plan.workers, s.bands(),
              [&](size_t, int64_t u) { all.transform(u * s.tiles_w, (u + 1) * s.tiles_w); });
  share_units(plan.workers, s.panels(), [&](size_t worker, int64_t panel) {
    all.multiply(panel, reinterpret_cast<int32_t*>(scratch + plan.v + worker * plan.m));
    const int64_t j = panel * kPackedPanel;
    if (e) e->run(*e, 0, s.n * s.out_h * s.out_w, j, std::min(j + kPackedPanel, s.o));
  });
}
void run_tiles_with(const KernelCall& c, const Epilogue& e) { run_tiles(c, &e); }
void run_tiles_alone(const KernelCall& c) { run_tiles(c, nullptr); }

bool supports_tiles(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && (c.in[i].is_scalar || c.in[i].numel == 0)) return false;
  return c.in[0].contiguous && c.in[1].contiguous;
}
EpilogueKind tile_blocks(const KernelCall&) { return EpilogueKind::blocks; }

}  // namespace

const IntegerWinogradLoops* integer_winograd_loops() {
  const bool pays = cpu_features().avx2 && !cpu_features().avx512;
  return pays && kIntegerWinogradAvx2.out ? &kIntegerWinogradAvx2 : nullptr;
}

void register_integer_winograd() {
  runtime_of(op::pack_integer_winograd);
  if (!integer_winograd_loops()) return;
  register_epilogue(prepare_tiles, tile_blocks);
  register_kernel(DeviceKind::cpu, op::integer_winograd_conv,
                  {supports_tiles, nullptr, prepare_tiles, run_tiles_alone});
}

}  // namespace tandem::detail
