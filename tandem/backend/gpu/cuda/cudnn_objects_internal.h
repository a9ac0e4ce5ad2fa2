// SPDX-License-Identifier: Apache-2.0
// cuDNN's descriptors, and plans of convolutions made of them.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/cuda/cudnn_internal.h"

namespace tandem::gpu {

/// "call: cuDNN's text"; unavailable for what cuDNN does not take.
Status cudnn_status(const cudnn::Api& api, cuda::Result result, const char* call);

/// A descriptor. The first error is kept and given by finish(), so attributes are set in a row.
class CudnnObject {
 public:
  CudnnObject(const cudnn::Api& api, int kind);
  ~CudnnObject();
  CudnnObject(CudnnObject&& other) noexcept;
  CudnnObject& operator=(CudnnObject&& other) noexcept;

  CudnnObject& set(int attribute, int type, int64_t count, const void* values);
  CudnnObject& numbers(int attribute, const int64_t* values, int64_t count) {
    return set(attribute, cudnn::kInt64Type, count, values);
  }
  CudnnObject& number(int attribute, int64_t value) { return numbers(attribute, &value, 1); }
  CudnnObject& choice(int attribute, int type, int value) {
    return set(attribute, type, 1, &value);
  }
  /// An error of `value` is this one's, too.
  CudnnObject& object(int attribute, const CudnnObject& value) {
    if (status_.ok()) status_ = value.status_;
    return set(attribute, cudnn::kDescriptorType, 1, &value.ref_);
  }
  CudnnObject& handle(int attribute, cudnn::Handle value) {
    return set(attribute, cudnn::kHandleType, 1, &value);
  }
  Status finish();
  /// Up to `most` elements; `count` is how many there are.
  Status get(int attribute, int type, int64_t most, int64_t& count, void* values) const;

  cudnn::Descriptor ref() const { return ref_; }
  const Status& status() const { return status_; }

 private:
  const cudnn::Api* api_;
  cudnn::Descriptor ref_ = nullptr;
  Status status_;
};

/// The device that plans are made for: a handle's, or one that is described.
struct CudnnTarget {
  cudnn::Handle handle = nullptr;
  const CudnnObject* device = nullptr;
};

/// Names of the operands in a plan.
inline constexpr int64_t kCudnnX = 1, kCudnnW = 2, kCudnnY = 3, kCudnnBias = 4, kCudnnSum = 5;

struct CudnnPlan {
  std::vector<CudnnObject> objects;  ///< the last is the plan; the others are what it refers to
  size_t workspace = 0;
  std::string algorithm;
};
/// The first of cuDNN's proposals that suits the problem.
Status plan_cudnn(const cudnn::Api& api, const CudnnTarget& target, const ConvProblem& problem,
                  CudnnPlan& made);

}  // namespace tandem::gpu
