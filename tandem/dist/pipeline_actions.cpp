// SPDX-License-Identifier: Apache-2.0
// In which order a rank of a pipeline makes its passes, and where a chain of layers is cut.
#include <algorithm>
#include <limits>

#include "tandem/base/clock.h"
#include "tandem/base/error.h"
#include "tandem/dist/pipeline.h"
#include "tandem/graph/context.h"

namespace tandem::distributed {
namespace {

/// The i-th forward (or backward) pass of a rank with several stages: groups of `ranks`
/// microbatches pass its first stage, then its second one, and so on; backward from the last.
PipelineAction interleaved_action(bool forward, int64_t i, int64_t rank, int64_t ranks,
                                  int64_t stages) {
  const int64_t round = i / (ranks * stages), within = i % (ranks * stages);
  const int64_t own = forward ? within / ranks : stages - 1 - within / ranks;
  return {forward, own * ranks + rank, round * ranks + within % ranks};
}

// How many forward passes come before the first backward pass (Narayanan et al. 2021, 2.2).
int64_t passes_ahead(PipelineKind kind, int64_t rank, int64_t ranks, int64_t stages, int64_t n) {
  const int64_t all = n * stages;
  if (kind == PipelineKind::gpipe || (kind == PipelineKind::interleaved && n == ranks)) return all;
  const int64_t behind = ranks - rank - 1;
  return std::min(all,
                  kind == PipelineKind::interleaved ? 2 * behind + (stages - 1) * ranks : behind);
}

}  // namespace

std::vector<PipelineAction> pipeline_actions(PipelineKind kind, int64_t rank, int64_t ranks,
                                             int64_t stages, int64_t n) {
  TD_CHECK(ranks > 0 && rank >= 0 && rank < ranks && stages > 0 && n > 0, Value,
           "a pipeline expects ranks, stages and microbatches > 0, got rank {} of {}, {} and {}",
           rank, ranks, stages, n);
  TD_CHECK(kind == PipelineKind::interleaved || stages == 1, Value,
           "{} stages a rank need the interleaved schedule", stages);
  TD_CHECK(kind != PipelineKind::interleaved || n % ranks == 0, Value,
           "the interleaved schedule expects a multiple of {} microbatches (the ranks), got {}",
           ranks, n);
  const int64_t all = n * stages, ahead = passes_ahead(kind, rank, ranks, stages, n);
  std::vector<PipelineAction> out;
  const auto add = [&](bool forward, int64_t i) {
    out.push_back(interleaved_action(forward, i, rank, ranks, stages));
  };
  for (int64_t i = 0; i < ahead; ++i) add(true, i);
  for (int64_t i = ahead; i < all; ++i) {
    add(true, i);
    add(false, i - ahead);
  }
  for (int64_t i = all - ahead; i < all; ++i) add(false, i);
  return out;
}

std::vector<int64_t> balanced_split(const std::vector<double>& costs, int64_t stages) {
  const auto n = static_cast<int64_t>(costs.size());
  TD_CHECK(stages > 0 && n >= stages, Value, "{} layers do not make {} stages", n, stages);
  // least[k][i]: the most expensive of k parts of the first i layers, cut best; from[k][i]: where
  // the last one begins.
  const auto width = static_cast<size_t>(n) + 1;
  const double none = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(static_cast<size_t>(stages) + 1,
                                         std::vector<double>(width, none));
  std::vector<std::vector<size_t>> from(least.size(), std::vector<size_t>(width, 0));
  least[0][0] = 0;
  for (size_t k = 1; k < least.size(); ++k)
    for (size_t i = k; i < width; ++i) {
      double last = 0;
      for (size_t begin = i; begin-- > k - 1;) {
        last += costs[begin];
        const double most = std::max(least[k - 1][begin], last);
        if (most < least[k][i]) {
          least[k][i] = most;
          from[k][i] = begin;
        }
      }
    }
  std::vector<int64_t> split(static_cast<size_t>(stages));
  size_t end = width - 1;
  for (size_t k = least.size() - 1; k > 0; --k) {
    end = from[k][end];
    split[k - 1] = static_cast<int64_t>(end);
  }
  return split;
}

std::vector<int64_t> split_by_time(nn::Sequential& net, const Tensor& x, int64_t stages,
                                   const std::shared_ptr<Engine>& group) {
  constexpr int kRounds = 3;
  std::vector<double> costs(net.size(), std::numeric_limits<double>::infinity());
  std::vector<Tensor> before;
  for (const Param& p : net.parameters()) before.push_back(p.grad());
  for (int round = 0; round < kRounds; ++round) {
    Tensor in = x.detach();
    for (size_t i = 0; i < net.size(); ++i) {
      if (in.is_floating_point()) in.requires_grad_();
      const auto start = Clock::now();
      const Tensor out = net[static_cast<int64_t>(i)](in);
      if (out.requires_grad()) out.backward(out.detach());
      costs[i] = std::min(costs[i], seconds_since(start));
      in = out.detach();
    }
  }
  const std::vector<Param> params = net.parameters();
  for (size_t i = 0; i < params.size(); ++i) params[i].set_grad(before[i]);
  group
      ->broadcast({costs.data(), static_cast<int64_t>(costs.size()), DType::f64}, 0,
                  {"times of layers"})
      .wait();
  return balanced_split(costs, stages);
}

nn::Sequential stage_of(const nn::Sequential& net, const std::vector<int64_t>& split,
                        int64_t stage) {
  const auto stages = static_cast<int64_t>(split.size());
  TD_CHECK(stage >= 0 && stage < stages, Index, "stage {} of a net in {} parts", stage, stages);
  const auto begin = static_cast<size_t>(split[static_cast<size_t>(stage)]);
  const auto end =
      stage + 1 < stages ? static_cast<size_t>(split[static_cast<size_t>(stage) + 1]) : net.size();
  TD_CHECK(begin <= end && end <= net.size(), Index,
           "stage {} takes the layers {} to {}, the net has {}", stage, begin, end, net.size());
  return nn::Sequential::named({net.items.begin() + static_cast<std::ptrdiff_t>(begin),
                                net.items.begin() + static_cast<std::ptrdiff_t>(end)});
}

}  // namespace tandem::distributed
