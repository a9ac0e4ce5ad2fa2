// SPDX-License-Identifier: Apache-2.0
// Runs on machines that are taken away, simulated.
#include <algorithm>
#include <cmath>

#include "tandem/base/error.h"
#include "tandem/base/philox.h"
#include "tandem/plan/plan.h"

namespace tandem::plan {

SpotResult simulate_spot(double work, double interval, double save, double rate, double restart,
                         int runs, uint64_t seed) {
  TD_CHECK(work > 0 && interval > 0 && save >= 0 && rate >= 0 && restart >= 0 && runs > 0, Value,
           "a simulation wants work and interval above 0");
  std::vector<double> times;
  double lost = 0;
  for (int k = 0; k < runs; ++k) {
    double now = 0, done = 0;
    uint64_t draw = 0;
    const auto next = [&] {
      const uint64_t bits = philox(seed, static_cast<uint32_t>(k), draw++, 0x73706f74).word64(0);
      const double u = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
      return rate > 0 ? -std::log(u) / rate : INFINITY;
    };
    double taken = next();
    for (int64_t steps = 0; done < work && steps < 10000000; ++steps) {
      const double piece = std::min(interval, work - done);
      const double need = piece + (done + piece < work ? save : 0);
      if (now + need <= taken) {
        now += need;
        done += piece;
        continue;
      }
      // Taken away within the piece: it is lost.
      now = taken + restart;
      lost += 1;
      taken = now + next();
      if (now > 1e3 * work + 1e9) break;
    }
    times.push_back(now);
  }
  std::sort(times.begin(), times.end());
  SpotResult r;
  for (double t : times) r.mean += t / runs;
  r.p90 = times[static_cast<size_t>(0.9 * (runs - 1))];
  r.preemptions = lost / runs;
  return r;
}

}  // namespace tandem::plan
