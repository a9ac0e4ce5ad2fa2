// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/started_programs_internal.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/process_state.h"
#include "tandem/dist/network_internal.h"

extern char** environ;

namespace tandem::distributed {
namespace {

constexpr size_t kLongestLine = 1 << 16;

struct Output {
  Fd from;
  int to = 1;
  std::string line;
};
struct Rank {
  Program program;
  Fd input;
  pid_t pid = -1;
  Fd ended;  ///< readable when the process has ended
  Output out[2];
  bool running = false;
  int status = 0;
};

// ---- signals, while ranks run

int g_signal_pipe = -1;
extern "C" void pass_signal(int number) {
  const int before = errno;
  const auto byte = static_cast<unsigned char>(number);
  if (::write(g_signal_pipe, &byte, 1) < 0) errno = before;
  errno = before;
}

class Signals {
 public:
  Signals() {
    int ends[2];
    TD_CHECK(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, Io, "no pipe: {}", std::strerror(errno));
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
    g_signal_pipe = ends[1];
    struct sigaction action {};
    action.sa_handler = pass_signal;
    for (size_t i = 0; i < std::size(kPassed); ++i) ::sigaction(kPassed[i], &action, &before_[i]);
    // Whoever reads what ranks write, or the token, may be gone: write() says so then.
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &pipe_before_);
  }
  ~Signals() {
    ::sigaction(SIGPIPE, &pipe_before_, nullptr);
    for (size_t i = 0; i < std::size(kPassed); ++i) ::sigaction(kPassed[i], &before_[i], nullptr);
    g_signal_pipe = -1;
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return read_.get(); }
  /// The next one that came; 0: none.
  int next() const {
    unsigned char byte = 0;
    return ::read(read_.get(), &byte, 1) == 1 ? byte : 0;
  }

 private:
  static constexpr int kPassed[] = {SIGINT, SIGTERM, SIGHUP};
  Fd read_, write_;
  struct sigaction before_[3];
  struct sigaction pipe_before_;
};
// ---- starting

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& t : texts) all.push_back(t.data());
  all.push_back(nullptr);
  return all;
}

// In the child: only calls that are safe after fork().
[[noreturn]] void become(pid_t parent, int input, const int (&out)[2], int error, char* const* argv,
                         char* const* env, const cpu_set_t* cpus) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  if (input < 0) input = ::open("/dev/null", O_RDONLY);
  if (input >= 0) ::dup2(input, 0);
  ::dup2(out[0], 1);
  ::dup2(out[1], 2);
  sigset_t all;
  sigemptyset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  if (cpus) ::sched_setaffinity(0, sizeof *cpus, cpus);  // without it a rank is only slower
  ::execvpe(argv[0], argv, env);
  const int e = errno;
  if (::write(error, &e, sizeof e) < 0) ::_exit(126);
  ::_exit(127);
}

void start(Rank& r) {
  Program& p = r.program;
  const std::vector<char*> argv = pointers(p.command), envp = pointers(p.env);
  int in[2] = {-1, -1}, out[2][2], error[2];
  const bool piped = ::pipe2(out[0], O_CLOEXEC) == 0 && ::pipe2(out[1], O_CLOEXEC) == 0 &&
                     ::pipe2(error, O_CLOEXEC) == 0 &&
                     (p.input.empty() || ::pipe2(in, O_CLOEXEC) == 0);
  TD_CHECK(piped, Io, "no pipes for {}: {}", p.name, std::strerror(errno));
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const int cpu : p.cpus) CPU_SET(cpu, &cpus);
  const pid_t parent = ::getpid();
  r.pid = ::fork();
  TD_CHECK(r.pid >= 0, Io, "{} cannot be started: {}", p.name, std::strerror(errno));
  if (r.pid == 0)
    become(parent, in[0], {out[0][1], out[1][1]}, error[1], argv.data(), envp.data(),
           p.cpus.empty() ? nullptr : &cpus);
  r.running = true;
  ::close(error[1]);
  for (int i = 0; i < 2; ++i) {
    ::close(out[i][1]);
    r.out[i].from = Fd(out[i][0]);
    r.out[i].to = i + 1;
    ::fcntl(out[i][0], F_SETFL, O_NONBLOCK);
  }
  if (!p.input.empty()) {
    ::close(in[0]);
    r.input = Fd(in[1]);
    // Far less than a pipe holds; a program that is gone says so by its end.
    if (::write(in[1], p.input.data(), p.input.size()) < 0) r.input.close();
  }
  r.ended = Fd(static_cast<int>(::syscall(SYS_pidfd_open, r.pid, 0)));
  const Fd reply(error[0]);
  int e = 0;
  TD_CHECK(::read(reply.get(), &e, sizeof e) != sizeof e, Io, "'{}' cannot be started: {}",
           p.command[0], std::strerror(e));
}

// ---- while they run

// Pass on what has come, line by line; at the end what is left.
void pump(Output& o, const std::string& prefix) {
  char buffer[16384];
  ssize_t n = 0;
  while ((n = ::read(o.from.get(), buffer, sizeof buffer)) > 0) {
    o.line.append(buffer, static_cast<size_t>(n));
    size_t at = 0;
    for (size_t end; (end = o.line.find('\n', at)) != o.line.npos; at = end + 1)
      write_line(o.to, prefix, std::string_view(o.line).substr(at, end + 1 - at));
    o.line.erase(0, at);
    if (o.line.size() > kLongestLine) {
      write_line(o.to, prefix, o.line + "\n");
      o.line.clear();
    }
  }
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (!o.line.empty()) write_line(o.to, prefix, o.line + "\n");
  o.line.clear();
  o.from.close();
}

// Kill who lives in those sessions; gives whether there was anybody.
bool kill_members(const std::set<int64_t>& sessions) {
  bool any = false;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const auto pid = static_cast<pid_t>(std::atoi(name.c_str()));
    const ProcessState s = process_state(pid);
    if (s.lives() && sessions.count(s.session) > 0) any |= ::kill(pid, SIGKILL) == 0;
  }
  return any;
}

class Job {
 public:
  Job(const LaunchOptions& o, std::vector<Program> programs) : o_(o), ranks_(programs.size()) {
    for (size_t i = 0; i < ranks_.size(); ++i) ranks_[i].program = std::move(programs[i]);
  }
  ~Job() {
    kill_all(SIGKILL, true);
    for (Rank& r : ranks_)
      if (r.running) ::waitpid(r.pid, nullptr, 0);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  LaunchResult run() {
    for (Rank& r : ranks_) start(r);
    while (running() > 0) {
      wait();
      pass_signals();
      look_at_parent();
      reap();
      if (ending_ && !asked_ && Clock::now() > ask_at_) {
        kill_all(SIGTERM, false);
        asked_ = true;
      }
      if (ending_ && Clock::now() > kill_at_) kill_all(SIGKILL, false);
    }
    // What ranks have started themselves must not stay, nor hold their output open.
    kill_all(SIGKILL, true);
    end_sessions();
    const Deadline end = after(1);
    while (open_outputs() > 0 && Clock::now() < end) wait();
    return result_;
  }
  /// Was this process asked to end, whatever ranks did before and afterwards?
  bool signalled() const { return ending_by_signal_ || signals_.next() != 0; }

 private:
  int running() const {
    return static_cast<int>(
        std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.running; }));
  }
  int open_outputs() const {
    int n = 0;
    for (const Rank& r : ranks_)
      for (const Output& o : r.out) n += static_cast<bool>(o.from);
    return n;
  }
  // Wait for output, an end or a signal; pass on output.
  void wait() {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    if (o_.parent >= 0 && !ending_) polled.push_back({o_.parent, POLLIN, 0});
    bool blind = false;  // a kernel without pidfd_open
    for (const Rank& r : ranks_) {
      if (r.running && r.ended) polled.push_back({r.ended.get(), POLLIN, 0});
      blind |= r.running && !r.ended;
      for (const Output& o : r.out)
        if (o.from) polled.push_back({o.from.get(), POLLIN, 0});
    }
    ::poll(polled.data(), polled.size(), blind ? 20 : ending_ ? 50 : 1000);
    for (Rank& r : ranks_)
      for (Output& o : r.out)
        if (o.from) pump(o, r.program.prefix);
  }

  // The launcher that has started this one closes its end when it is gone.
  void look_at_parent() {
    pollfd p{o_.parent, POLLIN, 0};
    char byte = 0;
    if (o_.parent < 0 || ending_ || ::poll(&p, 1, 0) <= 0 || ::read(o_.parent, &byte, 1) > 0)
      return;
    kill_all(SIGTERM, false);
    ending_by_signal_ = true;
    result_ = {128 + SIGTERM, -1, "ended, as the launcher that has started it is gone"};
    end_soon();
  }

  void pass_signals() {
    while (const int s = signals_.next()) {
      kill_all(ending_by_signal_ ? SIGKILL : s, false);
      ending_by_signal_ = true;
      if (result_.code == 0) result_ = {128 + s, -1, fmt::format("ended by signal {}", s)};
      end_soon();
    }
  }

  // Ranks hear of each other's end by themselves: they have a moment to say where they were.
  void end_soon() {
    if (ending_) return;
    ending_ = true;
    ask_at_ = after(o_.notice);
    kill_at_ = after(o_.notice + o_.grace);
  }

  // A rank's session holds what it has started, in groups of their own as well (compilers are), and
  // what was killed is gone a moment later.
  void end_sessions() const {
    std::set<int64_t> sessions;
    for (const Rank& r : ranks_)
      if (r.pid > 0) sessions.insert(r.pid);
    const Deadline end = after(1);
    while (kill_members(sessions) && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  void kill_all(int signal, bool groups_of_ended) {
    for (const Rank& r : ranks_)
      if (r.pid > 0 && (r.running || groups_of_ended)) ::kill(-r.pid, signal);
  }

  // How likely an end is the cause of others about its time: a signal from outside or a fault, then
  // an error of its own, then the code of a rank that ends because of another. A rank that dies
  // closes its connections before it can be waited for, so the others may be seen to end first.
  static int weight(int status) {
    if (WIFSIGNALED(status)) return WTERMSIG(status) == SIGABRT ? 2 : 3;
    return WEXITSTATUS(status) == 0 ? 0 : WEXITSTATUS(status) == 70 ? 1 : 2;
  }

  void reap() {
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& r = ranks_[i];
      if (!r.running || ::waitpid(r.pid, &r.status, WNOHANG) != r.pid) continue;
      r.running = false;
      const bool by_us = asked_ || ending_by_signal_;
      if (!by_us && weight(r.status) > weight_) blame(i);
    }
  }

  void blame(size_t rank) {
    const Rank& r = ranks_[rank];
    const bool killed = WIFSIGNALED(r.status);
    weight_ = weight(r.status);
    result_.failed = r.program.number;
    result_.code = killed ? 128 + WTERMSIG(r.status) : WEXITSTATUS(r.status);
    result_.text =
        fmt::format("{} (process {}) {} after {:.1f} s", r.program.name, r.pid,
                    killed ? fmt::format("was ended by signal {} ({})", WTERMSIG(r.status),
                                         ::strsignal(WTERMSIG(r.status)))
                           : fmt::format("ended with code {}", WEXITSTATUS(r.status)),
                    seconds_since(begin_));
    end_soon();
  }

  const LaunchOptions& o_;
  Signals signals_;
  std::vector<Rank> ranks_;
  LaunchResult result_;
  int weight_ = 0;  ///< of the end that the result names
  Clock::time_point begin_ = Clock::now();
  bool ending_ = false, asked_ = false, ending_by_signal_ = false;
  Deadline ask_at_, kill_at_;
};

}  // namespace

ProgramsEnd run_programs(const LaunchOptions& options, std::vector<Program> programs) {
  Job job(options, std::move(programs));
  ProgramsEnd end{job.run()};
  end.signalled = job.signalled();
  return end;
}

std::vector<std::string> environment_with(const std::map<std::string, std::string>& set) {
  std::vector<std::string> all;
  for (char** e = environ; *e; ++e) {
    const std::string entry = *e;
    if (!set.count(entry.substr(0, entry.find('=')))) all.push_back(entry);
  }
  for (const auto& [name, value] : set) all.push_back(name + "=" + value);
  return all;
}

void write_line(int to, const std::string& prefix, std::string_view line) {
  std::string text = prefix;
  text.append(line);
  for (std::string_view left = text; !left.empty();) {
    const ssize_t n = ::write(to, left.data(), left.size());
    if (n < 0 && errno != EINTR && errno != EAGAIN) return;
    if (n > 0) left.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace tandem::distributed
