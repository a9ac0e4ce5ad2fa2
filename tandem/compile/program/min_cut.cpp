// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/program/min_cut.h"

#include <algorithm>

#include "tandem/base/error.h"

namespace tandem::compiler {

void MinCut::edge(int from, int to, int64_t capacity) {
  TD_ASSERT(capacity >= 0);
  first_[from].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, std::min(capacity, kForever)});
  first_[to].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinCut::levels(int source, int sink) {
  level_.assign(first_.size(), -1);
  level_[source] = 0;
  std::vector<int> queue{source};
  for (size_t at = 0; at < queue.size(); ++at)
    for (int e : first_[queue[at]]) {
      const Edge& x = edges_[e];
      if (x.left == 0 || level_[x.to] >= 0) continue;
      level_[x.to] = level_[queue[at]] + 1;
      queue.push_back(x.to);
    }
  return level_[sink] >= 0;
}

// One path along the levels; 0 when there is none left. Without recursion: paths are long.
int64_t MinCut::push(int source, int sink) {
  std::vector<int> path;
  for (int at = source; at != sink;) {
    size_t& k = next_[at];
    const std::vector<int>& out = first_[at];
    while (k < out.size() &&
           (edges_[out[k]].left == 0 || level_[edges_[out[k]].to] != level_[at] + 1))
      ++k;
    if (k < out.size()) {
      path.push_back(out[k]);
      at = edges_[out[k]].to;
      continue;
    }
    if (at == source) return 0;
    at = edges_[path.back() ^ 1].to;
    path.pop_back();
    ++next_[at];
  }
  int64_t flow = kForever;
  for (int e : path) flow = std::min(flow, edges_[e].left);
  for (int e : path) {
    edges_[e].left -= flow;
    edges_[e ^ 1].left += flow;
  }
  return flow;
}

std::vector<char> MinCut::sink_side(int source, int sink) {
  while (levels(source, sink)) {
    next_.assign(first_.size(), 0);
    while (int64_t flow = push(source, sink)) cost_ = std::min(kForever, cost_ + flow);
  }
  // What can still reach the sink.
  std::vector<char> side(first_.size());
  side[sink] = 1;
  std::vector<int> queue{sink};
  for (size_t at = 0; at < queue.size(); ++at)
    for (int e : first_[queue[at]]) {
      const int from = edges_[e].to;
      if (side[from] || edges_[e ^ 1].left == 0) continue;
      side[from] = 1;
      queue.push_back(from);
    }
  return side;
}

}  // namespace tandem::compiler
