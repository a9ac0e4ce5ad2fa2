// SPDX-License-Identifier: Apache-2.0
// Test-time averaging: the net sees an image as it is and mirrored or rotated, and its outputs are
// averaged. Averaging over ten views goes back to Krizhevsky, Sutskever and Hinton, "ImageNet
// Classification with Deep Convolutional Neural Networks" (2012), section 4.1.
#pragma once

#include <functional>
#include <string>

#include "tandem/tensor/tensor.h"

namespace tandem::models {

enum class TestAverage : uint8_t {
  none,   ///< the image alone
  flip,   ///< mirrored left to right as well: 2 views
  flips,  ///< mirrored both ways: 4 views
  turns,  ///< mirrored and rotated by quarter turns: 8 views; four of them swap height and width
};

/// "none", "flip", "flips", "turns"; throws Value naming them.
TD_API TestAverage test_average_of(const std::string& name);

/// The mean of net's outputs over the views of x [n, c, h, w]. Outputs with four dims (maps over
/// the image) are mapped back first. Throws Shape for an x of another rank.
TD_API Tensor average_of_views(const std::function<Tensor(const Tensor&)>& net, const Tensor& x,
                               TestAverage views);

}  // namespace tandem::models
