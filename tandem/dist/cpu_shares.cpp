// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/cpu_shares_internal.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::distributed {
namespace {

// "0-3,8", as the kernel writes lists of processors.
std::vector<int> read_list(const std::string& path) {
  std::ifstream in(path);
  std::string text;
  std::getline(in, text);
  std::vector<int> all;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at) {
    int first = 0;
    at = std::from_chars(at, end, first).ptr;
    int last = first;
    if (at < end && *at == '-') at = std::from_chars(at + 1, end, last).ptr;
    if (at < end && *at != ',') break;
    for (int cpu = first; cpu <= last && cpu < CPU_SETSIZE; ++cpu) all.push_back(cpu);
  }
  return all;
}

std::map<int, int> node_of_cpus(const std::string& sys) {
  std::map<int, int> out;
  std::error_code error;
  constexpr std::string_view kNode = "node";
  for (const auto& entry :
       std::filesystem::directory_iterator(sys + "/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    int node = 0;
    const char* end = name.data() + name.size();
    if (!name.starts_with(kNode) ||
        std::from_chars(name.data() + kNode.size(), end, node).ptr != end)
      continue;
    for (const int cpu : read_list(entry.path().string() + "/cpulist")) out[cpu] = node;
  }
  return out;
}

// The first of the threads of its core.
int core_of(int cpu, const std::string& sys) {
  const std::vector<int> threads =
      read_list(fmt::format("{}/devices/system/cpu/cpu{}/topology/thread_siblings_list", sys, cpu));
  return threads.empty() ? cpu : threads[0];
}

}  // namespace

BindTo bind_to(const std::string& word) {
  if (word == "core") return BindTo::core;
  if (word == "numa") return BindTo::numa;
  TD_CHECK(word == "none", Value, "ranks are bound to core, numa or none, got '{}'", word);
  return BindTo::none;
}

std::vector<std::vector<int>> cpu_shares(int ranks, BindTo to, const std::vector<int>& allowed,
                                         const std::string& sys) {
  const auto n = static_cast<size_t>(std::max(ranks, 0));
  if (to == BindTo::none || n == 0 || allowed.size() < n) return {};
  std::map<int, int> nodes = node_of_cpus(sys);
  std::vector<std::tuple<int, int, int>> order;
  for (const int cpu : allowed) order.emplace_back(nodes[cpu], core_of(cpu, sys), cpu);
  std::sort(order.begin(), order.end());
  std::vector<std::vector<int>> shares(n);
  for (size_t r = 0; r < n; ++r)
    for (size_t i = order.size() * r / n; i < order.size() * (r + 1) / n; ++i)
      shares[r].push_back(std::get<2>(order[i]));
  if (to == BindTo::numa)
    for (std::vector<int>& share : shares) {
      const std::vector<int> own = std::exchange(share, {});
      for (const int cpu : allowed)
        if (std::any_of(own.begin(), own.end(), [&](int o) { return nodes[o] == nodes[cpu]; }))
          share.push_back(cpu);
    }
  return shares;
}

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  std::vector<int> out;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) out.push_back(cpu);
  return out;
}

}  // namespace tandem::distributed
