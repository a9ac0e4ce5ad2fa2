// SPDX-License-Identifier: Apache-2.0
// Memory, streams and events.
#include "tandem/backend/gpu/opencl/opencl_context_internal.h"

#include <fmt/format.h>

#include <utility>

namespace tandem::gpu {

OpenclContext::OpenclContext(const OpenclLibrary& library, cl::Device device)
    : api_(library.api), device_(device), info_(opencl_info(library.api, device)) {
  options_ = "-cl-std=CL1.2";
  if (opencl_number_of<cl::Bits>(api_, device_, cl::kSingleConfig) & cl::kRoundedDivideSqrt) {
    options_ += " -cl-fp32-correctly-rounded-divide-sqrt";
  }
}

Status OpenclContext::open() {
  cl::Int error = cl::kSuccess;
  context_ = api_.clCreateContext(nullptr, 1, &device_, nullptr, nullptr, &error);
  TD_GPU_TRY(opencl_status(error, "clCreateContext"));
  own_queue_ = api_.clCreateCommandQueue(context_, device_, 0, &error);
  return opencl_status(error, "clCreateCommandQueue");
}

OpenclContext::~OpenclContext() {
  if (!context_) return;
  for (const auto& [ref, queue] : streams_) api_.clFinish(queue);
  for (const auto& [ref, event] : events_) {
    if (event->marker) api_.clReleaseEvent(event->marker);
  }
  for (const auto& [ref, module] : modules_) drop(*module);
  for (const auto& [at, buffer] : pinned_) {
    api_.clEnqueueUnmapMemObject(own_queue_, buffer, at, 0, nullptr, nullptr);
    api_.clReleaseMemObject(buffer);
  }
  for (cl::Buffer buffer : addresses_.buffers()) api_.clReleaseMemObject(buffer);
  for (const auto& [ref, queue] : streams_) api_.clReleaseCommandQueue(queue);
  if (own_queue_) {
    api_.clFinish(own_queue_);
    api_.clReleaseCommandQueue(own_queue_);
  }
  api_.clReleaseContext(context_);
}

// ---- memory

Status OpenclContext::allocate(size_t bytes, Address& at) {
  std::lock_guard hold(lock_);
  // Many drivers find a place for the bytes only when they are used, which is too late to say no.
  const auto wanted = static_cast<int64_t>(bytes);
  if (bytes > static_cast<size_t>(info_.largest_allocation) || wanted > info_.bytes - used_) {
    return {Code::out_of_memory,
            fmt::format("{} bytes asked for, {} of {} are free for this process, at most {} in one "
                        "piece",
                        bytes, info_.bytes - used_, info_.bytes, info_.largest_allocation)};
  }
  cl::Int error = cl::kSuccess;
  cl::Buffer buffer = api_.clCreateBuffer(context_, cl::kReadWrite, bytes, nullptr, &error);
  if (error == cl::kOutOfResources) error = cl::kAllocationFailure;
  TD_GPU_TRY(opencl_status(error, "clCreateBuffer"));
  used_ += wanted;
  at = addresses_.add(buffer, bytes);
  return {};
}

Status OpenclContext::release(Address at) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(finish_all("release"));
  size_t bytes = 0;
  cl::Buffer buffer = addresses_.remove(at, bytes);
  if (!buffer) {
    return {Code::bad_argument, fmt::format("release: no allocation begins at {:#x}", at)};
  }
  used_ -= static_cast<int64_t>(bytes);
  return opencl_status(api_.clReleaseMemObject(buffer), "clReleaseMemObject");
}

Status OpenclContext::memory(int64_t& free, int64_t& total) {
  std::lock_guard hold(lock_);
  total = info_.bytes;
  free = total - used_;
  return {};
}

Status OpenclContext::allocate_host(size_t bytes, void*& at) {
  std::lock_guard hold(lock_);
  cl::Int error = cl::kSuccess;
  cl::Buffer buffer =
      api_.clCreateBuffer(context_, cl::kReadWrite | cl::kHostPointer, bytes, nullptr, &error);
  TD_GPU_TRY(opencl_status(error, "clCreateBuffer"));
  at = api_.clEnqueueMapBuffer(own_queue_, buffer, 1, cl::kMapRead | cl::kMapWrite, 0, bytes, 0,
                               nullptr, nullptr, &error);
  if (error != cl::kSuccess) {
    api_.clReleaseMemObject(buffer);
    return opencl_status(error, "clEnqueueMapBuffer");
  }
  pinned_[at] = buffer;
  return {};
}

Status OpenclContext::release_host(void* at) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(finish_all("release_host"));
  const auto it = pinned_.find(at);
  if (it == pinned_.end()) return {Code::bad_argument, "release_host: no such allocation"};
  api_.clEnqueueUnmapMemObject(own_queue_, it->second, at, 0, nullptr, nullptr);
  api_.clFinish(own_queue_);
  const cl::Int error = api_.clReleaseMemObject(it->second);
  pinned_.erase(it);
  return opencl_status(error, "clReleaseMemObject");
}

// ---- streams

Status OpenclContext::check_stream(StreamRef stream, const char* what) const {
  if (streams_.count(stream)) return {};
  return {Code::bad_argument, fmt::format("{}: no such stream", what)};
}

Status OpenclContext::create_stream(const std::string&, StreamRef& stream) {
  std::lock_guard hold(lock_);
  cl::Int error = cl::kSuccess;
  cl::Queue queue = api_.clCreateCommandQueue(context_, device_, cl::kProfiling, &error);
  TD_GPU_TRY(opencl_status(error, "clCreateCommandQueue"));
  stream = reinterpret_cast<StreamRef>(queue);
  streams_[stream] = queue;
  return {};
}

Status OpenclContext::destroy_stream(StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(check_stream(stream, "destroy_stream"));
  TD_GPU_TRY(capture_.host_waits(stream));
  // Finished first: a queue's number may be given out again, its work may not be left behind.
  TD_GPU_TRY(opencl_status(api_.clFinish(streams_[stream]), "clFinish"));
  const cl::Int error = api_.clReleaseCommandQueue(streams_[stream]);
  streams_.erase(stream);
  return opencl_status(error, "clReleaseCommandQueue");
}

Status OpenclContext::finish_all(const char* what) {
  if (capture_.running()) {
    return {Code::bad_argument, fmt::format("{}: a capture runs on this device", what)};
  }
  Status first;
  for (const auto& [ref, queue] : streams_) api_.clFlush(queue);
  for (const auto& [ref, queue] : streams_) {
    Status status = opencl_status(api_.clFinish(queue), "clFinish");
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Status OpenclContext::synchronize() {
  std::lock_guard hold(lock_);
  return finish_all("synchronize");
}

Status OpenclContext::synchronize_stream(StreamRef stream) {
  cl::Queue queue = nullptr;
  {
    std::lock_guard hold(lock_);
    TD_GPU_TRY(check_stream(stream, "synchronize_stream"));
    TD_GPU_TRY(capture_.host_waits(stream));
    queue = streams_[stream];
  }
  return opencl_status(api_.clFinish(queue), "clFinish");
}

// Now, or as a step of the capture that the stream takes part in.
Status OpenclContext::submit(StreamRef stream, const char* what,
                             std::function<Status(StreamRef)> run) {
  TD_GPU_TRY(check_stream(stream, what));
  if (!capture_.takes(stream)) return run(stream);
  capture_.add(stream, {what, std::move(run), {}});
  return {};
}

Status OpenclContext::copy_in(Address to, const void* host, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  Addresses::Place place;
  TD_GPU_TRY(addresses_.find(to, bytes, "copy_in", place));
  return submit(stream, "copy_in", [=, this](StreamRef s) {
    return opencl_status(api_.clEnqueueWriteBuffer(streams_[s], place.buffer, 0, place.offset,
                                                   bytes, host, 0, nullptr, nullptr),
                         "clEnqueueWriteBuffer");
  });
}

Status OpenclContext::copy_out(void* host, Address from, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  Addresses::Place place;
  TD_GPU_TRY(addresses_.find(from, bytes, "copy_out", place));
  return submit(stream, "copy_out", [=, this](StreamRef s) {
    return opencl_status(api_.clEnqueueReadBuffer(streams_[s], place.buffer, 0, place.offset, bytes,
                                                  host, 0, nullptr, nullptr),
                         "clEnqueueReadBuffer");
  });
}

Status OpenclContext::copy(Address to, Address from, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  if (to < from + bytes && from < to + bytes) {
    return {Code::bad_argument, fmt::format("copy of {} bytes: the places overlap", bytes)};
  }
  Addresses::Place a, b;
  TD_GPU_TRY(addresses_.find(from, bytes, "copy", a));
  TD_GPU_TRY(addresses_.find(to, bytes, "copy", b));
  return submit(stream, "copy", [=, this](StreamRef s) {
    return opencl_status(api_.clEnqueueCopyBuffer(streams_[s], a.buffer, b.buffer, a.offset,
                                                  b.offset, bytes, 0, nullptr, nullptr),
                         "clEnqueueCopyBuffer");
  });
}

Status OpenclContext::fill(Address to, uint8_t value, size_t bytes, StreamRef stream) {
  std::lock_guard hold(lock_);
  Addresses::Place place;
  TD_GPU_TRY(addresses_.find(to, bytes, "fill", place));
  return submit(stream, "fill", [=, this](StreamRef s) {
    return opencl_status(api_.clEnqueueFillBuffer(streams_[s], place.buffer, &value, 1,
                                                  place.offset, bytes, 0, nullptr, nullptr),
                         "clEnqueueFillBuffer");
  });
}

// ---- events

OpenclContext::Event* OpenclContext::event_of(EventRef event) const {
  const auto it = events_.find(event);
  return it == events_.end() ? nullptr : it->second.get();
}

Status OpenclContext::create_event(EventRef& event) {
  std::lock_guard hold(lock_);
  auto made = std::make_unique<Event>();
  event = reinterpret_cast<EventRef>(made.get());
  events_[event] = std::move(made);
  return {};
}

Status OpenclContext::destroy_event(EventRef event) {
  std::lock_guard hold(lock_);
  Event* e = event_of(event);
  if (!e) return {Code::bad_argument, "destroy_event: no such event"};
  if (e->marker) api_.clReleaseEvent(e->marker);
  events_.erase(event);
  return {};
}

Status OpenclContext::record(EventRef event, StreamRef stream) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(check_stream(stream, "record"));
  Event* e = event_of(event);
  if (!e) return {Code::bad_argument, "record: no such event"};
  if (capture_.record(event, stream)) return {};
  cl::Event marker = nullptr;
  TD_GPU_TRY(opencl_status(api_.clEnqueueMarkerWithWaitList(streams_[stream], 0, nullptr, &marker),
                           "clEnqueueMarkerWithWaitList"));
  if (e->marker) api_.clReleaseEvent(e->marker);
  e->marker = marker;
  // Another queue may wait for it: nothing that is not flushed is sure to run.
  return opencl_status(api_.clFlush(streams_[stream]), "clFlush");
}

Status OpenclContext::wait(StreamRef stream, EventRef event) {
  std::lock_guard hold(lock_);
  TD_GPU_TRY(check_stream(stream, "wait"));
  Event* e = event_of(event);
  if (!e) return {Code::bad_argument, "wait: no such event"};
  Status status;
  if (capture_.wait(stream, event, status) || !e->marker) return status;
  return opencl_status(api_.clEnqueueBarrierWithWaitList(streams_[stream], 1, &e->marker, nullptr),
                       "clEnqueueBarrierWithWaitList");
}

// ok when it has happened, not_ready, or the error that stopped it.
Status OpenclContext::event_status(cl::Event marker, const char* what) const {
  if (!marker) return {};
  cl::Int state = cl::kSuccess;
  TD_GPU_TRY(
      opencl_status(api_.clGetEventInfo(marker, cl::kEventStatus, sizeof state, &state, nullptr),
                    "clGetEventInfo"));
  if (state > 0) return {Code::not_ready, fmt::format("{}: it has not happened yet", what)};
  return opencl_status(state, what);
}

Status OpenclContext::query(EventRef event) {
  std::lock_guard hold(lock_);
  Event* e = event_of(event);
  if (!e) return {Code::bad_argument, "query: no such event"};
  return event_status(e->marker, "query");
}

Status OpenclContext::synchronize_event(EventRef event) {
  std::lock_guard hold(lock_);
  Event* e = event_of(event);
  if (!e) return {Code::bad_argument, "synchronize_event: no such event"};
  if (!e->marker) return {};
  return opencl_status(api_.clWaitForEvents(1, &e->marker), "clWaitForEvents");
}

Status OpenclContext::elapsed(EventRef from, EventRef to, double& seconds) {
  std::lock_guard hold(lock_);
  uint64_t times[2];
  int i = 0;
  for (EventRef ref : {from, to}) {
    Event* e = event_of(ref);
    if (!e) return {Code::bad_argument, "elapsed: no such event"};
    if (!e->marker || !event_status(e->marker, "elapsed").ok()) {
      return {Code::not_ready, "elapsed: both events must have happened"};
    }
    TD_GPU_TRY(opencl_status(api_.clGetEventProfilingInfo(e->marker, cl::kProfilingEnd,
                                                          sizeof times[0], &times[i++], nullptr),
                             "clGetEventProfilingInfo"));
  }
  seconds = static_cast<double>(static_cast<int64_t>(times[1] - times[0])) * 1e-9;
  return {};
}

}  // namespace tandem::gpu
