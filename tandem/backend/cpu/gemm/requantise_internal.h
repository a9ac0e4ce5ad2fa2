// SPDX-License-Identifier: Apache-2.0
// Codes of the sums of a tile (graph/requantise.h), a panel of 32 columns wide: the bits are those
// of the loop that the epilogue would run. Bounds before a product are bounds behind it, as
// rounding keeps order; the last clamping is that of packing with saturation.
#pragma once

#include <cstdint>

#include "tandem/graph/epilogue.h"
#include "tandem/graph/requantise.h"

namespace tandem::detail {

inline constexpr int64_t kRequantisedColumns = 32;  ///< of a tile: its rows are as far apart

/// Sums of `rows` rows and `columns` columns (at most 32; what lies behind them is read), whose
/// place in the result is row0, column0.
struct RequantisedTile {
  const int32_t* sums = nullptr;
  int64_t row0 = 0, rows = 0, column0 = 0, columns = 0;
};
using RequantiseLoop = void (*)(const Requantise&, const RequantisedTile&);
/// nullptr where the file was compiled without the instructions.
extern const RequantiseLoop kRequantiseAvx2, kRequantiseAvx512;
/// The best one for this processor, or nullptr: then epilogues are called.
RequantiseLoop requantise_loop();
/// What kernels may store in place of calling the epilogue; nullptr: nothing.
const Requantise* codes_of(const Epilogue* e);
/// Off: nothing, ever; for tests.
void use_requantise(bool on);

/// What a rounding does with numbers that all elements share.
struct RoundingNumbers {
  float by = 1, low = 0, high = 0;  ///< low, high: of v * by
  float zero = 0, off = 0, step = 1;

  explicit RoundingNumbers(const Requantise::Rounding& r, bool is_signed)
      : by(r.by), zero(static_cast<float>(r.zero)), step(r.step) {
    const float least = (is_signed ? -128.0F : 0.0F) - zero,
                most = (is_signed ? 127.0F : 255.0F) - zero;
    low = r.least * by, high = r.most * by;  // of infinities too: by > 0
    low = low < least ? least : low > most ? most : low;
    high = high > most ? most : high < least ? least : high;
    off = zero - r.away;
  }
};

}  // namespace tandem::detail
