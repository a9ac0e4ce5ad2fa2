// SPDX-License-Identifier: Apache-2.0
#include "tandem/edge/toolchain_internal.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tandem/base/error.h"

namespace tandem::edge {
namespace {

// As one word of a shell's line.
std::string shell_word(const std::string& s) {
  std::string word = "'";
  for (const char c : s) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace

std::string program_on_path(std::initializer_list<const char*> names) {
  const char* variable = std::getenv("PATH");
  const std::string path = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (const char* name : names)
    for (size_t at = 0; at <= path.size();) {
      const size_t end = std::min(path.find(':', at), path.size());
      const std::string file = path.substr(at, end - at) + "/" + name;
      if (end > at && access(file.c_str(), X_OK) == 0) return file;
      at = end + 1;
    }
  return "";
}

WorkFolder::WorkFolder() : folder_(PrivateFolder::temporary("edge")) {
  TD_CHECK(folder_, Io, "a compiler needs a folder for its files: {}", folder_.problem());
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_.path(), ignored);
}

std::string WorkFolder::run(const std::vector<std::string>& words) const {
  std::string line = "cd " + shell_word(folder_.path()) + " && exec";
  for (const std::string& w : words) line += " " + shell_word(w);
  line += " 2>&1 < /dev/null";
  FILE* pipe = popen(line.c_str(), "re");
  TD_CHECK(pipe, Io, "{} cannot be started", words[0]);
  std::string output;
  char piece[4096];
  while (const size_t n = fread(piece, 1, sizeof piece, pipe)) output.append(piece, n);
  const int status = pclose(pipe);
  constexpr size_t kShown = 2000;
  TD_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, Value, "{} failed:\n{}", words[0],
           output.substr(0, kShown));
  return output;
}

}  // namespace tandem::edge
