// SPDX-License-Identifier: Apache-2.0
// Kernels by hand over the operands of a call as dense arrays in row-major order: inputs that are
// not dense are copied into scratch memory first. Outputs of such rows are row-major.
//
// In the text of a kernel, for input 0 and output 0 (and so on):
//   TI0, TO0        their register types (register_type())
//   I0(i), O0(i)    element i as a register
//   P0(i, v)        stores the register v as element i of output 0
//   ADD0(a, b)      the sum as the row's reference has it: integers wrap, bools are joined by or
//   HAS0            1, or 0 if an optional input is not there; I0(i) is 0 then
//   MATH(tdm_exp)   the math prelude's function for output 0: tdm_exp or tdm_expf
//   me              the number of the thread, or of its block; then t is its number in the block
// td_in0 and td_out0 are their addresses, with elements as stored. An input that is a number has
// one element; numbers and scratch arrays go by their names.
#pragma once

#include <string>
#include <vector>

#include "tandem/backend/gpu/rows/call_internal.h"

namespace tandem::gpu {

struct DenseKernel {
  const char* name = "";
  const char* functions[2] = {};  ///< what stands before it, each text once in a module
  bool reports = false;           ///< calls td_report
  bool blocks = false;            ///< a block of kThreads for each of `count`, not a thread
  const char* body[8] = {};       ///< one text, in parts
};

/// The plan of a call whose kernels want scratch arrays of these bytes beside copies of inputs.
std::shared_ptr<const Plan> plan_dense(const KernelCall& c,
                                       std::initializer_list<size_t> scratch = {});
/// Kernel::prepare of rows without scratch arrays.
std::shared_ptr<const Plan> prepare_dense(const KernelCall& c);

class DenseCall {
 public:
  /// Copies what is not dense. `c` must outlive it.
  explicit DenseCall(const KernelCall& c);
  DenseCall& number(const char* name, int64_t v);
  DenseCall& number(const char* name, double v);
  DenseCall& scratch(const char* name, DType type, int64_t count);
  /// An array of the device that the kernel reads.
  DenseCall& table(const char* name, DType type, Address at, size_t bytes);
  /// Philox: td_philox(TD_SEED, TD_OFFSET, element, draw).
  DenseCall& draws();
  /// Launch for me = 0 .. count - 1. `kernel` is kept by its address.
  void run(const DenseKernel& kernel, int64_t count) const;

 private:
  struct Number {
    std::string name;
    DType type{};
    Address at = 0;
    size_t bytes = 0;  ///< of an array; 0: a number
    bool is_table = false;
    int64_t whole = 0;
    double real = 0;
  };
  KernelSource source(const DenseKernel& kernel) const;
  uint64_t types() const;

  const KernelCall& c_;
  std::vector<Address> in_;
  std::vector<Number> numbers_;
  Address free_ = 0;
  bool draws_ = false;
};

}  // namespace tandem::gpu
