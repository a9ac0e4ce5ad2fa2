// SPDX-License-Identifier: Apache-2.0
// Measurements of the GPU backend, for bench/gpu, which says how to call it.
#include "bench/gpu_bench.h"

#include <fmt/core.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "bench/seconds.h"
#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/tandem.h"

namespace tandem::bench {
namespace {
constexpr double kBar = 1.5e-6;  ///< seconds of a small pointwise op
}

int gpu_launch_costs(const std::string& device) {
  gpu::set_fake_options({.delays = false, .checks_waits = false, .runs_kernels = false});
  const NoGradGuard no_grad;
  const Device d = device_named(device);
  const DeviceGuard there(d);
  const Tensor x = ones({64, 64}), row = ones({64});
  double worst = 0;
  const auto report = [&](const char* name, bool has_bar, auto&& f) {
    synchronize(d);
    const double s = seconds(f);
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
  return device == "fake" && worst > kBar ? 3 : 0;
}

}  // namespace tandem::bench

namespace {
int run(int argc, char** argv) {
  using namespace tandem::bench;
  std::string part, device;
  GpuNet net;
  GpuTruth truth;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] { return std::string(i + 1 < argc ? argv[++i] : ""); };
    const auto number = [&] {
      const std::string text = value();
      char* end = nullptr;
      const long n = std::strtol(text.c_str(), &end, 10);
      TD_CHECK(n > 0 && !*end, Value, "{} {}: expected a number of at least 1", word, text);
      return n;
    };
    if (word == "--device") {
      device = value();
    } else if (word == "--net") {
      part = word;
      net.name = value();
    } else if (word == "--rows") {
      truth.rows = value();
    } else if (word == "--tf32") {
      truth.tf32 = true;
    } else if (word == "--batch") {
      net.batch = number();
    } else if (word == "--steps") {
      net.steps = number();
    } else if (word == "--eager") {
      net.compiled = false;
    } else if (word == "--f32") {
      net.autocast = false;
    } else if (word == "--kernels") {
      net.kernels = true;
    } else if (word == "--small") {
      net.small = true;
    } else if (word == "--host") {
      net.host = true;
    } else {
      part = word;
    }
  }
  tandem::init();
  if (part == "--launch") return gpu_launch_costs(device.empty() ? "fake" : device);
  if (part == "--ceilings") return gpu_ceilings(device.empty() ? "cuda" : device);
  if (part == "--bandwidth") return gpu_bandwidth(device.empty() ? "cuda" : device);
  if (part == "--attention") return gpu_attention(device.empty() ? "cuda" : device);
  truth.device = device.empty() ? "cuda" : device;
  if (part == "--truth") return gpu_truth(truth);
  net.device = device.empty() ? "cuda" : device;
  if (part == "--net") return gpu_net(net);
  fmt::print(stderr,
             "usage: bench/gpu --launch | --ceilings | --bandwidth | --attention | --net "
             "gpt2|bert|resnet50 [--batch N] [--steps N] [--eager] [--f32] [--kernels] [--small] "
             "[--host] | --truth [--rows a,b*] [--tf32]; each with [--device cuda]\n");
  return 2;
}
}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& e) {  // a device that is not there, a number that is none
    fmt::print(stderr, "bench/gpu: {}\n", e.what());
    return 1;
  }
}
