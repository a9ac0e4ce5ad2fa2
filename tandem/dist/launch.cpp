// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/launch.h"

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
#include <map>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/base/parallel.h"
#include "tandem/dist/cpu_shares_internal.h"
#include "tandem/dist/network_internal.h"
#include "tandem/dist/token_internal.h"

extern char** environ;

namespace tandem::distributed {
namespace {

constexpr size_t kLongestLine = 1 << 16;

struct Output {
  Fd from;
  int to = 1;
  std::string line;
};
/// What is started once: a rank, or the launcher of another machine.
struct Program {
  std::string name;    ///< "rank 3", for messages
  std::string prefix;  ///< before each line of it
  int number = 0;
  std::vector<std::string> command, env;
  std::string input;      ///< its standard input, which stays open; "": it has none
  std::vector<int> cpus;  ///< that it may run on; empty: all that this process has
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

uint16_t free_port() { return local_address(listen_on({"127.0.0.1", 0})).port; }

// torchrun's names
constexpr const char* kRestarts = "TORCHELASTIC_RESTART_COUNT";
constexpr const char* kJob = "TORCHELASTIC_RUN_ID";

int world_of(const LaunchOptions& o) { return o.world > 0 ? o.world : o.ranks; }

// This process's environment with other values.
std::vector<std::string> environment_with(const std::map<std::string, std::string>& set) {
  std::vector<std::string> all;
  for (char** e = environ; *e; ++e) {
    const std::string entry = *e;
    if (!set.count(entry.substr(0, entry.find('=')))) all.push_back(entry);
  }
  for (const auto& [name, value] : set) all.push_back(name + "=" + value);
  return all;
}

// Threads of a rank: TANDEM_NUM_THREADS.
int threads_of(const LaunchOptions& o) {
  if (o.threads > 0) return o.threads;
  return std::getenv("TANDEM_NUM_THREADS") ? num_threads() : std::max(1, num_threads() / o.ranks);
}

std::vector<std::vector<int>> shares_of(const LaunchOptions& o) {
  const std::vector<int> allowed = allowed_cpus();
  const int64_t threads = int64_t{o.ranks} * threads_of(o);
  if (o.ranks == 1 || threads > static_cast<int64_t>(allowed.size())) return {};
  return cpu_shares(o.ranks, bind_to(o.bind_to), allowed);
}

std::vector<std::string> environment_of(const LaunchOptions& o, int rank, int port,
                                        const std::string& token, const std::string& job,
                                        int restarts) {
  std::map<std::string, std::string> set{
      {"RANK", std::to_string(o.first + rank)},
      {"LOCAL_RANK", std::to_string(rank)},
      {"GROUP_RANK", std::to_string(o.node)},
      {"WORLD_SIZE", std::to_string(world_of(o))},
      {"MASTER_ADDR", o.master.empty() ? "127.0.0.1" : o.master},
      {"LOCAL_WORLD_SIZE", std::to_string(o.ranks)},
      {"MASTER_PORT", std::to_string(port)},
      {kJob, job},
      {kRestarts, std::to_string(restarts)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(o.max_restarts)}};
  if (!token.empty()) set["TANDEM_TOKEN"] = token;
  if (!o.engine.empty()) set["TANDEM_DIST_ENGINE"] = o.engine;
  for (const char* name : {"TANDEM_NUM_THREADS", "OMP_NUM_THREADS"})
    if (o.threads > 0 || !std::getenv(name)) set[name] = std::to_string(threads_of(o));
  return environment_with(set);
}

// One of this machine's ranks for each.
std::vector<Program> programs_of(const LaunchOptions& o, const std::string& job, int restarts) {
  const int port = o.port > 0 ? o.port : free_port();
  const bool alone = world_of(o) == o.ranks;
  const std::string token = !o.token.empty() ? o.token : alone ? random_token() : "";
  const std::vector<std::vector<int>> shares = shares_of(o);
  std::vector<Program> all;
  for (int r = 0; r < o.ranks; ++r) {
    Program p;
    if (!shares.empty()) p.cpus = shares[static_cast<size_t>(r)];
    p.number = o.first + r;
    p.name = fmt::format("rank {}", p.number);
    if (o.prefix && world_of(o) > 1) p.prefix = fmt::format("[{}] ", p.number);
    p.command = o.command;
    p.env = environment_of(o, r, port, token, job, restarts);
    all.push_back(std::move(p));
  }
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& t : texts) all.push_back(t.data());
  all.push_back(nullptr);
  return all;
}

// In the child: only calls that are safe after fork().
[[noreturn]] void become(pid_t parent, int input, const int (&out)[2], int error, char* const* argv,
                         char* const* env, const cpu_set_t* cpus) {
  ::setpgid(0, 0);
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
  ::setpgid(r.pid, r.pid);  // both sides say so: whichever comes first
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

void write_line(int to, const std::string& prefix, std::string_view line) {
  std::string text = prefix;
  text.append(line);
  for (std::string_view left = text; !left.empty();) {
    const ssize_t n = ::write(to, left.data(), left.size());
    if (n < 0 && errno != EINTR && errno != EAGAIN) return;
    if (n > 0) left.remove_prefix(static_cast<size_t>(n));
  }
}

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

// Could it end in another way the next time? A wrong command line (code 2) could not.
bool may_start_again(const LaunchResult& r) { return r.failed >= 0 && r.code != 2; }

}  // namespace

int restart_count() {
  const char* text = std::getenv(kRestarts);
  return text ? std::max(0, std::atoi(text)) : 0;
}

std::string job_id() {
  const char* text = std::getenv(kJob);
  const std::string id = text ? text : "";
  return id == "none" ? "" : id;  // torchrun's default, which all its jobs share
}

LaunchResult launch(const LaunchOptions& o) {
  TD_CHECK(o.ranks >= 1 && o.ranks <= 1024, Value, "launch expects 1 to 1024 ranks, got {}",
           o.ranks);
  TD_CHECK(!o.command.empty(), Value, "launch expects a program to run");
  (void)bind_to(o.bind_to);
  TD_CHECK(
      o.port >= 0 && o.port < 65536 && o.threads >= 0 && o.notice >= 0 && o.grace >= 0, Value,
      "launch expects a port below 65536, threads, notice and grace from 0, got {}, {}, {} and {}",
      o.port, o.threads, o.notice, o.grace);
  TD_CHECK(
      o.engine != "mpi", Value,
      "launch does not start ranks of MPI: mpirun and srun do\nTANDEM_DIST_ENGINE=mpi mpirun -n {} "
      "PROGRAM",
      o.ranks);
  TD_CHECK(o.max_restarts >= 0 && o.min_ranks >= 0 && o.min_ranks <= o.ranks, Value,
           "launch expects max_restarts from 0 and min_ranks from 0 to {} (ranks), got {} and {}",
           o.ranks, o.max_restarts, o.min_ranks);
  const bool alone = world_of(o) == o.ranks;
  TD_CHECK(o.first >= 0 && o.node >= 0 && o.first + o.ranks <= world_of(o), Value,
           "launch expects the ranks of a machine to lie within those of all: {} from {} on, of {}",
           o.ranks, o.first, world_of(o));
  TD_CHECK(
      alone || (!o.master.empty() && o.port > 0), Value,
      "launch on several machines expects the address of rank 0's machine and a port, the same "
      "on all of them\n--master-addr and --port.");
  TD_CHECK(alone || o.min_ranks == 0, Unsupported,
           "launch on several machines restarts with as many ranks as before");
  // All machines must have the same name for a job.
  const std::string name = !job_id().empty()  ? job_id()
                           : alone            ? random_token()
                           : !o.token.empty() ? fmt::format("{:016x}", hash_string(o.token))
                                              : fmt::format("{}:{}", o.master, o.port);
  LaunchOptions now = o;
  for (int restarts = 0;; ++restarts) {
    Job job(now, programs_of(now, name, restarts));
    LaunchResult r = job.run();
    r.restarts = restarts;
    r.ranks = now.ranks;
    if (restarts == o.max_restarts || job.signalled() || !may_start_again(r)) return r;
    if (o.min_ranks > 0) now.ranks = std::max(o.min_ranks, now.ranks - 1);
    write_line(2, "tandem launch: ",
               fmt::format("{}; start {} of {} with {} ranks\n", r.text, restarts + 2,
                           o.max_restarts + 1, now.ranks));
  }
}

// ---- several machines

std::vector<LaunchHost> launch_hosts(const std::string& text, int ranks) {
  std::vector<LaunchHost> all;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    at = end + 1;
    const size_t colon = part.rfind(':');
    LaunchHost h{part.substr(0, colon), ranks};
    const std::string count = colon == part.npos ? "" : part.substr(colon + 1);
    const bool digits =
        !count.empty() && count.size() < 5 && count.find_first_not_of("0123456789") == count.npos;
    if (digits) h.ranks = std::atoi(count.c_str());
    // A name that begins with '-' would be an option of ssh.
    TD_CHECK(!h.name.empty() && h.name[0] != '-' && (colon == part.npos || digits) && h.ranks > 0,
             Value, "'{}' names no machine\nWrite --hosts a:8,b:8: names, and ranks of each.",
             part);
    for (const LaunchHost& other : all)
      TD_CHECK(other.name != h.name, Value, "'{}' is there twice", h.name);
    all.push_back(std::move(h));
  }
  return all;
}

namespace {

// As one word of a line of shell.
std::string quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string path_of_link(const char* link) {
  char path[4096];
  const ssize_t n = ::readlink(link, path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "";
}

}  // namespace

LaunchResult launch_on_hosts(const std::vector<LaunchHost>& hosts, const LaunchOptions& o,
                             const HostsOptions& how) {
  TD_CHECK(!hosts.empty() && !o.command.empty(), Value,
           "launch expects machines and a program to run");
  TD_CHECK(o.min_ranks == 0, Unsupported,
           "launch on several machines restarts with as many ranks as before");
  (void)bind_to(o.bind_to);
  int world = 0;
  for (const LaunchHost& h : hosts) world += h.ranks;
  const std::string token = random_token();
  const std::string tool = how.tool.empty() ? path_of_link("/proc/self/exe") : how.tool;
  const std::string folder = how.folder.empty() ? path_of_link("/proc/self/cwd") : how.folder;
  // Which ports are free there is not known here: one that few others take.
  const int port = o.port > 0 ? o.port : 20000 + static_cast<int>(hash_string(token) % 10000);
  std::vector<std::string> shell;
  for (size_t at = 0, end = 0; at < how.shell.size(); at = end + 1) {
    end = std::min(how.shell.find(' ', at), how.shell.size());
    if (end > at) shell.push_back(how.shell.substr(at, end - at));
  }
  TD_CHECK(!shell.empty(), Value, "launch expects a program that runs commands on other machines");
  std::vector<Program> programs;
  int first = 0;
  for (size_t i = 0; i < hosts.size(); ++i) {
    std::vector<std::string> words = {tool, "launch", "--token-stdin"};
    const auto option = [&](const char* name, const std::string& value) {
      words.emplace_back(name);
      words.push_back(value);
    };
    option("-n", std::to_string(hosts[i].ranks));
    option("--world-size", std::to_string(world));
    option("--first-rank", std::to_string(first));
    option("--node-rank", std::to_string(i));
    option("--master-addr", o.master.empty() ? hosts[0].name : o.master);
    option("--port", std::to_string(port));
    option("--grace", fmt::format("{}", o.grace));
    option("--max-restarts", std::to_string(o.max_restarts));
    if (!o.engine.empty()) option("--engine", o.engine);
    if (o.threads > 0) option("--threads", std::to_string(o.threads));
    if (o.bind_to != "core") option("--bind-to", o.bind_to);
    if (!o.prefix) words.emplace_back("--no-prefix");
    words.insert(words.end(), o.command.begin(), o.command.end());
    std::string line = "cd " + quoted(folder) + " && exec";
    for (const std::string& w : words) line += " " + quoted(w);
    Program p;
    p.number = static_cast<int>(i);
    p.name = "the launcher on " + hosts[i].name;
    p.command = shell;
    p.command.push_back(hosts[i].name);
    p.command.push_back(line);
    p.env = environment_with({});
    p.input = token + "\n";
    programs.push_back(std::move(p));
    first += hosts[i].ranks;
  }
  LaunchOptions here = o;
  here.notice += o.grace;  // a launcher ends its ranks before it ends
  Job job(here, std::move(programs));
  LaunchResult r = job.run();
  r.ranks = world;
  return r;
}

}  // namespace tandem::distributed
