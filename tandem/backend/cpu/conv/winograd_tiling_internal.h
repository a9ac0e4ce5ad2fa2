// SPDX-License-Identifier: Apache-2.0
// How a Winograd convolution, of floats or of integers, cuts its outputs into tiles.
#pragma once

#include <cstdint>

#include "tandem/graph/kernel.h"
#include "tandem/ops/matmul/packed.h"

namespace tandem::detail {

/// Images [n, h, w, c] to [n, out_h, out_w, o] in tiles of `tile` x `tile` outputs; a band is a row
/// of tiles.
struct WinogradTiling {
  int64_t n, h, w, c, o, out_h, out_w, top, left, tiles_h, tiles_w;

  WinogradTiling(const KernelCall& call, int64_t tile) {
    const auto& a = call.get_attrs<PackedAttrs>();
    const Array &x = call.in[0], &y = call.out[0];
    n = x.shape[0], h = x.shape[1], w = x.shape[2], c = x.shape[3];
    o = a.columns, out_h = y.shape[1], out_w = y.shape[2];
    top = a.padding[0].value(), left = a.padding[1].value();
    tiles_h = (out_h + tile - 1) / tile;
    tiles_w = (out_w + tile - 1) / tile;
  }
  int64_t bands() const { return n * tiles_h; }
};

}  // namespace tandem::detail
