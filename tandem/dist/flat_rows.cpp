// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/flat_rows_internal.h"

#include "tandem/dist/device_calls_internal.h"
#include "tandem/dist/flat_calls_internal.h"
#include "tandem/dist/gaps_internal.h"
#include "tandem/tensor/device_memory.h"

namespace tandem::distributed {
namespace {

class FlatOnDevice final : public StartedWork {
 public:
  FlatOnDevice(std::shared_ptr<DeviceRanks> ranks, Stream stream)
      : ranks_(std::move(ranks)), stream_(stream) {}
  void wait() override { ranks_->wait(stream_); }
  void cancel() noexcept override try { ranks_->wait(stream_); } catch (...) {
  }

 private:
  std::shared_ptr<DeviceRanks> ranks_;
  Stream stream_;
};

/// Between arrays of the host; the result goes to the device at the wait.
class FlatOnHost final : public StartedCall {
 public:
  FlatOnHost(const KernelCall& c, std::shared_ptr<Engine> group, Tensor in, Tensor out, Work work)
      : StartedCall(std::move(group), std::move(work)),
        in_(std::move(in)),
        out_(std::move(out)),
        to_(c.out[0].data),
        device_(c.device),
        stream_(c.stream) {}
  void wait() override {
    StartedCall::wait();
    const Array a = flat_array(out_);
    if (a.count > 0) device_memory(device_).copy_in(to_, a.data, a.bytes(), device_.index, stream_);
  }

 private:
  Tensor in_, out_;
  void* to_;
  Device device_;
  Stream stream_;
};

size_t bytes_at(int64_t elements, DType dtype) {
  return static_cast<size_t>(elements) * size_of(dtype);
}

// The library's call, where it has one; else false.
bool start_by_library(const KernelCall& c, const FlatRow& row, DeviceCall call) {
  std::shared_ptr<DeviceRanks> ranks = joined_devices(row.group, c.device);
  if (!ranks || !ranks->takes(call.dtype)) return false;
  if (call.kind == DeviceCall::Kind::reduce_scatter && row.options.ordered) return false;
  if (call.count > 0) ranks->start(call, c.stream);
  keep_started(c.out[0].data, started_on_device(std::move(ranks), c.stream));
  return true;
}

// Bytes of the device, flat, on the host.
Tensor brought(const KernelCall& c, const tandem::Array& x) {
  const Tensor here = empty_flat(x.numel, x.dtype, cpu);
  if (x.numel > 0)
    device_memory(c.device).copy_out(here.impl()->data, x.data, bytes_at(x.numel, x.dtype),
                                     c.device.index, c.stream);
  return here;
}

}  // namespace

void StartedCall::cancel() noexcept try {
  group_->abort("a step of a compiled function has thrown there");
  work_.wait();
} catch (...) {  // the step's own error is on its way
}

std::unique_ptr<StartedWork> started_on_device(std::shared_ptr<DeviceRanks> ranks, Stream stream) {
  return std::make_unique<FlatOnDevice>(std::move(ranks), stream);
}

// What is sent is a copy: the program may write to the cells while it is on its way.
void start_gather_on_device(const KernelCall& c, const FlatRow& row) {
  const DeviceMemory& memory = device_memory(c.device);
  const DType dtype = c.out[1].dtype;
  auto* const sent = static_cast<char*>(c.out[1].data);
  Gaps gaps([&](int64_t begin, int64_t n) {
    memory.fill(sent + bytes_at(begin, dtype), 0, bytes_at(n, dtype), c.device.index, c.stream);
  });
  for (int i = 0; i < c.n_in; ++i) {
    if (c.in[i].numel == 0) continue;
    const int64_t at = (*row.places)[static_cast<size_t>(i)];
    gaps.piece(at, c.in[i].numel);
    memory.copy(sent + bytes_at(at, dtype), c.in[i].data, bytes_at(c.in[i].numel, dtype),
                c.device.index, c.stream);
  }
  gaps.until(row.part);
  if (start_by_library(c, row,
                       {.kind = DeviceCall::Kind::all_gather,
                        .in = sent,
                        .out = c.out[0].data,
                        .count = row.part,
                        .dtype = dtype}))
    return;
  const Tensor own = brought(c, c.out[1]), all = empty_flat(c.out[0].numel, dtype, cpu);
  Work work = row.group->all_gather(flat_array(own), flat_array(all), row.options);
  keep_started(c.out[0].data,
               std::make_unique<FlatOnHost>(c, row.group, own, all, std::move(work)));
}

// The program divides: no library does.
void start_sum_on_device(const KernelCall& c, const FlatRow& row) {
  const DType dtype = c.in[0].dtype;
  if (start_by_library(c, row,
                       {.kind = DeviceCall::Kind::reduce_scatter,
                        .in = c.in[0].data,
                        .out = c.out[0].data,
                        .count = c.out[0].numel,
                        .dtype = dtype}))
    return;
  const Tensor whole = brought(c, c.in[0]), part = empty_flat(c.out[0].numel, dtype, cpu);
  Work work =
      row.group->reduce_scatter(flat_array(whole), flat_array(part), ReduceOp::sum, row.options);
  keep_started(c.out[0].data,
               std::make_unique<FlatOnHost>(c, row.group, whole, part, std::move(work)));
}

}  // namespace tandem::distributed
