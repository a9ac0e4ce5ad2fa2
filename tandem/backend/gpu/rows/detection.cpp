// SPDX-License-Identifier: Apache-2.0
// Boxes and regions (ops/vision/detection_reference.cpp has the formulas). f16 and bf16 are
// computed in f32 here, in f64 there.
#include "tandem/ops/vision/detection.h"
#include "tandem/backend/gpu/rows/dense_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"

namespace tandem::gpu {
namespace {

// ---- nms: one block. order: boxes by score; gone: dropped, by place in that order

constexpr DenseKernel kNms{.name = "nms", .blocks = true, .body = {R"td_text(
#define BOX(k, i) I0(4 * order[k] + (i))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
  for (td_i64 i = t; i < n; i += td_threads(x)) {
    const TI1 own = I1(i);
    td_i64 place = 0;
    for (td_i64 j = 0; j < n; ++j) {
      const TI1 other = I1(j);
      const td_i32 equal = other == own || (other != other && own != own);
      const td_i32 above = other != other ? own == own : other > own;
      place += above || (equal && j < i) ? 1 : 0;
    }
    order[place] = i;
    gone[place] = 0;
  }
  td_barrier();
  td_i64 kept = 0;
  for (td_i64 k = 0; k < n && kept < wanted; ++k) {
    if (!gone[k]) {
      if (t == 0) P0(kept, order[k]);
      ++kept;
      const TI0 x0 = BOX(k, 0), y0 = BOX(k, 1), x1 = BOX(k, 2), y1 = BOX(k, 3);
      const TI0 area = (x1 - x0) * (y1 - y0);
      for (td_i64 m = k + 1 + t; m < n; m += td_threads(x)) {
        if (gone[m] || (HAS2 && I2(order[k]) != I2(order[m]))) continue;
        const TI0 u0 = BOX(m, 0), v0 = BOX(m, 1), u1 = BOX(m, 2), v1 = BOX(m, 3);
        const TI0 w = LARGER(0, SMALLER(x1, u1) - LARGER(x0, u0));
        const TI0 h = LARGER(0, SMALLER(y1, v1) - LARGER(y0, v0));
        const TI0 common = w * h, other = (u1 - u0) * (v1 - v0);
        if ((td_f64)(common / (area + other - common)) > threshold) gone[m] = 1;
      }
    }
    td_barrier();
  }
  for (td_i64 k = kept + t; k < wanted; k += td_threads(x)) P0(k, fill);
#undef BOX
#undef LARGER
#undef SMALLER
)td_text"}};

std::shared_ptr<const Plan> prepare_nms(const KernelCall& c) {
  const auto n = static_cast<size_t>(c.in[0].shape[0]);
  return plan_dense(c, {n * sizeof(int64_t), n * sizeof(int32_t)});
}
void run_nms(const KernelCall& c) {
  const auto& a = c.get_attrs<NmsAttrs>();
  const int64_t n = c.in[0].shape[0];
  if (a.size == 0) return;
  DenseCall call(c);
  call.number("n", n).number("wanted", a.size).number("fill", a.fill);
  call.number("threshold", a.iou_threshold);
  call.scratch("order", DType::i64, n).scratch("gone", DType::i32, n).run(kNms, 1);
}

// ---- roi_align: box `b`, its image and the points of its bins

constexpr const char* kRoiText =
    R"td_text(
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define BOX(i) ((TO0)I2(4 * b + (i)) * (TO0)scale - (TO0)(aligned ? 0.5 : 0))
  const TO0 box_x = BOX(0), box_y = BOX(1);
  const TO0 wide = aligned ? BOX(2) - box_x : LARGER(BOX(2) - box_x, 1);
  const TO0 tall = aligned ? BOX(3) - box_y : LARGER(BOX(3) - box_y, 1);
  const TO0 bin_h = tall / (TO0)bins_h, bin_w = wide / (TO0)bins_w;
  const TO0 need_h = ratio > 0 ? (TO0)ratio : -td_floor(-bin_h);
  const TO0 need_w = ratio > 0 ? (TO0)ratio : -td_floor(-bin_w);
  const td_i32 fits = need_h <= 65536 && need_w <= 65536;
  const td_i64 per_h = fits && need_h > 0 ? (td_i64)need_h : 0;
  const td_i64 per_w = fits && need_w > 0 ? (td_i64)need_w : 0;
  const TO0 count = (TO0)LARGER(per_h * per_w, 1);
#undef LARGER
#undef BOX
)td_text";

// For the thread that reports box b: an image or a count of points that cannot be.
constexpr const char* kReportRoiText =
    R"td_text(
    if (image < 0 || image >= images) {
      td_report(1, image);
    } else if (!fits) {
      const TO0 n = need_h <= 65536 ? need_w : need_h;
      td_report(2, n < (TO0)1e18 ? (td_i64)n : (td_i64)(~(td_u64)0 >> 1));
    }
)td_text";

// A point's place along one axis: the two elements that it lies between.
constexpr const char* kLineText =
    R"td_text(
#define LINE(start, bin, k, per, i, size, low, high, share)                            \
  {                                                                                    \
    TO0 at = (start) + (TO0)(k) * (bin) + ((TO0)(i) + (TO0)0.5) * (bin) / (TO0)(per);  \
    low = -1;                                                                          \
    if (at >= -1 && at <= (TO0)(size)) {                                               \
      at = at > 0 ? at : 0;                                                            \
      low = (td_i64)at;                                                                \
      high = low + 1;                                                                  \
      share = at - (TO0)low;                                                           \
      if (low >= (size) - 1) {                                                         \
        low = high = (size) - 1;                                                       \
        share = 0;                                                                     \
      }                                                                                \
    }                                                                                  \
  }
#define td_floor(v) ((TO0)tdo_floor_d((td_f64)(v)))
)td_text";
constexpr const char* kLineEndText = "#undef LINE\n#undef td_floor\n";

// A thread a bin of a box and channel. Inputs x, image, boxes.
constexpr DenseKernel kRoiAlign{.name = "roi_align",
                                .reports = true,
                                .body = {kLineText, R"td_text(
  const td_i64 bw = me % bins_w, bh = me / bins_w % bins_h, q = me / bins_w / bins_h % channels;
  const td_i64 b = me / bins_w / bins_h / channels, image = I1(b);
  TO0 sum = 0;
)td_text",
                                         kRoiText, R"td_text(
  if (me % (bins_w * bins_h * channels) == 0) {
)td_text",
                                         kReportRoiText, R"td_text(
  }
  if (fits && image >= 0 && image < images) {
    const td_i64 plane = (image * channels + q) * in_h * in_w;
    for (td_i64 i = 0; i < per_h; ++i) {
      td_i64 y0, y1;
      TO0 y;
      LINE(box_y, bin_h, bh, per_h, i, in_h, y0, y1, y)
      if (y0 < 0) continue;
      for (td_i64 j = 0; j < per_w; ++j) {
        td_i64 x0, x1;
        TO0 w;
        LINE(box_x, bin_w, bw, per_w, j, in_w, x0, x1, w)
        if (x0 < 0) continue;
        sum += (1 - y) * (1 - w) * I0(plane + y0 * in_w + x0);
        sum += (1 - y) * w * I0(plane + y0 * in_w + x1);
        sum += y * (1 - w) * I0(plane + y1 * in_w + x0);
        sum += y * w * I0(plane + y1 * in_w + x1);
      }
    }
  }
  P0(me, sum / count);
)td_text",
                                         kLineEndText}};

// A thread a plane of the gradient, for its boxes in order. Inputs gy, image, boxes.
constexpr DenseKernel kRoiAlignBackward{.name = "roi_align_backward",
                                        .reports = true,
                                        .body = {kLineText, R"td_text(
  const td_i64 plane = me * in_h * in_w, q = me % channels;
  for (td_i64 e = 0; e < in_h * in_w; ++e) P0(plane + e, 0);
  for (td_i64 b = 0; b < boxes; ++b) {
    const td_i64 image = I1(b);
)td_text",
                                                 kRoiText, R"td_text(
    if (me == 0) {
)td_text",
                                                 kReportRoiText, R"td_text(
    }
    if (!fits || image != me / channels) continue;
    for (td_i64 bin = 0; bin < bins_h * bins_w; ++bin) {
      const TO0 g = I0((b * channels + q) * bins_h * bins_w + bin);
      for (td_i64 i = 0; i < per_h; ++i) {
        td_i64 y0, y1;
        TO0 y;
        LINE(box_y, bin_h, bin / bins_w, per_h, i, in_h, y0, y1, y)
        if (y0 < 0) continue;
        for (td_i64 j = 0; j < per_w; ++j) {
          td_i64 x0, x1;
          TO0 w;
          LINE(box_x, bin_w, bin % bins_w, per_w, j, in_w, x0, x1, w)
          if (x0 < 0) continue;
#define SEND(to, factor) P0(plane + (to), O0(plane + (to)) + (factor) * g / count)
          SEND(y0 * in_w + x0, (1 - y) * (1 - w));
          SEND(y0 * in_w + x1, (1 - y) * w);
          SEND(y1 * in_w + x0, y * (1 - w));
          SEND(y1 * in_w + x1, y * w);
#undef SEND
        }
      }
    }
  }
)td_text",
                                                 kLineEndText}};

// A thread a bin of a box and channel. Inputs x, image, boxes.
constexpr DenseKernel kRoiPool{.name = "roi_pool_indices", .reports = true, .body = {R"td_text(
#define WHOLE(v) ((TI0)tdo_trunc_d((td_f64)(v)))
#define ROUND(v) (WHOLE(v) + ((v) - WHOLE(v) >= (TI0)0.5 ? 1 : (v) - WHOLE(v) <= (TI0)-0.5 ? -1 : 0))
#define EDGE(i) ROUND((TI0)I2(4 * b + (i)) * (TI0)scale)
#define CUT(v, size) ((v) > 0 ? (td_i64)((v) < (TI0)(size) ? (v) : (TI0)(size)) : 0)
#define BELOW(v) ((TI0)tdo_floor_d((td_f64)(v)))
  const td_i64 bw = me % bins_w, bh = me / bins_w % bins_h, q = me / bins_w / bins_h % channels;
  const td_i64 b = me / bins_w / bins_h / channels, image = I1(b);
  td_i64 best = -1;
  if (image < 0 || image >= images) {
    if (me % (bins_w * bins_h * channels) == 0) td_report(1, image);
  } else {
    const TI0 box_x = EDGE(0), box_y = EDGE(1), wide = EDGE(2) - box_x + 1;
    const TI0 tall = EDGE(3) - box_y + 1;
    const TI0 bin_w = (wide > 1 ? wide : 1) / (TI0)bins_w, bin_h = (tall > 1 ? tall : 1) / (TI0)bins_h;
    const td_i64 h0 = CUT(BELOW((TI0)bh * bin_h) + box_y, in_h);
    const td_i64 h1 = CUT(-BELOW(-((TI0)(bh + 1) * bin_h)) + box_y, in_h);
    const td_i64 w0 = CUT(BELOW((TI0)bw * bin_w) + box_x, in_w);
    const td_i64 w1 = CUT(-BELOW(-((TI0)(bw + 1) * bin_w)) + box_x, in_w);
    const td_i64 plane = (image * channels + q) * in_h * in_w;
    TI0 top = (TI0)lowest;
    for (td_i64 i = h0; i < h1; ++i) {
      for (td_i64 j = w0; j < w1; ++j) {
        const TI0 v = I0(plane + i * in_w + j);
        if (v > top) {
          top = v;
          best = plane + i * in_w + j;
        }
      }
    }
  }
  P0(me, best);
#undef WHOLE
#undef ROUND
#undef EDGE
#undef CUT
#undef BELOW
)td_text"}};

// x is the image, or its gradient.
void number_regions(DenseCall& call, const KernelCall& c, const Array& x) {
  const auto& a = c.get_attrs<RoiAttrs>();
  call.number("images", x.shape[0]).number("channels", x.shape[1]);
  call.number("in_h", x.shape[2]).number("in_w", x.shape[3]);
  call.number("bins_h", a.height).number("bins_w", a.width).number("scale", a.spatial_scale);
  call.number("ratio", a.sampling_ratio).number("aligned", int64_t{a.aligned});
}

void run_roi_align(const KernelCall& c) {
  DenseCall call(c);
  number_regions(call, c, c.in[0]);
  call.run(kRoiAlign, c.out[0].numel);
}
void run_roi_align_backward(const KernelCall& c) {
  const Array& x = c.out[0];
  if (x.numel == 0) return;
  DenseCall call(c);
  number_regions(call, c, x);
  call.number("boxes", c.in[2].shape[0]).run(kRoiAlignBackward, x.shape[0] * x.shape[1]);
}
// An element is chosen if it is larger than the least number of its type.
void run_roi_pool(const KernelCall& c) {
  DenseCall call(c);
  number_regions(call, c, c.in[0]);
  call.number("lowest", c.in[0].dtype == DType::f64 ? -0x1.fffffffffffffp+1023 : -0x1.fffffep+127);
  call.run(kRoiPool, c.out[0].numel);
}

}  // namespace

void register_detection(DeviceKind kind) {
  register_kernel(kind, op::nms, {has_f64, nullptr, prepare_nms, run_nms});
  register_kernel(kind, op::roi_align, {has_f64, nullptr, prepare_dense, run_roi_align});
  register_kernel(kind, op::roi_align_backward,
                  {has_f64, nullptr, prepare_dense, run_roi_align_backward});
  register_kernel(kind, op::roi_pool_indices, {has_f64, nullptr, prepare_dense, run_roi_pool});
}

}  // namespace tandem::gpu
