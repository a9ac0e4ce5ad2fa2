// SPDX-License-Identifier: Apache-2.0
// The rows of programs that gather and sum flat arrays (collectives_internal.h), on devices: by
// their library where the ranks have joined, else through the host, which the program waits for no
// sooner than it needs the result.
#pragma once

#include <memory>
#include <vector>

#include "tandem/dist/engine.h"
#include "tandem/graph/device_ranks.h"
#include "tandem/graph/kernel.h"
#include "tandem/graph/run/started_work.h"

namespace tandem::distributed {

/// What such a row says.
struct FlatRow {
  std::shared_ptr<Engine> group;
  CallOptions options;
  int64_t part = 0;                              ///< elements of a rank
  const std::vector<int64_t>* places = nullptr;  ///< of a gather: where its operands lie in a part
};

/// A call of the engine that a row has started: other ranks wait for what will not come when the
/// program is left before its wait.
class StartedCall : public StartedWork {
 public:
  StartedCall(std::shared_ptr<Engine> group, Work work)
      : group_(std::move(group)), work_(std::move(work)) {}
  void wait() override { work_.wait(); }
  void cancel() noexcept override;

 private:
  std::shared_ptr<Engine> group_;
  Work work_;
};

/// What runs in a stream beside the program's: the program's waits for it, the host never does.
std::unique_ptr<StartedWork> started_on_device(std::shared_ptr<DeviceRanks> ranks, Stream stream);

/// Kernels of "gather_start" and "scatter_sum_start"; what they start is kept under out[0].
void start_gather_on_device(const KernelCall& call, const FlatRow& row);
void start_sum_on_device(const KernelCall& call, const FlatRow& row);

}  // namespace tandem::distributed
