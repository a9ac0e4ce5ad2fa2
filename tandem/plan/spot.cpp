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
           "a simulation expects work and interval above 0");
  // Runs that are taken away more often than this are reckoned on from there.
  constexpr int kMostLosses = 20000;
  std::vector<double> times;
  double lost = 0;
  for (int k = 0; k < runs; ++k) {
    double now = 0, done = 0, times_lost = 0;
    uint64_t draw = 0;
    const auto next = [&] {
      const uint64_t bits = philox(seed, static_cast<uint32_t>(k), draw++, 0x73706f74).word64(0);
      const double u = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
      return rate > 0 ? -std::log(u) / rate : INFINITY;
    };
    while (true) {
      const double life = next();
      // The pieces that are left, each with its checkpoint but the last.
      const double left = work - done, pieces = std::ceil(left / interval * (1 - 1e-12));
      const double need = left + (pieces - 1) * save;
      if (need <= life) {
        now += need;
        break;
      }
      // Taken away within a piece: that one is lost.
      done += interval * std::min(std::floor(life / (interval + save)), pieces - 1);
      now += life + restart;
      times_lost += 1;
      if (times_lost < kMostLosses) continue;
      const double more = done > 0 ? work / done : 1e3 * work / now + 1;
      now *= more;
      times_lost *= more;
      break;
    }
    lost += times_lost;
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
