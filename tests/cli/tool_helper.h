// SPDX-License-Identifier: Apache-2.0
// For the tests of the tool: run it, inspect files.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/errors.h"

namespace tandem::cli_test {

struct Result {
  int code;
  std::string text;
};

/// The stdout of a shell command line, and its exit code.
inline Result shell(const std::string& line) {
  FILE* pipe = popen(line.c_str(), "r");
  std::array<char, 4096> buffer;
  std::string text;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) text.append(buffer.data(), n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, text};
}
inline Result tool(const std::string& arguments) {
  return shell(std::string(std::getenv("TANDEM_TOOL")) + " " + arguments);
}
using tandem::has;
inline std::string text_of(const std::filesystem::path& p) {
  std::stringstream s;
  s << std::ifstream(p).rdbuf();
  return s.str();
}

}  // namespace tandem::cli_test
