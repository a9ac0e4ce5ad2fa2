// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/launch.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/hash/hash.h"
#include "tandem/base/parallel.h"
#include "tandem/dist/cpu_shares_internal.h"
#include "tandem/dist/environment.h"
#include "tandem/dist/network_internal.h"
#include "tandem/dist/started_programs_internal.h"
#include "tandem/dist/token_internal.h"

namespace tandem::distributed {
namespace {

uint16_t free_port() { return local_address(listen_on({"127.0.0.1", 0})).port; }

// torchrun's names
constexpr const char* kRestarts = "TORCHELASTIC_RESTART_COUNT";
constexpr const char* kJob = "TORCHELASTIC_RUN_ID";

int world_of(const LaunchOptions& o) { return o.world > 0 ? o.world : o.ranks; }

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
    auto [r, signalled] = run_programs(now, programs_of(now, name, restarts));
    r.restarts = restarts;
    r.ranks = now.ranks;
    if (restarts == o.max_restarts || signalled || !may_start_again(r)) return r;
    if (o.min_ranks > 0) now.ranks = std::max(o.min_ranks, now.ranks - 1);
    write_line(2, "tandem launch: ",
               fmt::format("{}; start {} of {} with {} ranks\n", r.text, restarts + 2,
                           o.max_restarts + 1, now.ranks));
  }
}

namespace {

std::vector<std::string> own_command() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  TD_CHECK(!words.empty(), Io, "this program's command line cannot be read from /proc/self");
  words[0] = "/proc/self/exe";  // it may have been found by PATH, or have a path of another folder
  return words;
}

}  // namespace

std::optional<LaunchResult> launch_self(LaunchOptions o) {
  const Place p = find_place();
  const bool machines = p.source == kClusterVariable;
  if (o.ranks == 1 || (!p.source.empty() && !machines)) return {};
  if (o.command.empty()) o.command = own_command();
  if (machines && p.size > 1) {
    o.world = p.size * o.ranks;
    o.first = p.rank * o.ranks;
    o.node = p.rank;
    o.master = p.master_addr;
    o.port = p.master_port;
  }
  LaunchResult r = launch(o);
  if (r.code != 0) write_line(2, "tandem: ", r.text + "\n");
  return r;
}

}  // namespace tandem::distributed
