// SPDX-License-Identifier: Apache-2.0
// packed_conv: a convolution over channels-last rows whose weight is stored in panels. A row of
// outputs is a matmul whose operand is the input itself: the taps of one kernel row and their
// channels are adjacent, the kernel rows are the segments of the tiles. Padding (and an input in
// another layout) is a copy of the rows that a unit of work reads. A kernel that is one pixel wide
// reads rows of the outputs' own width, so that all rows of a unit are one matmul. Threads share
// the rows, or for small images the panels.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/copy_bytes.h"
#include "tandem/base/parallel.h"

namespace tandem::detail {
namespace {

constexpr double kUnitMultiplyAdds = 2e6;
constexpr int64_t kFewRows = 8;                    ///< per worker: fewer are split by panels
constexpr int64_t kPanelGroup = 4;                 ///< most panels of one unit of work
constexpr int64_t kFarWeight = 512 << 10;          ///< bytes: each unit reads it from far away
constexpr int64_t kUnitTiles = 4, kFarTiles = 16;  ///< of rows that are one matmul, at least
constexpr int64_t kFar = 64 << 10;                 ///< floats of a panel that is prefetched
constexpr int64_t kLongSum = 2 * kPackedDepth, kManyPixels = 64;  ///< where sums are split
constexpr int64_t kFewOutputs = 4;  ///< of a panel of 32: those are dot products
constexpr int64_t kLeastDot = 8;    ///< floats

struct Sizes {
  int64_t n, in_h, in_w, c, h, w, o, kernel_h, kernel_w, stride_h, stride_w, top, left;
  int64_t step_n, step_h, step_w, step_c;  ///< of x
  bool stage;                              ///< rows are copied

  explicit Sizes(const KernelCall& call) {
    const auto& a = call.get_attrs<PackedAttrs>();
    const Array &x = call.in[0], &y = call.out[0];
    n = x.shape[0], in_h = x.shape[1], in_w = x.shape[2], c = x.shape[3];
    h = y.shape[1], w = y.shape[2], o = a.columns;
    kernel_h = a.kernel[0].value(), kernel_w = a.kernel[1].value();
    stride_h = a.stride[0].value(), stride_w = a.stride[1].value();
    top = a.padding[0].value(), left = a.padding[1].value();
    step_n = x.strides[0], step_h = x.strides[1], step_w = x.strides[2], step_c = x.strides[3];
    stage = top || left || a.padding_end[0].value() || a.padding_end[1].value() || !x.contiguous;
  }
  int64_t wide() const { return stage ? (w - 1) * stride_w + kernel_w : in_w; }
  /// Outputs that follow each other read inputs at equal distances, across rows, too.
  bool merged() const {
    return kernel_w == 1 && (w == 1 || (stride_h == 1 && stride_w == 1 && wide() == w));
  }
  int64_t step() const { return (w == 1 ? stride_h * wide() : stride_w) * c; }
  int64_t depth() const { return kernel_w * c; }
  int64_t panels() const { return (o + kPackedPanel - 1) / kPackedPanel; }
  bool lean() const { return o <= kFewOutputs && depth() >= kLeastDot; }
  int64_t in_rows(int64_t rows) const { return (rows - 1) * stride_h + kernel_h; }
  bool far_weight() const { return panels() * kPackedPanel * kernel_h * depth() * 4 > kFarWeight; }
  /// The first output row of unit b of `blocks`: tiles are full where rows are one matmul.
  int64_t first_row(int64_t b, int64_t blocks) const {
    const int64_t row = h * b / blocks, tile = micro_table<float>().rows;
    return merged() && w == 1 && b < blocks ? row / tile * tile : row;
  }
  size_t weights() const { return static_cast<size_t>(o * kernel_h * depth()); }
  double multiply_adds() const {
    return static_cast<double>(w * o) * static_cast<double>(kernel_h * depth());
  }
};

struct ConvPackedPlan : EpiloguePlan {
  int workers = 1;
  bool by_panels = false;
  int64_t blocks = 1;  ///< of a sample's output rows: a unit each
  size_t part = 0;     ///< floats of staged rows
  size_t lean_at = 0;  ///< where the weights of few outputs are kept in scratch, output by output
};

void run_with(const KernelCall& c, const Epilogue& e);

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<ConvPackedPlan>();
  const Sizes s(c);
  plan->workers = num_threads();
  const bool few = s.h * s.n < kFewRows * plan->workers;
  plan->by_panels = few && s.panels() >= 2 * plan->workers && plan->workers > 1;
  // Rows that are one matmul fill its tiles.
  const int64_t tile = micro_table<float>().rows, tiles = s.far_weight() ? kFarTiles : kUnitTiles;
  const int64_t least = s.merged() ? (tiles * tile + s.w - 1) / s.w : 1;
  const int64_t rows =
      plan->by_panels
          ? s.h
          : std::clamp<int64_t>(static_cast<int64_t>(kUnitMultiplyAdds / s.multiply_adds()),
                                std::min(least, s.h), s.h);
  plan->blocks = (s.h + rows - 1) / rows;
  if (!plan->by_panels && s.n * plan->blocks % plan->workers != 0)
    plan->blocks = std::min(even_units(plan->blocks, plan->workers), s.h);
  if (s.stage)
    plan->part = static_cast<size_t>((s.in_rows(std::min(rows + tile, s.h)) * s.wide() * s.c + 31) /
                                     16 * 16);
  plan->lean_at = plan->part * static_cast<size_t>(plan->by_panels ? s.n : plan->workers);
  plan->workspace = sizeof(float) * (plan->lean_at + (s.lean() ? s.weights() : 0));
  plan->run_with = run_with;
  return plan;
}

// Row `at` of sample n of x, padded, to `to`.
void stage_row(const Sizes& s, const float* x, int64_t n, int64_t at, float* to) {
  const int64_t wide = s.wide();
  if (at < 0 || at >= s.in_h) {
    std::fill_n(to, wide * s.c, 0.0f);
    return;
  }
  const float* from = x + n * s.step_n + at * s.step_h;
  // Strides that pass over all pixels may end before the padding does.
  const int64_t left = std::min(s.left, wide), count = std::min(s.in_w, wide - left), c = s.c;
  std::fill_n(to, left * c, 0.0f);
  to += left * c;
  if (s.step_c == 1 && s.step_w == c) {
    copy_bytes(to, from, static_cast<size_t>(count * c) * sizeof(float));
  } else {
    for (int64_t i = 0; i < c; ++i)
      for (int64_t v = 0; v < count; ++v) to[v * c + i] = from[v * s.step_w + i * s.step_c];
  }
  std::fill_n(to + count * c, (wide - left - count) * c, 0.0f);
}

// The weights of few outputs, one after the other: [o][kernel_h][depth].
void collect_weights(const Sizes& s, const float* weight, float* to) {
  const int64_t size = s.kernel_h * s.depth();
  for (int64_t j = 0; j < s.o; ++j)
    for (int64_t k = 0; k < size; ++k) *to++ = weight[k * kPackedPanel + j];
}

// multiply() for few outputs, by dot products.
void multiply_lean(const Sizes& s, const float* x, const float* weight, const float* bias,
                   int64_t rows, float* y, const FusedEpilogue& fused, const float* whole) {
  const bool merged = s.merged();
  const int64_t lines = merged ? 1 : rows, w = merged ? rows * s.w : s.w, wide = s.wide();
  DotRow d{};
  d.n = w;
  d.x_step = merged ? s.step() : s.stride_w * s.c;
  d.x_segment = wide * s.c;
  d.y_step = s.o;
  d.depth = s.depth();
  d.segments = s.kernel_h;
  for (int64_t r = 0; r < lines; ++r) {
    float* row = y + r * s.w * s.o;
    d.x = x + r * s.stride_h * wide * s.c;
    for (int64_t j = 0; j < s.o; ++j) {
      d.w = weight + j * s.kernel_h * d.depth;
      d.y = row + j;
      d.bias = bias ? bias[j] : 0.0f;
      channel_loops().dots(d);
    }
    finish_block(fused, whole, row, 0, 1, w * s.o);
  }
}

// Output rows h0..h1-1 of a sample, panels p0..p1-1; x is the first row that they read. Long sums
// of many rows are split into blocks, whose weights stay near for all tiles. The shape alone
// decides, so the bits do not depend on the thread count.
void multiply(const Sizes& s, const float* x, const float* weight, const float* bias, int64_t rows,
              int64_t p0, int64_t p1, float* y, const FusedEpilogue& fused, const float* whole) {
  const bool merged = s.merged();
  const int64_t lines = merged ? 1 : rows, w = merged ? rows * s.w : s.w;
  const int64_t tiles = packed_tiles(w), wide = s.wide(), depth = s.depth();
  const bool split = merged && s.h * s.w >= kManyPixels && s.kernel_h * depth > kLongSum;
  const int64_t segments = split ? s.kernel_h : 1, block = split ? kPackedDepth : depth;
  MicroCall<float> m;
  m.segments = split ? 1 : s.kernel_h;
  m.am = merged ? s.step() : s.stride_w * s.c;
  m.ak = 1;
  m.a_segment = wide * s.c;
  m.b_row = kPackedPanel;
  m.b_segment = depth * kPackedPanel;
  m.c_row = s.o;
  for (int64_t p = p0; p < p1; ++p) {
    const int64_t columns = std::min(kPackedPanel, s.o - p * kPackedPanel);
    m.bias = bias ? bias + p * kPackedPanel : nullptr;
    for (int64_t at = 0; at < segments * depth; at += m.k) {  // of the sum
      const int64_t segment = at / depth, k = at % depth;
      m.k = std::min(block, depth - k);
      m.b = weight + (p * s.kernel_h * depth + at) * kPackedPanel;
      m.accumulate = at > 0;
      m.add = nullptr;
      m.clamp = false;
      const bool last = at + m.k == segments * depth;
      const int64_t size = m.segments * m.k * kPackedPanel;
      const bool fetch = (split || size >= kFar) && !(last && p + 1 == p1);
      Ahead ahead(fetch ? m.b + size : nullptr, size, lines * tiles);
      FinishedTiles finished(fused, whole, columns);
      for (int64_t r = 0; r < lines; ++r)
        for (int64_t i = 0; i < tiles; ++i) {
          ahead.step(m);
          const int64_t w0 = w * i / tiles, w1 = w * (i + 1) / tiles;
          m.a = x + (r * s.stride_h + segment) * wide * s.c + w0 * m.am + k;
          m.c = y + (r * s.w + w0) * s.o + p * kPackedPanel;
          if (last)
            finished.run(m, w1 - w0);
          else
            packed_tile(m, w1 - w0, columns);
        }
    }
  }
}

struct Operands {
  const float *x, *w, *bias;
  float *y, *scratch;
  const Epilogue* epilogue;
  FusedEpilogue fused;
};

void run_rows(const Sizes& s, const ConvPackedPlan& plan, const Operands& op) {
  const int64_t blocks = plan.blocks, units = s.n * blocks;
  share_units(plan.workers, units, [&](size_t worker, int64_t u) {
    float* buffer = op.scratch + worker * plan.part;
    const int64_t n = u / blocks, b = u % blocks;
    const int64_t h0 = s.first_row(b, blocks), h1 = s.first_row(b + 1, blocks);
    if (h0 == h1) return;
    const float* x = op.x + n * s.step_n + h0 * s.stride_h * s.step_h;
    if (s.stage) {
      for (int64_t r = 0; r < s.in_rows(h1 - h0); ++r)
        stage_row(s, op.x, n, h0 * s.stride_h - s.top + r, buffer + r * s.wide() * s.c);
      x = buffer;
    }
    const int64_t row = (n * s.h + h0) * s.w;
    float* y = op.y + row * s.o;
    if (s.lean())
      multiply_lean(s, x, op.scratch + plan.lean_at, op.bias, h1 - h0, y, op.fused, op.y);
    else
      multiply(s, x, op.w, op.bias, h1 - h0, 0, s.panels(), y, op.fused, op.y);
    if (op.epilogue) op.epilogue->run(*op.epilogue, row, (n * s.h + h1) * s.w, 0, s.o);
  });
}

void run_panels(const Sizes& s, const ConvPackedPlan& plan, const Operands& op) {
  const int64_t rows = s.in_rows(s.h), row = s.wide() * s.c;
  if (s.stage)
    parallel_for(0, s.n * rows, rows / plan.workers + 1, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k)
        stage_row(s, op.x, k / rows, k % rows - s.top,
                  op.scratch + static_cast<size_t>(k / rows) * plan.part + k % rows * row);
    });
  const int64_t group = std::clamp<int64_t>(s.panels() / (4 * plan.workers), 1, kPanelGroup);
  const int64_t groups = (s.panels() + group - 1) / group;
  share_units(plan.workers, groups, [&](size_t, int64_t u) {
    const int64_t j = u * group, next = std::min(j + group, s.panels());
    for (int64_t n = 0; n < s.n; ++n) {
      const float* x =
          s.stage ? op.scratch + static_cast<size_t>(n) * plan.part : op.x + n * s.step_n;
      multiply(s, x, op.w, op.bias, s.h, j, next, op.y + n * s.h * s.w * s.o, op.fused, op.y);
    }
    if (op.epilogue)
      op.epilogue->run(*op.epilogue, 0, s.n * s.h * s.w, j * kPackedPanel,
                       std::min(next * kPackedPanel, s.o));
  });
}

void run_conv(const KernelCall& c, const Epilogue* e) {
  const auto& plan = *static_cast<const ConvPackedPlan*>(c.plan);
  const Operands op{c.in[0].as<float>(),
                    c.in[1].as<float>(),
                    c.n_in > 2 && c.in[2].present() ? c.in[2].as<float>() : nullptr,
                    c.out[0].as<float>(),
                    static_cast<float*>(c.scratch),
                    e,
                    fused_epilogue_of(c)};
  const Sizes s(c);
  if (s.lean()) collect_weights(s, op.w, op.scratch + plan.lean_at);
  (plan.by_panels ? run_panels : run_rows)(s, plan, op);
}
void run_with(const KernelCall& c, const Epilogue& e) { run_conv(c, &e); }
void run(const KernelCall& c) { run_conv(c, nullptr); }

bool supports(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i) {
    const Array& a = c.in[i];
    if (!a.present()) continue;
    if (a.is_scalar || a.dtype != DType::f32 || a.numel == 0 || (i > 0 && !a.contiguous))
      return false;
  }
  return true;
}
EpilogueKind blocks(const KernelCall&) { return EpilogueKind::blocks; }

}  // namespace

void register_packed_conv() {
  register_epilogue(prepare, blocks);
  register_kernel(DeviceKind::cpu, op::packed_conv, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
