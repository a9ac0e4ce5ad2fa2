// SPDX-License-Identifier: Apache-2.0
// Shared by the files of transforms: argument checks, probabilities, and padding of all members.
#pragma once

#include "tandem/base/error.h"
#include "tandem/data/transforms/transforms.h"

namespace tandem::data::detail {

inline void check_size(const Sizes& size, const char* what) {
  TD_CHECK((size.size() == 1 || size.size() == 2) && size[0] > 0 && size.back() > 0, Value,
           "{}: the size is {{both}} or {{height, width}}, positive", what);
}
inline void check_probability(double p, const char* what) {
  TD_CHECK(p >= 0 && p <= 1, Value, "{}: p lies in 0 .. 1, got {}", what, p);
}
inline void check_range(Range r, const char* what) {
  TD_CHECK(r[0] <= r[1], Value, "{}: the range {} .. {} is empty", what, r[0], r[1]);
}
inline bool happens(PhiloxStream& random, double p) { return between(random, 0, 1) < p; }
/// Pads images by `padding` {left, top, right, bottom} (or as pad_image takes it); masks with 0.
void pad_all(Vision& v, const Sizes& padding, const Fill& fill, PaddingMode mode);

}  // namespace tandem::data::detail
