// SPDX-License-Identifier: Apache-2.0
// A server of the tool's, started by a test.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>

#include "tandem/serve/http/client.h"
#include "tests/cli/tool_helper.h"

namespace tandem::cli_test {

/// A server that a shell command starts; it is ready when the constructor returns.
class Started {
 public:
  explicit Started(const std::string& command) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], 2);
      close(ends[0]);
      execl("/bin/sh", "sh", "-c", ("exec " + command).c_str(), nullptr);
      _exit(127);
    }
    close(ends[1]);
    FILE* said = fdopen(ends[0], "r");
    std::array<char, 4096> line;
    while (port_ == 0 && fgets(line.data(), line.size(), said)) {
      text_ += line.data();
      if (const char* at = std::strstr(line.data(), "ready at http"))
        port_ =
            std::atoi(std::strrchr(std::string(at, std::strchr(at, ' ') + 40).c_str(), ':') + 1);
    }
    fclose(said);
  }
  ~Started() { stop(); }
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;
  /// Its exit code after SIGTERM.
  int stop() {
    if (child_ <= 0) return code_;
    kill(child_, SIGTERM);
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  int port() const { return port_; }
  const std::string& text() const { return text_; }
  serve::HttpResponse post(const std::string& path, const std::string& body) const {
    return serve::HttpClient("127.0.0.1", port_)
        .post(path, body, {{"Content-Type", "application/json"}});
  }
  serve::HttpResponse get(const std::string& path) const {
    return serve::HttpClient("127.0.0.1", port_).get(path);
  }

 private:
  pid_t child_ = -1;
  int port_ = 0, code_ = -1;
  std::string text_;
};

}  // namespace tandem::cli_test
