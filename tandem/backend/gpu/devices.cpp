// SPDX-License-Identifier: Apache-2.0
// Devices of tensors on the drivers: the tables that the tensor and graph rooms ask for memory.
// Functions of a table get the number of a device, not its kind, so each driver has its own.
#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "tandem/backend/gpu/drivers.h"
#include "tandem/backend/gpu/engine_internal.h"
#include "tandem/backend/gpu/gpu.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/base/error.h"
#include "tandem/graph/context.h"

namespace tandem::gpu {
namespace {

constexpr int kMostDevices = 16;

// The engines of one driver.
struct Opened {
  Driver* driver = nullptr;
  DeviceKind kind{};
  std::mutex lock;
  std::atomic<Engine*> engines[kMostDevices] = {};
};
constexpr int kDrivers = 3;  // as drivers() has them
Opened* opened() {
  static auto* all = new Opened[kDrivers];  // tensors are freed until the last thread ends
  return all;
}

Engine& open(Opened& o, int index) {
  TD_CHECK(index < kMostDevices, Unsupported, "{} devices of one kind are supported", kMostDevices);
  std::lock_guard hold(o.lock);
  std::atomic<Engine*>& slot = o.engines[index];
  if (!slot.load()) {
    slot.store(new Engine(*o.driver, {o.kind, static_cast<uint8_t>(index)}),
               std::memory_order_release);
  }
  return *slot.load();
}

Engine& engine_at(Opened& o, int index) {
  Engine* e = index < kMostDevices ? o.engines[index].load(std::memory_order_acquire) : nullptr;
  return TD_LIKELY(e != nullptr) ? *e : open(o, index);
}

// What memory is for, in the pool's statistics and texts: the layer, or the op outside of layers.
const char* holder() {
  const ScopeFrame* scope = context().scope;
  if (scope && scope->path) return scope_path(scope->path).c_str();
  const char* op = detail::allocating_op();
  return op ? op : "tensors";
}

// The functions of DeviceMemory and Backend for driver number k.
template <int k>
struct Table {
  static Engine& engine(int index) { return engine_at(opened()[k], index); }

  static int count(std::string& why) {
    int devices = 0;
    const Status status = opened()[k].driver->count(devices);
    if (!status.ok()) why = status.text();
    return status.ok() ? std::min(devices, kMostDevices) : 0;
  }
  static void* allocate(size_t bytes, int index, Stream stream) {
    Engine& e = engine(index);
    e.refuse_in_recording("memory that is allocated");
    return reinterpret_cast<void*>(e.pool().allocate(bytes, e.stream(stream), holder()));
  }
  static void deallocate(void* p, size_t, int index, Stream stream) noexcept {
    Engine& e = engine(index);
    if (stream.handle) e.pool().add_stream(address_of(p), e.stream(stream));
    e.pool().release(address_of(p));
  }
  static void copy_in(void* to, const void* host, size_t bytes, int index, Stream stream) {
    Engine& e = engine(index);
    e.copy_in(address_of(to), host, bytes, e.stream(stream));
  }
  static void copy_out(void* host, const void* from, size_t bytes, int index, Stream stream) {
    Engine& e = engine(index);
    e.copy_out(host, address_of(from), bytes, e.stream(stream));
  }
  static void copy(void* to, const void* from, size_t bytes, int index, Stream stream) {
    Engine& e = engine(index);
    e.check(e.context().copy(address_of(to), address_of(from), bytes, e.stream(stream)));
  }
  static void fill(void* to, uint8_t value, size_t bytes, int index, Stream stream) {
    Engine& e = engine(index);
    e.check(e.context().fill(address_of(to), value, bytes, e.stream(stream)));
  }
  static void synchronize(int index) { engine(index).synchronize(); }
  static bool take_error(int index, DeviceError& error) { return engine(index).take_error(error); }
  static std::unique_ptr<StepGraph> record(int index, RecordableWork& work, std::string& why) {
    return engine(index).record(work, why);
  }
  static bool can_join_ranks(int index, std::string& why) {
    return engine(index).can_join_ranks(why);
  }
  static std::unique_ptr<DeviceRanks> join_ranks(int index, const RankPlace& place,
                                                 std::string& why) {
    return engine(index).join_ranks(place, why);
  }

  static void add() {
    Opened& o = opened()[k];
    o.driver = drivers()[k];
    Backend b;
    b.memory = {.name = o.driver->name(),
                .devices = kMostDevices,
                .allocate = allocate,
                .deallocate = deallocate,
                .copy_in = copy_in,
                .copy_out = copy_out,
                .copy = copy,
                .fill = fill,
                .synchronize = synchronize,
                .count = count};
    b.announces_host_runs = true;
    b.run_loop = run_loop;
    b.take_error = take_error;
    b.record = record;
    b.can_join_ranks = can_join_ranks;
    b.join_ranks = join_ranks;
    o.kind = register_backend(b);
    register_kernels(o.kind);
  }
};

}  // namespace

Engine& engine_of(Device device) {
  for (int k = 0; k < kDrivers; ++k) {
    Opened& o = opened()[k];
    if (o.driver && o.kind == device.kind) return engine_at(o, device.index);
  }
  TD_FAIL(Unsupported, "{} is not a device of a GPU driver", device);
}

}  // namespace tandem::gpu

void tandem::register_gpu_backend() {
  gpu::Table<0>::add();
  gpu::Table<1>::add();
  gpu::Table<2>::add();
}
