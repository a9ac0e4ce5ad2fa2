// SPDX-License-Identifier: Apache-2.0
// What the parts of bench_serve share: threads on cores, medians, bars, and whatever serves.
#pragma once

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tandem {

inline void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof set, &set);
}

inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

/// What is asked of the figures; each is printed, and `bench_serve --check` fails with one missed.
class Bars {
 public:
  void least(const std::string& what, double value, double bar) {
    add(what, value, "at least", bar, value >= bar);
  }
  void most(const std::string& what, double value, double bar) {
    add(what, value, "at most", bar, value <= bar);
  }
  int missed() const { return missed_; }

 private:
  void add(const std::string& what, double value, const char* side, double bar, bool met) {
    missed_ += !met;
    fmt::print("bar: {}: {:.4g}, {} {:g}: {}\n", what, value, side, bar, met ? "met" : "MISSED");
  }
  int missed_ = 0;
};

/// Whatever serves, on a thread of core 0 with all threads that it makes.
class OnCore0 {
 public:
  template <class Make>
  explicit OnCore0(Make make) {
    thread_ = std::thread([this, make] {
      stay_on(0);
      make(*this);
    });
    while (!ready) std::this_thread::yield();
  }
  ~OnCore0() {
    stop();
    thread_.join();
  }
  OnCore0(const OnCore0&) = delete;
  OnCore0& operator=(const OnCore0&) = delete;
  std::function<void()> stop;
  std::string url;
  std::atomic<bool> ready{false};

 private:
  std::thread thread_;
};

/// gRPC's ModelInfer of a model, with one row, against a bare echo of the same bytes by libnghttp2:
/// `streams` calls on their way over one connection, in turns. Prints medians.
void bench_grpc(const std::string& url, const std::string& model, double seconds, int streams,
                int turns, Bars& bars);
/// The tool as a process: its size, from start to ready with an ONNX `file` whose weights take
/// `weights` bytes, and what it keeps resident when idle. `tool`: its path.
void bench_process(const std::string& tool, const std::string& file, double weights, Bars& bars);

}  // namespace tandem
