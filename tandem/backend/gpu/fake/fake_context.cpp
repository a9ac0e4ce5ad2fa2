// SPDX-License-Identifier: Apache-2.0
// Objects are numbers, never given out twice, so that one that was destroyed is recognised.
#include "tandem/backend/gpu/fake/fake_context_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tandem/base/error.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kPinnedLimit = int64_t{1} << 40;

template <class Ref>
Ref ref_of(uint64_t number) {
  return reinterpret_cast<Ref>(number);
}

Access host_access(const void* p, size_t bytes, bool write) {
  const auto at = reinterpret_cast<uint64_t>(p);
  return {at, at + bytes, write};
}

void* pointer(Address at) { return reinterpret_cast<void*>(at); }

}  // namespace

FakeDevice::FakeDevice(const FakeOptions& options, int device)
    : options_(options),
      memory_(options.bytes),
      host_memory_(kPinnedLimit),
      seed_(options.seed + static_cast<uint64_t>(device) * 1000003),
      executor_(seed_, options.delays) {
  info_.name = "emulated device";
  info_.version = "of this process";
  info_.bytes = info_.largest_allocation = options.bytes;
  info_.shared_bytes = 99 << 10;  // as on the smallest devices with matrix units
  info_.threads_per_block = 1024;
  info_.units = 1;
  info_.f64 = true;
  info_.warp_matmul = true;
  info_.graphs = true;
}

FakeDevice::~FakeDevice() = default;

// ---- libraries

void FakeDevice::offer(MatmulLibrary* matmuls, ConvLibrary* convs) {
  std::lock_guard hold(lock_);
  matmuls_ = matmuls;
  convs_ = convs;
}
MatmulLibrary* FakeDevice::matmul_library(Status& why) {
  std::lock_guard hold(lock_);
  return matmuls_ ? matmuls_ : Context::matmul_library(why);
}
ConvLibrary* FakeDevice::conv_library(Status& why) {
  std::lock_guard hold(lock_);
  return convs_ ? convs_ : Context::conv_library(why);
}

void FakeDevice::offer(RanksLibrary* ranks) {
  std::lock_guard hold(lock_);
  ranks_ = ranks;
}
RanksLibrary* FakeDevice::ranks_library(Status& why) {
  std::lock_guard hold(lock_);
  return ranks_ ? ranks_ : Context::ranks_library(why);
}

// ---- errors

void FakeDevice::fail_after(Operation operation, int64_t calls, Code code) {
  std::lock_guard hold(lock_);
  failures_.push_back({operation, calls, code});
}

Status FakeDevice::alive() const {
  if (!lost_) return {};
  return {Code::lost, "the device is lost; open it again"};
}

// Before anything else of a call of this kind.
Status FakeDevice::enter(Operation operation) {
  TD_GPU_TRY(alive());
  for (size_t i = 0; i < failures_.size(); ++i) {
    if (failures_[i].operation != operation || failures_[i].calls-- > 0) continue;
    const Code code = failures_[i].code;
    failures_.erase(failures_.begin() + static_cast<int64_t>(i));
    lost_ = code == Code::lost;
    return {code, fmt::format("injected error: {}", to_string(code))};
  }
  return {};
}

int64_t FakeDevice::live_objects() const {
  std::lock_guard hold(lock_);
  return static_cast<int64_t>(streams_.size() + events_.size() + modules_.size() + graphs_.size()) +
         memory_.count() + host_memory_.count();
}

// What work has done wrong, told to the host when it waits.
Status FakeDevice::device_error(const char* what) {
  const std::string problem = executor_.take_error();
  if (problem.empty()) return {};
  return {Code::launch, fmt::format("{}: {}", what, problem)};
}

Status FakeDevice::stream_number(StreamRef stream, const char* what, int& number) const {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return {Code::bad_argument, fmt::format("{}: no such stream", what)};
  number = it->second;
  return {};
}

Status FakeDevice::event_of(EventRef event, const char* what, FakeEvent*& found) {
  const auto it = events_.find(event);
  if (it == events_.end()) return {Code::bad_argument, fmt::format("{}: no such event", what)};
  found = &it->second;
  return {};
}

// ---- memory

Status FakeDevice::allocate(size_t bytes, Address& at) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::allocate));
  return memory_.allocate(bytes, at);
}

// Waits for all work. What that has done wrong is left for the next call that waits, so that the
// memory is gone for certain.
Status FakeDevice::release_from(FakeMemory& memory, Address at) {
  {
    std::lock_guard hold(lock_);
    TD_GPU_TRY(alive());
    if (capture_.running()) return {Code::bad_argument, "release: a capture runs on this device"};
  }
  executor_.wait_for_all();
  std::lock_guard hold(lock_);
  checker_.host_waits();
  uint64_t end = at;
  std::string damage;
  TD_GPU_TRY(memory.release(at, end, damage));
  if (!damage.empty()) executor_.report(damage);
  checker_.forget(at, end);
  return {};
}

Status FakeDevice::release(Address at) { return release_from(memory_, at); }

Status FakeDevice::memory(int64_t& free, int64_t& total) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(alive());
  total = options_.bytes;
  free = total - memory_.used();
  return {};
}

Status FakeDevice::allocate_host(size_t bytes, void*& at) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::allocate_host));
  Address address = 0;
  TD_GPU_TRY(host_memory_.allocate(bytes, address));
  at = pointer(address);
  return {};
}

Status FakeDevice::release_host(void* at) {
  return release_from(host_memory_, reinterpret_cast<Address>(at));
}

// ---- streams and events

Status FakeDevice::create_stream(const std::string& name, StreamRef& stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::create));
  try {
    executor_.start();
  } catch (const Error& e) {
    return {Code::driver, e.text()};
  }
  stream = ref_of<StreamRef>(++made_);
  streams_[stream] = checker_.add_stream(name);
  return {};
}

Status FakeDevice::destroy_stream(StreamRef stream) {
  std::lock_guard hold(lock_);
  int number = 0;
  TD_GPU_TRY(stream_number(stream, "destroy_stream", number));
  TD_GPU_TRY(capture_.host_waits(stream));
  streams_.erase(stream);
  return {};
}

Status FakeDevice::create_event(EventRef& event) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::create));
  event = ref_of<EventRef>(++made_);
  events_[event] = {};
  return {};
}

Status FakeDevice::destroy_event(EventRef event) {
  std::lock_guard hold(lock_);
  if (events_.erase(event)) return {};
  return {Code::bad_argument, "destroy_event: no such event"};
}

Status FakeDevice::record(EventRef event, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::record));
  int number = 0;
  FakeEvent* e = nullptr;
  TD_GPU_TRY(stream_number(stream, "record", number));
  TD_GPU_TRY(event_of(event, "record", e));
  if (capture_.record(event, stream)) return {};
  e->clock = checker_.record(number);
  e->last = executor_.record(number);
  return {};
}

Status FakeDevice::wait(StreamRef stream, EventRef event) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::record));
  int number = 0;
  FakeEvent* e = nullptr;
  TD_GPU_TRY(stream_number(stream, "wait", number));
  TD_GPU_TRY(event_of(event, "wait", e));
  Status status;
  if (capture_.wait(stream, event, status) || !e->last) return status;
  checker_.wait(number, e->clock);
  executor_.wait(number, e->last);
  return {};
}

Status FakeDevice::query(EventRef event) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(alive());
  FakeEvent* e = nullptr;
  TD_GPU_TRY(event_of(event, "query", e));
  if (e->last && !executor_.has_happened(*e->last))
    return {Code::not_ready, "the event has not happened yet"};
  checker_.host_waits(e->clock);
  return {};
}

Status FakeDevice::synchronize_event(EventRef event) {
  FakeEvent now;
  {
    std::lock_guard hold(lock_);
    TD_GPU_TRY(enter(Operation::synchronize));
    FakeEvent* e = nullptr;
    TD_GPU_TRY(event_of(event, "synchronize_event", e));
    now = *e;
  }
  if (now.last) executor_.wait_for(*now.last);
  std::lock_guard hold(lock_);
  checker_.host_waits(now.clock);
  return device_error("synchronize_event");
}

Status FakeDevice::elapsed(EventRef from, EventRef to, double& seconds) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(alive());
  FakeEvent *a = nullptr, *b = nullptr;
  TD_GPU_TRY(event_of(from, "elapsed", a));
  TD_GPU_TRY(event_of(to, "elapsed", b));
  if (a->last && b->last && executor_.elapsed(*a->last, *b->last, seconds)) return {};
  return {Code::not_ready, "elapsed: both events must have happened"};
}

Status FakeDevice::synchronize_stream(StreamRef stream) {
  int number = 0;
  HappensBefore::Clock clock;
  {
    std::lock_guard hold(lock_);
    TD_GPU_TRY(enter(Operation::synchronize));
    TD_GPU_TRY(stream_number(stream, "synchronize_stream", number));
    TD_GPU_TRY(capture_.host_waits(stream));
    clock = checker_.record(number);
  }
  executor_.wait_for_stream(number);
  std::lock_guard hold(lock_);
  checker_.host_waits(clock);
  return device_error("synchronize_stream");
}

Status FakeDevice::synchronize() {
  {
    std::lock_guard hold(lock_);
    TD_GPU_TRY(enter(Operation::synchronize));
    if (capture_.running()) {
      return {Code::bad_argument, "the host cannot wait for a device while it is captured"};
    }
  }
  executor_.wait_for_all();
  std::lock_guard hold(lock_);
  checker_.host_waits();
  return device_error("synchronize");
}

// ---- work

Status FakeDevice::submit(StreamRef stream, const char* what, const std::string& name,
                          std::vector<Access> accesses, Executor::Run run) {
  int number = 0;
  TD_GPU_TRY(stream_number(stream, what, number));
  if (capture_.takes(stream)) {
    captured_.push_back(std::move(accesses));
    capture_.add(stream, {name,
                          [run = std::move(run)](StreamRef) {
                            std::string problem = run();
                            return problem.empty() ? Status() : Status(Code::launch, problem);
                          },
                          {}});
    return {};
  }
  if (options_.checks_waits) {
    std::string report = checker_.operation(number, name, accesses);
    if (!report.empty()) return {Code::missing_wait, std::move(report)};
  }
  executor_.run(number, std::move(run));
  return {};
}

Status FakeDevice::copy_in(Address to, const void* host, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::copy));
  TD_GPU_TRY(memory_.check_range(to, bytes, "copy_in"));
  return submit(stream, "copy_in", fmt::format("copy_in of {} bytes", bytes),
                {host_access(host, bytes, false), {to, to + bytes, true}}, [=] {
                  std::memcpy(pointer(to), host, bytes);
                  return std::string();
                });
}

Status FakeDevice::copy_out(void* host, Address from, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::copy));
  TD_GPU_TRY(memory_.check_range(from, bytes, "copy_out"));
  return submit(stream, "copy_out", fmt::format("copy_out of {} bytes", bytes),
                {{from, from + bytes, false}, host_access(host, bytes, true)}, [=] {
                  std::memcpy(host, pointer(from), bytes);
                  return std::string();
                });
}

Status FakeDevice::copy(Address to, Address from, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::copy));
  TD_GPU_TRY(memory_.check_range(to, bytes, "copy"));
  TD_GPU_TRY(memory_.check_range(from, bytes, "copy"));
  if (to < from + bytes && from < to + bytes) {
    return {Code::bad_argument, fmt::format("copy of {} bytes: the places overlap", bytes)};
  }
  return submit(stream, "copy", fmt::format("copy of {} bytes", bytes),
                {{from, from + bytes, false}, {to, to + bytes, true}}, [=] {
                  std::memcpy(pointer(to), pointer(from), bytes);
                  return std::string();
                });
}

Status FakeDevice::fill(Address to, uint8_t value, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(enter(Operation::copy));
  TD_GPU_TRY(memory_.check_range(to, bytes, "fill"));
  return submit(stream, "fill", fmt::format("fill of {} bytes", bytes), {{to, to + bytes, true}},
                [=] {
                  std::memset(pointer(to), value, bytes);
                  return std::string();
                });
}

}  // namespace tandem::gpu
