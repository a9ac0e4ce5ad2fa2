// SPDX-License-Identifier: Apache-2.0
// The table of device memories. Slots are filled once and never change, so readers take no lock.
#include "tandem/tensor/device_memory.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "tandem/base/copy_bytes.h"
#include "tandem/base/error.h"
#include "tandem/base/per_thread.h"
#include "tandem/tensor/lazy.h"

namespace tandem {
namespace {

constexpr int kMostDevices = 16;  ///< of one kind
constexpr int kUncounted = -1;

struct Counts {
  std::atomic<int64_t> in_use{0}, peak{0}, allocations{0};
};
struct Slot {
  std::atomic<bool> filled{false};
  DeviceMemory memory;
  std::atomic<int> devices{kUncounted};
  std::mutex counting;
  std::string why_none;
  Counts counts[kMostDevices];
};
struct DeviceTable {
  std::mutex lock;
  Slot slots[kDeviceKinds];
  int next = static_cast<int>(DeviceKind::cuda) + 1;
};
DeviceTable& table() {
  static auto* t = new DeviceTable;  // tensors are freed until the last thread ends
  return *t;
}
std::atomic<void (*)(Device)> g_read_hook{nullptr};

Slot& slot_of(Device d) { return table().slots[static_cast<int>(d.kind)]; }

Counts& counts_of(Device d) { return slot_of(d).counts[d.index]; }

// How many devices of a kind there are. A driver that is opened late is asked at the first call.
int devices_of(Slot& s) {
  int n = s.devices.load(std::memory_order_acquire);
  if (TD_LIKELY(n != kUncounted)) return n;
  std::lock_guard hold(s.counting);
  n = s.devices.load();
  if (n != kUncounted) return n;
  n = std::min(s.memory.count(s.why_none), kMostDevices);
  s.devices.store(n, std::memory_order_release);
  return n;
}

const char* name_of(DeviceKind kind) {
  if (kind == DeviceKind::cpu) return "cpu";
  const Slot& s = table().slots[static_cast<int>(kind)];
  if (s.filled.load(std::memory_order_acquire)) return s.memory.name;
  return kind == DeviceKind::cuda ? "cuda" : "device";
}

// The queues of this thread, where they are not the devices' own.
struct Streams {
  Stream of[kDeviceKinds][kMostDevices];
};
Stream& stream_slot(Device d) {
  return detail::PerThread<Streams>::get().of[static_cast<int>(d.kind)][d.index % kMostDevices];
}

void after_read(Device d) {
  if (auto hook = g_read_hook.load(std::memory_order_acquire)) hook(d);
}

}  // namespace

std::string to_string(Device d) {
  if (is_host(d)) return "cpu";
  return name_of(d.kind) + (":" + std::to_string(d.index));
}

namespace {

// "cpu, cuda:0, cuda:1": opens every driver.
std::string known_devices() {
  std::string known = "cpu";
  for (int k = 1; k < kDeviceKinds; ++k) {
    Slot& s = table().slots[k];
    if (!s.filled.load(std::memory_order_acquire)) continue;
    for (int i = 0; i < devices_of(s); ++i)
      known += ", " + to_string(Device{static_cast<DeviceKind>(k), static_cast<uint8_t>(i)});
  }
  return known;
}

}  // namespace

namespace {
// The device of that name, or the reason why there is none.
std::optional<Device> find_device(std::string_view name, std::string& why) {
  const size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  int index = 0;
  bool number = colon == std::string_view::npos;
  if (!number) {
    const std::string_view digits = name.substr(colon + 1);
    number = !digits.empty() && digits.size() <= 2;
    for (const char c : digits) {
      number = number && c >= '0' && c <= '9';
      if (number) index = 10 * index + (c - '0');
    }
  }
  if (number && index == 0 && kind == "cpu") return cpu;
  for (int k = 1; k < kDeviceKinds; ++k) {
    Slot& s = table().slots[k];
    if (!s.filled.load(std::memory_order_acquire) || kind != s.memory.name) continue;
    if (number && index < devices_of(s))
      return Device{static_cast<DeviceKind>(k), static_cast<uint8_t>(index)};
    if (!s.why_none.empty()) why = ": " + s.why_none;
  }
  return std::nullopt;
}
}  // namespace

Device device_named(std::string_view name) {
  std::string why;
  if (name == "auto") return find_device("cuda", why).value_or(cpu);
  if (const std::optional<Device> found = find_device(name, why)) return *found;
  TD_FAIL(Value, "there is no device '{}'{}\nThis process has {}.", name, why, known_devices());
}

DeviceKind register_device_memory(const DeviceMemory& m) {
  TD_CHECK(m.name && *m.name && std::string_view(m.name) != "cpu", Value,
           "a device's memory expects a name other than cpu");
  TD_CHECK(m.devices > 0 && m.devices <= kMostDevices, Value,
           "{}: 1 to {} devices can be registered, got {}", m.name, kMostDevices, m.devices);
  TD_CHECK(
      m.allocate && m.deallocate && m.copy_in && m.copy_out && m.copy && m.fill && m.synchronize,
      Value, "{}: a function of the device's memory is missing\nSee DeviceMemory.", m.name);
  DeviceTable& t = table();
  std::lock_guard hold(t.lock);
  for (int k = 1; k < kDeviceKinds; ++k)
    if (t.slots[k].filled && std::string_view(t.slots[k].memory.name) == m.name)
      return static_cast<DeviceKind>(k);
  const bool cuda = std::string_view(m.name) == "cuda";
  TD_CHECK(cuda || t.next < kDeviceKinds, Value, "{}: this process has {} kinds of devices already",
           m.name, kDeviceKinds);
  const int kind = cuda ? static_cast<int>(DeviceKind::cuda) : t.next++;
  t.slots[kind].memory = m;
  if (!m.count) t.slots[kind].devices = m.devices;
  t.slots[kind].filled.store(true, std::memory_order_release);
  return static_cast<DeviceKind>(kind);
}

const DeviceMemory& device_memory(Device d) {
  Slot& s = slot_of(d);
  TD_CHECK(!is_host(d) && s.filled.load(std::memory_order_acquire), Unsupported,
           "tensors on {} are not supported by this build\nUse the device cpu.", to_string(d));
  if (TD_UNLIKELY(d.index >= devices_of(s))) {
    TD_FAIL(Unsupported, "there is no device {}{}{}\nThis process has {}.", to_string(d),
            s.why_none.empty() ? "" : ": ", s.why_none, known_devices());
  }
  return s.memory;
}

void synchronize(Device d) {
  if (is_host(d)) return;
  device_memory(d).synchronize(d.index);
  after_read(d);
}

Stream current_stream(Device d) { return is_host(d) ? Stream{} : stream_slot(d); }

StreamGuard::StreamGuard(Device device, Stream stream)
    : device_(device), old_(current_stream(device)) {
  if (!is_host(device)) stream_slot(device) = stream;
}
StreamGuard::~StreamGuard() {
  if (!is_host(device_)) stream_slot(device_) = old_;
}

AllocatorStats allocator_stats(Device d) {
  if (is_host(d)) return allocator_stats();
  device_memory(d);
  const Counts& c = counts_of(d);
  AllocatorStats s;
  s.in_use = s.reserved = c.in_use.load();
  s.peak = c.peak.load();
  s.allocations = c.allocations.load();
  return s;
}

namespace detail {

void* allocate(size_t bytes, Device d) {
  if (is_host(d)) return allocate(bytes);
  const DeviceMemory& m = device_memory(d);
  bytes = std::max<size_t>(bytes, 1);
  void* p = m.allocate(bytes, d.index, current_stream(d));
  Counts& c = counts_of(d);
  const int64_t now = c.in_use += static_cast<int64_t>(bytes);
  ++c.allocations;
  for (int64_t peak = c.peak; now > peak && !c.peak.compare_exchange_weak(peak, now);) {}
  return p;
}

void deallocate(void* p, size_t bytes, Device d) noexcept {
  if (is_host(d)) return deallocate(p, bytes);
  bytes = std::max<size_t>(bytes, 1);
  counts_of(d).in_use -= static_cast<int64_t>(bytes);
  slot_of(d).memory.deallocate(p, bytes, d.index, current_stream(d));
}

void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t bytes) {
  if (bytes == 0) return;
  if (is_host(to_device) && is_host(from_device)) {
    tandem::copy_bytes(to, from, bytes);
  } else if (is_host(from_device)) {
    device_memory(to_device).copy_in(to, from, bytes, to_device.index, current_stream(to_device));
  } else if (is_host(to_device)) {
    device_memory(from_device)
        .copy_out(to, from, bytes, from_device.index, current_stream(from_device));
    after_read(from_device);
  } else if (to_device == from_device) {
    device_memory(to_device).copy(to, from, bytes, to_device.index, current_stream(to_device));
  } else {
    const std::unique_ptr<char[]> between(new char[bytes]);
    copy_bytes(between.get(), cpu, from, from_device, bytes);
    copy_bytes(to, to_device, between.get(), cpu, bytes);
  }
}

size_t span_bytes(const TensorImpl& t) {
  if (t.numel == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < t.shape.rank(); ++i) last += (t.shape[i].raw() - 1) * t.strides[i];
  return static_cast<size_t>(last + 1) * size_of(t.dtype);
}

Ref<TensorImpl> host_copy(const TensorImpl& t) {
  if (const Deferred* recipe = deferred_of(t); TD_UNLIKELY(recipe != nullptr))
    return host_copy(*recipe->compute().impl());
  Ref<TensorImpl> to = Ref<TensorImpl>::adopt(new_tensor(t.shape, t.dtype, cpu, &t.strides));
  copy_bytes(to->data, cpu, t.data, t.device, span_bytes(t));
  return to;
}

const char*& allocating_op() {
  struct Name {
    const char* op = nullptr;
  };
  return PerThread<Name>::get().op;
}

void set_device_read_hook(void (*hook)(Device)) { g_read_hook = hook; }

}  // namespace detail
}  // namespace tandem
