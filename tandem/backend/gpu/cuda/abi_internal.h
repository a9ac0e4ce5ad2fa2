// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA driver API and of NVRTC that is used, declared here so that no toolkit is
// needed to build (NVIDIA, CUDA Driver API and NVRTC, versions 12 and 13). tests/gpu/abi_test.cpp
// compares it with the real headers where there are some.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::gpu::cuda {

using Result = int;
using DeviceNumber = int;
using Pointer = unsigned long long;  // CUdeviceptr
using Context = struct CudaContextTag*;
using Stream = struct CudaStreamTag*;
using Event = struct CudaEventTag*;
using Module = struct CudaModuleTag*;
using Function = struct CudaFunctionTag*;
using Graph = struct CudaGraphTag*;
using GraphExec = struct CudaGraphExecTag*;
using NvrtcProgram = struct NvrtcProgramTag*;

inline constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100,
                        kUnavailable = 46, kEccUncorrectable = 214, kContained = 226,
                        kInvalidHandle = 400, kNotReady = 600, kIllegalAddress = 700,
                        kTensorMemoryLeak = 721, kCaptureUnsupported = 900, kCaptureImplicit = 906;
inline constexpr int kAttributeThreads = 1, kAttributeShared = 97, kAttributeUnits = 16,
                     kAttributeMajor = 75, kAttributeMinor = 76;
inline constexpr int kFunctionShared = 8;  // CUfunction_attribute
inline constexpr unsigned kStreamNonBlocking = 1, kEventDefault = 0, kHostPortable = 1;
inline constexpr int kCaptureThreadLocal = 1;  // CUstreamCaptureMode
inline constexpr Result kNvrtcCompilation = 6;

// X(name, parameters); every function gives a Result. The names are those of the library, which
// carry the version of the interface.
#define TD_CUDA_FUNCTIONS(X)                                                               \
  X(cuInit, (unsigned))                                                                    \
  X(cuDriverGetVersion, (int*))                                                            \
  X(cuGetErrorName, (Result, const char**))                                                \
  X(cuGetErrorString, (Result, const char**))                                              \
  X(cuDeviceGetCount, (int*))                                                              \
  X(cuDeviceGet, (DeviceNumber*, int))                                                     \
  X(cuDeviceGetName, (char*, int, DeviceNumber))                                           \
  X(cuDeviceTotalMem_v2, (size_t*, DeviceNumber))                                          \
  X(cuDeviceGetAttribute, (int*, int, DeviceNumber))                                       \
  X(cuDevicePrimaryCtxRetain, (Context*, DeviceNumber))                                    \
  X(cuDevicePrimaryCtxRelease_v2, (DeviceNumber))                                          \
  X(cuCtxSetCurrent, (Context))                                                            \
  X(cuCtxSynchronize, ())                                                                  \
  X(cuMemGetInfo_v2, (size_t*, size_t*))                                                   \
  X(cuMemAlloc_v2, (Pointer*, size_t))                                                     \
  X(cuMemFree_v2, (Pointer))                                                               \
  X(cuMemHostAlloc, (void**, size_t, unsigned))                                            \
  X(cuMemFreeHost, (void*))                                                                \
  X(cuMemcpyHtoDAsync_v2, (Pointer, const void*, size_t, Stream))                          \
  X(cuMemcpyDtoHAsync_v2, (void*, Pointer, size_t, Stream))                                \
  X(cuMemcpyDtoDAsync_v2, (Pointer, Pointer, size_t, Stream))                              \
  X(cuMemsetD8Async, (Pointer, unsigned char, size_t, Stream))                             \
  X(cuStreamCreate, (Stream*, unsigned))                                                   \
  X(cuStreamDestroy_v2, (Stream))                                                          \
  X(cuStreamSynchronize, (Stream))                                                         \
  X(cuStreamWaitEvent, (Stream, Event, unsigned))                                          \
  X(cuEventCreate, (Event*, unsigned))                                                     \
  X(cuEventDestroy_v2, (Event))                                                            \
  X(cuEventRecord, (Event, Stream))                                                        \
  X(cuEventQuery, (Event))                                                                 \
  X(cuEventSynchronize, (Event))                                                           \
  X(cuEventElapsedTime, (float*, Event, Event))                                            \
  X(cuModuleLoadData, (Module*, const void*))                                              \
  X(cuModuleUnload, (Module))                                                              \
  X(cuModuleGetFunction, (Function*, Module, const char*))                                 \
  X(cuFuncSetAttribute, (Function, int, int))                                              \
  X(cuLaunchKernel, (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, \
                     unsigned, Stream, void**, void**))                                    \
  X(cuStreamBeginCapture_v2, (Stream, int))                                                \
  X(cuStreamEndCapture, (Stream, Graph*))                                                  \
  X(cuGraphInstantiateWithFlags, (GraphExec*, Graph, unsigned long long))                  \
  X(cuGraphDestroy, (Graph))                                                               \
  X(cuGraphExecDestroy, (GraphExec))                                                       \
  X(cuGraphLaunch, (GraphExec, Stream))

#define TD_NVRTC_FUNCTIONS(X)                                                               \
  X(nvrtcVersion, (int*, int*))                                                             \
  X(nvrtcCreateProgram,                                                                     \
    (NvrtcProgram*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(nvrtcDestroyProgram, (NvrtcProgram*))                                                   \
  X(nvrtcCompileProgram, (NvrtcProgram, int, const char* const*))                           \
  X(nvrtcGetCUBINSize, (NvrtcProgram, size_t*))                                             \
  X(nvrtcGetCUBIN, (NvrtcProgram, char*))                                                   \
  X(nvrtcGetProgramLogSize, (NvrtcProgram, size_t*))                                        \
  X(nvrtcGetProgramLog, (NvrtcProgram, char*))

#define TD_CUDA_MEMBER(name, parameters) Result(*name) parameters = nullptr;
/// Pointers to the functions, by their names.
struct Api {
  TD_CUDA_FUNCTIONS(TD_CUDA_MEMBER)
};
struct NvrtcApi {
  TD_NVRTC_FUNCTIONS(TD_CUDA_MEMBER)
  const char* (*nvrtcGetErrorString)(Result) = nullptr;
};
#undef TD_CUDA_MEMBER

}  // namespace tandem::gpu::cuda
