// SPDX-License-Identifier: Apache-2.0
#include "tandem/weights/formats.h"

namespace tandem::weights {
namespace {

constexpr const WeightsFormat* kFormats[] = {
#define X(row) &format_rows::row,
    TD_FOR_EACH_WEIGHTS_FORMAT(X)
#undef X
};

}  // namespace

Registry<WeightsFormat>& weights_formats() {
  static Registry<WeightsFormat> all("weights format",
                                     std::span<const WeightsFormat* const>(kFormats));
  return all;
}

}  // namespace tandem::weights
