// SPDX-License-Identifier: Apache-2.0
// A vendor's library of convolutions behind one small interface. Own kernels (rows/conv.cpp) check
// it in tests and run what it does not take.
#pragma once

#include <memory>
#include <string>

#include "tandem/backend/gpu/driver.h"
#include "tandem/tensor/dtype.h"

namespace tandem::gpu {

/// What is computed from the other two of x, w and y.
enum class ConvResult : uint8_t { y, x, w };

/// x [n, c, ...], w [o, c / groups, ...] and y [n, o, ...] with one to three spatial dimensions.
/// All of one dtype and dense in row-major or in channels-last order; sizes are not 0.
struct ConvProblem {
  static constexpr int kMostSpatial = 3;
  struct Lie {
    int64_t size[kMostSpatial + 2] = {}, stride[kMostSpatial + 2] = {};  ///< in elements
  };
  ConvResult result = ConvResult::y;
  DType dtype = DType::f32;
  bool tf32 = false;  ///< f32 factors may be rounded to 10 bits of mantissa
  bool bias = false;  ///< y = conv(x, w) + bias [o]
  int spatial = 2;
  Lie x, w, y;
  int64_t by[kMostSpatial] = {}, dilation[kMostSpatial] = {};
  int64_t padding[kMostSpatial] = {}, padding_end[kMostSpatial] = {};
};

/// Where its operands lie: each address aligned to kConvAlignment.
struct ConvOperands {
  Address x = 0, w = 0, y = 0, bias = 0;
  Address scratch = 0;  ///< ConvPlan::workspace bytes
};
inline constexpr Address kConvAlignment = 16;

/// A problem with an algorithm chosen for it. Immutable; any thread may run it.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  virtual Status run(const ConvOperands& at, StreamRef stream) const = 0;
  size_t workspace = 0;   ///< bytes
  std::string algorithm;  ///< for people: "engine 62, tensor cores"
};

class ConvLibrary {
 public:
  virtual ~ConvLibrary() = default;
  /// unavailable, with the reason, for a problem that the library does not take. The same problem
  /// gets the same algorithm each time; none adds by atomics or rounds more than the problem says.
  virtual Status plan(const ConvProblem& problem, std::unique_ptr<ConvPlan>& made) = 0;
};

}  // namespace tandem::gpu
