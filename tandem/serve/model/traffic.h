// SPDX-License-Identifier: Apache-2.0
// Traffic: which version of a model answers a request that names none, where one is being tried. A
// canary answers a share of them and is taken back by rule; a shadow gets copies, and its answers
// are compared and dropped.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tandem/serve/model/settings.h"
#include "tandem/tensor/tensor.h"

namespace tandem::serve {

struct ModelVersion;

/// What came of copies for the shadow.
struct ShadowCounts {
  std::atomic<uint64_t> equal{0}, different{0}, failed{0};
  std::atomic<uint64_t> skipped{0};   ///< it had too much to do
  std::atomic<double> difference{0};  ///< the largest of a number; infinite for other shapes
};

class TD_API Traffic {
 public:
  explicit Traffic(const ModelSettings& settings)
      : share_(settings.canary.share), rule_(settings.canary.rollback) {}
  /// The versions, once they are loaded; nullptr for none. `stable` answers what the canary does
  /// not.
  void set(const std::shared_ptr<ModelVersion>& stable, const std::shared_ptr<ModelVersion>& canary,
           const std::shared_ptr<ModelVersion>& shadow);

  /// The version for one more request that names none: the stable one, or the canary in its turn.
  /// nullptr where that is gone.
  std::shared_ptr<ModelVersion> pick();
  std::shared_ptr<ModelVersion> shadow() const { return shadow_.lock(); }
  /// Hands a copy of a request that was answered with `outputs` to the shadow.
  void copy(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs);

  /// The part of the requests that the canary gets: 0 after it was taken back.
  double share() const { return rolled_back_.load() ? 0 : share_; }
  bool rolled_back() const { return rolled_back_.load(); }
  const ShadowCounts& shadow_counts() const { return shadow_counts_; }

 private:
  std::string broken_rule(const ModelVersion& stable, const ModelVersion& canary) const;
  double share_;
  RollbackSettings rule_;
  std::weak_ptr<ModelVersion> stable_, canary_, shadow_;
  std::atomic<uint64_t> asked_{0};
  std::atomic<bool> rolled_back_{false};
  ShadowCounts shadow_counts_;
};

/// The largest absolute difference of two answers: 0 for equal bits, infinite where their shapes
/// differ or a number stands beside a NaN.
TD_API double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

}  // namespace tandem::serve
