// SPDX-License-Identifier: Apache-2.0
// Runs f32 kernels on 16-bit arrays: operands are widened into scratch, results rounded once
// from there. For rows whose bodies compute in f32 and whose work is large compared with a
// copy.
#pragma once

#include "tandem/graph/kernel.h"

namespace tandem::detail {

inline constexpr int kMostWidened = 8;  ///< inputs, and outputs

/// Replaces the operands of a call: every f16 and bf16 array becomes a dense f32 one. If `c` has no
/// scratch the arrays have no data: enough to query what a kernel supports.
class WidenedCall {
 public:
  explicit WidenedCall(const KernelCall& c);
  WidenedCall(const WidenedCall&) = delete;
  WidenedCall& operator=(const WidenedCall&) = delete;

  bool any() const { return any_; }        ///< whether there is a 16-bit array
  size_t bytes() const { return bytes_; }  ///< of all copies
  const KernelCall& call() const { return call_; }
  /// Copies the inputs into the widened arrays, and the results out of them.
  void read(const KernelCall& from) const;
  void write(const KernelCall& to) const;

 private:
  void widen(Array& a, int64_t* strides, char* scratch);

  KernelCall call_;
  Array in_[kMostWidened], out_[kMostWidened];
  int64_t strides_[2 * kMostWidened][kMaxRank];
  size_t bytes_ = 0;
  bool any_ = false;
};

/// The elements of a floating array as f32, row-major.
void widen_dense(const Array& a, float* to);

/// For calls with 16-bit arrays: the kernel that the row has for f32.
extern const Kernel kWidened;

/// Registers `kernel` for the CPU, for f32 and for 16-bit arrays.
inline void register_f32_and_widened(const OpDef& op, const Kernel& kernel) {
  register_kernel(DeviceKind::cpu, op, kWidened);
  register_kernel(DeviceKind::cpu, op, kernel);
}

}  // namespace tandem::detail
