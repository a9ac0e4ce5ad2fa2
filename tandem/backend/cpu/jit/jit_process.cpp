// SPDX-License-Identifier: Apache-2.0
// A compiler as a child process: posix_spawn, one pipe for its output, a time limit. A child that
// still runs when the program ends is killed; the end of a forked copy of the program kills
// nothing.
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tandem/backend/cpu/jit/jit_internal.h"
#include "tandem/base/clock.h"

extern char** environ;

namespace tandem::detail {
namespace {

constexpr size_t kMostOutput = 4096;

std::atomic<pid_t> running{0};
std::atomic<bool> ending{false};
std::atomic<int> scratches{0};

void kill_running() {
  ending = true;
  const pid_t pid = running.exchange(0);
  if (pid > 0) kill(-pid, SIGKILL);
  for (int k = 0; k < 100 && scratches > 0; ++k) {  // the other thread removes its files
    const timespec rest{0, 2000000};
    nanosleep(&rest, nullptr);
  }
}

// A forked child inherits the exit handler and these numbers, but the compiler and its directory
// are the parent's: the child's exit() must neither kill the one nor wait for the other.
void forget_the_parents() {
  running = 0;
  scratches = 0;
}

// Once per process; false when there is no memory for a handler.
bool handlers_registered() {
  static const bool registered =
      std::atexit(kill_running) == 0 && pthread_atfork(nullptr, nullptr, forget_the_parents) == 0;
  return registered;
}

bool is_executable(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && access(path.c_str(), X_OK) == 0;
}

// The environment with untranslated messages and the private directory for temporary files.
std::vector<std::string> child_environment(const std::string& scratch) {
  std::vector<std::string> env;
  for (char** e = environ; *e; ++e) {
    if (std::strncmp(*e, "TMPDIR=", 7) == 0 || std::strncmp(*e, "LC_ALL=", 7) == 0) continue;
    env.emplace_back(*e);
  }
  env.push_back("LC_ALL=C");
  if (!scratch.empty()) env.push_back("TMPDIR=" + scratch);
  return env;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> p;
  for (std::string& s : texts) p.push_back(s.data());
  p.push_back(nullptr);
  return p;
}

struct Actions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit Actions(int output) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output, 1);
    posix_spawn_file_actions_adddup2(&files, output, 2);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
#endif
    posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (int s : {SIGPIPE, SIGINT, SIGTERM, SIGCHLD, SIGXFSZ}) sigaddset(&usual, s);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~Actions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  Actions(const Actions&) = delete;
  Actions& operator=(const Actions&) = delete;
};

void drain(int fd, std::string& output) {
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0) return;
    const size_t room = kMostOutput - std::min(output.size(), kMostOutput);
    output.append(buffer, std::min(static_cast<size_t>(n), room));
  }
}

void wait_for(pid_t pid, int fd, double seconds, ProcessResult& result) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  result.how = ProcessResult::exited;
  for (int pause = 1;; pause = std::min(pause * 2, 20)) {
    int status = 0;
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) {
      result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (ending && WIFSIGNALED(status)) result.how = ProcessResult::program_ends;  // by us
      break;
    }
    if (done < 0 &&
        errno != EINTR) {  // another waiter has reaped the child: its files tell the outcome
      if (kill(pid, 0) != 0) break;
    }
    if (ending || Clock::now() > end) {
      kill(-pid, SIGKILL);
      waitpid(pid, &status, 0);
      result.how = ending ? ProcessResult::program_ends : ProcessResult::killed_for_time;
      break;
    }
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, pause) > 0) {
      drain(fd, result.output);
      if (p.revents & POLLHUP) {  // it closed its output: poll would no longer wait
        const timespec rest{0, pause * 1000000L};
        nanosleep(&rest, nullptr);
      }
    }
  }
  drain(fd, result.output);
}

}  // namespace

ScratchInUse::ScratchInUse() { ++scratches; }
ScratchInUse::~ScratchInUse() { --scratches; }

std::string find_program(const std::string& name) {
  if (name.empty()) return "";
  if (name.find('/') != std::string::npos) return is_executable(name) ? name : "";
  const char* path = std::getenv("PATH");
  std::string list = path ? path : "/usr/bin:/bin";
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(':', at), list.size());
    const std::string candidate = list.substr(at, end - at) + "/" + name;
    if (end > at && is_executable(candidate)) return candidate;
    at = end + 1;
  }
  return "";
}

ProcessResult run_process(const std::vector<std::string>& arguments, const std::string& scratch,
                          double seconds) {
  ProcessResult result;
  int ends[2];
  if (!handlers_registered() || ending || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    result.status = errno;
    if (ending) result.how = ProcessResult::program_ends;
    return result;
  }
  std::vector<std::string> args = arguments, env = child_environment(scratch);
  pid_t pid = 0;
  {
    // The child writes to a pipe that blocks; only our end does not.
    fcntl(ends[1], F_SETFL, fcntl(ends[1], F_GETFL) & ~O_NONBLOCK);
    const Actions actions(ends[1]);
    result.status = posix_spawn(&pid, args[0].c_str(), &actions.files, &actions.attributes,
                                pointers(args).data(), pointers(env).data());
  }
  close(ends[1]);
  if (result.status == 0) {
    running = pid;
    wait_for(pid, ends[0], seconds, result);
    running = 0;
  }
  close(ends[0]);
  return result;
}

}  // namespace tandem::detail
