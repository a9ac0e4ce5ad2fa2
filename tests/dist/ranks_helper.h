// SPDX-License-Identifier: Apache-2.0
// Ranks for tests: as threads of this process, or as processes that run one test of this program.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tandem/dist/launch.h"
#include "tandem/dist/make_engine.h"

namespace tandem::distributed {

/// Quick to notice: 5 s.
EngineOptions quick_options();
/// A port that is free now.
int some_port();
/// The place of a rank on that port of this machine.
Place place_of(int rank, int size, int port);

/// Call `f` once per rank, each on a thread of its own with an engine of the group. Throws what a
/// rank threw first.
void run_ranks(int n, const std::function<void(const std::shared_ptr<Engine>&)>& f,
               EngineOptions options = quick_options());
/// The same, but gives each rank's error text, "" where there is none.
std::vector<std::string> errors_of_ranks(
    int n, const std::function<void(const std::shared_ptr<Engine>&)>& f,
    EngineOptions options = quick_options());

/// The scenario that this process plays; "" where it is the test itself.
std::string scenario();
/// Run that scenario (faults_test.cpp) on `n` ranks: how it ended, and what the ranks wrote to
/// stderr.
struct Played {
  LaunchResult result;
  std::string out, err;
  double seconds = 0;
  int left = 0;  ///< processes that play it still
};
/// `notice`: seconds that the others have to end by themselves once one has failed.
Played play(const std::string& scenario, int n, double notice = 4);
/// The same with ranks that mpirun has started. `recovers`: it lets the others live when one is
/// gone, so that all of them can say who that was; else it ends them when one has failed.
Played play_by_mpirun(const std::string& scenario, int n, bool recovers);

}  // namespace tandem::distributed
