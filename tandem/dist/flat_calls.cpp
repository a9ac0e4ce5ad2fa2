// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/flat_calls_internal.h"

#include <algorithm>
#include <cstring>

#include "tandem/ops/ops.h"
#include "tandem/tensor/device_memory.h"

namespace tandem::distributed {
Array flat_array(const Tensor& t) { return {t.impl()->data, t.numel(), t.dtype()}; }

Tensor empty_flat(int64_t elements, DType dtype, Device device) {
  const DeviceGuard there(device);
  return empty({elements}, dtype);
}

void clear_flat(const Tensor& flat) {
  const auto bytes = static_cast<size_t>(flat.numel()) * size_of(flat.dtype());
  const Device device = flat.device();
  if (bytes == 0) return;
  if (is_host(device))
    std::memset(flat.impl()->data, 0, bytes);
  else
    device_memory(device).fill(flat.impl()->data, 0, bytes, device.index, current_stream(device));
}

Tensor zeros_flat(int64_t elements, DType dtype, Device device) {
  const Tensor flat = empty_flat(elements, dtype, device);
  clear_flat(flat);
  return flat;
}

void copy_into(const Tensor& flat, int64_t at, const Tensor& from) {
  const size_t size = size_of(flat.dtype());
  tandem::detail::copy_bytes(static_cast<char*>(flat.impl()->data) + static_cast<size_t>(at) * size,
                             flat.device(), from.impl()->data, from.device(),
                             static_cast<size_t>(from.numel()) * size);
}

// ---- calls that are under way

Tensor FlatCall::wait() {
  if (!running()) return {};
  if (ranks_)
    ranks_->wait(current_stream(to_.device()));
  else
    work_.wait();
  const FlatCall done = std::exchange(*this, FlatCall());
  const NoGradGuard no_grad;
  if (done.target_.defined()) {
    copy_into(done.target_, 0, done.to_);
    return done.target_;
  }
  const Tensor mean = done.divisor_ == 1 ? done.to_ : done.to_ / done.divisor_;
  return mean.to(done.home_);
}

void FlatCall::settle() noexcept {
  try {
    wait();
  } catch (...) {
    *this = FlatCall();
  }
}

// ---- calls

FlatCalls::FlatCalls(std::shared_ptr<Engine> group, Device device, Device home,
                     const std::vector<DType>& dtypes)
    : group_(std::move(group)), device_(device), home_(home) {
  if (is_host(device_) || group_->size() == 1) return;
  ranks_ = join_devices(group_, device_);
  const auto takes = [&](DType t) { return ranks_->takes(t); };
  if (ranks_ && !std::all_of(dtypes.begin(), dtypes.end(), takes)) ranks_ = nullptr;
}

FlatCall FlatCalls::gather(const Tensor& own, const Tensor& whole, const std::string& label) const {
  FlatCall call;
  call.home_ = device_;
  call.from_ = own;
  call.to_ = whole;
  if (is_host(device_)) {
    call.work_ = group_->all_gather(flat_array(own), flat_array(whole), {.label = label});
  } else if (group_->size() == 1) {
    copy_into(whole, 0, own);
  } else if (ranks_) {
    call.from_ = own.to(device_);
    call.ranks_ = ranks_;
    ranks_->start({.kind = DeviceCall::Kind::all_gather,
                   .in = call.from_.impl()->data,
                   .out = whole.impl()->data,
                   .count = own.numel(),
                   .dtype = own.dtype()},
                  current_stream(device_));
  } else {
    call.from_ = own.cpu();
    call.to_ = empty_flat(whole.numel(), whole.dtype(), cpu);
    call.target_ = whole;
    call.work_ = group_->all_gather(flat_array(call.from_), flat_array(call.to_), {.label = label});
  }
  return call;
}

FlatCall FlatCalls::sum(const Tensor& whole, const std::string& label, bool ordered,
                        double divisor) const {
  const NoGradGuard no_grad;
  const int64_t part = whole.numel() / group_->size();
  FlatCall call;
  call.home_ = home_;
  if (!is_host(device_) && group_->size() == 1) {
    const Tensor own = divisor == 1 ? whole : whole / divisor;
    call.to_ = own.to(home_);
  } else if (ranks_ && !ordered) {
    call.from_ = whole;
    call.to_ = empty_flat(part, whole.dtype(), device_);
    call.divisor_ = divisor;
    call.ranks_ = ranks_;
    ranks_->start({.kind = DeviceCall::Kind::reduce_scatter,
                   .in = whole.impl()->data,
                   .out = call.to_.impl()->data,
                   .count = part,
                   .dtype = whole.dtype()},
                  current_stream(device_));
  } else {
    call.from_ = is_host(device_) ? whole : whole.cpu();
    call.to_ = empty_flat(part, whole.dtype(), cpu);
    call.work_ = group_->reduce_scatter(flat_array(call.from_), flat_array(call.to_), ReduceOp::sum,
                                        {.label = label, .ordered = ordered, .divisor = divisor});
  }
  return call;
}

}  // namespace tandem::distributed
