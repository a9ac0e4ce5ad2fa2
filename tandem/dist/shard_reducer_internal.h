// SPDX-License-Identifier: Apache-2.0
// ShardReducer: gradients of a net with sharded parameters. Those of a unit are copied to a flat
// array as they become complete; when all are there, each rank gets the sum of its own part, which
// ends as the gradients of its shards.
#pragma once

#include "tandem/dist/sharded_params_internal.h"

namespace tandem::distributed {

class ShardReducer final : public Reducer {
 public:
  /// `params` must outlive this.
  ShardReducer(std::vector<NamedParam> named, ShardedParams& params,
               const DataParallelOptions& options, std::shared_ptr<Engine> engine);
  ~ShardReducer() override;

 private:
  struct Bucket {
    size_t given = 0;
    Tensor flat, part;  ///< the unit's gradients, and this rank's part of their sum
    FlatCall call;
  };
  void begin_pass() override;
  void give(size_t i, bool used) override;
  void end_pass() override;
  void launch_full();
  void launch(size_t k);
  void settle(Bucket& b);
  Tensor gradients_of(const ShardedParams::Unit& u) const;
  void launch_traced(size_t k);
  void settle_traced(Bucket& b);
  /// On their way to the host gradients need not wait for the pass's end.
  bool keeps_whole() const {
    return sharded_.sharding() == Sharding::zero1 && !sharded_.offloads();
  }

  ShardedParams& sharded_;
  bool ordered_;
  std::vector<Bucket> buckets_;  ///< of the units
  Tensor users_;                 ///< how many ranks have a gradient for each parameter
  std::vector<char> used_;       ///< parameters: the trace has a gradient
  size_t next_ = 0;              ///< units from the last one that are under way
};

}  // namespace tandem::distributed
