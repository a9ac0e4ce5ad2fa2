// SPDX-License-Identifier: Apache-2.0
// The tests know where scripts/setup put CUDA's compiler.
#include <glob.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tandem::gpu {
namespace {

class FoundLibraries : public testing::Environment {
 public:
  void SetUp() override {
    const char* source = std::getenv("TANDEM_SOURCE_DIR");
    const std::string pattern =
        std::string(source ? source : ".") + "/build/deps/cuda/nvidia/*/lib";
    glob_t g{};
    if (glob(pattern.c_str(), 0, nullptr, &g) == 0) {
      ::setenv("TANDEM_GPU_LIBRARIES", g.gl_pathv[0], 0);
    }
    globfree(&g);
  }
};
[[maybe_unused]] const testing::Environment* const g_found_libraries =
    testing::AddGlobalTestEnvironment(new FoundLibraries);

}  // namespace
}  // namespace tandem::gpu
