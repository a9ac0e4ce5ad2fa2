// SPDX-License-Identifier: Apache-2.0
// What would take less memory: recompute, narrower numbers, 8-bit state, sharding.
#include <fmt/format.h>

#include <algorithm>

#include "tandem/base/error.h"
#include "tandem/plan/plan_internal.h"

namespace tandem::plan {

void add_savings(Plan& p, const PlanRequest& r, const Workload& w) {
  const Quantity now = *p.find("memory");
  const auto saved = [&](const std::string& key, const std::string& label, const PlanRequest& other,
                         const Workload& work, int n, const std::string& why) {
    Quantity then = prefixed(memory_of(work, other, n), key);
    if (now.value - then.value < 0.001 * now.value) return;
    p.figures.push_back(difference("save." + key, label, "B", why, {again(now), std::move(then)}));
  };
  PlanRequest other = r;
  if (!r.recompute && w.blocks > 1) {
    other.recompute = true;
    saved("recompute", "recompute would save", other, w, r.n,
          "every block's values are recomputed in the backward pass: about a third more time");
  }
  if (!r.recompute && w.blocks > 1 && w.half_matmuls.bytes > 0) {
    other = r;
    other.recompute = true;
    other.kept = Kept::half_matmuls;
    saved("selective", "selective recompute would save", other, w, r.n,
          "attention and every second matmul keep their results, the rest is recomputed");
  }
  const auto narrower = [&](Precision precision, const std::string& key, const std::string& label,
                            const std::string& why) {
    other = r;
    other.precision = precision;
    try {
      saved(key, label, other, workload_for(other, w.options.batch, r.compiled, true), r.n, why);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Unsupported) throw;  // it cannot be converted: nothing is saved
    }
  };
  if (w.options.precision == Precision::f32 || w.options.precision == Precision::tf32)
    narrower(p.gpu.has_bf16() ? Precision::amp_bf16 : Precision::amp_f16, "half",
             "matmuls in 16 bits would save",
             "autocast: matmuls and what they keep in 16 bits, weights in f32");
  if (p.gpu.has_bf16() && w.options.precision != Precision::pure_bf16)
    narrower(Precision::pure_bf16, "pure_bf16", "everything in bf16 would save",
             "weights, gradients and optimizer state too: watch the loss");
  if (!r.eight_bit_state && w.optimizer_bytes > 0) {
    other = r;
    other.eight_bit_state = true;
    saved("eight_bit", "8-bit optimizer state would save", other, w, r.n,
          "a byte in place of four per moment, and a scale per block");
  }
  for (int stage = r.sharding + 1; stage <= 3; ++stage) {
    other = r;
    other.sharding = stage;
    const int n = std::max(r.n, 8);
    const std::string key = fmt::format("shard{}", stage);
    saved(key, fmt::format("sharding stage {} over {} GPUs", stage, n), other, w, n,
          stage == 1   ? "optimizer state divided"
          : stage == 2 ? "and gradients"
                       : "and weights");
  }
}

}  // namespace tandem::plan
