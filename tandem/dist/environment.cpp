// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tandem/base/error.h"
#include "tandem/dist/tf_config_internal.h"

namespace tandem::distributed {
namespace {

/// What one starter of jobs calls things; null: it does not say.
struct Starter {
  const char* name;
  const char *rank, *size, *local_rank, *local_size;
};
constexpr Starter kStarters[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};

bool has(const Variables& get, const char* name) {
  const char* v = name ? get(name) : nullptr;
  return v && *v;
}

std::optional<int> number(const Variables& get, const char* name) {
  if (!has(get, name)) return {};
  const char* text = get(name);
  int v = 0;
  const char* end = text + std::strlen(text);
  const auto [at, error] = std::from_chars(text, end, v);
  TD_CHECK(error == std::errc() && at == end && v >= 0, Value,
           "{} is '{}', expected a whole number from 0", name, text);
  return v;
}

int local_size(const Variables& get, const Starter& s, int size) {
  if (const std::optional<int> n = number(get, s.local_size)) return *n;
  if (s.rank == std::string_view("SLURM_PROCID")) {
    // "2(x3),1": of equal machines, which is what jobs of ranks have.
    if (const char* text = get("SLURM_TASKS_PER_NODE")) return std::max(1, std::atoi(text));
  }
  return has(get, s.local_rank) ? 0 : size;
}

// RANK that counts machines: a process for each of their cards would have the same one.
void refuse_machines(const Variables& get) {
  if (has(get, "LOCAL_RANK")) return;
  for (const char* name : {"NPROC_PER_NODE", "GROUP_RANK", "NODE_RANK"})
    TD_CHECK(
        !has(get, name), Value,
        "WORLD_SIZE and RANK seem to count machines: {} is set and LOCAL_RANK is not\nStart the "
        "processes of a machine with torchrun's variables (RANK and WORLD_SIZE over all "
        "processes, LOCAL_RANK), or unset {}.",
        name, name);
}

// Two starters that do not agree: one of them is left over from an outer job.
void refuse_contradiction(const Variables& get, const Starter& used, int rank, int size) {
  for (const Starter& other : kStarters) {
    // Slurm's stay set in what other starters start inside a job of it.
    if (&other == &used || other.name == std::string_view("Slurm")) continue;
    if (!has(get, other.rank) || !has(get, other.size)) continue;
    const int r = *number(get, other.rank), n = *number(get, other.size);
    // A task of an outer job may have started all ranks of its machine.
    if (n < size || (r == rank && n == size)) continue;
    TD_FAIL(Value,
            "two starters disagree about this process: {}={} of {}={}, {}={} of {}={}\nUnset those "
            "that do not count.",
            used.rank, rank, used.size, size, other.rank, r, other.size, n);
  }
}

void find_master(const Variables& get, const Starter& s, Place& p) {
  const bool slurm = s.name == std::string_view("Slurm");
  if (has(get, "MASTER_ADDR")) {
    p.master_addr = get("MASTER_ADDR");
  } else if (slurm && p.local_size < p.size) {
    const char* list = get("SLURM_JOB_NODELIST");
    TD_CHECK(
        list && *list, Value,
        "Slurm runs {} tasks on several machines and does not say which: SLURM_JOB_NODELIST is "
        "empty\nSet MASTER_ADDR to the host of rank 0.",
        p.size);
    p.master_addr = first_host(list);
  } else {
    TD_CHECK(
        p.local_size == p.size, Value,
        "{} ranks that are not all on this machine must be told where rank 0 is\nSet MASTER_ADDR "
        "to its host and MASTER_PORT to a free port there, the same for all.",
        p.size);
  }
  if (const std::optional<int> port = number(get, "MASTER_PORT")) {
    TD_CHECK(*port > 0 && *port < 65536, Value, "MASTER_PORT is {}, expected 1 to 65535", *port);
    p.master_port = *port;
  } else {
    const int job = slurm ? number(get, "SLURM_JOB_ID").value_or(0) : 0;
    p.master_port = 29500 + job % 4000;
  }
}

}  // namespace

std::string first_host(const std::string& nodelist) {
  const size_t bracket = nodelist.find_first_of("[,");
  if (bracket == nodelist.npos || nodelist[bracket] == ',') return nodelist.substr(0, bracket);
  const size_t end = nodelist.find(']', bracket);
  TD_CHECK(end != nodelist.npos, Value, "'{}' is not a list of hosts: a bracket is not closed",
           nodelist);
  const std::string inside = nodelist.substr(bracket + 1, end - bracket - 1);
  const size_t after = nodelist.find(',', end);
  const std::string rest =
      nodelist.substr(end + 1, after == nodelist.npos ? after : after - end - 1);
  return nodelist.substr(0, bracket) + inside.substr(0, inside.find_first_of("-,")) + rest;
}

Place find_place(const Variables& get) {
  for (const Starter& s : kStarters) {
    const std::optional<int> rank = number(get, s.rank), size = number(get, s.size);
    if (!rank && !size) continue;
    // A shell inside a Slurm allocation has SLURM_NTASKS and no rank.
    if (!rank && s.rank != std::string_view("RANK")) continue;
    TD_CHECK(rank && size, Value, "{} is set and {} is not\nSet both, or neither for one process.",
             rank ? s.rank : s.size, rank ? s.size : s.rank);
    TD_CHECK(*size >= 1 && *rank < *size, Value, "{} is {} and {} is {}: ranks are 0 to {}", s.rank,
             *rank, s.size, *size, *size - 1);
    if (&s == &kStarters[0]) refuse_machines(get);
    refuse_contradiction(get, s, *rank, *size);
    Place p{.rank = *rank, .size = *size, .source = s.name};
    p.local_size = local_size(get, s, *size);
    p.local_rank = number(get, s.local_rank).value_or(*rank);
    TD_CHECK(p.local_size == 0 || p.local_rank < p.local_size, Value,
             "{} is {}, but this machine has {} ranks", s.local_rank, p.local_rank, p.local_size);
    if (p.size > 1) find_master(get, s, p);
    if (p.local_size == 0) p.local_size = p.local_rank + 1;
    return p;
  }
  return has(get, kClusterVariable) ? place_in_cluster(get(kClusterVariable)) : Place{};
}

Place find_place() {
  return find_place([](const char* name) { return std::getenv(name); });
}

}  // namespace tandem::distributed
