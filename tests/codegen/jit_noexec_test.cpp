// SPDX-License-Identifier: Apache-2.0
// A cache on a file system that code is not loaded from (noexec), as some homes and containers
// have: compiled loops are kept there all the same, and loaded from a copy elsewhere.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "jit_helper.h"
#include "tandem/backend/cpu/jit/jit_internal.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using codegen::JitSource;

bool is_42(const JitSource& s) {
  int (*function)() = nullptr;
  std::memcpy(&function, &s.code, sizeof function);
  return function && function() == 42;
}

// 77: nothing can be mounted here.
int compile_twice_on_noexec(const std::string& cache) {
  const bool own = ::unshare(CLONE_NEWNS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0;
  if (!own || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", cache.c_str(), "tmpfs", MS_NOEXEC, "mode=0700") != 0)
    return 77;
  for (const bool cached : {false, true}) {
    std::vector<JitSource> sources = {
        {"td_noexec",
         "__attribute__((visibility(\"default\"))) int TDM_NAME(void) { return 42; }\n"}};
    detail::CCompiler compiler({compilers()[0], cache, int64_t{1} << 28, 60, {}});
    const std::string problem = compiler.compile(sources);
    if (problem.empty() && is_42(sources[0]) && sources[0].cached == cached) continue;
    std::fprintf(stderr, "cached %d: %s\n", sources[0].cached, problem.c_str());
    return 1;
  }
  size_t kept = 0;
  for (const auto& e : fs::directory_iterator(cache)) kept += e.path().extension() == ".so";
  return kept == 1 ? 0 : 2;
}

TEST(JitNoexec, KeepsAndLoadsAllTheSame) {
  if (compilers().empty()) GTEST_SKIP() << "no C compiler";
  const TemporaryDirectory directory;
  const std::string cache = directory.path + "/cache";
  fs::create_directory(cache);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(compile_twice_on_noexec(cache));
  int status = -1;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "no mount namespaces here: unshare() or mount() is not permitted";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tandem
