// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "bench/serve_bench.h"
#include "tandem/base/clock.h"
#include "tandem/base/files/file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

/// `tandem serve FILE` on core 0, until this ends.
class StartedTool {
 public:
  StartedTool(const std::string& tool, const std::string& file) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const auto begin = Clock::now();
    child_ = fork();
    if (child_ == 0) {
      stay_on(0);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      execl(tool.c_str(), "tandem", "serve", file.c_str(), "--port", "0", nullptr);
      _exit(127);
    }
    close(ends[1]);
    said_ = fdopen(ends[0], "r");
    char line[4096];
    while (said_ && fgets(line, sizeof line, said_))
      if (std::string_view(line).starts_with("ready at ")) {
        ready_seconds_ = seconds_since(begin);
        break;
      }
  }
  ~StartedTool() {
    if (child_ > 0) {
      kill(child_, SIGTERM);
      waitpid(child_, nullptr, 0);
    }
    if (said_) fclose(said_);
  }
  StartedTool(const StartedTool&) = delete;
  StartedTool& operator=(const StartedTool&) = delete;
  double ready_seconds() const { return ready_seconds_; }  ///< negative: it did not start
  double resident_mb() const {
    const std::string all = read_file(fmt::format("/proc/{}/status", child_));
    const size_t at = all.find("VmRSS:");
    return at == std::string::npos ? 0 : std::strtod(all.c_str() + at + 6, nullptr) / 1024;
  }

 private:
  pid_t child_ = -1;
  FILE* said_ = nullptr;
  double ready_seconds_ = -1;
};

// Of the tool and the project's library that it is linked with, stripped; 0: there is no strip.
double stripped_mb(const std::string& tool) {
  const std::string copy = fs::temp_directory_path() / fmt::format("bench-serve-tool-{}", getpid());
  double bytes = 0;
  const fs::path library = fs::path(tool).parent_path() / "lib/libtandem.so.0";
  for (const fs::path& file : {fs::path(tool), library}) {
    if (!fs::exists(file)) continue;
    const std::string command =
        fmt::format("strip -o '{}' '{}' 2>/dev/null", copy, fs::canonical(file).string());
    if (std::system(command.c_str()) != 0) return 0;
    bytes += static_cast<double>(fs::file_size(copy));
    fs::remove(copy);
  }
  return bytes / 1e6;
}

}  // namespace

void bench_process(const std::string& tool, const std::string& file, double weights, Bars& bars) {
  if (!fs::exists(tool)) return fmt::print("there is no {}: build the target tandem_cli\n", tool);
  if (const double mb = stripped_mb(tool); mb > 0)
    bars.most("size of the tool with its library, stripped, in MB", mb, 40);
  constexpr int kTurns = 7;
  std::vector<double> ready, idle;
  for (int t = 0; t < kTurns; ++t) {
    const StartedTool server(tool, file);
    if (server.ready_seconds() < 0) return fmt::print("{} serve does not start\n", tool);
    ready.push_back(server.ready_seconds() * 1e3);
    sleep(1);  // the warm-up ends
    idle.push_back(server.resident_mb() - weights / 1048576);
  }
  bars.most("from start to ready with a model of 10 MB, in ms", median(ready), 100);
  bars.most("resident when idle, without the weights, in MB", median(idle), 25);
}

}  // namespace tandem
