// SPDX-License-Identifier: Apache-2.0
// Rows of the image ops for the row driver: resampling, patches, detection. Part of row_table.h,
// whose head comment explains the strings.
#pragma once

#include "tests/ops/row_table.h"

namespace tandem::rows {

inline ResampleAttrs resize(ResampleMode mode, IntList output, bool align_corners = false,
                            bool antialias = false) {
  ResampleAttrs a;
  a.mode = static_cast<int64_t>(mode);
  a.output = output;
  a.align_corners = align_corners;
  a.antialias = antialias;
  return a;
}
inline ResampleAttrs back_to(ResampleAttrs a, IntList size) {
  a.size = size;
  return a;
}

inline void add_resizing(std::vector<Row>& t) {
  struct Case {
    ResampleAttrs attrs;
    IntList size;  ///< of x
  };
  ResampleAttrs factor = resize(ResampleMode::linear, {7, 2});
  factor.scale0 = 1.45, factor.scale1 = 0.7;
  const Case cases[] = {
      {resize(ResampleMode::nearest, {7, 3}), {4, 5}},
      {resize(ResampleMode::nearest_exact, {3, 8}), {5, 4}},
      {resize(ResampleMode::linear, {8, 3}), {5, 4}},
      {resize(ResampleMode::linear, {5, 1}, true), {3, 4}},
      {factor, {5, 4}},
      {resize(ResampleMode::cubic, {6, 3}), {4, 5}},
      {resize(ResampleMode::cubic, {2, 7}, true), {5, 4}},
      {resize(ResampleMode::linear, {3, 2}, false, true), {7, 6}},
      {resize(ResampleMode::cubic, {3, 8}, false, true), {8, 5}},
      {resize(ResampleMode::linear, {9}), {4}},
      {resize(ResampleMode::nearest, {3}), {7}},
      {resize(ResampleMode::linear, {3, 2, 5}), {2, 4, 3}},
      {resize(ResampleMode::nearest, {3, 2, 5}), {2, 4, 3}},
  };
  auto shape = [](const IntList& size) {
    std::string s = "n,2";
    for (Dim d : size) s += "," + std::to_string(d.value());
    return s;
  };
  for (const Case& c : cases) {
    t.push_back({"interpolate", shape(c.size), with(c.attrs), 0, 501});
    t.push_back(
        {"interpolate_backward", shape(c.attrs.output), with(back_to(c.attrs, c.size)), 0, 501});
  }
}

inline void add_sampling(std::vector<Row>& t) {
  struct Case {
    ResampleMode mode;
    GridPadding padding;
    bool corners;
  };
  const Case cases[] = {
      {ResampleMode::linear, GridPadding::zeros, false},
      {ResampleMode::linear, GridPadding::border, true},
      {ResampleMode::linear, GridPadding::reflection, false},
      {ResampleMode::nearest, GridPadding::reflection, true},
      {ResampleMode::cubic, GridPadding::zeros, false},
      {ResampleMode::cubic, GridPadding::border, true},
      {ResampleMode::cubic, GridPadding::reflection, false},
  };
  const char* kJump = "at 16 bits a position may fall on the other side of a pixel";
  for (const Case& c : cases) {
    GridSampleAttrs a;
    a.mode = static_cast<int64_t>(c.mode);
    a.padding = static_cast<int64_t>(c.padding);
    a.align_corners = c.corners;
    GridSampleAttrs b = a;
    b.size = {4, 5};
    // The nearest element jumps: its numeric derivative with respect to the grid is meaningless.
    const bool jumps = c.mode == ResampleMode::nearest;
    const unsigned off = kNo16 | (jumps ? kLastConstant : 0u);
    t.push_back({"grid_sample", "n,2,4,5|n,3,2,2", with(a), off, 501, 2, 2e-5, kJump});
    t.push_back(
        {"grid_sample_backward_input", "n,2,3,2|n,3,2,2", with(b), off, 501, 2, 2e-5, kJump});
    t.push_back({"grid_sample_backward_grid", "n,2,3,2|n,2,4,5|n,3,2,2", with(a), kNo16, 501, 2,
                 2e-5, kJump});
  }
  GridSampleAttrs a, b;
  a.padding = static_cast<int64_t>(GridPadding::reflection);
  b = a;
  b.size = {2, 4, 3};
  t.push_back({"grid_sample", "n,2,2,4,3|n,2,1,3,3", with(a), kNo16, 501, 2, 2e-5, kJump});
  t.push_back(
      {"grid_sample_backward_input", "n,2,2,1,3|n,2,1,3,3", with(b), kNo16, 501, 2, 2e-5, kJump});
  t.push_back({"grid_sample_backward_grid", "n,2,2,1,3|n,2,2,4,3|n,2,1,3,3", with(a), kNo16, 501, 2,
               2e-5, kJump});
}

inline void add_patches(std::vector<Row>& t) {
  const FoldAttrs plain{{2, 2}, {1, 1}, {0, 0}, {1, 1}, {}};
  const FoldAttrs wide{{2, 3}, {2, 1}, {1, 2}, {1, 2}, {}};
  auto back = [](FoldAttrs a, IntList size) {
    a.size = size;
    return with(a);
  };
  t.push_back({"im2col", "n,2,4,5", with(plain), 0, 501});
  t.push_back({"im2col", "n,2,5,6", with(wide), 0, 501});
  t.push_back({"im2col", "n,2,5,6 ints", with(wide), 0, 501});
  t.push_back({"col2im", "n,8,12", back(plain, {4, 5}), 0, 501});
  t.push_back({"col2im", "n,12,20", back(wide, {5, 6}), 0, 501});
  t.push_back({"col2im", "n,12,20 ints", back(wide, {5, 6}), 0, 501});
}

inline void add_detection(std::vector<Row>& t) {
  const char* kRound = "at 16 bits a box has other pixels";
  t.push_back({"nms", "n,4|n", with(NmsAttrs{0.1, 6, -1}), kNo16, 501, 2, 2e-5, kRound});
  t.push_back({"nms", "n,4 pos|n|n int:2", with(NmsAttrs{0.3, 3, 7}), kNo16, 501, 2, 2e-5, kRound});
  RoiAttrs a, b;
  a.height = 2, a.width = 3, a.sampling_ratio = 2, a.spatial_scale = 2;
  b.height = b.width = 2, b.aligned = true, b.spatial_scale = 3;
  const unsigned off = kLastConstant | kNo16;
  for (RoiAttrs r : {a, b}) {
    const std::string g = r.height == r.width ? "n,2,2,2" : "n,2,2,3";
    const std::string boxes = "|n int:3|n,4 any";
    t.push_back({"roi_align", "3,2,6,7" + boxes, with(r), off, 501, 2, 2e-5, kRound});
    t.push_back({"roi_pool_indices", "3,2,6,7" + boxes, with(r), off, 501, 2, 2e-5, kRound});
    r.size = {3, 6, 7};
    t.push_back({"roi_align_backward", g + boxes, with(r), off, 501, 2, 2e-5, kRound});
  }
}

inline void add_images(std::vector<Row>& t) {
  add_resizing(t);
  add_sampling(t);
  add_patches(t);
  add_detection(t);
}

}  // namespace tandem::rows
