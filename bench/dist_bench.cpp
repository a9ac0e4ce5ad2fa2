// SPDX-License-Identifier: Apache-2.0
// The time of all_reduce by size, for the engine of the job, beside the same calls made of its
// carrier alone. Start it with `tandem launch -n 2 [--engine gloo] build/release/bench_dist`, or
// with mpirun.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "tandem/base/clock.h"
#include "tandem/dist/carrier.h"
#include "tandem/dist/carrier_internal.h"
#include "tandem/dist/process_group.h"
#include "tandem/init.h"

using namespace tandem;
using namespace tandem::distributed;

namespace {

constexpr int kRounds = 15;

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

template <class F>
double seconds_of(Engine& e, F call) {
  e.barrier().wait();
  const Clock::time_point begin = Clock::now();
  call();
  return seconds_since(begin);
}

// A group of the carrier's own, for calls without the engine.
class Bare {
 public:
  Bare(const TandemCarrier& c, Engine& e) : c_(c) {
    for (int r = 0; r < e.size(); ++r) members_.push_back(r);
    const auto gather = [](void* engine, const void* own, int64_t bytes, void* all) {
      auto* g = static_cast<Engine*>(engine);
      g->all_gather({own, bytes, DType::u8}, {all, bytes * g->size(), DType::u8}).wait();
      return 0;
    };
    const TandemCarrierGroup group{e.rank(), e.size(), members_.data(), 1, "127.0.0.1", gather, &e};
    state_ = c_.open(&group, error_, sizeof error_);
    if (!state_) fail();
  }
  ~Bare() { c_.close(state_, 0); }
  void all_reduce(std::vector<float>& x) {
    const TandemCarrierCall call{TANDEM_ALL_REDUCE,
                                 TANDEM_F32,
                                 TANDEM_SUM,
                                 0,
                                 nullptr,
                                 x.data(),
                                 static_cast<int64_t>(x.size()),
                                 60};
    int done = c_.begin(state_, &call, error_, sizeof error_);
    while (done == 0) done = c_.test(state_, error_, sizeof error_);
    if (done < 0) fail();
  }

 private:
  [[noreturn]] void fail() {
    fmt::print(stderr, "{}\n", error_);
    std::exit(1);
  }
  const TandemCarrier& c_;
  std::vector<int> members_;
  char error_[512] = "";
  void* state_ = nullptr;
};

}  // namespace

int main() {
  init();
  Engine& e = *world();
  const bool first = e.rank() == 0;
  if (e.size() == 1) {
    fmt::print("one rank makes no calls: tandem launch -n 2 build/release/bench_dist\n");
    return 1;
  }
  std::unique_ptr<Bare> bare;
  if (const std::string name = e.name(); name != "tcp")
    bare = std::make_unique<Bare>(*find_plugin(name).carrier, e);
  if (first)
    fmt::print("{} ranks, {}: all_reduce of f32\n{:>12} {:>12} {:>10} {:>14} {:>8}\n", e.size(),
               e.name(), "bytes", "ms", "GB/s", "carrier's ms", "ratio");
  for (const int64_t bytes :
       {int64_t{4096}, int64_t{65536}, int64_t{1} << 20, int64_t{25} << 20, int64_t{64} << 20}) {
    std::vector<float> x(static_cast<size_t>(bytes / 4), 1.0f);
    std::vector<double> engine, carrier;
    for (int round = 0; round < kRounds; ++round) {  // in turns
      std::fill(x.begin(), x.end(), 1.0f);
      engine.push_back(seconds_of(e, [&] {
        e.all_reduce({x.data(), static_cast<int64_t>(x.size()), DType::f32}).wait();
      }));
      if (bare) carrier.push_back(seconds_of(e, [&] { bare->all_reduce(x); }));
    }
    if (!first) continue;
    const double s = median(engine);
    fmt::print("{:>12} {:>12.3f} {:>10.2f}", bytes, s * 1e3, static_cast<double>(bytes) / s / 1e9);
    if (bare) fmt::print(" {:>14.3f} {:>8.2f}", median(carrier) * 1e3, s / median(carrier));
    fmt::print("\n");
  }
}
