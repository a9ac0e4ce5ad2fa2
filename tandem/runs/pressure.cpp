// SPDX-License-Identifier: Apache-2.0
#include "tandem/runs/pressure.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/runs/resources.h"

namespace tandem::runs {
namespace {

// The number after `key` in a file of lines "key: 12" or "key 12"; `otherwise` without it.
double field(const std::string& path, const std::string& key, double otherwise = 0) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    std::istringstream text(line.substr(key.size()));
    double v = 0;
    if (text >> v) return v;
  }
  return otherwise;
}

double one_number(const std::string& path, double otherwise) {
  std::ifstream in(path);
  double v = 0;
  return in >> v ? v : otherwise;
}

// Bytes that all interfaces received, the loop-back one too: what serves data may run here.
double received_bytes() {
  std::ifstream in("/proc/self/net/dev");
  double sum = 0;
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon == line.npos) continue;
    std::istringstream text(line.substr(colon + 1));
    double v = 0;
    if (text >> v) sum += v;
  }
  return sum;
}

// How much of the tightest limit is used.
double memory_share() {
  const auto resident = static_cast<double>(resident_bytes());
  const double ram =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  double share = resident / std::max(1.0, ram);
  const auto limited = [&](double used, double limit) {
    if (limit > 0 && std::isfinite(limit)) share = std::max(share, used / limit);
  };
  const std::string status = "/proc/self/status";
  rlimit r{};
  if (::getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
    limited(1024 * field(status, "VmSize:"), static_cast<double>(r.rlim_cur));
  if (::getrlimit(RLIMIT_DATA, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
    limited(1024 * field(status, "VmData:"), static_cast<double>(r.rlim_cur));
  // The control group's, in both versions; one that sets none says "max" or a huge number.
  std::ifstream in("/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t last = line.rfind(':');
    if (last == line.npos) continue;
    const std::string path = line.substr(last + 1);
    if (line.find(":memory:") != line.npos)
      limited(resident,
              one_number("/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes", INFINITY));
    if (line.rfind("0::", 0) == 0)
      limited(resident, one_number("/sys/fs/cgroup" + path + "/memory.max", INFINITY));
  }
  return share;
}

}  // namespace

PressureMeter::Counters PressureMeter::now() {
  Counters c;
  c.cpu = process_seconds();
  c.read = std::max(field("/proc/self/io", "rchar:"), field("/proc/self/io", "read_bytes:"));
  c.received = received_bytes();
  {
    // "some avg10=0.00 avg60=0.00 avg300=0.00 total=123" in microseconds.
    std::ifstream in("/proc/pressure/memory");
    std::string line;
    if (std::getline(in, line))
      if (const size_t at = line.find("total="); at != line.npos)
        c.memory = 1e-6 * std::strtod(line.c_str() + at + 6, nullptr);
  }
  const auto thread = [](const std::string& folder) {
    std::ifstream in(folder + "/schedstat");
    Thread t;
    if (in >> t.run >> t.queued) {
      t.run *= 1e-9;
      t.queued *= 1e-9;
    }
    return t;
  };
  c.own = thread("/proc/thread-self");
  std::vector<std::string> tasks;
  try {
    tasks = list_folder("/proc/self/task");
  } catch (const Error&) {  // not on Linux: nothing is known of threads
  }
  for (const std::string& id : tasks) {
    const std::string folder = "/proc/self/task/" + id;
    std::ifstream in(folder + "/comm");
    std::string name;
    if (std::getline(in, name) && name == "td-data")
      c.loaders[std::strtoll(id.c_str(), nullptr, 10)] = thread(folder);
  }
  return c;
}

PressureMeter::PressureMeter() : last_(now()), at_(std::chrono::steady_clock::now()) {}

PressureFigures PressureMeter::read() {
  Counters c = now();
  const auto time = std::chrono::steady_clock::now();
  const double s = std::max(1e-9, std::chrono::duration<double>(time - at_).count());
  PressureFigures f;
  f.cores = (c.cpu - last_.cpu) / s;
  f.queued = (c.own.queued - last_.own.queued) / s;
  for (const auto& [id, t] : c.loaders) {
    const auto before = last_.loaders.find(id);
    const Thread was = before == last_.loaders.end() ? Thread() : before->second;
    f.loader_cores += (t.run - was.run) / s;
    f.loader_queued += (t.queued - was.queued) / s;
  }
  f.loaders = static_cast<int>(c.loaders.size());
  f.loader_blocked = std::max(0.0, f.loaders - f.loader_cores - f.loader_queued);
  f.read = (c.read - last_.read) / s;
  f.received = (c.received - last_.received) / s;
  f.memory_stall = std::clamp((c.memory - last_.memory) / s, 0.0, 1.0);
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) f.cores_allowed = CPU_COUNT(&set);
  f.memory_share = memory_share();
  last_ = std::move(c);
  at_ = time;
  return f;
}

}  // namespace tandem::runs
