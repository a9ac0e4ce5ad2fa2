// SPDX-License-Identifier: Apache-2.0
// Attention of sizes that nets have, forward and backward.
#include <fmt/core.h>

#include <span>

#include "bench/gpu_bench.h"
#include "bench/gpu_seconds.h"
#include "tandem/tandem.h"

namespace tandem::bench {
namespace {

struct AttentionSizes {
  const char* name;
  int64_t batch, heads, length, features;
  bool causal;
};
constexpr AttentionSizes kNets[] = {
    {"gpt2", 16, 12, 1024, 64, true},      {"bert", 64, 12, 128, 64, false},
    {"bert 512", 32, 12, 512, 64, false},  {"4096, 64", 4, 16, 4096, 64, true},
    {"4096, 128", 4, 16, 4096, 128, true}, {"all keys", 4, 16, 4096, 128, false}};
constexpr AttentionSizes kTiny[] = {{"tiny", 1, 2, 40, 32, true}};

}  // namespace

int gpu_attention(const std::string& device) {
  const Device d = device_named(device);
  const bool real = to_string(d).rfind("cuda", 0) == 0;
  const DeviceGuard there(d);
  fmt::print("{:<12}{:>7}{:>7}{:>8}{:>10}{:>12}{:>12}   TFLOP/s\n", "attention", "batch", "heads",
             "length", "features", "forward", "backward");
  for (const AttentionSizes& z :
       real ? std::span<const AttentionSizes>(kNets) : std::span<const AttentionSizes>(kTiny)) {
    // As models have it: heads are views of what a linear layer gave.
    const Tensor all = randn({z.batch, z.length, 3, z.heads, z.features}).to(bfloat16);
    Tensor qkv[3];
    for (int i = 0; i < 3; ++i) {
      qkv[i] = all.select(2, i).transpose(1, 2);
      qkv[i].requires_grad_();
    }
    const Tensor gy = randn({z.batch, z.heads, z.length, z.features}).to(bfloat16);
    const auto run = [&] {
      return scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, z.causal);
    };
    const double forward = device_seconds(d, 20, [&] { (void)run(); });
    const double both = device_seconds(d, 20, [&] {
      run().backward(gy);
      for (Tensor& t : qkv) t.zero_grad();
    });
    const double pairs = static_cast<double>(z.batch * z.heads * z.length * z.length);
    const double flops = 4 * pairs * static_cast<double>(z.features) * (z.causal ? 0.5 : 1);
    fmt::print("{:<12}{:>7}{:>7}{:>8}{:>10}{:>12.1f}{:>12.1f}\n", z.name, z.batch, z.heads,
               z.length, z.features, 1e-12 * flops / forward, 2.5e-12 * flops / (both - forward));
  }
  return 0;
}

}  // namespace tandem::bench
