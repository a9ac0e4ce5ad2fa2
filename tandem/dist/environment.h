// SPDX-License-Identifier: Apache-2.0
// Which rank this process is: what `tandem launch`, torchrun, Slurm, Open MPI, MPICH and others say
// in the environment.
#pragma once

#include <functional>
#include <string>

#include "tandem/base/export.h"

namespace tandem::distributed {

struct Place {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< among the ranks of this machine
  std::string master_addr = "127.0.0.1";
  int master_port = 0;
  std::string source = "";  ///< "torchrun", "Slurm" ...; "" for a process by itself
};
/// Place::source of what TensorFlow's variable of that name says.
inline constexpr const char* kClusterVariable = "TF_CONFIG";

/// Gives the value of a variable, or null.
using Variables = std::function<const char*(const char* name)>;

/// The first of these that is there: RANK and WORLD_SIZE (`tandem launch`, torchrun, Kubeflow's
/// PyTorchJob), Open MPI's, PMI's (MPICH, Intel MPI), Slurm's. MASTER_ADDR and MASTER_PORT count
/// with all of them; Slurm's default is the first host of the job and a port by the job's number,
/// that of processes of one machine is 127.0.0.1. Where none of them is there, TF_CONFIG
/// (TensorFlow, Kubeflow's TFJob, Vertex AI): the chief and the workers of its cluster, in that
/// order, are the ranks, and the first one's address is where they meet. Throws Value, naming the
/// variables, where they contradict each other, where RANK counts machines, and for a TF_CONFIG
/// that is not one or whose task trains nothing (ps, evaluator).
TD_API Place find_place(const Variables& get);
/// The same of this process's environment.
TD_API Place find_place();
/// "node03" of "node[03-05,9],other1".
TD_API std::string first_host(const std::string& nodelist);

}  // namespace tandem::distributed
