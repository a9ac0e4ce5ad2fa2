// SPDX-License-Identifier: Apache-2.0
// Parts of bench/gpu. Each prints a table and returns an exit code.
#pragma once

#include <string>

namespace tandem::bench {

/// What an eager op costs the host, from the call to the driver's launch and back. On the fake
/// device with empty kernels there is a bar, and 3 is returned above it.
int gpu_launch_costs(const std::string& device);
/// Bytes per second of a large copy, FLOP per second of matmuls, seconds of a small launch.
int gpu_ceilings(const std::string& device);
/// FLOP per second of attention; a backward pass counts five matmuls, however many it makes.
int gpu_attention(const std::string& device);
/// Bytes per second of kernels that memory bounds, beside a large copy.
int gpu_bandwidth(const std::string& device);
/// Steps of a net ("gpt2", "bert", "resnet50"): items per second, peak bytes, losses, and with
/// `kernels` where the time is spent. With `host` launches of the fake device do nothing, so that a
/// step takes what it costs the host.
struct GpuNet {
  std::string name, device;
  long batch = 0, steps = 20;
  bool compiled = true, autocast = true, kernels = false, small = false, host = false;
};
int gpu_net(const GpuNet& what);
/// Every row of the op table's tests (or of `rows`: names with commas between, "conv*" all that
/// begin so) in f32, bf16 and f16, on dense, strided, odd and empty inputs: a line for each that is
/// not what the CPU has, and 3.
struct GpuTruth {
  std::string device, rows;
  bool tf32 = false;
};
int gpu_truth(const GpuTruth& what);

}  // namespace tandem::bench
