// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/processor.h"

#include <cstdint>
#include <cstdlib>

#include "tandem/base/error.h"

namespace tandem {

CpuLimit cpu_limit_of(std::string_view name) {
  if (name.empty() || name == "native") return CpuLimit::native;
  if (name == "base") return CpuLimit::base;
  if (name == "avx2") return CpuLimit::avx2;
  if (name == "avx512") return CpuLimit::avx512;
  if (name == "vnni") return CpuLimit::vnni;
  TD_FAIL(Value, "TANDEM_ISA: expected base, avx2, avx512, vnni or native, got '{}'", name);
}

CpuLimit cpu_limit() {
  static const CpuLimit limit = [] {
    const char* name = std::getenv("TANDEM_ISA");
    return cpu_limit_of(name ? name : "");
  }();
  return limit;
}

namespace detail {

CpuFeatures find_cpu_features(CpuLimit limit) {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (limit == CpuLimit::base) return f;
  f.ssse3 = __builtin_cpu_supports("ssse3");
  f.avx2 = f.ssse3 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (limit == CpuLimit::avx2) return f;
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (limit == CpuLimit::avx512) return f;
  uint32_t a = 7, b = 0, c = 0, d = 0;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  if (limit == CpuLimit::native) {
    f.f16 = f.avx512 && (d >> 23 & 1);
    f.amx = f.avx512 && (d >> 22 & 1) && (d >> 24 & 1);
    f.amx_int8 = f.avx512 && (d >> 25 & 1) && (d >> 24 & 1);
  }
  f.vnni = f.avx512 && (c >> 11 & 1);
  a = 7, c = 1;
  __asm__("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  f.bf16 = f.avx512 && (a >> 5 & 1);
#endif
  return f;
}

}  // namespace detail

const CpuFeatures& cpu_features() {
  static const CpuFeatures f = detail::find_cpu_features(cpu_limit());
  return f;
}

}  // namespace tandem
