// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/device_strategies.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/dist/launch.h"
#include "tandem/dist/process_group.h"
#include "tandem/dist/rank_device.h"

namespace tandem::train {
namespace {

thread_local const DeviceStrategy* t_current = nullptr;

}  // namespace

DeviceStrategy::DeviceStrategy(const DeviceStrategyOptions& o, bool several_machines) {
  TD_CHECK(o.devices >= 1 || o.devices == -1, Value,
           "a strategy expects at least one device, or -1 for all, got {}", o.devices);
  const int there = distributed::count_devices(o.device);  // before anything is started
  const int devices = o.devices > 0 ? o.devices : there;
  if (const auto ended = distributed::launch_self({.ranks = devices, .prefix = false})) {
    std::fflush(nullptr);
    std::exit(ended->code);
  }
  const distributed::Place place = distributed::find_place();
  TD_CHECK(several_machines || place.local_size == place.size, Value,
           "MirroredStrategy trains on one machine, and this job has {} of its {} ranks on "
           "others\nUse MultiWorkerMirroredStrategy.",
           place.size - place.local_size, place.size);
  rank_ = place.rank;
  replicas_ = place.size;
  device_ = distributed::device_of_rank(o.device, place);
}

DeviceStrategy::Scope::Scope(const DeviceStrategy& s) : before_(std::exchange(t_current, &s)) {}
DeviceStrategy::Scope::~Scope() { t_current = before_; }
const DeviceStrategy* DeviceStrategy::current() { return t_current; }

}  // namespace tandem::train
