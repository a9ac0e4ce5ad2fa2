// SPDX-License-Identifier: Apache-2.0
#include "tests/dist/ranks_helper.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <mutex>
#include <regex>
#include <thread>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/base/files/file.h"
#include "tandem/graph/rng.h"
#include "tests/support/environment.h"

namespace tandem::distributed {

EngineOptions quick_options() {
  EngineOptions o;
  o.deadline = 5;
  o.timeout = 20;
  o.start_timeout = 20;
  o.token = "a token of the tests";
  return o;
}

int some_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof a;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&a), bytes), 0);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &bytes);
  ::close(fd);
  return ntohs(a.sin_port);
}

Place place_of(int rank, int size, int port) {
  return {.rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .master_port = port,
          .source = "test"};
}

namespace {

std::vector<std::exception_ptr> run_all(
    int n, const std::function<void(const std::shared_ptr<Engine>&)>& f, const EngineOptions& o) {
  const int port = some_port();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(n));
  std::exception_ptr first;
  std::mutex lock;
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      const GeneratorGuard random({0, 0});
      try {
        f(make_engine(place_of(r, n, port), o));
      } catch (...) {
        std::lock_guard hold(lock);
        errors[static_cast<size_t>(r)] = std::current_exception();
        if (!first) first = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  errors.push_back(first);
  return errors;
}

}  // namespace

void run_ranks(int n, const std::function<void(const std::shared_ptr<Engine>&)>& f,
               EngineOptions options) {
  if (const std::exception_ptr e = run_all(n, f, options).back()) std::rethrow_exception(e);
}

std::vector<std::string> errors_of_ranks(
    int n, const std::function<void(const std::shared_ptr<Engine>&)>& f, EngineOptions options) {
  std::vector<std::string> texts;
  std::vector<std::exception_ptr> errors = run_all(n, f, options);
  errors.pop_back();
  for (const std::exception_ptr& e : errors) {
    texts.emplace_back();
    try {
      if (e) std::rethrow_exception(e);
    } catch (const std::exception& x) {
      texts.back() = x.what();
    }
  }
  return texts;
}

std::string scenario() {
  const char* name = std::getenv("TANDEM_TEST_SCENARIO");
  return name ? name : "";
}

namespace {

// Processes that have this variable.
int processes_with(const std::string& variable) {
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos || name == std::to_string(::getpid()))
      continue;
    try {
      n += read_file(entry.path() / "environ").find(variable + '\0') != std::string::npos;
    } catch (const Error&) {
      continue;  // ended meanwhile, or another user's
    }
  }
  return n;
}

}  // namespace

namespace {

/// What ranks of a scenario find in their environment, and a folder in which they meet.
struct Stage {
  char folder[26] = "/tmp/tandem-ranks-XXXXXX";
  std::string made = ::mkdtemp(folder) ? folder : "";
  Environment name, deadline{"TANDEM_DIST_DEADLINE", "3"}, timeout{"TANDEM_DIST_TIMEOUT", "4"},
      start{"TANDEM_DIST_START_TIMEOUT", "20"}, meeting{"TANDEM_TEST_FOLDER", made};
  Clock::time_point begin = Clock::now();
  explicit Stage(const std::string& scenario) : name("TANDEM_TEST_SCENARIO", scenario) {
    EXPECT_NE(made, "");
  }
  void end(Played& p) const {
    p.seconds = seconds_since(begin);
    p.left = processes_with("TANDEM_TEST_FOLDER=" + made);
    std::filesystem::remove_all(made);
  }
};

}  // namespace

Played play_by_mpirun(const std::string& scenario, int n, bool recovers) {
  const Stage stage(scenario);
  const Environment root("OMPI_ALLOW_RUN_AS_ROOT", "1"),
      sure("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"), many("OMPI_MCA_rmaps_base_oversubscribe", "1"),
      port("MASTER_PORT", std::to_string(some_port())), token("TANDEM_TOKEN", "a token of tests"),
      one("TANDEM_NUM_THREADS", "1");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = fmt::format(
      "timeout -k 1 60 mpirun {} --tag-output -n {} {} --gtest_filter=FaultChild.Plays* 2>&1",
      recovers ? "--enable-recovery" : "", n, self);
  Played p;
  FILE* f = ::popen(command.c_str(), "r");
  char part[4096];
  while (const size_t got = std::fread(part, 1, sizeof part, f)) p.err.append(part, got);
  const int status = ::pclose(f);
  p.result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  // "[1,2]<stderr>:" as tandem launch would write it: "[2] ".
  p.err = std::regex_replace(p.err, std::regex("\\[\\d+,(\\d+)\\]<std(err|out)>: ?"), "[$1] ");
  stage.end(p);
  return p;
}

Played play(const std::string& scenario, int n, double notice) {
  const Stage stage(scenario);
  Played p;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  p.result = launch({.ranks = n,
                     .command = {"/proc/self/exe", "--gtest_filter=FaultChild.Plays*"},
                     .threads = 1,
                     .notice = notice,
                     .grace = 1});
  p.out = ::testing::internal::GetCapturedStdout();
  p.err = ::testing::internal::GetCapturedStderr();
  stage.end(p);
  return p;
}

}  // namespace tandem::distributed
