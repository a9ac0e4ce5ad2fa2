// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/lr_find.h"

#include <cmath>

#include "tandem/train/trainer/state_keeper_internal.h"

namespace tandem::train {

LRFindResult lr_find(const RunParts& parts,
                     const std::function<double(const std::vector<Tensor>&)>& update,
                     const LRFindOptions& o) {
  TD_CHECK(parts.model && parts.optimizer && parts.data, Value,
           "lr_find() expects a model, an optimizer and data");
  TD_CHECK(o.start > 0 && o.end > o.start && o.steps >= 2, Value,
           "lr_find() expects 0 < start < end and two steps at least, got {:g}, {:g} and {}",
           o.start, o.end, o.steps);
  TD_CHECK(parts.data->size() > 0, Value, "there is no data to train on");
  StateKeeper keep(parts);
  LRFindResult r;
  const double growth = std::log(o.end / o.start) / static_cast<double>(o.steps - 1);
  double mean = 0, best = 0;
  parts.data->begin_pass();
  std::vector<Tensor> batch;
  for (int64_t k = 0; k < o.steps; ++k) {
    if (!parts.data->next(batch)) {
      parts.data->begin_pass();
      parts.data->next(batch);
    }
    const double rate = o.start * std::exp(growth * static_cast<double>(k));
    parts.optimizer->set_lr(rate);
    const double loss = update(batch);
    if (!std::isfinite(loss)) {
      r.diverged = true;
      break;
    }
    mean = o.smoothing * mean + (1 - o.smoothing) * loss;
    const double smooth = mean / (1 - std::pow(o.smoothing, static_cast<double>(k + 1)));
    if (k == 0 || smooth < best) {
      best = smooth;
      r.lowest = rate;
    }
    r.rates.push_back(rate);
    r.losses.push_back(smooth);
    if (k > 0 && smooth > o.stop_at * best && smooth > best + 1e-12) {
      r.diverged = true;
      break;
    }
  }
  // The steepest fall of what was seen before the lowest point; the first points still carry the
  // smoothing's start.
  double steepest = 0;
  for (size_t k = 1; k + 1 < r.losses.size() && r.rates[k] <= r.lowest; ++k) {
    const double slope = (r.losses[k + 1] - r.losses[k - 1]) / (2 * growth);
    if (slope < steepest) {
      steepest = slope;
      r.suggestion = r.rates[k];
    }
  }
  return r;
}

}  // namespace tandem::train
