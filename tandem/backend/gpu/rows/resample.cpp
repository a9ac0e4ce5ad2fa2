// SPDX-License-Identifier: Apache-2.0
// Resizing and sampling of images. interpolate and its transpose are given as weights by the
// row's own tables (ops/vision/resample_internal.h), which the first call copies to the device.
#include <algorithm>
#include <mutex>

#include "tandem/backend/gpu/rows/dense_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/backend/gpu/rows/spatial_internal.h"
#include "tandem/ops/vision/resample_internal.h"

namespace tandem::gpu {
namespace {

// ---- interpolate: a thread an element of the result

// Three maps, one after the other: `first` of each begins at 0.
struct ResampleTables : Plan {
  std::vector<int64_t> first, at;
  std::vector<double> weight;
  int64_t in[kSpatial], out[kSpatial];
  int64_t first_from[kSpatial], tap_from[kSpatial];  ///< where a map's parts begin
  mutable std::mutex lock;
  mutable std::vector<Tensor> there;  ///< all three tables as bytes, on each device so far

  Address on_device(const KernelCall& c) const;
};

// The host waits once, so that calls in other streams may follow.
Address ResampleTables::on_device(const KernelCall& c) const {
  std::lock_guard hold(lock);
  for (const Tensor& t : there)
    if (t.device() == c.device) return address_of(t.impl()->data);
  const std::pair<const void*, size_t> tables[] = {{first.data(), first.size() * sizeof(int64_t)},
                                                   {at.data(), at.size() * sizeof(int64_t)},
                                                   {weight.data(), weight.size() * sizeof(double)}};
  size_t bytes = 0;
  for (const auto& [from, n] : tables) bytes += n;
  const Shape shape(static_cast<int64_t>(bytes));
  const Tensor made(Ref<detail::TensorImpl>::adopt(detail::new_tensor(shape, DType::u8, c.device)));
  Engine& e = engine_of(c.device);
  const StreamRef stream = e.stream(c.stream);
  Address to = address_of(made.impl()->data);
  for (const auto& [from, n] : tables) {
    if (n) e.copy_in(to, from, n, stream);
    to += n;
  }
  e.check(e.context().synchronize_stream(stream));
  there.push_back(made);
  return address_of(made.impl()->data);
}

std::shared_ptr<const Plan> prepare_interpolate(const KernelCall& c) {
  auto plan = std::make_shared<ResampleTables>();
  std::vector<detail::AxisMap> maps = detail::axis_maps(c);
  while (maps.size() < kSpatial) maps.insert(maps.begin(), {{0, 1}, {0}, {1}, 1, 1});
  for (size_t i = 0; i < kSpatial; ++i) {
    const detail::AxisMap& m = maps[i];
    plan->in[i] = m.in;
    plan->out[i] = m.out;
    plan->first_from[i] = static_cast<int64_t>(plan->first.size());
    plan->tap_from[i] = static_cast<int64_t>(plan->at.size());
    plan->first.insert(plan->first.end(), m.first.begin(), m.first.end());
    plan->at.insert(plan->at.end(), m.at.begin(), m.at.end());
    plan->weight.insert(plan->weight.end(), m.weight.begin(), m.weight.end());
  }
  plan->workspace = prepare_dense(c)->workspace;
  return plan;
}

constexpr DenseKernel kInterpolate{.name = "interpolate", .body = {R"td_text(
  const td_i64 w = me % out_w, h = me / out_w % out_h, d = me / out_w / out_h % out_d;
  const td_i64 plane = me / out_w / out_h / out_d;
  TO0 sum = 0;
  for (td_i64 i = first[first_d + d]; i < first[first_d + d + 1]; ++i)
    for (td_i64 j = first[first_h + h]; j < first[first_h + h + 1]; ++j)
      for (td_i64 k = first[first_w + w]; k < first[first_w + w + 1]; ++k) {
        const td_i64 y = (plane * in_d + at[tap_d + i]) * in_h + at[tap_h + j];
        const TO0 factor = (TO0)(weight[tap_d + i] * weight[tap_h + j] * weight[tap_w + k]);
        sum += factor * I0(y * in_w + at[tap_w + k]);
      }
  P0(me, sum);
)td_text"}};

void run_interpolate(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  const auto& plan = static_cast<const ResampleTables&>(*c.plan);
  DenseCall call(c);
  const auto number_all = [&](const char* const(&names)[kSpatial], const int64_t* v) {
    for (int i = 0; i < kSpatial; ++i) call.number(names[i], v[i]);
  };
  number_all({"in_d", "in_h", "in_w"}, plan.in);
  number_all({"out_d", "out_h", "out_w"}, plan.out);
  number_all({"first_d", "first_h", "first_w"}, plan.first_from);
  number_all({"tap_d", "tap_h", "tap_w"}, plan.tap_from);
  Address table = plan.on_device(c);
  for (const auto& [name, type, count] : {std::tuple{"first", DType::i64, plan.first.size()},
                                          std::tuple{"at", DType::i64, plan.at.size()},
                                          std::tuple{"weight", DType::f64, plan.weight.size()}}) {
    call.table(name, type, table, count * size_of(type));
    table += count * size_of(type);
  }
  call.run(kInterpolate, c.out[0].numel);
}

// ---- grid_sample: the taps of a point in f64, as the row's reference has them

// Modes and paddings are those of ops/vision/resample.h.
constexpr const char* kTapsText =
    R"td_text(
typedef struct { td_i64 index[4]; double weight[4]; } td_taps;
TDM_FN td_i64 td_whole(double at) { return at > -1e15 && at < 1e15 ? (td_i64)at : -100; }
TDM_FN double td_padded(double at, double size, td_i64 padding, td_i64 align) {
  if (padding == 0) return at;
  if (padding == 2) {
    const double lo = align ? 0 : -0.5, hi = align ? size - 1 : size - 0.5, span = hi - lo;
    if (span <= 0) {
      at = 0;
    } else {
      const double from = tdmi_abs(at - lo), turns = tdo_floor_d(from / span);
      const double rest = from - turns * span, halves = turns * 0.5;
      at = tdo_floor_d(halves) == halves ? rest + lo : hi - rest;
    }
  }
  return at < 0 ? 0 : at > size - 1 ? size - 1 : at;
}
TDM_FN td_i64 td_inside(td_i64 i, td_i64 n) { return i >= 0 && i < n ? i : -1; }
TDM_FN double td_cubic(double d) {
  return d < 1 ? (1.25 * d - 2.25) * d * d + 1 : ((-0.75 * d + 3.75) * d - 6) * d + 3;
}
TDM_FN int td_taps_of(double g, td_i64 n, td_i64 mode, td_i64 padding, td_i64 align, td_taps* r) {
  const double size = (double)n, factor = align ? (size - 1) / 2 : size / 2;
  double at = align ? (g + 1) * factor : (g + 1) * factor - 0.5, low;
  int k;
  if (mode == 3) {
    low = tdo_floor_d(at);
    for (k = 0; k < 4; ++k) {
      const double inside = tdo_floor_d(td_padded(low + k - 1, size, padding, align));
      r->weight[k] = td_cubic(tdmi_abs(at - low - (k - 1)));
      r->index[k] = at > -1e15 && at < 1e15 ? td_inside(td_whole(inside), n) : -1;
    }
    return 4;
  }
  at = td_padded(at, size, padding, align);
  if (mode == 0) {
    r->weight[0] = 1;
    r->index[0] = td_inside(td_whole(tdo_round_d(at)), n);
    return 1;
  }
  low = tdo_floor_d(at);
  r->index[0] = td_inside(td_whole(low), n);
  r->index[1] = td_inside(td_whole(low) + 1, n);
  r->weight[0] = 1 - (at - low);
  r->weight[1] = at - low;
  return 2;
}
)td_text";

// Defines the taps of point `point` of sample `n0` from the grid, which is input 1, as EACH_TAP:
// loops that define `from`, the element of a plane, and its `factor`.
constexpr const char* kPointText =
    R"td_text(
  td_taps td, th, tw;
  const td_i64 g = (n0 * points + point) * dims;
  const int nw = td_taps_of(I1(g), in_w, mode, padding, align, &tw);
  const int nh = td_taps_of(I1(g + 1), in_h, mode, padding, align, &th);
  int nd = 1, kd, kh, kw;
  td.index[0] = 0;
  td.weight[0] = 1;
  if (dims == 3) nd = td_taps_of(I1(g + 2), in_d, mode, padding, align, &td);
#define EACH_TAP                                                                   \
  for (kd = 0; kd < nd; ++kd)                                                      \
    for (kh = 0; kh < nh; ++kh)                                                    \
      for (kw = 0; kw < nw; ++kw)                                                  \
        if (td.index[kd] >= 0 && th.index[kh] >= 0 && tw.index[kw] >= 0)
#define TAP_PLACE ((td.index[kd] * in_h + th.index[kh]) * in_w + tw.index[kw])
#define TAP_FACTOR ((TO0)(tw.weight[kw] * th.weight[kh] * td.weight[kd]))
)td_text";
constexpr const char* kPointEndText = "#undef EACH_TAP\n#undef TAP_PLACE\n#undef TAP_FACTOR\n";

// A thread a point of a sample, for all channels.
constexpr DenseKernel kGridSample{
    .name = "grid_sample",
    .functions = {kTapsText},
    .body = {"  const td_i64 n0 = me / points, point = me % points;\n", kPointText, R"td_text(
  for (td_i64 c = 0; c < channels; ++c) {
    TO0 sum = 0;
    EACH_TAP sum += TAP_FACTOR * I0((n0 * channels + c) * in_d * in_h * in_w + TAP_PLACE);
    P0((n0 * channels + c) * points + point, sum);
  }
)td_text",
             kPointEndText}};

// A thread a part of a plane's rows, for all points in their order: sums are the same in each run.
constexpr DenseKernel kGridSampleBackward{.name = "grid_sample_backward_input",
                                          .functions = {kTapsText},
                                          .body = {R"td_text(
  const td_i64 plane = me / parts, part = me % parts, n0 = plane / channels;
  const td_i64 size = in_d * in_h * in_w, first = size * part / parts;
  const td_i64 last = size * (part + 1) / parts;
  for (td_i64 e = first; e < last; ++e) P0(plane * size + e, 0);
  for (td_i64 point = 0; point < points; ++point) {
    const TO0 v = I0(plane * points + point);
)td_text",
                                                   kPointText, R"td_text(
    EACH_TAP {
      const td_i64 to = TAP_PLACE;
      if (to >= first && to < last) {
        P0(plane * size + to, O0(plane * size + to) + TAP_FACTOR * v);
      }
    }
)td_text",
                                                   kPointEndText, "  }\n"}};

constexpr int64_t kSamplingThreads = 4096;

// What both kernels read of x (or its gradient) and of y.
int64_t number_sampling(DenseCall& call, const KernelCall& c, const Array& x, const Array& y) {
  static constexpr const char* kSizes[] = {"in_d", "in_h", "in_w"};
  const auto& a = c.get_attrs<GridSampleAttrs>();
  int64_t points = 1;
  for (int i = 0; i < kSpatial; ++i) {
    const int d = i - (kSpatial + 2 - x.rank);
    call.number(kSizes[i], d < 0 ? int64_t{1} : x.shape[d + 2]);
    if (d >= 0) points *= y.shape[d + 2];
  }
  call.number("dims", int64_t{x.rank} - 2).number("channels", x.shape[1]);
  call.number("points", points).number("mode", a.mode).number("padding", a.padding);
  call.number("align", int64_t{a.align_corners});
  return points;
}

void run_grid_sample(const KernelCall& c) {
  if (c.out[0].numel == 0) return;
  DenseCall call(c);
  const int64_t points = number_sampling(call, c, c.in[0], c.out[0]);
  call.run(kGridSample, c.in[0].shape[0] * points);
}
void run_grid_sample_backward(const KernelCall& c) {
  const Array& x = c.out[0];
  if (x.numel == 0) return;
  DenseCall call(c);
  number_sampling(call, c, x, c.in[0]);
  const int64_t planes = x.shape[0] * x.shape[1];
  const int64_t parts = std::clamp(kSamplingThreads / planes, int64_t{1}, x.numel / planes);
  call.number("parts", parts).run(kGridSampleBackward, planes * parts);
}

static_assert(static_cast<int64_t>(ResampleMode::nearest) == 0 &&
              static_cast<int64_t>(ResampleMode::cubic) == 3 &&
              static_cast<int64_t>(GridPadding::zeros) == 0 &&
              static_cast<int64_t>(GridPadding::reflection) == 2);

}  // namespace

void register_resample(DeviceKind kind) {
  for (const OpDef* row : {&op::interpolate, &op::interpolate_backward}) {
    register_kernel(kind, *row, {has_f64, nullptr, prepare_interpolate, run_interpolate});
  }
  register_kernel(kind, op::grid_sample, {has_f64, nullptr, prepare_dense, run_grid_sample});
  register_kernel(kind, op::grid_sample_backward_input,
                  {has_f64, nullptr, prepare_dense, run_grid_sample_backward});
}

}  // namespace tandem::gpu
