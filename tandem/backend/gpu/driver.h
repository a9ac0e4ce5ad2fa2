// SPDX-License-Identifier: Apache-2.0
// The driver table: everything that the backend asks of a GPU. Three implementations are in every
// build (cuda, opencl, fake; drivers.h), none is linked, and none is touched before somebody asks
// for a device.
//
// Work is put into streams and runs later, in order within a stream and in no order between two
// streams unless an event is waited for. A Context may be used by many threads. What is not
// destroyed or released goes with its context.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/backend/gpu/arguments.h"
#include "tandem/backend/gpu/kernel_source.h"
#include "tandem/backend/gpu/status.h"
#include "tandem/base/export.h"

namespace tandem::gpu {

class ConvLibrary;
class MatmulLibrary;
class RanksLibrary;

struct DeviceInfo {
  std::string name;     ///< as the driver gives it
  std::string version;  ///< of driver and language, for people
  int64_t bytes = 0;    ///< of its memory
  int64_t largest_allocation = 0;
  int64_t shared_bytes = 0;  ///< for the shared arrays of a block
  int threads_per_block = 0;
  int units = 0;                             ///< multiprocessors, compute units
  int compute_major = 0, compute_minor = 0;  ///< CUDA's compute capability; 0 elsewhere
  bool f64 = false;
  bool warp_matmul = false;  ///< it has the dialect's words of warps
  bool graphs = false;       ///< a replay costs the host less than the launches in it
};

// What a context gives out. The types exist nowhere: each driver casts to its own.
using StreamRef = struct StreamTag*;
using EventRef = struct EventTag*;
using ModuleRef = struct ModuleTag*;
using KernelRef = struct KernelTag*;
using GraphRef = struct GraphTag*;

/// One device, opened. Sizes are in bytes and never 0.
class TD_API Context {
 public:
  Context() = default;
  virtual ~Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  virtual const DeviceInfo& info() const = 0;

  // ---- memory
  /// Aligned to 256 bytes.
  virtual Status allocate(size_t bytes, Address& at) = 0;
  /// Waits for the work that is queued, as CUDA does: pool.h exists because of that. Not ok: it is
  /// still there.
  virtual Status release(Address at) = 0;
  /// Bytes that are free and that there are, for all processes where the driver knows.
  virtual Status memory(int64_t& free, int64_t& total) = 0;
  /// Memory of the host that a device copies from and to without a stop between.
  virtual Status allocate_host(size_t bytes, void*& at) = 0;
  virtual Status release_host(void* at) = 0;

  // ---- work in streams
  /// The name is for messages.
  virtual Status create_stream(const std::string& name, StreamRef& stream) = 0;
  /// What is queued still runs.
  virtual Status destroy_stream(StreamRef stream) = 0;
  /// All four return at once; `host` must stay as it is until the stream has passed the copy.
  virtual Status copy_in(Address to, const void* host, size_t bytes, StreamRef stream) = 0;
  virtual Status copy_out(void* host, Address from, size_t bytes, StreamRef stream) = 0;
  virtual Status copy(Address to, Address from, size_t bytes, StreamRef stream) = 0;
  virtual Status fill(Address to, uint8_t value, size_t bytes, StreamRef stream) = 0;
  virtual Status synchronize_stream(StreamRef stream) = 0;
  /// All streams.
  virtual Status synchronize() = 0;

  // ---- events
  virtual Status create_event(EventRef& event) = 0;
  virtual Status destroy_event(EventRef event) = 0;
  /// The event happens when the stream's work so far is done; the newest record counts.
  virtual Status record(EventRef event, StreamRef stream) = 0;
  /// What is queued in `stream` from here on runs after the event; nothing for one without record.
  virtual Status wait(StreamRef stream, EventRef event) = 0;
  /// ok or not_ready.
  virtual Status query(EventRef event) = 0;
  virtual Status synchronize_event(EventRef event) = 0;
  /// Seconds between two events that have happened, by the device's clock.
  virtual Status elapsed(EventRef from, EventRef to, double& seconds) = 0;

  // ---- kernels
  /// Compile. The sources' names differ.
  virtual Status build(std::span<const KernelSource> kernels, ModuleRef& module) = 0;
  virtual Status unload(ModuleRef module) = 0;
  /// Valid as long as the module.
  virtual Status find(ModuleRef module, const std::string& name, KernelRef& kernel) = 0;
  /// Arguments are copied.
  virtual Status launch(KernelRef kernel, Extent blocks, Extent threads, const Arguments& arguments,
                        StreamRef stream) = 0;

  // ---- graphs
  /// From here on copies, fills and launches of this stream, and of streams that wait for its
  /// events, are not run but recorded. One capture at a time.
  virtual Status begin_capture(StreamRef stream) = 0;
  /// The stream must have waited for every other that took part. A capture ends here even if that
  /// fails.
  virtual Status end_capture(StreamRef stream, GraphRef& graph) = 0;
  /// All of it, as one piece of work; memory that it names must still be there.
  virtual Status replay(GraphRef graph, StreamRef stream) = 0;
  /// Replays that are queued still run.
  virtual Status destroy_graph(GraphRef graph) = 0;

  // ---- the vendor's libraries
  /// Each is opened by the first question; nullptr, with the reason, where there is none.
  virtual MatmulLibrary* matmul_library(Status& why) {
    why = {Code::unavailable, "this driver has no library of matmuls"};
    return nullptr;
  }
  virtual ConvLibrary* conv_library(Status& why) {
    why = {Code::unavailable, "this driver has no library of convolutions"};
    return nullptr;
  }
  virtual RanksLibrary* ranks_library(Status& why) {
    why = {Code::unavailable, "this driver has no library of calls between devices"};
    return nullptr;
  }
};

/// For drivers: bad_argument with the names of kernel and parameter unless number, kinds and sizes
/// of the arguments fit and the device can run such blocks.
TD_API Status check_launch(const KernelSource& kernel, const Arguments& arguments, Extent blocks,
                           Extent threads, const DeviceInfo& device);

/// What a driver opens at run time.
struct LibraryReport {
  std::string name;     ///< "CUDA driver (libcuda)"
  std::string path;     ///< "" where it is off
  std::string version;  ///< as it tells it itself
  std::string problem;  ///< why it is off; "" where it is on
};

class TD_API Driver {
 public:
  virtual ~Driver() = default;
  /// "cuda", "opencl", "fake": devices are "cuda:0", "cuda:1" ...
  virtual const char* name() const = 0;
  /// unavailable with the exact reason where there are none.
  virtual Status count(int& devices) = 0;
  virtual Status info(int device, DeviceInfo& info) = 0;
  virtual Status open(int device, std::unique_ptr<Context>& context) = 0;
  /// Opens them where that has not happened.
  virtual std::vector<LibraryReport> libraries() = 0;
};

}  // namespace tandem::gpu
