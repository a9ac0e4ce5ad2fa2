// SPDX-License-Identifier: Apache-2.0
// A test in a process of its own, which may be killed.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace tandem::train {

/// Starts this program again with that test alone and `variable` set to `folder`.
inline pid_t start_child(const std::string& test, const char* variable, const std::string& folder) {
  const std::string filter = "--gtest_filter=" + test;
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setenv(variable, folder.c_str(), 1);
  if (!std::freopen("/dev/null", "w", stdout)) ::_exit(127);
  ::execl("/proc/self/exe", "test", filter.c_str(), static_cast<char*>(nullptr));
  ::_exit(127);
}

}  // namespace tandem::train
