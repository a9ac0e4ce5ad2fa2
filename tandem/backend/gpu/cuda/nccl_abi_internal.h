// SPDX-License-Identifier: Apache-2.0
// The part of NCCL that is used, declared here so that no toolkit is needed to build (NVIDIA, NCCL
// 2 API). tests/gpu/abi_test.cpp compares it with the real header.
#pragma once

#include "tandem/backend/gpu/cuda/abi_internal.h"

namespace tandem::gpu::cuda {

using NcclComm = struct NcclCommTag*;
struct NcclId {
  char bytes[128];
};

inline constexpr int kNcclInt8 = 0, kNcclUint8 = 1, kNcclInt32 = 2, kNcclInt64 = 4,
                     kNcclFloat16 = 6, kNcclFloat32 = 7, kNcclFloat64 = 8, kNcclBfloat16 = 9;
inline constexpr int kNcclSum = 0, kNcclMax = 2, kNcclMin = 3;

#define TD_NCCL_FUNCTIONS(X)                                                 \
  X(ncclGetVersion, (int*))                                                  \
  X(ncclGetUniqueId, (NcclId*))                                              \
  X(ncclCommInitRank, (NcclComm*, int, NcclId, int))                         \
  X(ncclCommDestroy, (NcclComm))                                             \
  X(ncclCommAbort, (NcclComm))                                               \
  X(ncclAllReduce, (const void*, void*, size_t, int, int, NcclComm, Stream)) \
  X(ncclBroadcast, (const void*, void*, size_t, int, int, NcclComm, Stream)) \
  X(ncclAllGather, (const void*, void*, size_t, int, NcclComm, Stream))      \
  X(ncclReduceScatter, (const void*, void*, size_t, int, int, NcclComm, Stream))

#define TD_CUDA_MEMBER(name, parameters) Result(*name) parameters = nullptr;
struct NcclApi {
  TD_NCCL_FUNCTIONS(TD_CUDA_MEMBER)
  const char* (*ncclGetErrorString)(Result) = nullptr;
};
#undef TD_CUDA_MEMBER

}  // namespace tandem::gpu::cuda
