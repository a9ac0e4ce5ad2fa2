// SPDX-License-Identifier: Apache-2.0
// The smallest cut between two nodes of a directed graph with capacities (Dinic's algorithm). Which
// values of a program are kept and which are recomputed is such a cut (recompute.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "tandem/base/export.h"

namespace tandem::compiler {

class TD_API MinCut {
 public:
  static constexpr int64_t kForever = std::numeric_limits<int64_t>::max() / 4;

  explicit MinCut(int nodes) : first_(static_cast<std::size_t>(nodes)) {}
  int add_node() {
    first_.emplace_back();
    return static_cast<int>(first_.size()) - 1;
  }
  /// Capacity at least 0; kForever is never cut.
  void edge(int from, int to, int64_t capacity);
  /// Which nodes lie on the sink's side of the smallest cut; of several smallest ones, that with
  /// the fewest nodes there. Call once.
  std::vector<char> sink_side(int source, int sink);
  /// What the cut costs, after sink_side().
  int64_t cost() const { return cost_; }

 private:
  struct Edge {
    int to;
    int64_t left;
  };
  bool levels(int source, int sink);
  int64_t push(int source, int sink);
  std::vector<std::vector<int>> first_;  ///< edges of each node; edge e and e ^ 1 are opposite
  std::vector<Edge> edges_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
  int64_t cost_ = 0;
};

}  // namespace tandem::compiler
