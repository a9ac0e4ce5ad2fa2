// SPDX-License-Identifier: Apache-2.0
// `tandem doctor`: what was found on this machine.
#include <fmt/core.h>

#include "cli/commands_internal.h"
#include "tandem/cpu/doctor.h"
#include "tandem/init.h"

namespace tandem::cli {

void add_doctor(CLI::App& app, int& code) {
  CLI::App* verb =
      app.add_subcommand("doctor", "What was found: CPU, oneDNN, threads, GPU, kernels");
  verb->callback([&code] {
    init();
    fmt::print("tandem {}\n{}", TANDEM_VERSION, doctor());
    code = 0;
  });
}

}  // namespace tandem::cli
