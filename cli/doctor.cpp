// SPDX-License-Identifier: Apache-2.0
// `tandem doctor`: what was found on this machine.
#include <fmt/core.h>

#include "cli/commands_internal.h"
#include "cli/plan_internal.h"
#include "tandem/backend/cpu/doctor.h"
#include "tandem/backend/gpu/doctor.h"
#include "tandem/base/files/file.h"
#include "tandem/dist/make_engine.h"
#include "tandem/init.h"
#include "tandem/plan/hardware/machine.h"
#include "tandem/serve/http2/frames.h"
#include "tandem/serve/tls/files.h"

namespace tandem::cli {
namespace {

// What `bench --machine` measured, beside what the hardware should give.
void evaluate() {
  if (!file_exists(plan::machine_profile_path())) {
    fmt::print("\nnot measured yet: tandem bench --machine\n");
    return;
  }
  const plan::MachineProfile m = machine_profile_of("");
  fmt::print("\nmeasured {} with {} threads ({})\n", m.date, m.threads,
             plan::machine_profile_path());
  for (const plan::MachineLine& l : plan::evaluate_machine(m, plan::Catalog::built_in())) {
    fmt::print("{} {:<18}{:<28}{}\n", l.ok ? "  " : "! ", l.what, l.measured, l.expected);
    if (!l.ok) fmt::print("     {}\n", l.advice);
  }
}

// What moves the calls of several ranks.
void engines() {
  fmt::print("\nengines of several ranks\n");
  for (const std::string& name : distributed::engine_names())
    fmt::print("  {:<6}{}\n", name, distributed::engine_status(name));
}

}  // namespace

void add_doctor(CLI::App& app, int& code) {
  CLI::App* verb =
      app.add_subcommand("doctor", "What was found: CPU, oneDNN, threads, GPU, kernels, gRPC");
  verb->callback([&code] {
    init();
    fmt::print("tandem {}\n{}\n{}", TANDEM_VERSION, doctor(), gpu::doctor());
    engines();
    fmt::print("\nserving\n  gRPC  {}\n  TLS   {}\n",
               serve::Http2Frames::available() ? "yes (libnghttp2)"
                                               : "no: install libnghttp2-dev and build again",
               serve::tls_available() ? "yes (OpenSSL)" : "no: install libssl-dev and build again");
    evaluate();
    code = 0;
  });
}

}  // namespace tandem::cli
