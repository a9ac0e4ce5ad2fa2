// SPDX-License-Identifier: Apache-2.0
// What a program may ask of the background compiler of fused loops: to wait for it, and what it
// did. Compiled functions ask for loops by themselves; TANDEM_JIT=0 turns it off.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/base/export.h"

namespace tandem {

/// Counts of this process. A loop is first run by both executors on real data and is used from then
/// on only if every byte was equal.
struct JitStats {
  bool on = false;        ///< a compiler was found and nothing turned it off
  int64_t requested = 0;  ///< different loops asked for
  int64_t compiled = 0;   ///< made by the compiler
  int64_t cached = 0;     ///< found on disk
  int64_t failed = 0;     ///< the compiler or the loader gave none
  int64_t accepted = 0;   ///< in use: bits were equal
  int64_t differed = 0;   ///< dropped: bits were not
  std::string compiler;   ///< its path, empty before the first request
  std::string cache;      ///< the directory, empty without one
  std::string problem;    ///< the first thing that went wrong
};
TD_API JitStats jit_stats();

/// Wait until every loop that was asked for is compiled or given up, at most `seconds`; false when
/// time ran out. The next call of each runs it beside the interpreter, those after it alone.
TD_API bool wait_for_jit(double seconds = 120);

}  // namespace tandem
