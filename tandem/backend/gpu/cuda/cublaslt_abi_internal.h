// SPDX-License-Identifier: Apache-2.0
// The part of cuBLASLt that is used, declared here so that no toolkit is needed to build (NVIDIA,
// cuBLAS library, versions 12 and 13). tests/gpu/abi_test.cpp compares it with the real header.
#pragma once

#include "tandem/backend/gpu/cuda/abi_internal.h"

namespace tandem::gpu::cuda {

using LtHandle = struct CublasLtTag*;
using LtMatmulDesc = struct CublasLtMatmulDescTag*;
using LtLayout = struct CublasLtLayoutTag*;
using LtPreference = struct CublasLtPreferenceTag*;
struct LtAlgo {
  uint64_t data[8];
};
struct LtHeuristic {
  LtAlgo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

inline constexpr int kR32F = 0, kR64F = 1, kR16F = 2, kR16BF = 14;              // cudaDataType
inline constexpr int kCompute32F = 68, kCompute64F = 70, kCompute32FTf32 = 77;  // ComputeType
inline constexpr int kDescTransA = 3, kDescTransB = 4, kDescEpilogue = 7, kDescBias = 8,
                     kDescBiasType = 26;
inline constexpr int kLayoutBatchCount = 5, kLayoutBatchStride = 6;
inline constexpr int kPreferWorkspace = 1, kPreferReduction = 3, kPreferAlignmentA = 5,
                     kPreferAlignmentD = 8;  // A, B, C, D follow each other
inline constexpr int32_t kOpN = 0, kOpT = 1;
inline constexpr uint32_t kEpilogueBias = 4;
inline constexpr uint32_t kReductionCompute = 2, kReductionOutput = 4;
inline constexpr Result kCublasNotSupported = 15;

#define TD_CUBLASLT_FUNCTIONS(X)                                                           \
  X(cublasLtCreate, (LtHandle*))                                                           \
  X(cublasLtDestroy, (LtHandle))                                                           \
  X(cublasLtMatmulDescCreate, (LtMatmulDesc*, int, int))                                   \
  X(cublasLtMatmulDescDestroy, (LtMatmulDesc))                                             \
  X(cublasLtMatmulDescSetAttribute, (LtMatmulDesc, int, const void*, size_t))              \
  X(cublasLtMatrixLayoutCreate, (LtLayout*, int, uint64_t, uint64_t, int64_t))             \
  X(cublasLtMatrixLayoutDestroy, (LtLayout))                                               \
  X(cublasLtMatrixLayoutSetAttribute, (LtLayout, int, const void*, size_t))                \
  X(cublasLtMatmulPreferenceCreate, (LtPreference*))                                       \
  X(cublasLtMatmulPreferenceDestroy, (LtPreference))                                       \
  X(cublasLtMatmulPreferenceSetAttribute, (LtPreference, int, const void*, size_t))        \
  X(cublasLtMatmulAlgoGetHeuristic, (LtHandle, LtMatmulDesc, LtLayout, LtLayout, LtLayout, \
                                     LtLayout, LtPreference, int, LtHeuristic*, int*))     \
  X(cublasLtMatmul,                                                                        \
    (LtHandle, LtMatmulDesc, const void*, const void*, LtLayout, const void*, LtLayout,    \
     const void*, const void*, LtLayout, void*, LtLayout, const LtAlgo*, void*, size_t, Stream))

#define TD_CUDA_MEMBER(name, parameters) Result(*name) parameters = nullptr;
struct CublasLtApi {
  TD_CUBLASLT_FUNCTIONS(TD_CUDA_MEMBER)
  size_t (*cublasLtGetVersion)() = nullptr;
  const char* (*cublasLtGetStatusName)(Result) = nullptr;
};
#undef TD_CUDA_MEMBER

}  // namespace tandem::gpu::cuda
