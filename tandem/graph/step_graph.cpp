// SPDX-License-Identifier: Apache-2.0
#include "tandem/graph/step_graph.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "tandem/base/log.h"

namespace tandem {
namespace {

struct GraphCounts {
  std::mutex lock;
  StepGraphCounts now;
};
GraphCounts& graph_counts() {
  static auto* c = new GraphCounts;
  return *c;
}

std::atomic<bool>& graphs_allowed() {
  static std::atomic<bool> on = [] {
    const char* v = std::getenv("TANDEM_STEP_GRAPHS");
    return !(v && std::string_view(v) == "0");
  }();
  return on;
}

}  // namespace

StepGraphCounts step_graph_counts() {
  std::lock_guard hold(graph_counts().lock);
  return graph_counts().now;
}

void reset_step_graph_counts() {
  std::lock_guard hold(graph_counts().lock);
  graph_counts().now = {};
}

bool allow_step_graphs(bool allow) { return graphs_allowed().exchange(allow); }

namespace detail {

bool step_graphs_allowed() { return graphs_allowed().load(std::memory_order_relaxed); }

void count_recording() {
  std::lock_guard hold(graph_counts().lock);
  ++graph_counts().now.recorded;
}

void count_replay(const StepGraph& graph) {
  std::lock_guard hold(graph_counts().lock);
  ++graph_counts().now.replays;
  graph_counts().now.launches += graph.launches();
}

void count_problem(const std::string& why) {
  std::lock_guard hold(graph_counts().lock);
  graph_counts().now.last_problem = why;
}

void count_given_up(const std::string& why) {
  {
    std::lock_guard hold(graph_counts().lock);
    ++graph_counts().now.given_up;
    graph_counts().now.last_problem = why;
  }
  log_debug("a compiled program runs launch by launch: {}", why);
}

}  // namespace detail
}  // namespace tandem
