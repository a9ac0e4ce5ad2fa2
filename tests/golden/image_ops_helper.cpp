// SPDX-License-Identifier: Apache-2.0
// PyTorch's and torchvision's image functions by name: pooling, resampling, patches, detection.
#include "tandem/ops/ops.h"
#include "tests/golden/golden_helper.h"

namespace tandem::golden {
namespace {

// Output sizes: null keeps a size.
IntList size_of(const Case& g) {
  IntList size;
  const io::Json* v = g.attr("output_size");
  if (!v) return size;
  if (!v->as_array()) return {*v->as_int()};
  for (const io::Json& x : *v->as_array()) size.push_back(x.is_null() ? -1 : *x.as_int());
  return size;
}

void add_pools(FnTable& t) {
#define POOL(n)                                                                                    \
  t["max_pool" #n "d"] = [](const Case& g) -> Ts {                                                 \
    IntList k = g.list("kernel_size"), s = g.list("stride"), p = g.list("padding", {0}),           \
            d = g.list("dilation", {1});                                                           \
    if (!g.b("return_indices")) return {max_pool##n##d(g.t(0), k, s, p, d, g.b("ceil_mode"))};     \
    return all_of(max_pool##n##d_with_indices(g.t(0), k, s, p, d, g.b("ceil_mode")));              \
  };                                                                                               \
  t["adaptive_max_pool" #n "d"] = [](const Case& g) -> Ts {                                        \
    if (!g.b("return_indices")) return {adaptive_max_pool##n##d(g.t(0), size_of(g))};              \
    return all_of(adaptive_max_pool##n##d_with_indices(g.t(0), size_of(g)));                       \
  };                                                                                               \
  CASE(adaptive_avg_pool##n##d, adaptive_avg_pool##n##d(g.t(0), size_of(g)));                      \
  CASE(lp_pool##n##d, lp_pool##n##d(g.t(0), g.d("norm_type"), g.list("kernel_size"),               \
                                    g.list("stride"), g.b("ceil_mode")));                          \
  CASE(max_unpool##n##d, max_unpool##n##d(g.t(0), g.t(1), g.list("kernel_size"), g.list("stride"), \
                                          g.list("padding", {0}), size_of(g)));
  POOL(1)
  POOL(2)
  POOL(3)
#undef POOL
#define AVG(name, ...)                                                                     \
  CASE(name, name(g.t(0), g.list("kernel_size"), g.list("stride"), g.list("padding", {0}), \
                  g.b("ceil_mode"), g.b("count_include_pad", true) __VA_OPT__(, ) __VA_ARGS__))
  AVG(avg_pool1d);
  AVG(avg_pool2d, g.i("divisor_override"));
  AVG(avg_pool3d, g.i("divisor_override"));
#undef AVG
  t["fractional_max_pool2d"] = [](const Case& g) -> Ts {
    FractionalPoolOptions o{size_of(g), factor_of(g, "output_ratio"), g.t(1)};
    if (!g.b("return_indices")) return {fractional_max_pool2d(g.t(0), g.list("kernel_size"), o)};
    return all_of(fractional_max_pool2d_with_indices(g.t(0), g.list("kernel_size"), o));
  };
  CASE(local_response_norm, local_response_norm(g.t(0), g.i("size"), g.d("alpha", 1e-4),
                                                g.d("beta", 0.75), g.d("k", 1)));
}

void add_resampling(FnTable& t) {
  t["interpolate"] = [](const Case& g) -> Ts {
    InterpolateOptions o;
    o.size = g.list("size");
    o.scale_factor = factor_of(g, "scale_factor");
    o.mode = g.s("mode", "nearest");
    if (g.has("align_corners")) o.align_corners = g.b("align_corners");
    o.recompute_scale_factor = g.b("recompute_scale_factor");
    o.antialias = g.b("antialias");
    return {interpolate(g.t(0), o)};
  };
  CASE(grid_sample, grid_sample(g.t(0), g.t(1), g.s("mode", "bilinear"),
                                g.s("padding_mode", "zeros"), g.b("align_corners")));
  CASE(affine_grid, affine_grid(g.t(0), g.list("size"), g.b("align_corners")));
  CASE(pixel_shuffle, pixel_shuffle(g.t(0), g.i("upscale_factor")));
  CASE(pixel_unshuffle, pixel_unshuffle(g.t(0), g.i("downscale_factor")));
  CASE(channel_shuffle, channel_shuffle(g.t(0), g.i("groups")));
  CASE(im2col, im2col(g.t(0), g.list("kernel_size"), g.list("dilation", {1}),
                      g.list("padding", {0}), g.list("stride", {1})));
  CASE(col2im, fold(g.t(0), size_of(g), g.list("kernel_size"), g.list("dilation", {1}),
                    g.list("padding", {0}), g.list("stride", {1})));
}

void add_detection(FnTable& t) {
  CASE(box_area, box_area(g.t(0)));
  CASE(box_iou, box_iou(g.t(0), g.t(1)));
  CASE(nms, nms(g.t(0), g.t(1), g.d("iou_threshold")));
  CASE(batched_nms, batched_nms(g.t(0), g.t(1), g.t(2), g.d("iou_threshold")));
  CASE(roi_align, roi_align(g.t(0), g.t(1), size_of(g), g.d("spatial_scale", 1),
                            g.i("sampling_ratio", -1), g.b("aligned")));
  CASE(roi_pool, roi_pool(g.t(0), g.t(1), size_of(g), g.d("spatial_scale", 1)));
}

}  // namespace

void add_image_ops(FnTable& t) {
  add_pools(t);
  add_resampling(t);
  add_detection(t);
}

}  // namespace tandem::golden
