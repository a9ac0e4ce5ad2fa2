// SPDX-License-Identifier: Apache-2.0
// What bench programs that are started as ranks do besides measuring.
#pragma once

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "tandem/dist/process_group.h"
#include "tandem/init.h"

namespace tandem::bench {

/// Joins the job and has rank 0 print what measure() gives, as a line; null means that the
/// arguments were wrong. Gives the exit code.
template <class F>
int rank_main(const char* program, const char* arguments, F&& measure) {
  try {
    init();
    distributed::init_process_group();
    const nlohmann::json j = measure();
    if (j.is_null()) {
      fmt::print(stderr, "usage: {} {}\n", program, arguments);
      return 2;
    }
    if (distributed::get_rank() == 0) fmt::print("{}\n", j.dump());
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", program, e.what());
    return 1;
  }
  return 0;
}

}  // namespace tandem::bench
