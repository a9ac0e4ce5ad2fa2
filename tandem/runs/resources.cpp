// SPDX-License-Identifier: Apache-2.0
#include "tandem/runs/resources.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/files/folder.h"
#include "tandem/base/process_state.h"

namespace tandem::runs {
namespace {

double seconds_of(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

// Files of the kernel have no size: they are read as streams.
std::optional<double> counter(const std::string& path) {
  std::ifstream in(path);
  double v = 0;
  if (in >> v) return v;
  return {};
}

}  // namespace

double process_seconds() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return seconds_of(u.ru_utime) + seconds_of(u.ru_stime);
}

int64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  int64_t size = 0, resident = 0;
  return in >> size >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

int64_t peak_resident_bytes() {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return u.ru_maxrss * int64_t{1024};
}

std::string process_identity(int64_t pid) {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const ProcessState s = process_state(pid);
  if (boot.empty() || s.state == 0) return "";
  return s.lives() ? boot + "/" + s.start : "ended";
}

EnergyMeter::EnergyMeter(EnergyOptions options) : o_(std::move(options)) {
  cpu_start_ = process_seconds();
  std::vector<std::string> names;
  try {
    names = list_folder(o_.counters);
  } catch (const Error&) {  // no such counters: the model is used
  }
  for (const std::string& name : names) {
    // "intel-rapl:0" is a package (AMD's too); "intel-rapl:0:1" is a part of one.
    const size_t colon = name.find(':');
    if (name.rfind("intel-rapl", 0) != 0 || colon == name.npos ||
        name.find(':', colon + 1) != name.npos)
      continue;
    const std::string at = o_.counters + "/" + name + "/";
    const auto now = counter(at + "energy_uj"), range = counter(at + "max_energy_range_uj");
    if (now && range) packages_.push_back({at + "energy_uj", *now, *range});
  }
}

Energy EnergyMeter::read() {
  double sum = 0;
  size_t read = 0;
  for (Package& p : packages_) {
    const auto now = counter(p.file);
    if (!now) break;
    p.sum += *now >= p.last ? *now - p.last : *now - p.last + p.range;
    p.last = *now;
    sum += p.sum;
    ++read;
  }
  if (!packages_.empty() && read == packages_.size())
    return {1e-6 * sum, true, fmt::format("RAPL, {} package(s)", read)};
  const double cpu = process_seconds() - cpu_start_;
  return {cpu * o_.watts_per_core, false,
          fmt::format("modelled: {:.1f} s of processor time at {:g} W a busy core", cpu,
                      o_.watts_per_core)};
}

}  // namespace tandem::runs
