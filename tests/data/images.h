// SPDX-License-Identifier: Apache-2.0
// Images that tests transform.
#pragma once

#include "tandem/tandem.h"

namespace tandem::data {

/// The same random pixels at every call.
inline Tensor random_image(int64_t h = 40, int64_t w = 60) {
  GeneratorGuard generator({3, 0});
  return randint(0, 256, {3, h, w}).to(DType::u8);
}

}  // namespace tandem::data
