// SPDX-License-Identifier: Apache-2.0
// Channel loops in portable 16-byte vectors, and the selection of the best ones.
#include <cstring>

#include "tandem/backend/cpu/conv/channel_loops.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/unroll_internal.h"

namespace tandem::detail {
namespace {

struct S {
  typedef float V __attribute__((vector_size(16)));
  using Mask = int;
  static constexpr int kWidth = 4;
  static Mask mask(int n) { return n < 4 ? n : 4; }
  static V zero() { return V{}; }
  static V set1(float x) { return V{} + x; }
  static V load(const float* p) {
    V v;
    std::memcpy(&v, p, sizeof v);
    return v;
  }
  static V load_part(const float* p, Mask m) {
    V v{};
    std::memcpy(&v, p, static_cast<size_t>(m) * sizeof(float));
    return v;
  }
  static void store(float* p, V v) { std::memcpy(p, &v, sizeof v); }
  static void store_part(float* p, Mask m, V v) {
    std::memcpy(p, &v, static_cast<size_t>(m) * sizeof(float));
  }
  static V fma(V a, V b, V c) { return a * b + c; }
};

#include "tandem/backend/cpu/conv/channel_loops.inc"

}  // namespace

constinit const ChannelLoops kChannelBase = kLoops;

const ChannelLoops& channel_loops() {
  const CpuFeatures& f = cpu_features();
  return f.avx512 ? kChannelAvx512 : f.avx2 ? kChannelAvx2 : kChannelBase;
}

}  // namespace tandem::detail
