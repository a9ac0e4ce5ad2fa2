// SPDX-License-Identifier: Apache-2.0
// winograd_conv: 3x3 convolution of stride 1 as 36 matmuls of transformed tiles (F(4x4, 3x3)): a
// quarter of the multiplications. Three stages: tiles of x are transformed, the matmuls, tiles of y
// are transformed back. Many tiles: a worker runs all stages on a band of tiles, which stays in its
// cache. Few tiles: the workers share each stage, so each part of the weight is read once.
#include <algorithm>

#include "tandem/backend/cpu/conv/channel_loops.h"
#include "tandem/backend/cpu/conv/winograd_tiling_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"

namespace tandem::detail {
namespace {

constexpr int64_t kMatmuls = kWinogradIn * kWinogradIn;
constexpr int64_t kBandBytes = 768 << 10;  ///< of transformed tiles in a worker's cache
constexpr int64_t kPad = 16;               ///< floats between rows: avoids powers of two

struct Sizes : WinogradTiling {
  explicit Sizes(const KernelCall& call) : WinogradTiling(call, kWinogradOut) {}
  int64_t v_row() const { return c + kPad; }
  int64_t m_row() const { return o + kPad; }
  int64_t floats(int64_t bands) const {
    return kMatmuls * bands * tiles_w * (v_row() + m_row()) + kPad;
  }
};

struct WinogradPlan : EpiloguePlan {
  int workers = 1;
  int64_t bands = 1;  ///< rows of tiles that are processed together
  bool staged = false;
  size_t part = 0;
};

void run_with(const KernelCall& c, const Epilogue& e);

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<WinogradPlan>();
  const Sizes s(c);
  plan->workers = num_threads();
  const int64_t rows = micro_table<float>().rows;
  // Whole tiles of the matmuls, but no more than fit.
  const int64_t wish = std::max<int64_t>(1, (2 * rows + s.tiles_w - 1) / s.tiles_w);
  const int64_t most = std::max<int64_t>(1, kBandBytes / (4 * s.floats(1)));
  plan->bands = std::min({wish, most, s.bands()});
  plan->staged = plan->workers > 1 &&
                 (s.bands() < 2 * plan->workers * plan->bands || plan->bands * s.tiles_w < rows);
  if (plan->staged) plan->bands = s.bands();
  plan->part = static_cast<size_t>(s.floats(plan->bands));
  plan->workspace =
      plan->part * sizeof(float) * static_cast<size_t>(plan->staged ? 1 : plan->workers);
  plan->run_with = run_with;
  return plan;
}

class Winograd {
 public:
  Winograd(const KernelCall& c, const Sizes& s)
      : s_(s),
        l_(channel_loops()),
        x_(c.in[0].as<float>()),
        w_(c.in[1].as<float>()),
        bias_(c.n_in > 2 && c.in[2].present() ? c.in[2].as<float>() : nullptr),
        tail_(fused_epilogue_of(c)),
        y_(c.out[0].as<float>()) {}

  /// Work on `bands` bands starting at `first`, with that scratch.
  void use(float* scratch, int64_t first, int64_t bands) {
    first_ = first;
    tiles_ = bands * s_.tiles_w;
    v_ = scratch;
    m_ = scratch + kMatmuls * tiles_ * s_.v_row();
  }
  void transform_in(int64_t t0, int64_t t1) const {
    for (int64_t t = t0; t < t1; ++t) {
      int64_t n, th, tw;
      place(t, n, th, tw);
      const int64_t r = th * kWinogradOut - s_.top, q = tw * kWinogradOut - s_.left;
      l_.winograd_in(x_ + ((n * s_.h + r) * s_.w + q) * s_.c, s_.w * s_.c, s_.c, inside(-r),
                     inside(s_.h - r), inside(-q), inside(s_.w - q), s_.c, v_ + t * s_.v_row(),
                     tiles_ * s_.v_row());
    }
  }
  void multiply(int64_t e0, int64_t e1) const {
    PackedGemm g;
    g.m = tiles_;
    g.n = s_.o;
    g.k = s_.c;
    g.y_row = s_.m_row();
    for (int64_t e = e0; e < e1; ++e) {
      g.w = w_ + e * g.panels() * s_.c * kPackedPanel;
      g.y = m_ + e * tiles_ * s_.m_row();
      direct_panels(g, v_ + e * tiles_ * s_.v_row(), s_.v_row(), 0, tiles_, 0, g.panels());
    }
  }
  void transform_out(int64_t t0, int64_t t1) const {
    for (int64_t t = t0; t < t1; ++t) {
      int64_t n, th, tw;
      place(t, n, th, tw);
      const int64_t r = th * kWinogradOut, q = tw * kWinogradOut;
      const int64_t rows = std::min(kWinogradOut, s_.out_h - r);
      const int64_t columns = std::min(kWinogradOut, s_.out_w - q), row = s_.out_w * s_.o;
      float* y = y_ + ((n * s_.out_h + r) * s_.out_w + q) * s_.o;
      l_.winograd_out(m_ + t * s_.m_row(), tiles_ * s_.m_row(), bias_, s_.o, static_cast<int>(rows),
                      static_cast<int>(columns), y, row, s_.o);
      finish_block(tail_, y_, y, row, rows, columns * s_.o);
    }
  }
  int64_t tiles() const { return tiles_; }

 private:
  static int inside(int64_t k) { return static_cast<int>(std::clamp<int64_t>(k, 0, kWinogradIn)); }
  void place(int64_t tile, int64_t& n, int64_t& th, int64_t& tw) const {
    const int64_t band = first_ + tile / s_.tiles_w;
    n = band / s_.tiles_h;
    th = band % s_.tiles_h;
    tw = tile % s_.tiles_w;
  }

  const Sizes& s_;
  const ChannelLoops& l_;
  const float *x_, *w_, *bias_;
  FusedEpilogue tail_;
  float* y_;
  float *v_ = nullptr, *m_ = nullptr;
  int64_t first_ = 0, tiles_ = 0;
};

// The epilogue on the rows of y that bands b0..b1-1 produce.
void finish(const Sizes& s, const Epilogue* e, int64_t b0, int64_t b1) {
  if (!e || b0 >= b1) return;
  const auto row = [&](int64_t band) {
    const int64_t n = band / s.tiles_h, r = band % s.tiles_h * kWinogradOut;
    return (n * s.out_h + std::min(r, s.out_h)) * s.out_w;
  };
  e->run(*e, row(b0), b1 % s.tiles_h ? row(b1) : b1 / s.tiles_h * s.out_h * s.out_w, 0, s.o);
}

void run_winograd(const KernelCall& c, const Epilogue* e) {
  const auto& plan = *static_cast<const WinogradPlan*>(c.plan);
  const Sizes s(c);
  auto* scratch = static_cast<float*>(c.scratch);
  if (!plan.staged) {
    const int64_t count = (s.bands() + plan.bands - 1) / plan.bands;
    share_units(plan.workers, count, [&](size_t worker, int64_t u) {
      const int64_t b0 = s.bands() * u / count, b1 = s.bands() * (u + 1) / count;
      Winograd w(c, s);
      w.use(scratch + worker * plan.part, b0, b1 - b0);
      w.transform_in(0, w.tiles());
      w.multiply(0, kMatmuls);
      w.transform_out(0, w.tiles());
      finish(s, e, b0, b1);
    });
    return;
  }
  Winograd w(c, s);
  w.use(scratch, 0, s.bands());
  const auto share = [&](int64_t n, auto&& f) {
    share_units(plan.workers, n, [&](size_t, int64_t u) { f(u, u + 1); });
  };
  share(w.tiles(), [&](int64_t a, int64_t b) { w.transform_in(a, b); });
  share(kMatmuls, [&](int64_t a, int64_t b) { w.multiply(a, b); });
  share(s.bands(), [&](int64_t a, int64_t b) {
    w.transform_out(a * s.tiles_w, b * s.tiles_w);
    finish(s, e, a, b);
  });
}
void run_with(const KernelCall& c, const Epilogue& e) { run_winograd(c, &e); }
void run(const KernelCall& c) { run_winograd(c, nullptr); }

EpilogueKind blocks(const KernelCall&) { return EpilogueKind::blocks; }

}  // namespace

void register_winograd_conv() {
  register_epilogue(prepare, blocks);
  register_kernel(DeviceKind::cpu, op::winograd_conv, {all_dense_f32, nullptr, prepare, run});
}

}  // namespace tandem::detail
