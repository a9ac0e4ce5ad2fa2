// SPDX-License-Identifier: Apache-2.0
// The part of OpenCL 1.2 that is used, declared here so that no header of it is needed to build
// (Khronos, The OpenCL Specification 1.2). tests/gpu/abi_test.cpp compares it with the real header
// where there is one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tandem::gpu::cl {

using Int = int32_t;
using Uint = uint32_t;
using Bits = uint64_t;  // cl_bitfield
using Platform = struct PlatformTag*;
using Device = struct DeviceTag*;
using Context = struct ContextTag*;
using Queue = struct QueueTag*;
using Buffer = struct BufferTag*;
using Event = struct ClEventTag*;
using Program = struct ProgramTag*;
using Kernel = struct ClKernelTag*;

inline constexpr Int kSuccess = 0, kDeviceNotFound = -1, kAllocationFailure = -4,
                     kOutOfResources = -5, kOutOfHostMemory = -6, kInvalidBufferSize = -61,
                     kPlatformNotFound = -1001;
inline constexpr Bits kTypeAll = 0xffffffff, kProfiling = 1 << 1, kReadWrite = 1 << 0,
                      kHostPointer = 1 << 4, kMapRead = 1 << 0, kMapWrite = 1 << 1,
                      kRoundedDivideSqrt = 1 << 7;
inline constexpr Uint kPlatformName = 0x0902, kPlatformVersion = 0x0901, kMaxUnits = 0x1002,
                      kMaxGroupSize = 0x1004, kMaxAllocation = 0x1010, kSingleConfig = 0x101b,
                      kGlobalBytes = 0x101f, kLocalBytes = 0x1023, kAvailable = 0x1027,
                      kCompilerAvailable = 0x1028, kDeviceName = 0x102b, kDriverVersion = 0x102d,
                      kDeviceVersion = 0x102f, kDoubleConfig = 0x1032, kBuildLog = 0x1183,
                      kEventStatus = 0x11d3, kProfilingEnd = 0x1283;

// X(name, result, parameters)
#define TD_OPENCL_FUNCTIONS(X)                                                                \
  X(clGetPlatformIDs, Int, (Uint, Platform*, Uint*))                                          \
  X(clGetPlatformInfo, Int, (Platform, Uint, size_t, void*, size_t*))                         \
  X(clGetDeviceIDs, Int, (Platform, Bits, Uint, Device*, Uint*))                              \
  X(clGetDeviceInfo, Int, (Device, Uint, size_t, void*, size_t*))                             \
  X(clCreateContext, Context,                                                                 \
    (const intptr_t*, Uint, const Device*, void (*)(const char*, const void*, size_t, void*), \
     void*, Int*))                                                                            \
  X(clReleaseContext, Int, (Context))                                                         \
  X(clCreateCommandQueue, Queue, (Context, Device, Bits, Int*))                               \
  X(clReleaseCommandQueue, Int, (Queue))                                                      \
  X(clCreateBuffer, Buffer, (Context, Bits, size_t, void*, Int*))                             \
  X(clReleaseMemObject, Int, (Buffer))                                                        \
  X(clEnqueueReadBuffer, Int,                                                                 \
    (Queue, Buffer, Uint, size_t, size_t, void*, Uint, const Event*, Event*))                 \
  X(clEnqueueWriteBuffer, Int,                                                                \
    (Queue, Buffer, Uint, size_t, size_t, const void*, Uint, const Event*, Event*))           \
  X(clEnqueueCopyBuffer, Int,                                                                 \
    (Queue, Buffer, Buffer, size_t, size_t, size_t, Uint, const Event*, Event*))              \
  X(clEnqueueFillBuffer, Int,                                                                 \
    (Queue, Buffer, const void*, size_t, size_t, size_t, Uint, const Event*, Event*))         \
  X(clEnqueueMapBuffer, void*,                                                                \
    (Queue, Buffer, Uint, Bits, size_t, size_t, Uint, const Event*, Event*, Int*))            \
  X(clEnqueueUnmapMemObject, Int, (Queue, Buffer, void*, Uint, const Event*, Event*))         \
  X(clEnqueueMarkerWithWaitList, Int, (Queue, Uint, const Event*, Event*))                    \
  X(clEnqueueBarrierWithWaitList, Int, (Queue, Uint, const Event*, Event*))                   \
  X(clEnqueueNDRangeKernel, Int,                                                              \
    (Queue, Kernel, Uint, const size_t*, const size_t*, const size_t*, Uint, const Event*,    \
     Event*))                                                                                 \
  X(clFinish, Int, (Queue))                                                                   \
  X(clFlush, Int, (Queue))                                                                    \
  X(clWaitForEvents, Int, (Uint, const Event*))                                               \
  X(clGetEventInfo, Int, (Event, Uint, size_t, void*, size_t*))                               \
  X(clGetEventProfilingInfo, Int, (Event, Uint, size_t, void*, size_t*))                      \
  X(clReleaseEvent, Int, (Event))                                                             \
  X(clCreateProgramWithSource, Program, (Context, Uint, const char**, const size_t*, Int*))   \
  X(clBuildProgram, Int,                                                                      \
    (Program, Uint, const Device*, const char*, void (*)(Program, void*), void*))             \
  X(clGetProgramBuildInfo, Int, (Program, Device, Uint, size_t, void*, size_t*))              \
  X(clReleaseProgram, Int, (Program))                                                         \
  X(clCreateKernel, Kernel, (Program, const char*, Int*))                                     \
  X(clReleaseKernel, Int, (Kernel))                                                           \
  X(clSetKernelArg, Int, (Kernel, Uint, size_t, const void*))

/// Pointers to the functions, by their names.
struct Api {
#define TD_OPENCL_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
  TD_OPENCL_FUNCTIONS(TD_OPENCL_MEMBER)
#undef TD_OPENCL_MEMBER
};

}  // namespace tandem::gpu::cl
