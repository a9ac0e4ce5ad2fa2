// SPDX-License-Identifier: Apache-2.0
// What a device can do at most: a large copy, and matmuls of the sizes that nets have.
#include <fmt/core.h>

#include "bench/gpu_bench.h"
#include "bench/gpu_seconds.h"
#include "tandem/tandem.h"

namespace tandem::bench {
namespace {

struct Sizes {
  const char* name;
  int64_t m, k, n;
};

}  // namespace

int gpu_ceilings(const std::string& device) {
  const NoGradGuard no_grad;
  const Device d = device_named(device);
  const bool real = to_string(d).rfind("cuda", 0) == 0;  // others are far too slow for such sizes
  const DeviceGuard there(d);
  const int64_t words = real ? int64_t{1} << 29 : int64_t{1} << 16;
  {
    const Tensor x = ones({words});
    Tensor y = zeros({words});
    const double s = device_seconds(d, 10, [&] { y = x + 1.0; });
    fmt::print("x + 1, {} MiB: {:.0f} GB/s read and written\n", words >> 18,
               8e-9 * static_cast<double>(words) / s);
    const double r = device_seconds(d, 10, [&] { y = x.sum(); });
    fmt::print("sum, {} MiB: {:.0f} GB/s\n", words >> 18, 4e-9 * static_cast<double>(words) / r);
  }
  constexpr Sizes kReal[] = {{"square", 8192, 8192, 8192},     {"gpt2 qkv", 16384, 768, 2304},
                             {"gpt2 up", 16384, 768, 3072},    {"gpt2 down", 16384, 3072, 768},
                             {"gpt2 head", 16384, 768, 50304}, {"narrow", 128, 4096, 4096},
                             {"one row", 1, 4096, 4096}};
  constexpr Sizes kSmall[] = {{"square", 64, 64, 64}};
  fmt::print("{:<12}{:>8}{:>8}{:>8}{:>12}{:>12}{:>12}   TFLOP/s\n", "matmul", "m", "k", "n", "bf16",
             "tf32", "f32");
  for (const Sizes& z : real ? std::span<const Sizes>(kReal) : std::span<const Sizes>(kSmall)) {
    fmt::print("{:<12}{:>8}{:>8}{:>8}", z.name, z.m, z.k, z.n);
    for (const char* type : {"bf16", "tf32", "f32"}) {
      const DType t = *type == 'b' ? bfloat16 : float32;
      set_float32_matmul_precision(*type == 't' ? MatmulPrecision::tf32 : MatmulPrecision::strict);
      const Tensor a = randn({z.m, z.k}).to(t), w = randn({z.n, z.k}).to(t);
      Tensor y;
      const double s = device_seconds(d, 10, [&] { y = linear(a, w); });
      fmt::print("{:>12.1f}", 2e-12 * static_cast<double>(z.m * z.k * z.n) / s);
    }
    fmt::print("\n");
  }
  set_float32_matmul_precision(MatmulPrecision::strict);
  const Tensor small = ones({64, 64});
  fmt::print("a small kernel behind another: {:.2f} us\n",
             1e6 * device_seconds(d, 1000, [&] { (void)(small + small); }));
  return 0;
}

}  // namespace tandem::bench
