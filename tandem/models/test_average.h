// SPDX-License-Identifier: Apache-2.0
// Test-time averaging: a picture is shown as it is and mirrored or turned, and the outputs are
// averaged. Ten such views of a picture go back to Krizhevsky, Sutskever and Hinton, "ImageNet
// Classification with Deep Convolutional Neural Networks" (2012), section 4.1.
#pragma once

#include <functional>
#include <string>

#include "tandem/tensor/tensor.h"

namespace tandem::models {

enum class TestAverage : uint8_t {
  none,   ///< the picture alone
  flip,   ///< and mirrored left to right: 2 views
  flips,  ///< mirrored both ways: 4 views
  turns,  ///< mirrored and turned by quarters: 8 views; height and width change places in four
};

/// "none", "flip", "flips", "turns"; throws Value naming them.
TD_API TestAverage test_average_of(const std::string& name);

/// The mean of net's outputs over the views of x [n, c, h, w]. Outputs of four dims (a picture's
/// places) are turned back first. Throws Shape for an x of other rank.
TD_API Tensor average_of_views(const std::function<Tensor(const Tensor&)>& net, const Tensor& x,
                               TestAverage views);

}  // namespace tandem::models
