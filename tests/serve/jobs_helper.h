// SPDX-License-Identifier: Apache-2.0
// For tests of the scheduler: models of bytes, and jobs whose answers are kept.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tandem/serve/model/scheduler.h"
#include "tests/io/io_helper.h"
#include "tests/serve/serve_helper.h"

namespace tandem::serve {

inline std::shared_ptr<Servable> servable(const std::string& onnx, ServableOptions o = {}) {
  const TempFolder t;
  write_file(t / "m.onnx", onnx);
  auto s = Servable::load(t / "m.onnx", o);
  s->warm_up();
  return s;
}

/// Submits and keeps what comes back.
struct Sent {
  std::mutex lock;
  std::vector<JobResult> results;
  std::atomic<int> count{0};
  Job job(std::vector<Tensor> in, int64_t rows = 1) {
    return {.inputs = std::move(in), .rows = rows, .done = [this](JobResult r) {
              const std::lock_guard hold(lock);
              results.push_back(std::move(r));
              ++count;
            }};
  }
  bool wait(int n) const {
    for (int i = 0; i < 4000 && count < n; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return count == n;
  }
  int with(int status) {
    const std::lock_guard hold(lock);
    return static_cast<int>(std::count_if(results.begin(), results.end(),
                                          [=](const JobResult& r) { return r.status == status; }));
  }
};

}  // namespace tandem::serve
