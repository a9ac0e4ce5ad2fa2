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

  std::vector<std::string> plan() const override;
  void walk_begins(std::span<GradSlot* const> reached, bool create_graph) override;
  void gradients_traced(std::span<GradSlot* const> slots) override;
  void gradient_ready(GradSlot& slot) override;
  void walk_ends(bool failed) override;
  void reduce_all(double divisor) override;

 private:
  struct Bucket {
    size_t given = 0;
    Tensor flat, part;
    Work work;
  };
  void begin_pass();
  void give(size_t i, bool used);
  void launch_full();
  void settle(Bucket& b);
  void end_pass(double divisor);

  ShardedParams& sharded_;
  bool ordered_;
  std::vector<Bucket> buckets_;  ///< of the units
  std::vector<char> given_, unsent_;
  Tensor users_;     ///< how many ranks have a gradient for each parameter
  size_t next_ = 0;  ///< units from the last one that are under way
};

}  // namespace tandem::distributed
