// SPDX-License-Identifier: Apache-2.0
// Which rank a process is: the variables of every starter, and sets of them that are refused.
#include <gtest/gtest.h>

#include <map>

#include "tandem/dist/environment.h"
#include "tests/support/errors.h"

namespace tandem::distributed {
namespace {

using Set = std::map<std::string, std::string>;

Variables from(const Set& set) {
  return [&set](const char* name) -> const char* {
    const auto at = set.find(name);
    return at == set.end() ? nullptr : at->second.c_str();
  };
}

const struct {
  Set set;
  const char* source;
  int rank, size, local_rank, local_size;
  const char* master;
  int port;
} kPlaces[] = {
    {{}, "", 0, 1, 0, 1, "127.0.0.1", 0},
    {{{"RANK", "3"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "1"},
      {"MASTER_ADDR", "a"},
      {"MASTER_PORT", "1234"}},
     "torchrun",
     3,
     4,
     1,
     2,
     "a",
     1234},
    // Kubeflow's PyTorchJob: no local ranks.
    {{{"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"MASTER_ADDR", "job-master-0"},
      {"MASTER_PORT", "23456"}},
     "torchrun",
     1,
     2,
     1,
     2,
     "job-master-0",
     23456},
    {{{"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
     "Open MPI",
     1,
     2,
     1,
     2,
     "127.0.0.1",
     29500},
    // mpirun in a batch script of Slurm, whose own rank all of them inherit.
    {{{"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
      {"SLURM_PROCID", "0"},
      {"SLURM_NTASKS", "2"}},
     "Open MPI",
     1,
     2,
     1,
     2,
     "127.0.0.1",
     29500},
    {{{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}, {"MASTER_ADDR", "b"}}, "PMI", 2, 3, 2, 3, "b", 29500},
    {{{"SLURM_PROCID", "2"},
      {"SLURM_NTASKS", "4"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_TASKS_PER_NODE", "2(x2)"},
      {"SLURM_JOB_NODELIST", "node[07-09,12]"},
      {"SLURM_JOB_ID", "4017"}},
     "Slurm",
     2,
     4,
     0,
     2,
     "node07",
     29517},
    {{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, "Slurm", 0, 1, 0, 1, "127.0.0.1", 0},
    {{{"SLURM_NTASKS", "8"}}, "", 0, 1, 0, 1, "127.0.0.1", 0},  // a shell of an allocation
    // A rank that a task of an outer job has started.
    {{{"RANK", "1"},
      {"WORLD_SIZE", "2"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "5"},
      {"PMI_RANK", "0"},
      {"PMI_SIZE", "1"}},
     "torchrun",
     1,
     2,
     1,
     2,
     "127.0.0.1",
     5},
    // TensorFlow's: the chief comes before the workers.
    {{{"TF_CONFIG",
       R"({"cluster": {"worker": ["b:2222", "c:2223"], "chief": ["a:2221"], "ps": ["d:1"]},
           "task": {"type": "worker", "index": 1}, "environment": "cloud"})"}},
     "TF_CONFIG",
     2,
     3,
     0,
     1,
     "a",
     2221},
    {{{"TF_CONFIG",
       R"({"cluster": {"worker": ["localhost:1234", "localhost:1235"]},
           "task": {"type": "worker", "index": 1}})"}},
     "TF_CONFIG",
     1,
     2,
     1,
     2,
     "localhost",
     1234},
    {{{"TF_CONFIG", R"({"task": {"type": "worker", "index": 0}})"}},
     "",
     0,
     1,
     0,
     1,
     "127.0.0.1",
     0},
    // Ranks that a worker has started itself.
    {{{"TF_CONFIG", R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker",
                        "index": 1}})"},
      {"RANK", "3"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "1"},
      {"LOCAL_WORLD_SIZE", "2"},
      {"MASTER_ADDR", "a"},
      {"MASTER_PORT", "1"}},
     "torchrun",
     3,
     4,
     1,
     2,
     "a",
     1},
};

TEST(Environment, EveryStarterIsRecognised) {
  for (const auto& c : kPlaces) {
    const Place p = find_place(from(c.set));
    EXPECT_EQ(p.source, c.source);
    EXPECT_EQ(p.rank, c.rank) << c.source;
    EXPECT_EQ(p.size, c.size) << c.source;
    EXPECT_EQ(p.local_rank, c.local_rank) << c.source;
    EXPECT_EQ(p.local_size, c.local_size) << c.source;
    EXPECT_EQ(p.master_addr, c.master) << c.source;
    EXPECT_EQ(p.master_port, c.port) << c.source;
  }
}

const struct {
  Set set;
  const char* text;
} kRefused[] = {
    {{{"RANK", "1"}}, "RANK is set and WORLD_SIZE is not"},
    {{{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set and RANK is not"},
    {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "RANK is 2 and WORLD_SIZE is 2: ranks are 0 to 1"},
    {{{"RANK", "one"}, {"WORLD_SIZE", "2"}}, "RANK is 'one', expected a whole number from 0"},
    {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}, "expected 1 to 65535"},
    {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"NPROC_PER_NODE", "8"}},
     "WORLD_SIZE and RANK seem to count machines: NPROC_PER_NODE is set and LOCAL_RANK is not"},
    {{{"RANK", "0"},
      {"WORLD_SIZE", "2"},
      {"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "2"}},
     "two starters disagree about this process: RANK=0 of WORLD_SIZE=2, OMPI_COMM_WORLD_RANK=1"},
    {{{"OMPI_COMM_WORLD_RANK", "1"},
      {"OMPI_COMM_WORLD_SIZE", "4"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
     "4 ranks that are not all on this machine must be told where rank 0 is"},
    {{{"SLURM_PROCID", "2"},
      {"SLURM_NTASKS", "4"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_TASKS_PER_NODE", "2(x2)"}},
     "SLURM_JOB_NODELIST is empty"},
    {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}},
     "LOCAL_RANK is 2, but this machine has 2 ranks"},
    {{{"TF_CONFIG", "{"}}, "TF_CONFIG: invalid JSON"},
    {{{"TF_CONFIG", "[]"}}, "TF_CONFIG is array, expected an object"},
    {{{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}})"}},
     "TF_CONFIG expects a cluster and the task of this process"},
    {{{"TF_CONFIG", R"({"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}})"}},
     "expects a list of addresses of 'worker'"},
    {{{"TF_CONFIG", R"({"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}})"}},
     "TF_CONFIG has a task at 'a', expected \"host:port\""},
    {{{"TF_CONFIG",
       R"({"cluster": {"worker": ["a:99999"]}, "task": {"type": "worker", "index": 0}})"}},
     "expected \"host:port\""},
    {{{"TF_CONFIG",
       R"({"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}})"}},
     "this process is 'ps' 0, which is no chief or worker"},
    {{{"TF_CONFIG", R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})"}},
     "this process is 'worker' 1, which is no chief or worker"},
};

TEST(Environment, WhatIsAmbiguousIsRefused) {
  for (const auto& c : kRefused)
    EXPECT_TRUE(has(thrown([&] { find_place(from(c.set)); }, ErrorKind::Value), c.text))
        << thrown([&] { find_place(from(c.set)); });
}

TEST(Environment, FirstHost) {
  EXPECT_EQ(first_host("a"), "a");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[03-05,9],other1"), "node03");
  EXPECT_EQ(first_host("node[9,11]"), "node9");
  EXPECT_EQ(first_host("rack1-[2-4]-gpu,x"), "rack1-2-gpu");
  EXPECT_TRUE(
      has(thrown([] { first_host("node[3-"); }, ErrorKind::Value), "a bracket is not closed"));
}

}  // namespace
}  // namespace tandem::distributed
