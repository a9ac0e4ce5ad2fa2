// SPDX-License-Identifier: Apache-2.0
// The kernels of a profiled step as Work: FLOPs, bytes, sizes and what kind of work each is. Not
// installed.
#pragma once

#include <span>
#include <vector>

#include "tandem/compile/run/executable.h"
#include "tandem/graph/profiler.h"
#include "tandem/plan/workload.h"
#include "tandem/tensor/dry_memory.h"

namespace tandem::plan {

/// What convolution it is, if it is one.
struct ConvolutionKind {
  bool depthwise = false;  ///< its filters see one channel each
  bool winograd = false;   ///< 3 x 3 filters, one image point after the other
};

/// Sees dtype, sizes and phase of each op that the profiler records.
class OpRecorder : public OpHook {
 public:
  OpRecorder(const Profile& profile, DryMemory* ledger, const uint8_t& phase)
      : profile_(profile), ledger_(ledger), phase_(phase) {}
  void before(const OpDef&, std::span<const Tensor> in) override;
  void after(const OpDef& op, std::span<const Tensor> out) override;

  struct Seen {
    const OpDef* op = nullptr;
    DType dtype = DType::f32;
    uint8_t phase = 0;
    ConvolutionKind convolution;
    double sizes[3] = {};
    std::vector<Shape> in;  // of the first two inputs
  };
  std::vector<Seen> ops;

 private:
  static double elements(const Tensor& t) {
    return t.defined() ? static_cast<double>(t.numel()) : 0;
  }
  const Profile& profile_;
  DryMemory* ledger_;
  const uint8_t& phase_;
  std::vector<Seen> open_;
};

/// The kernels of one step: of `exe`, or of what `recorder` saw where it is null. Their seconds
/// reach from the end of the kernel before to their own, so that views and whatever the host does
/// between two kernels are part of the later one.
std::vector<Work> work_of(const Profile& profile, const OpRecorder& recorder,
                          const Executable* exe);
/// Adds what the matmuls and attention of the forward pass give within blocks.
void add_results(const Profile& profile, const OpRecorder& recorder, Workload& w);

}  // namespace tandem::plan
