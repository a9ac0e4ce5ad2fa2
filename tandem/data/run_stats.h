// SPDX-License-Identifier: Apache-2.0
// Statistics of a running pass over data: does the consumer wait for the data?
#pragma once

#include <cstdint>

#include "tandem/base/export.h"

namespace tandem::data {

/// Numbers of one pass, counted from its first element.
struct RunStats {
  int64_t elements = 0;  ///< delivered (batches, after batch())
  double seconds = 0;    ///< since the first was requested
  double waited = 0;     ///< seconds in which the consumer waited for an element
  double busy = 0;       ///< seconds of work, summed over the threads
  int64_t workers = 0;   ///< threads now (0: the consumer's own)
  int64_t depth = 0;     ///< elements kept ready per thread
  /// Fraction of the time spent waiting, 0 .. 1.
  double stall() const { return seconds > 0 ? waited / seconds : 0; }
};

}  // namespace tandem::data
