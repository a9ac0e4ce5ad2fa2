// SPDX-License-Identifier: Apache-2.0
// Engine: an open device as ops use it: its context, the stream of its ops, the pool that tensors
// come from, and the kernels that were built so far. Opened by the first use of the device, kept
// for the whole process.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <type_traits>
#include <unordered_map>

#include "tandem/backend/gpu/driver.h"
#include "tandem/backend/gpu/kernel_times.h"
#include "tandem/backend/gpu/pool.h"
#include "tandem/backend/gpu/staging_internal.h"
#include "tandem/graph/backend.h"
#include "tandem/graph/kernel.h"

namespace tandem::gpu {

/// What was built for a kind of call: a kernel and what its launches need. Which kernel it is, two
/// numbers and an address say: a program or a row, and how its operands lie.
struct KernelId {
  const void* what = nullptr;
  uint64_t lie = 0, variant = 0;
  bool operator==(const KernelId&) const = default;
};
struct Built {
  virtual ~Built() = default;
};

class Engine;

/// What this thread records, while it does.
struct Recording {
  const Engine* engine = nullptr;
  int64_t launches = 0;
  bool reports = false;  ///< a kernel in it may use the error word
};

/// What record_kernel_times() keeps: two events for each launch.
class LaunchTimes {
 public:
  /// Around one launch; by one thread at a time.
  void begin(Engine& e, const char* name, StreamRef stream);
  void end(Engine& e, StreamRef stream);
  std::vector<KernelTime> take(Engine& e);
  void forget(Engine& e);

 private:
  struct Call {
    const char* name = nullptr;
    EventRef from = nullptr, to = nullptr;
  };
  EventRef event(Engine& e);
  Call begun_;
  std::vector<Call> calls_;
  std::vector<EventRef> free_;
};

class Engine {
 public:
  /// Opens device `index`. Throws Unsupported with the driver's reason.
  Engine(Driver& driver, tandem::Device device);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Context& context() { return *context_; }
  Pool& pool() { return *pool_; }
  const DeviceInfo& info() const { return context_->info(); }
  tandem::Device device() const { return device_; }
  /// The stream behind the dispatcher's; an empty one is the device's own.
  StreamRef stream(Stream s) const { return s.handle ? static_cast<StreamRef>(s.handle) : own_; }

  /// Throws what a status says, with the device's name before it.
  void check(const Status& status) const;

  /// What `make` (giving a unique_ptr of a kind of Built) made for this id, the first time that it
  /// is asked for.
  template <class Make>
  const auto& built(const KernelId& id, Make&& make) {
    using Kind = typename std::invoke_result_t<Make>::element_type;
    std::lock_guard hold(lock_);
    std::unique_ptr<Built>& b = built_[id];
    if (TD_UNLIKELY(!b)) b = make();
    return static_cast<const Kind&>(*b);
  }
  /// Compile one kernel. Throws Device with the compiler's output.
  KernelRef build(const KernelSource& source);

  void launch(KernelRef kernel, Extent blocks, Extent threads, const Arguments& arguments,
              StreamRef stream) {
    if (TD_UNLIKELY(watchers_.load(std::memory_order_relaxed) != 0)) {
      return watched(name_of(kernel), stream,
                     [&] { check(context_->launch(kernel, blocks, threads, arguments, stream)); });
    }
    const Status status = context_->launch(kernel, blocks, threads, arguments, stream);
    if (TD_UNLIKELY(!status.ok())) check(status);
  }
  /// work() puts something else into the stream, a library's call, say; `name` lives on.
  template <class Work>
  void watched(const char* name, StreamRef stream, Work&& work) {
    if (TD_LIKELY(watchers_.load(std::memory_order_relaxed) == 0)) return work();
    if (Recording* r = recording()) {
      ++r->launches;
      return work();
    }
    std::lock_guard hold(times_lock_);
    if (!times_launches()) return work();
    times_.begin(*this, name, stream);
    work();
    times_.end(*this, stream);
  }
  // ---- devices of several processes (ranks.cpp)
  bool can_join_ranks(std::string& why);
  std::unique_ptr<DeviceRanks> join_ranks(const RankPlace& place, std::string& why);

  void time_launches(bool on);
  bool times_launches() const { return times_launches_.load(std::memory_order_relaxed); }
  std::vector<KernelTime> take_launch_times();

  // ---- graphs (step_graphs.cpp)
  /// Backend::record.
  std::unique_ptr<StepGraph> record(RecordableWork& work, std::string& why);
  /// What this thread records of this device; nullptr: nothing.
  Recording* recording() const;
  /// Throws Unsupported while this thread records: `what` cannot be repeated by a replay.
  void refuse_in_recording(const char* what) const;
  /// Wait for all work of the device.
  void synchronize();
  /// Kernels of a replay may use the error word.
  void expect_reports() { may_report_.store(true, std::memory_order_release); }

  void copy_in(Address to, const void* host, size_t bytes, StreamRef stream);
  void copy_out(void* host, Address from, size_t bytes, StreamRef stream);

  // ---- the error word: four i32, code, ticket and the two halves of the value
  static constexpr size_t kErrorBytes = 16;
  /// For a kernel that may report.
  Address error_word();
  /// Backend::take_error.
  bool take_error(DeviceError& error);

 private:
  const char* name_of(KernelRef kernel);
  struct Hash {
    size_t operator()(const KernelId& id) const;
  };

  const tandem::Device device_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Staging> staging_;
  StreamRef own_ = nullptr;
  std::mutex lock_;
  std::unordered_map<KernelId, std::unique_ptr<Built>, Hash> built_;
  Address error_word_ = 0;
  std::atomic<bool> may_report_{false}, times_launches_{false};
  std::atomic<int> watchers_{0};  // of launches: recordings that run, and the times
  StreamRef recorder_ = nullptr;  // the stream that is captured; guarded by graph_lock_
  std::shared_mutex graph_lock_;  // held alone while recording: nobody waits for the device then
  std::mutex times_lock_;
  LaunchTimes times_;
  std::unordered_map<KernelRef, std::string> names_;  // guarded by names_lock_
  std::mutex names_lock_;
};

/// For tests: called with every kernel that an engine builds; nullptr: nobody.
TD_API void set_build_hook(void (*hook)(const KernelSource&));

/// The engine of a device of one of the drivers; opens it at the first call. Throws Unsupported.
TD_API Engine& engine_of(tandem::Device device);

/// An address as tensors keep it.
inline Address address_of(const void* p) { return reinterpret_cast<Address>(p); }

}  // namespace tandem::gpu
