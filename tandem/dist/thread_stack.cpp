// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/thread_stack_internal.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <mutex>

#include <fmt/core.h>

#include "tandem/base/process_state.h"
#include "tandem/dist/function_names_internal.h"

namespace tandem::distributed {
namespace {

constexpr int kMostFrames = 64;

/// What the interrupted thread writes. A thread that answers after its time writes here as well, so
/// it stays for good.
struct StackAnswer {
  void* frames[kMostFrames];
  int count = 0;
  sem_t done;
};
constinit StackAnswer g_stack{};
int g_stack_signal = 0;  ///< 0: not prepared; -1: none is free

extern "C" void answer_with_stack(int) {
  const int before = errno;
  g_stack.count = ::backtrace(g_stack.frames, kMostFrames);
  ::sem_post(&g_stack.done);
  errno = before;
}

// One that nobody handles; it stays ours, as a thread may see it late.
int take_signal() {
  for (int s = SIGRTMAX - 1; s > SIGRTMIN; --s) {
    struct sigaction now {};
    if (::sigaction(s, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction action {};
    action.sa_handler = answer_with_stack;
    action.sa_flags = SA_RESTART;
    if (::sigaction(s, &action, nullptr) == 0) return s;
  }
  return -1;
}

// The file's path: a program that was started as /proc/self/exe has one of its own.
std::string path_of(const char* name) {
  return std::string_view(name) == "/proc/self/exe" ? path_of_link(name) : name;
}

// Arguments of functions say little here and are long.
std::string short_name(std::string name) {
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (size_t at; (at = name.find(kUnnamed)) != name.npos;) name.erase(at, kUnnamed.size());
  const size_t end = name.find('(');
  if (end != name.npos && end > 0) name.resize(end);
  constexpr size_t kLongest = 80;
  if (name.size() > kLongest) name = name.substr(0, kLongest) + "...";
  return name;
}

std::string line_of(void* at) {
  Dl_info info{};
  if (::dladdr(at, &info) == 0 || !info.dli_fname) return fmt::format("{}", at);
  const std::string path = path_of(info.dli_fname);
  const std::string file = path.substr(path.find_last_of('/') + 1);
  const auto here = reinterpret_cast<uintptr_t>(at);
  const auto base = reinterpret_cast<uintptr_t>(info.dli_fbase);
  FunctionAt found = function_at(path, base, here);
  if (found.name.empty() && info.dli_sname)
    found = {info.dli_sname, here - reinterpret_cast<uintptr_t>(info.dli_saddr)};
  if (found.name.empty()) return fmt::format("{}+0x{:x}", file, here - base);
  int status = 0;
  char* plain = abi::__cxa_demangle(found.name.c_str(), nullptr, nullptr, &status);
  const std::string name = short_name(status == 0 ? plain : found.name);
  std::free(plain);
  return fmt::format("{}+0x{:x} ({})", name, found.offset, file);
}

bool wait_for_answer(double seconds) {
  timespec end{};
  ::clock_gettime(CLOCK_REALTIME, &end);
  const auto nano = end.tv_nsec + static_cast<int64_t>(seconds * 1e9);
  end.tv_sec += nano / 1000000000;
  end.tv_nsec = nano % 1000000000;
  int e = 0;
  while ((e = ::sem_timedwait(&g_stack.done, &end)) != 0 && errno == EINTR) {}
  return e == 0;
}

std::mutex& stack_lock() {
  static std::mutex lock;
  return lock;
}

}  // namespace

pid_t this_thread() {
  thread_local const auto id = static_cast<pid_t>(::syscall(SYS_gettid));
  return id;
}

void prepare_stacks() {
  const std::lock_guard hold(stack_lock());
  if (g_stack_signal != 0) return;
  void* one[1];
  ::backtrace(one, 1);  // loads the unwinder
  ::sem_init(&g_stack.done, 0, 0);
  g_stack_signal = take_signal();
}

std::string stack_of(pid_t thread, int frames, double seconds) {
  const std::lock_guard hold(stack_lock());
  if (g_stack_signal <= 0) return "";
  while (::sem_trywait(&g_stack.done) == 0) {}
  if (::syscall(SYS_tgkill, ::getpid(), thread, g_stack_signal) != 0 || !wait_for_answer(seconds))
    return "";
  // The handler and the frame that the system has put below it.
  const int begin = std::min(2, g_stack.count);
  std::string text;
  for (int i = begin; i < std::min(g_stack.count, begin + frames); ++i)
    text += (text.empty() ? "" : "\n") + line_of(g_stack.frames[i]);
  return text;
}

}  // namespace tandem::distributed
