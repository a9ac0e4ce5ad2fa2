// SPDX-License-Identifier: Apache-2.0
// The kernels that exist so far: they prove the dialect and its preludes, and the pool's tests use
// them. Ops of tensors come later (docs/gpu.md).
#pragma once

#include <cstdint>
#include <vector>

#include "tandem/backend/gpu/arguments.h"
#include "tandem/backend/gpu/kernel_source.h"

namespace tandem::gpu {

/// The names hold the type: "fill_f32".
TD_API std::string kernel_name(const char* base, DType type);

/// fill(out y, value v, i64 n): y[i] = v for i < n.
TD_API KernelSource fill_kernel(DType type);
/// axpy(out y, in x, value a, i64 n): y[i] = a * x[i] + y[i], rounded twice.
TD_API KernelSource axpy_kernel(DType type);
/// block_sum(out y, in x, i64 n): y[b] is the sum of the kSumTile elements of x from b * kSumTile,
/// where there are as many; threads add four elements each, in order, and then pairs of threads
/// with halving distance. Blocks of kSumThreads.
TD_API KernelSource block_sum_kernel(DType type);
inline constexpr int kSumThreads = 128;
inline constexpr int64_t kSumTile = 4 * kSumThreads;
/// strided_copy(out y, in x, i64 n0, n1, n2, s0, s1, s2): y is row-major [n0, n1, n2], x has the
/// strides s in elements, which may be 0 or negative.
TD_API KernelSource strided_copy_kernel(DType type);
/// reversed_lines(out y, in x, i64 n): each of n lines of 16 bytes, its elements backwards.
TD_API KernelSource reversed_lines_kernel(DType type);
/// arithmetic(out y, in a, in b, in c, i64 n): y is [6, n]: a * b + c, fma(a, b, c), a / b, a - b,
/// sqrt(a), and the thread's number in the grid. What has to give the host's bits.
TD_API KernelSource arithmetic_kernel(DType type);

/// All of them, of every type that has them; without f64 where a device lacks it.
TD_API std::vector<KernelSource> all_kernels(bool f64);

/// Blocks of `threads` that cover n elements.
inline Extent blocks_for(int64_t n, int64_t threads) {
  return {static_cast<uint32_t>((n + threads - 1) / threads)};
}

}  // namespace tandem::gpu
