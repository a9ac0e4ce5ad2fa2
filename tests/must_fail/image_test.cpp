// SPDX-License-Identifier: Apache-2.0
// Wrong arguments to image ops and layers: each error names the op, what was wanted, what came, the
// user's line and what to do.
#include "tests/must_fail/must_fail_helper.h"
#include "tests/support/init.h"

namespace tandem::must_fail {
namespace {

// clang-format off
TEST(MustFailImages, Resampling) {
  Tensor img = ones({2, 3, 8, 8}), line = ones({2, 3, 8}), i = ones({2, 3, 8, 8}, int64), grid = zeros({2, 4, 4, 2});
  check({
    FAILS_PLAIN(interpolate_rank, Shape, "interpolate|[2, 3]", interpolate(ones({2, 3}), {.size = 4})),
    FAILS(interpolate_mode, Value, "interpolate|mode 'lanczos'", interpolate(img, {.size = 4, .mode = "lanczos"})),
    FAILS(interpolate_mode_rank, Shape, "interpolate|'bilinear' expects 4|[2, 3, 8]", interpolate(line, {.size = 4, .mode = "bilinear"})),
    FAILS(interpolate_neither, Value, "interpolate|none of size and scale_factor", interpolate(img, {})),
    FAILS(interpolate_both, Value, "interpolate|each of size", interpolate(img, {.size = 4, .scale_factor = 2})),
    FAILS_PLAIN(interpolate_size_count, Value, "interpolate|size [1, 2, 3]", interpolate(img, {.size = {1, 2, 3}})),
    FAILS_PLAIN(interpolate_factors, Value, "interpolate|3 entries", interpolate(img, {.scale_factor = {1, 2, 3}})),
    FAILS(interpolate_zero, Value, "interpolate|output size [0, 0]|at least 1", interpolate(img, {.size = 0})),
    FAILS_PLAIN(interpolate_factor, Value, "interpolate|scale_factor -2", interpolate(img, {.scale_factor = -2})),
    FAILS(interpolate_small, Value, "interpolate|output size [0, 0]", interpolate(img, {.scale_factor = 0.1})),
    FAILS_PLAIN(interpolate_huge, Value, "interpolate", interpolate(img, {.scale_factor = 1e17})),
    FAILS_PLAIN(interpolate_memory, Value, "", interpolate(img, {.size = {int64_t{1} << 40, int64_t{1} << 40}})),
    FAILS(interpolate_corners, Value, "interpolate|align_corners|nearest", interpolate(img, {.size = 4, .align_corners = true})),
    FAILS(interpolate_antialias, Value, "interpolate|antialias", interpolate(img, {.size = 4, .antialias = true})),
    FAILS(interpolate_int, DType, "interpolate|int64", interpolate(i, {.size = 4})),
    FAILS_PLAIN(interpolate_empty, Shape, "interpolate|empty in dimension 3", interpolate(ones({1, 1, 4, 0}), {.size = 4})),
    FAILS_PLAIN(grid_rank, Shape, "grid_sample|[2, 3, 8]", grid_sample(line, grid)),
    FAILS_PLAIN(grid_shape, Shape, "grid_sample|[2, 4, 4, 3]", grid_sample(img, zeros({2, 4, 4, 3}))),
    FAILS_PLAIN(grid_batch, Shape, "grid_sample|same n", grid_sample(img, zeros({1, 4, 4, 2}))),
    FAILS(grid_dtype, DType, "grid_sample|float64|float32", grid_sample(img, grid.to(float64))),
    FAILS(grid_int, DType, "grid_sample|int64", grid_sample(i, grid)),
    FAILS(grid_mode, Value, "grid_sample|'cubic'", grid_sample(img, grid, "cubic")),
    FAILS(grid_padding, Value, "grid_sample|'wrap'", grid_sample(img, grid, "bilinear", "wrap")),
    FAILS(grid_bicubic, Value, "grid_sample|bicubic", grid_sample(ones({1, 1, 2, 2, 2}), zeros({1, 2, 2, 2, 3}), "bicubic")),
    FAILS_PLAIN(affine_theta, Shape, "affine_grid|[2, 3, 3]", affine_grid(ones({2, 3, 3}), {2, 3, 4, 4})),
    FAILS_PLAIN(affine_size, Shape, "affine_grid|[2, 3, 4]", affine_grid(ones({2, 2, 3}), {2, 3, 4})),
    FAILS(im2col_kernel, Shape, "im2col|[9, 9]|size 8", im2col(img, 9)),
    FAILS_PLAIN(im2col_rank, Shape, "im2col|[8]", im2col(ones({8}), 2)),
    FAILS_PLAIN(im2col_stride, Value, "im2col|stride [0, 0]", im2col(img, 2, {1}, {0}, {0})),
    FAILS(col2im_columns, Shape, "col2im|9 columns", col2im(ones({1, 8, 5}), {4, 4}, 2)),
    FAILS_PLAIN(col2im_rows, Shape, "col2im|7 rows", col2im(ones({1, 7, 9}), {4, 4}, 2)),
    FAILS_PLAIN(channel_shuffle_groups, Shape, "channel_shuffle|groups 2|[2, 3, 8, 8]", channel_shuffle(img, 2)),
    FAILS_PLAIN(pixel_shuffle_channels, Shape, "pixel_shuffle|[2, 3, 8, 8]", pixel_shuffle(img, 2)),
  });
}

TEST(MustFailImages, PoolingAndDetection) {
  Tensor img = ones({2, 3, 8, 8}), at = zeros({2, 3, 4, 4}, int64), boxes = ones({3, 4});
  check({
    FAILS_PLAIN(lp_norm_type, Value, "lp_pool2d|norm_type is 0", lp_pool2d(img, 0, 2)),
    FAILS(lp_window, Shape, "lp_pool2d|[9, 9]", lp_pool2d(img, 2, 9)),
    FAILS_PLAIN(unpool_shape, Shape, "max_unpool2d|[2, 3, 8, 8]|[2, 3, 4, 4]", max_unpool2d(img, at, 2)),
    FAILS(unpool_dtype, DType, "max_unpool2d|float32", max_unpool2d(img, img, 2)),
    FAILS_PLAIN(unpool_size, Value, "max_unpool2d|[20, 20]", max_unpool2d(ones({2, 3, 4, 4}), at, 2, {}, {0}, {20, 20})),
    FAILS(unpool_range, Index, "64", max_unpool2d(ones({2, 3, 4, 4}), at + 64, 2)),
    FAILS(fractional_neither, Value, "fractional_max_pool2d|none of", fractional_max_pool2d(img, 2, {})),
    FAILS(fractional_fit, Shape, "fractional_max_pool2d|[8, 8]", fractional_max_pool2d(img, 2, {.output_size = 8})),
    FAILS_PLAIN(fractional_ratio, Value, "fractional_max_pool2d|1.5", fractional_max_pool2d(img, 2, {.output_ratio = 1.5})),
    FAILS_PLAIN(fractional_samples, Shape, "random_samples|[2, 3]", fractional_max_pool2d(img, 2, {.output_size = 3, .random_samples = ones({2, 3})})),
    FAILS_PLAIN(response_size, Value, "local_response_norm|size is 0", local_response_norm(img, 0)),
    FAILS_PLAIN(response_rank, Shape, "local_response_norm|[3, 4]", local_response_norm(boxes, 3)),
    FAILS_PLAIN(nms_boxes, Shape, "nms|[2, 3, 8, 8]", nms(img, ones({2}), 0.5)),
    FAILS_PLAIN(nms_scores, Shape, "nms|[2]|[3, 4]", nms(boxes, ones({2}), 0.5)),
    FAILS(nms_int, DType, "nms|int64", nms(ones({3, 4}, int64), ones({3}), 0.5)),
    FAILS(nms_trace, Unsupported, "nms|trace|size", vmap([](Tensor b) { return nms(b, b.select(1, 0), 0.5); })(ones({2, 3, 4}))),
    FAILS(batched_nms_classes, DType, "batched_nms|float32", batched_nms(boxes, ones({3}), ones({3}), 0.5)),
    FAILS_PLAIN(box_iou_shape, Shape, "box_iou|[3]", box_iou(boxes, ones({3}))),
    FAILS_PLAIN(roi_boxes, Shape, "roi_align|[3, 4]", roi_align(img, boxes, 2)),
    FAILS_PLAIN(roi_list, Shape, "roi_align|1 tensors|[2, 3, 8, 8]", roi_align(img, std::vector<Tensor>{boxes}, 2)),
    FAILS_PLAIN(roi_size, Value, "roi_align|[0, 0]", roi_align(img, ones({1, 5}), 0)),
    FAILS_PLAIN(roi_image, Value, "roi_align|image number 7", roi_align(img, full({1, 5}, 7.0), 2)),
    FAILS_PLAIN(roi_points, Value, "roi_align|points in a bin", roi_align(img, tensor({{0.0f, 0.0f, 0.0f, 1e9f, 1e9f}}), 2)),
    FAILS_PLAIN(roi_pool_image, Value, "image number 9", roi_pool(img, full({1, 5}, 9.0), 2)),
    FAILS(roi_dtype, DType, "roi_align|float64|float32", roi_align(img, ones({1, 5}, float64), 2)),
  });
}

TEST(MustFailImages, Layers) {
  Tensor img = ones({2, 4, 8, 8});
  nn::ConvTranspose2d up(4, 2, 3, {.stride = 2});
  nn::GroupNorm group(2, 4);
  nn::InstanceNorm2d instance(3);
  nn::ReflectionPad2d mirror(9);
  nn::ZeroPad1d zero(1);
  nn::Conv2d odd(4, 2, 3, {.padding = 9, .padding_mode = "reflect"});
  check({
    FAILS_ANYWHERE(conv_padding_name, Value, "\"full\"", nn::Conv2d(4, 2, 3, {.padding = "full"})),
    FAILS_ANYWHERE(conv_padding_mode, Value, "'mirror'", nn::Conv2d(4, 2, 3, {.padding_mode = "mirror"})),
    FAILS_ANYWHERE(conv_same_stride, Value, "same|stride", nn::Conv2d(4, 2, 3, {.stride = 2, .padding = "same"})),
    FAILS_ANYWHERE(transpose_groups, Value, "groups = 3", nn::ConvTranspose2d(4, 2, 3, {.groups = 3})),
    FAILS_ANYWHERE(group_norm_channels, Value, "GroupNorm|3 and 4", nn::GroupNorm(3, 4)),
    FAILS_ANYWHERE(pad_numbers, Value, "padding expects 1 or 4", nn::ZeroPad2d({1, 2, 3})),
    FAILS_ANYWHERE(avg1d_divisor, Value, "divisor_override", nn::AvgPool1d(2, {.divisor_override = 3})),
    FAILS_PLAIN(transpose_output_size, Value, "[40, 40]|17 to 18", up(img, {40, 40})),
    FAILS_PLAIN(group_norm_input, Shape, "GroupNorm|[2, 3]", group(ones({2, 3}))),
    FAILS_PLAIN(instance_norm_input, Shape, "InstanceNorm2d|3 channels|[2, 4, 8, 8]", instance(img)),
    FAILS_PLAIN(reflection_size, Shape, "reflect padding of 9", mirror(img)),
    FAILS_PLAIN(zero_pad_rank, Shape, "ZeroPad1d|[2, 4, 8, 8]", zero(img)),
    FAILS_PLAIN(conv_reflection, Shape, "reflect padding of 9", odd(img)),
  });
}
// clang-format on

}  // namespace
}  // namespace tandem::must_fail
