// SPDX-License-Identifier: Apache-2.0
#include "tandem/backend/gpu/engine_internal.h"

#include <fmt/format.h>

#include <cstring>

#include "tandem/backend/gpu/drivers.h"
#include "tandem/base/error.h"

namespace tandem::gpu {

Engine::Engine(Driver& driver, Device device) : device_(device) {
  check(driver.open(device.index, context_));
  check(context_->create_stream("ops", own_));
  pool_ = std::make_unique<Pool>(*context_, to_string(device));
  staging_ = std::make_unique<Staging>(*context_);
}

void Engine::check(const Status& status) const {
  if (status.ok()) return;
  Status(status.code(), fmt::format("{}: {}", to_string(device_), status.text())).check();
}

size_t Engine::Hash::operator()(const KernelId& id) const {
  uint64_t h = reinterpret_cast<uintptr_t>(id.what) >> 4;
  h = (h ^ id.lie) * 0x9E3779B97F4A7C15u;
  h = (h ^ h >> 29 ^ id.variant) * 0xBF58476D1CE4E5B9u;
  return h ^ h >> 32;
}

namespace {
std::atomic<void (*)(const KernelSource&)> build_hook{nullptr};
}
void set_build_hook(void (*hook)(const KernelSource&)) { build_hook = hook; }

KernelRef Engine::build(const KernelSource& source) {
  refuse_in_recording("a kernel that is compiled");
  if (auto* hook = build_hook.load()) hook(source);
  ModuleRef module = nullptr;
  KernelRef kernel = nullptr;
  check(context_->build({&source, 1}, module));
  check(context_->find(module, source.name, kernel));
  std::lock_guard hold(names_lock_);
  names_[kernel] = source.name;
  return kernel;
}

const char* Engine::name_of(KernelRef kernel) {
  std::lock_guard hold(names_lock_);
  return names_[kernel].c_str();
}

void Engine::time_launches(bool on) {
  std::lock_guard hold(times_lock_);
  times_.forget(*this);
  watchers_ += static_cast<int>(on) - static_cast<int>(times_launches_.exchange(on));
}
std::vector<KernelTime> Engine::take_launch_times() {
  std::lock_guard hold(times_lock_);
  return times_.take(*this);
}

void Engine::copy_in(Address to, const void* host, size_t bytes, StreamRef stream) {
  refuse_in_recording("a copy from the host");
  check(staging_->copy_in(to, host, bytes, stream));
}

void Engine::copy_out(void* host, Address from, size_t bytes, StreamRef stream) {
  refuse_in_recording("a value that the host reads");
  check(context_->copy_out(host, from, bytes, stream));
  check(context_->synchronize_stream(stream));
}

Address Engine::error_word() {
  if (Recording* r = recording()) r->reports = true;
  std::lock_guard hold(lock_);
  if (!error_word_) {
    error_word_ = pool_->allocate(kErrorBytes, own_, "errors of kernels");
    check(context_->fill(error_word_, 0, kErrorBytes, own_));
  }
  may_report_.store(true, std::memory_order_release);
  return error_word_;
}

bool Engine::take_error(DeviceError& error) {
  if (!may_report_.exchange(false)) return false;
  int32_t word[4];
  copy_out(word, error_word_, sizeof word, own_);
  if (word[0] == 0) return false;
  check(context_->fill(error_word_, 0, kErrorBytes, own_));
  error.code = word[0];
  std::memcpy(&error.ticket, &word[1], sizeof error.ticket);
  std::memcpy(&error.value, &word[2], sizeof error.value);
  return true;
}

}  // namespace tandem::gpu
