// SPDX-License-Identifier: Apache-2.0
// Does `tandem advise` identify what really slows a run down? Twenty short runs of the Trainer,
// each really throttled: a file or a connection that delivers its bytes slowly, costly transforms,
// one processor for two threads, kernels too small, memory near its limit. Each runs once as it is
// and once with the advised upgrade; the gain is compared with the one that was predicted. Usage:
// advise_check [--quick] [PROFILE of `tandem bench --machine --threads 1`]
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tandem/models/mlp.h>
#include <tandem/plan/advise.h>
#include <tandem/tandem.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

namespace {

using namespace tandem;
using plan::Limit;
constexpr int64_t kRecord = 3072;  // numbers of a sample

struct Example {
  Tensor x, y;
};

void pause_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// Send small messages at once (no Nagle delay).
void at_once(int connection) {
  const int on = 1;
  ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Sends records of zeros to whoever sends a byte, at `rate` bytes per second.
void serve(int listener, double rate) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::vector<char> record(kRecord * 4, 0);
  const int c = ::accept(listener, nullptr, nullptr);
  at_once(c);
  for (char ask; ::recv(c, &ask, 1, 0) == 1;) {
    constexpr size_t kPieces = 4;
    for (size_t k = 0; k < kPieces; ++k) {
      if (rate > 0) pause_for(static_cast<double>(record.size()) / kPieces / rate);
      if (::send(c, record.data(), record.size() / kPieces, MSG_NOSIGNAL) <= 0) ::_exit(0);
    }
  }
  ::_exit(0);
}

struct Server {
  pid_t pid = 0;
  int connection = -1;
  explicit Server(double rate) {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t n = sizeof a;
    TD_CHECK(::bind(listener, reinterpret_cast<sockaddr*>(&a), n) == 0 &&
                 ::listen(listener, 1) == 0 &&
                 ::getsockname(listener, reinterpret_cast<sockaddr*>(&a), &n) == 0,
             Io, "no loop-back connection can be made");
    pid = ::fork();
    if (pid == 0) serve(listener, rate);
    connection = ::socket(AF_INET, SOCK_STREAM, 0);
    TD_CHECK(::connect(connection, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0, Io,
             "the server does not answer");
    ::close(listener);
    at_once(connection);
  }
  ~Server() {
    ::close(connection);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
};

struct Source {
  enum Kind { memory, file, link } kind = memory;
  double rate = 0;  // bytes per second; 0: as fast as it goes
  int passes = 0;   // of a transform over the sample
  int64_t width = kRecord;
  std::shared_ptr<Server> server;
  std::string path;

  int64_t size() const { return 1 << 20; }
  Example get(int64_t i) const {
    Tensor x = empty({width}, DType::f32);
    char* to = reinterpret_cast<char*>(x.mutable_data<float>());
    const size_t bytes = static_cast<size_t>(width) * 4;
    if (kind == memory) {
      std::memset(to, 0, bytes);
    } else if (kind == file) {
      const int fd = ::open(path.c_str(), O_RDONLY);
      if (rate > 0) pause_for(static_cast<double>(bytes) / rate);
      TD_CHECK(::pread(fd, to, bytes, i % 64 * static_cast<int64_t>(bytes)) ==
                   static_cast<ssize_t>(bytes),
               Io, "{} is cut", path);
      ::close(fd);
    } else {
      const char ask = 1;
      TD_CHECK(::send(server->connection, &ask, 1, MSG_NOSIGNAL) == 1, Io, "the server is gone");
      for (size_t got = 0; got < bytes;) {
        const ssize_t n = ::recv(server->connection, to + got, bytes - got, 0);
        TD_CHECK(n > 0, Io, "the server is gone");
        got += static_cast<size_t>(n);
      }
    }
    for (int k = 0; k < passes; ++k) x = sin(x + 0.5);
    return {x, zeros({}, DType::i64)};
  }
};

struct Case {
  std::string name;
  Limit wanted;
  Source source;
  std::vector<int64_t> net;
  int64_t batch = 32;
  bool compiled = true;
  bool one_core = false, little_memory = false;
};

double data_bytes() {
  std::string text = read_file("/proc/self/status");
  const size_t at = text.find("VmData:");
  return at == text.npos ? 0 : 1024 * std::strtod(text.c_str() + at + 7, nullptr);
}

plan::RunFacts run(const Case& c, int64_t steps) {
  const std::string folder = (std::filesystem::temp_directory_path() / "advise_XXXXXX").string();
  std::string made = folder;
  TD_CHECK(::mkdtemp(made.data()), Io, "{} cannot be made", made);
  Source source = c.source;
  if (source.kind == Source::link) source.server = std::make_shared<Server>(source.rate);
  if (source.kind == Source::file) {
    source.path = made + "/records";
    write_file(source.path, std::string(64 * kRecord * 4, '\0'));
  }
  cpu_set_t all, one;
  ::sched_getaffinity(0, sizeof all, &all);
  CPU_ZERO(&one);
  for (int k = 0; k < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++k)
    if (CPU_ISSET(k, &all)) CPU_SET(k, &one);
  if (c.one_core) ::sched_setaffinity(0, sizeof one, &one);
  rlimit before{};
  ::getrlimit(RLIMIT_DATA, &before);
  manual_seed(0);
  models::MLP net(c.net);
  optim::SGD optimizer(net.parameters(), {.lr = 1e-3});
  const int64_t every = c.compiled ? 8 : 400;  // logging takes the same time in both runs
  if (!c.compiled) steps *= 50;
  train::TrainerOptions o{.max_epochs = 1,
                          .max_steps = steps,
                          .compile = c.compiled,
                          .folder = made + "/run",
                          .progress = false,
                          .logging = {.every_steps = every, .train_metrics = false}};
  train::Trainer trainer(
      net, [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); }, optimizer, o);
  if (c.little_memory) {
    rlimit r = before;
    r.rlim_cur = static_cast<rlim_t>(data_bytes() + 160e6);
    // What is left is used up, as a cache would.
    static std::vector<std::vector<char>> cache;
    while (data_bytes() < 0.96 * static_cast<double>(r.rlim_cur)) cache.emplace_back(4 << 20, 'x');
    ::setrlimit(RLIMIT_DATA, &r);
  }
  trainer.fit(data::pipeline(source, {.seed = 0}).batch(c.batch).prefetch({.workers = 1}));
  ::setrlimit(RLIMIT_DATA, &before);
  ::sched_setaffinity(0, sizeof all, &all);
  const plan::RunFacts facts = plan::run_facts(made + "/run");
  std::filesystem::remove_all(made);
  return facts;
}

plan::Workload work_of(const Case& c, int64_t batch) {
  plan::Job job;
  job.name = c.name;
  job.make = [&c](int64_t n) {
    auto net = std::make_shared<models::MLP>(c.net);
    auto m = std::make_shared<plan::JobModel>();
    m->parameters = net->parameters();
    m->inputs = {zeros({n, c.net[0]}), zeros({n}, DType::i64)};
    m->forward = [net](const std::vector<Tensor>& in) { return (*net)(in[0]); };
    m->loss = [net](const std::vector<Tensor>& in) { return cross_entropy((*net)(in[0]), in[1]); };
    return m;
  };
  return plan::dry_run(
      job, {.batch = batch, .compiled = c.compiled, .optimizer = "SGD", .this_backend = true});
}

// The same run with the advised upgrade.
Case upgraded(Case c) {
  c.source.rate = 0;
  c.one_core = c.little_memory = false;
  if (c.wanted == Limit::decode) c.source.passes /= 2;
  if (c.wanted == Limit::launch) c.batch *= 8;
  return c;
}

std::vector<Case> cases() {
  const std::vector<int64_t> wide{kRecord, 768, 10}, narrow{32, 32, 32, 32, 32, 32, 32, 32, 10};
  std::vector<Case> all;
  for (double mb : {13.0, 16.0, 20.0, 25.0, 30.0})
    all.push_back({fmt::format("file at {} MB/s", mb),
                   Limit::disk,
                   {.kind = Source::file, .rate = mb * 1e6},
                   wide});
  for (double mb : {13.0, 17.0, 22.0, 28.0})
    all.push_back({fmt::format("connection at {} MB/s", mb),
                   Limit::link,
                   {.kind = Source::link, .rate = mb * 1e6},
                   wide});
  for (int passes : {160, 240, 360, 500})
    all.push_back({fmt::format("{} passes over each sample", passes),
                   Limit::decode,
                   {.passes = passes},
                   wide});
  for (int passes : {20, 30, 40})
    all.push_back({fmt::format("one processor for {} passes and the net", passes),
                   Limit::cores,
                   {.passes = passes},
                   wide,
                   32,
                   true,
                   true});
  for (int64_t batch : {1, 2, 4})
    all.push_back({fmt::format("a narrow net, batch {}, eager", batch),
                   Limit::launch,
                   {.width = 32},
                   narrow,
                   batch,
                   false});
  all.push_back({"memory near its limit", Limit::memory, {}, wide, 32, true, false, true});
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  bool quick = false;
  std::string profile = plan::machine_profile_path();
  for (int k = 1; k < argc; ++k)
    if (std::strcmp(argv[k], "--quick") == 0)
      quick = true;
    else
      profile = argv[k];
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  init();
  set_num_threads(1);
  TD_CHECK(file_exists(profile), Io,
           "{} is not there\nRun `tandem bench --machine --threads 1` first.", profile);
  const plan::MachineProfile m =
      plan::machine_profile(io::parse_json(read_file(profile, size_t{1} << 26), profile), profile);
  int named = 0, near = 0, all = 0;
  Limit last = Limit::arithmetic;
  for (const Case& c : cases()) {
    if (quick && c.wanted == last) continue;
    last = c.wanted;
    const plan::RunFacts facts = run(c, quick ? 32 : 48);
    const plan::Workload w = work_of(c, c.batch), larger = work_of(c, 8 * c.batch);
    const plan::Advice a = plan::advise(facts, w, m, &larger);
    plan::check(a.time);
    const double gain =
        run(upgraded(c), quick ? 48 : 80).samples_per_second / facts.samples_per_second;
    const bool right = a.limit == c.wanted, close = std::abs(a.gain / gain - 1) <= 0.2;
    ++all;
    named += right;
    near += close;
    print("{:<44} {:<16} {} {:4.0f} %  gain said {:5.2f}, measured {:5.2f} {}\n", c.name,
          plan::to_string(a.limit), right ? "  " : "NO", 100 * a.share, a.gain, gain,
          close ? "" : "NO");
    if (!right || !close) {
      print("    waiting {:.2f} queued {:.2f} loader busy {:.2f} cores {:.2f} queued {:.2f}\n{}",
            facts.waiting, facts.queued, facts.loader_busy, facts.loader_cores, facts.loader_queued,
            plan::explain(a.time));
    }
  }
  print("named rightly {} of {}, gain within 20 % {} of {}\n", named, all, near, all);
  return named >= all - 1 && near >= all - 1 ? 0 : 1;
}
