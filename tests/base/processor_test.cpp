// SPDX-License-Identifier: Apache-2.0
#include "tandem/base/processor.h"

#include <gtest/gtest.h>

#include "tandem/base/error.h"

namespace tandem {
namespace {

TEST(Processor, ALimitLeavesOutWhatIsAboveIt) {
  using detail::find_cpu_features;
  const CpuFeatures all = find_cpu_features(CpuLimit::native);
  const CpuFeatures base = find_cpu_features(cpu_limit_of("base"));
  EXPECT_FALSE(base.ssse3 || base.avx2 || base.avx512);
  const CpuFeatures avx2 = find_cpu_features(cpu_limit_of("avx2"));
  EXPECT_EQ(avx2.avx2, all.avx2);
  EXPECT_FALSE(avx2.avx512 || avx2.bf16);
  const CpuFeatures avx512 = find_cpu_features(cpu_limit_of("avx512"));
  EXPECT_EQ(avx512.avx512, all.avx512);
  EXPECT_FALSE(avx512.bf16 || avx512.vnni || avx512.f16 || avx512.amx);
  const CpuFeatures vnni = find_cpu_features(cpu_limit_of("vnni"));
  EXPECT_EQ(vnni.vnni, all.vnni);
  EXPECT_EQ(vnni.bf16, all.bf16);
  EXPECT_FALSE(vnni.f16 || vnni.amx || vnni.amx_int8);
}

TEST(Processor, NamesOfLimits) {
  EXPECT_EQ(cpu_limit_of(""), CpuLimit::native);
  EXPECT_EQ(cpu_limit_of("native"), CpuLimit::native);
  try {
    cpu_limit_of("sse9");
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("base, avx2, avx512, vnni or native, got 'sse9'"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace tandem
