// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/device_calls_internal.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "tandem/base/log.h"
#include "tandem/graph/backend.h"

namespace tandem::distributed {
namespace {

struct Joined {
  std::weak_ptr<Engine> group;
  Device device;
  std::shared_ptr<DeviceRanks> ranks;
};
struct JoinedTable {
  std::mutex lock;
  std::vector<Joined> all;
};
JoinedTable& joined() {
  static JoinedTable& t = *new JoinedTable;  // programs may outlive static objects
  return t;
}

// Is `mine` so on all ranks?
bool on_all_ranks(Engine& group, bool mine, const char* label) {
  int64_t all = mine ? 1 : 0;
  group.all_reduce({&all, 1, DType::i64}, ReduceOp::min, {.label = label}).wait();
  return all == 1;
}

bool same_kind(Engine& group, Device device) {
  int64_t low = static_cast<int64_t>(device.kind), high = low;
  group.all_reduce({&low, 1, DType::i64}, ReduceOp::min, {.label = "kinds of devices"}).wait();
  group.all_reduce({&high, 1, DType::i64}, ReduceOp::max, {.label = "kinds of devices"}).wait();
  return low == high;
}

// Rank 0's bytes to all.
void share(void* with, std::string& bytes) {
  Engine& group = *static_cast<Engine*>(with);
  int64_t size = static_cast<int64_t>(bytes.size());
  group.broadcast({&size, 1, DType::i64}, 0, {"id of devices"}).wait();
  bytes.resize(static_cast<size_t>(size));
  if (size > 0) group.broadcast({bytes.data(), size, DType::u8}, 0, {"id of devices"}).wait();
}

std::shared_ptr<DeviceRanks> join(Engine& group, Device device) {
  const Backend& backend = backend_of(device);
  std::string why = "its driver has no library of calls between devices";
  const bool can = backend.can_join_ranks && backend.can_join_ranks(device.index, why);
  const bool alike = same_kind(group, device);
  if (!on_all_ranks(group, can && alike, "libraries of devices")) {
    if (can) why = alike ? "another rank has none" : "ranks have devices of several kinds";
  } else {
    const RankPlace place{group.rank(), group.size(), &group, share};
    std::shared_ptr<DeviceRanks> ranks = backend.join_ranks(device.index, place, why);
    if (on_all_ranks(group, ranks != nullptr, "devices have joined")) return ranks;
    if (ranks) why = "another rank could not join";
  }
  if (group.rank() == 0)
    log_warning("calls of ranks with tensors on {} go through the host: {}", to_string(device),
                why);
  return nullptr;
}

const Joined* find(const JoinedTable& t, const std::shared_ptr<Engine>& group, Device device) {
  const auto at = std::find_if(t.all.begin(), t.all.end(), [&](const Joined& j) {
    return j.device == device && j.group.lock() == group;
  });
  return at == t.all.end() ? nullptr : &*at;
}

}  // namespace

std::shared_ptr<DeviceRanks> join_devices(const std::shared_ptr<Engine>& group, Device device) {
  JoinedTable& t = joined();
  {
    const std::lock_guard hold(t.lock);
    if (const Joined* j = find(t, group, device)) return j->ranks;
  }
  std::shared_ptr<DeviceRanks> ranks = join(*group, device);
  const std::lock_guard hold(t.lock);
  std::erase_if(t.all, [](const Joined& j) { return j.group.expired(); });
  t.all.push_back({group, device, ranks});
  return ranks;
}

std::shared_ptr<DeviceRanks> joined_devices(const std::shared_ptr<Engine>& group, Device device) {
  JoinedTable& t = joined();
  const std::lock_guard hold(t.lock);
  const Joined* j = find(t, group, device);
  return j ? j->ranks : nullptr;
}

}  // namespace tandem::distributed
