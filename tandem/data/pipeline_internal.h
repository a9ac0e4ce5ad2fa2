// SPDX-License-Identifier: Apache-2.0
// Shared by the files of Pipeline's stages.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/ordered_run_internal.h"
#include "tandem/data/pipeline.h"

namespace tandem::data::detail {

using Rows = std::span<const int64_t>;

std::string size_text(int64_t n);
/// "sample 7 of MNIST(60000)": the samples that element i of a stage consists of.
std::string samples_text(const Stage& stage, Pass pass, int64_t i);
void check_finite(const StageRef& in, const char* what);

template <class S>
std::shared_ptr<S> stage_over(StageRef in) {
  auto s = std::make_shared<S>();
  s->in = std::move(in);
  return s;
}

/// A value computed once per pass; those of the last two passes are kept.
template <class T>
class PerPass {
 public:
  template <class Make>
  std::shared_ptr<const T> get(Pass pass, Make make) const {
    std::lock_guard hold(lock_);
    for (auto& [p, value] : recent_)
      if (p.seed == pass.seed && p.epoch == pass.epoch) return value;
    if (recent_.size() > 1) recent_.erase(recent_.begin());
    recent_.emplace_back(pass, std::make_shared<const T>(make(pass)));
    return recent_.back().second;
  }

 private:
  mutable std::mutex lock_;
  mutable std::vector<std::pair<Pass, std::shared_ptr<const T>>> recent_;
};

/// The previous stage's elements in another order: row(pass, i) gives the position.
struct Reordered : Stage {
  StageRef in;
  virtual int64_t row(Pass pass, int64_t i) const = 0;
  virtual std::vector<int64_t> rows_of(Pass pass, Rows rows) const = 0;
  Fields get(Pass pass, int64_t i) const override { return in->get(pass, row(pass, i)); }
  Fields many(Pass pass, Rows rows) const override { return in->many(pass, rows_of(pass, rows)); }
  void origins(Pass pass, int64_t i, std::vector<int64_t>& out) const override {
    in->origins(pass, row(pass, i), out);
  }
};

}  // namespace tandem::data::detail
