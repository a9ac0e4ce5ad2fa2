// SPDX-License-Identifier: Apache-2.0
// Which processors each rank of a machine gets, so that ranks do not push one another from core to
// core and their memory lies at their own NUMA node.
#pragma once

#include <string>
#include <vector>

namespace tandem::distributed {

/// What a rank is bound to: its own share of the cores, the NUMA nodes of that share, or nothing.
enum class BindTo { core, numa, none };
/// Throws Value, naming the three, for another word.
BindTo bind_to(const std::string& word);

/// Numbers of the processors of each of `ranks` ranks: equal shares of `allowed` (in order), whose
/// members are neighbours by node, then by core. Nothing where there are fewer processors than
/// ranks. `sys`: where the kernel describes them; what cannot be read counts as one node, with a
/// core for each processor.
std::vector<std::vector<int>> cpu_shares(int ranks, BindTo to, const std::vector<int>& allowed,
                                         const std::string& sys = "/sys");
/// The processors that this process may use, in order.
std::vector<int> allowed_cpus();

}  // namespace tandem::distributed
