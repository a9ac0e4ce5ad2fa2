// SPDX-License-Identifier: Apache-2.0
// A fake device: checks each call, asks the happens-before checker, records it in a capture or
// hands it to the executor.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tandem/backend/gpu/capture_internal.h"
#include "tandem/backend/gpu/fake/executor_internal.h"
#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/backend/gpu/fake/grid_internal.h"
#include "tandem/backend/gpu/fake/happens_before_internal.h"
#include "tandem/backend/gpu/fake/memory_internal.h"
#include "tandem/backend/gpu/modules_internal.h"

namespace tandem::gpu {

class FakeDevice final : public FakeContext {
 public:
  FakeDevice(const FakeOptions& options, int device);
  ~FakeDevice() override;

#include "tandem/backend/gpu/context_overrides.inc"
  void fail_after(Operation operation, int64_t calls, Code code) override;
  int64_t live_objects() const override;
  void offer(MatmulLibrary* matmuls, ConvLibrary* convs) override;
  void offer(RanksLibrary* ranks) override;
  MatmulLibrary* matmul_library(Status& why) override;
  ConvLibrary* conv_library(Status& why) override;
  RanksLibrary* ranks_library(Status& why) override;

 private:
  using Table = Modules<codegen::TileCode, char>;  // code is never unloaded
  struct Graph {
    GraphSteps steps;
    std::vector<Access> accesses;
  };
  using StepAccesses = std::vector<std::vector<Access>>;  // of the capture, by step
  struct Failure {
    Operation operation;
    int64_t calls;
    Code code;
  };

  Status enter(Operation operation);
  Status alive() const;
  Status stream_number(StreamRef stream, const char* what, int& number) const;
  Status event_of(EventRef event, const char* what, FakeEvent*& found);
  Status submit(StreamRef stream, const char* what, const std::string& name,
                std::vector<Access> accesses, Executor::Run run);
  Status device_error(const char* what);
  Status release_from(FakeMemory& memory, Address at);
  Status check_order(const GraphSteps& steps) const;

  const FakeOptions options_;
  DeviceInfo info_;
  mutable std::mutex lock_;
  FakeMemory memory_, host_memory_;
  HappensBefore checker_;
  Capture capture_;
  StepAccesses captured_;
  std::map<StreamRef, int> streams_;
  std::map<EventRef, FakeEvent> events_;
  Table modules_;
  std::map<GraphRef, std::shared_ptr<const Graph>> graphs_;
  std::vector<Failure> failures_;
  bool lost_ = false;
  MatmulLibrary* matmuls_ = nullptr;
  ConvLibrary* convs_ = nullptr;
  RanksLibrary* ranks_ = nullptr;
  uint64_t made_ = 0, seed_;
  Executor executor_;  // last: its thread uses the others
};

}  // namespace tandem::gpu
