// SPDX-License-Identifier: Apache-2.0
// A device of OpenCL 1.2 or newer. A stream is an in-order queue, an event the marker that was
// recorded last, a graph the list of what was recorded, put into a queue again by each replay.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/backend/gpu/capture_internal.h"
#include "tandem/backend/gpu/modules_internal.h"
#include "tandem/backend/gpu/opencl/addresses_internal.h"
#include "tandem/backend/gpu/opencl/library_internal.h"

namespace tandem::gpu {

class OpenclContext final : public Context {
 public:
  OpenclContext(const OpenclLibrary& library, cl::Device device);
  ~OpenclContext() override;
  /// Once, before anything else.
  Status open();

#include "tandem/backend/gpu/context_overrides.inc"

 private:
  struct Event {
    cl::Event marker = nullptr;
  };
  using Table = Modules<cl::Kernel, cl::Program>;

  Status check_stream(StreamRef stream, const char* what) const;
  Event* event_of(EventRef event) const;
  Status submit(StreamRef stream, const char* what, std::function<Status(StreamRef)> run);
  Status set_arguments(const Table::Kernel& kernel, const Arguments& arguments);
  Status build_program(const std::string& text, cl::Program& program);
  std::string build_log(cl::Program program) const;
  void drop(const Table::Module& module);
  Status finish_all(const char* what);
  Status event_status(cl::Event marker, const char* what) const;

  const cl::Api& api_;
  const cl::Device device_;
  DeviceInfo info_;
  std::string options_;  // of builds
  mutable std::mutex lock_;
  cl::Context context_ = nullptr;
  cl::Queue own_queue_ = nullptr;  // maps pinned memory
  Addresses addresses_;
  int64_t used_ = 0;
  std::map<StreamRef, cl::Queue> streams_;
  std::map<EventRef, std::unique_ptr<Event>> events_;
  Table modules_;
  std::map<GraphRef, std::unique_ptr<GraphSteps>> graphs_;
  std::map<void*, cl::Buffer> pinned_;
  Capture capture_;
};

}  // namespace tandem::gpu
