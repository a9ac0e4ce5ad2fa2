// SPDX-License-Identifier: Apache-2.0
#include "tests/dist/ranks_helper.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <mutex>
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

Played play(const std::string& scenario, int n) {
  const Environment name("TANDEM_TEST_SCENARIO", scenario);
  const Environment deadline("TANDEM_DIST_DEADLINE", "3"), timeout("TANDEM_DIST_TIMEOUT", "4"),
      start("TANDEM_DIST_START_TIMEOUT", "20");
  char folder[] = "/tmp/tandem-ranks-XXXXXX";
  EXPECT_NE(::mkdtemp(folder), nullptr);
  const Environment meeting("TANDEM_TEST_FOLDER", folder);
  Played p;
  const Clock::time_point begin = Clock::now();
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  p.result = launch({.ranks = n,
                     .command = {"/proc/self/exe", "--gtest_filter=FaultChild.Plays*"},
                     .threads = 1,
                     .notice = 4,
                     .grace = 1});
  p.out = ::testing::internal::GetCapturedStdout();
  p.err = ::testing::internal::GetCapturedStderr();
  p.seconds = seconds_since(begin);
  p.left = processes_with("TANDEM_TEST_FOLDER=" + std::string(folder));
  std::filesystem::remove_all(folder);
  return p;
}

}  // namespace tandem::distributed
