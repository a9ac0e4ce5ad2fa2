// SPDX-License-Identifier: Apache-2.0
// `bench/gpu --launch`: what an eager op on a GPU costs the host, from the call to the driver's
// launch and back, with a driver that does nothing (the fake one without its kernels). Exit code 3
// above the bar.
#include <fmt/core.h>

#include <cstring>

#include "bench/seconds.h"
#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/tandem.h"

using namespace tandem;

namespace {

constexpr double kBar = 1.5e-6;  ///< seconds of a small pointwise op

int launch_costs() {
  init();
  gpu::set_fake_options({.delays = false, .checks_waits = false, .runs_kernels = false});
  const NoGradGuard no_grad;
  const DeviceGuard there(device_named("fake"));
  const Tensor x = ones({64, 64}), row = ones({64});
  double worst = 0;
  const auto report = [&](const char* name, bool has_bar, auto&& f) {
    const double s = bench::seconds(f);
    fmt::print("{:<28}{:>9.2f} us{}\n", name, s * 1e6, has_bar ? "  (bar: 1.5)" : "");
    if (has_bar) worst = std::max(worst, s);
  };
  report("add", true, [&] { (void)(x + x); });
  report("mul by a number", true, [&] { (void)(x * 2.0); });
  report("relu", true, [&] { (void)relu(x); });
  report("add, broadcast", false, [&] { (void)(x + row); });
  report("sum over rows", false, [&] { (void)x.sum({1}); });
  report("softmax", false, [&] { (void)softmax(x, 1); });
  report("matmul", false, [&] { (void)matmul(x, x); });
  return worst > kBar ? 3 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--launch") == 0) return launch_costs();
  fmt::print(stderr, "usage: bench/gpu --launch\n");
  return 2;
}
