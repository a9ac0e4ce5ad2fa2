// SPDX-License-Identifier: Apache-2.0
// The own declarations of libraries that are opened at run time against the real headers, where
// there are some: Debian's opencl-c-headers, and cuda.h and nvrtc.h of a toolkit or of PyPI's
// wheels (scripts/setup gpu). Types of handles differ by name, so what is compared is the shape of
// each function: parameters by size and kind.
#include <gtest/gtest.h>

#include <type_traits>

// Before cuda.h, which gives names like these another version by macros.
#include "tandem/backend/gpu/cuda/abi_internal.h"
#include "tandem/backend/gpu/cuda/cublaslt_abi_internal.h"
#include "tandem/backend/gpu/cuda/cudnn_abi_internal.h"
#include "tandem/backend/gpu/cuda/nccl_abi_internal.h"
#include "tandem/backend/gpu/opencl/abi_internal.h"

#if __has_include(<CL/cl.h>)
#define TD_HAVE_OPENCL_HEADER
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#endif
#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#define TD_HAVE_CUDA_HEADER
#include <cuda.h>
#include <nvrtc.h>
// Libraries still have the first version, which this header no longer declares.
#undef cuEventElapsedTime
extern "C" CUresult CUDAAPI cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to);
#endif

#if __has_include(<cudnn.h>) && __has_include(<cuda_runtime_api.h>)
#define TD_HAVE_CUDNN_HEADER
#include <cudnn.h>
#endif
#if __has_include(<cublasLt.h>) && __has_include(<cuda_runtime_api.h>)
#define TD_HAVE_CUBLASLT_HEADER
#include <cublasLt.h>
#endif

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime_api.h>)
#define TD_HAVE_NCCL_HEADER
#include <nccl.h>
#endif

namespace tandem::gpu {
namespace {

template <class T>
constexpr int kind_of() {
  if constexpr (std::is_pointer_v<T>) return 1;
  if constexpr (std::is_void_v<T>) return 2;
  if constexpr (std::is_enum_v<T> || std::is_integral_v<T>) return 3;
  return 4;
}
template <class A, class B>
constexpr bool alike() {
  if constexpr (std::is_void_v<A> || std::is_void_v<B>) {
    return std::is_void_v<A> == std::is_void_v<B>;
  } else {
    return sizeof(A) == sizeof(B) && kind_of<A>() == kind_of<B>();
  }
}

// Do two functions take and give the same, by size and kind?
template <class A, class B>
struct SameShape : std::false_type {};
template <class R, class... A, class S, class... B>
  requires(sizeof...(A) == sizeof...(B))
struct SameShape<R (*)(A...), S (*)(B...)>
    : std::bool_constant<alike<R, S>() && (alike<A, B>() && ...)> {};

[[maybe_unused]] void checks_of_itself() {
  static_assert(SameShape<int (*)(void*, int), int (*)(char*, unsigned)>::value);
  static_assert(!SameShape<int (*)(void*, int), int (*)(char*, long)>::value);
  static_assert(!SameShape<int (*)(void*, long), int (*)(long, void*)>::value);
  static_assert(!SameShape<int (*)(void*), int (*)(void*, int)>::value);
}

TEST(Abi, NcclAsItsHeaderDeclaresIt) {
#ifdef TD_HAVE_NCCL_HEADER
#define TD_CHECK_SHAPE(name, parameters) \
  static_assert(SameShape<decltype(cuda::NcclApi::name), decltype(&::name)>::value, #name);
  TD_NCCL_FUNCTIONS(TD_CHECK_SHAPE)
#undef TD_CHECK_SHAPE
  static_assert(sizeof(cuda::NcclId) == sizeof(ncclUniqueId));
  static_assert(cuda::kNcclInt8 == ncclInt8 && cuda::kNcclUint8 == ncclUint8 &&
                cuda::kNcclInt32 == ncclInt32 && cuda::kNcclInt64 == ncclInt64);
  static_assert(cuda::kNcclFloat16 == ncclFloat16 && cuda::kNcclFloat32 == ncclFloat32 &&
                cuda::kNcclFloat64 == ncclFloat64 && cuda::kNcclBfloat16 == ncclBfloat16);
  static_assert(cuda::kNcclSum == ncclSum && cuda::kNcclMin == ncclMin &&
                cuda::kNcclMax == ncclMax);
#else
  GTEST_SKIP() << "nccl.h is not there";
#endif
}

TEST(Abi, CublasLtAsItsHeaderDeclaresIt) {
#ifdef TD_HAVE_CUBLASLT_HEADER
#define TD_CHECK_SHAPE(name, parameters) \
  static_assert(SameShape<decltype(cuda::CublasLtApi::name), decltype(&::name)>::value, #name);
  TD_CUBLASLT_FUNCTIONS(TD_CHECK_SHAPE)
#undef TD_CHECK_SHAPE
  static_assert(sizeof(cuda::LtAlgo) == sizeof(cublasLtMatmulAlgo_t));
  static_assert(sizeof(cuda::LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
  static_assert(offsetof(cuda::LtHeuristic, workspace) ==
                offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  static_assert(offsetof(cuda::LtHeuristic, state) ==
                offsetof(cublasLtMatmulHeuristicResult_t, state));
  static_assert(cuda::kR32F == CUDA_R_32F && cuda::kR64F == CUDA_R_64F);
  static_assert(cuda::kR16F == CUDA_R_16F && cuda::kR16BF == CUDA_R_16BF);
  static_assert(cuda::kCompute32F == CUBLAS_COMPUTE_32F && cuda::kCompute64F == CUBLAS_COMPUTE_64F);
  static_assert(cuda::kCompute32FTf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
  static_assert(cuda::kDescTransA == CUBLASLT_MATMUL_DESC_TRANSA);
  static_assert(cuda::kDescTransB == CUBLASLT_MATMUL_DESC_TRANSB);
  static_assert(cuda::kDescEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
  static_assert(cuda::kDescBias == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  static_assert(cuda::kDescBiasType == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
  static_assert(cuda::kLayoutBatchCount == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  static_assert(cuda::kLayoutBatchStride == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  static_assert(cuda::kPreferWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  static_assert(cuda::kPreferReduction == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
  static_assert(cuda::kPreferAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  static_assert(cuda::kPreferAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
  static_assert(cuda::kOpN == CUBLAS_OP_N && cuda::kOpT == CUBLAS_OP_T);
  static_assert(cuda::kEpilogueBias == CUBLASLT_EPILOGUE_BIAS);
  static_assert(cuda::kReductionCompute == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  static_assert(cuda::kReductionOutput == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
  static_assert(cuda::kCublasNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
#else
  GTEST_SKIP() << "cublasLt.h is not installed";
#endif
}

#ifdef TD_HAVE_CUDNN_HEADER
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
[[maybe_unused]] void checks_of_cudnn() {
#define TD_CHECK_SHAPE(name, parameters) \
  static_assert(SameShape<decltype(cudnn::Api::name), decltype(&::name)>::value, #name);
  TD_CUDNN_FUNCTIONS(TD_CHECK_SHAPE)
#undef TD_CHECK_SHAPE
  static_assert(
      std::is_same_v<decltype(&::cudnnGetVersion), decltype(cudnn::Api::cudnnGetVersion)>);
  static_assert(SameShape<decltype(cudnn::Api::cudnnGetErrorString),
                          decltype(&::cudnnGetErrorString)>::value);
  static_assert(SameShape<decltype(cudnn::Api::cudnnGetLastErrorString),
                          decltype(&::cudnnGetLastErrorString)>::value);
#define TD_SAME(own, theirs) static_assert(static_cast<int>(cudnn::own) == static_cast<int>(theirs))
  TD_SAME(kBadParameter, CUDNN_STATUS_BAD_PARAM);
  TD_SAME(kInternal, CUDNN_STATUS_INTERNAL_ERROR);
  TD_SAME(kF32, CUDNN_DATA_FLOAT);
  TD_SAME(kF64, CUDNN_DATA_DOUBLE);
  TD_SAME(kF16, CUDNN_DATA_HALF);
  TD_SAME(kBF16, CUDNN_DATA_BFLOAT16);
  TD_SAME(kCrossCorrelation, CUDNN_CROSS_CORRELATION);
  TD_SAME(kAdd, CUDNN_POINTWISE_ADD);
  TD_SAME(kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  TD_SAME(kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  TD_SAME(kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  TD_SAME(kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  TD_SAME(kHeuristics, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  TD_SAME(kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  TD_SAME(kForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  TD_SAME(kBackwardWeight, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  TD_SAME(kBackwardInput, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  TD_SAME(kPointwiseOperation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  TD_SAME(kGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  TD_SAME(kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  TD_SAME(kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  TD_SAME(kHandleType, CUDNN_TYPE_HANDLE);
  TD_SAME(kDataType, CUDNN_TYPE_DATA_TYPE);
  TD_SAME(kBooleanType, CUDNN_TYPE_BOOLEAN);
  TD_SAME(kInt64Type, CUDNN_TYPE_INT64);
  TD_SAME(kFloatType, CUDNN_TYPE_FLOAT);
  TD_SAME(kDoubleType, CUDNN_TYPE_DOUBLE);
  TD_SAME(kPointerType, CUDNN_TYPE_VOID_PTR);
  TD_SAME(kConvolutionModeType, CUDNN_TYPE_CONVOLUTION_MODE);
  TD_SAME(kHeuristicsModeType, CUDNN_TYPE_HEUR_MODE);
  TD_SAME(kNoteType, CUDNN_TYPE_NUMERICAL_NOTE);
  TD_SAME(kPointwiseModeType, CUDNN_TYPE_POINTWISE_MODE);
  TD_SAME(kDescriptorType, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  TD_SAME(kCharType, CUDNN_TYPE_CHAR);
  TD_SAME(kModeA, CUDNN_HEUR_MODE_A);
  TD_SAME(kModeB, CUDNN_HEUR_MODE_B);
  TD_SAME(kModeFallback, CUDNN_HEUR_MODE_FALLBACK);
  TD_SAME(kTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  TD_SAME(kDownConverts, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  TD_SAME(kReducedSums, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  TD_SAME(kFft, CUDNN_NUMERICAL_NOTE_FFT);
  TD_SAME(kNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  TD_SAME(kWinograd, CUDNN_NUMERICAL_NOTE_WINOGRAD);
  TD_SAME(kWinogradLast, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
  static_assert(cudnn::kNotes >= CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
}
[[maybe_unused]] void checks_of_cudnn_attributes() {
  TD_SAME(kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE);
  TD_SAME(kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC);
  TD_SAME(kComputeType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  TD_SAME(kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
  TD_SAME(kDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  TD_SAME(kStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  TD_SAME(kPaddingEnd, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  TD_SAME(kPadding, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  TD_SAME(kSpatial, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  TD_SAME(kHeuristicsMode, CUDNN_ATTR_ENGINEHEUR_MODE);
  TD_SAME(kHeuristicsGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  TD_SAME(kResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
  TD_SAME(kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
  TD_SAME(kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  TD_SAME(kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  TD_SAME(kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
#define TD_SAME_OPERATION(own, theirs, x, y, w)        \
  TD_SAME(own + cudnn::kAlpha, theirs##_ALPHA);        \
  TD_SAME(own + cudnn::kBeta, theirs##_BETA);          \
  TD_SAME(own + cudnn::kGeometry, theirs##_CONV_DESC); \
  TD_SAME(own + cudnn::kX, theirs##x);                 \
  TD_SAME(own + cudnn::kY, theirs##y);                 \
  TD_SAME(own + cudnn::kW, theirs##w)
  TD_SAME_OPERATION(kForwardFirst, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD, _X, _Y, _W);
  TD_SAME_OPERATION(kBackwardInputFirst, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA, _DX, _DY, _W);
  TD_SAME_OPERATION(kBackwardWeightFirst, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER, _X, _DY,
                    _DW);
#undef TD_SAME_OPERATION
  TD_SAME(kPointwiseGeometry, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  TD_SAME(kPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
  TD_SAME(kPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
  TD_SAME(kPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
  TD_SAME(kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  TD_SAME(kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  TD_SAME(kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  TD_SAME(kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE);
  TD_SAME(kTensorSizes, CUDNN_ATTR_TENSOR_DIMENSIONS);
  TD_SAME(kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
  TD_SAME(kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  TD_SAME(kTensorVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
  TD_SAME(kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  TD_SAME(kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  TD_SAME(kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  TD_SAME(kEngineNumber, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  TD_SAME(kEngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
#if CUDNN_VERSION >= 91900  // devices that are described
  TD_SAME(kDevice, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  TD_SAME(kHeuristicsDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  TD_SAME(kPlanDevice, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  TD_SAME(kDeviceJson, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
#endif
#undef TD_SAME
}
#pragma GCC diagnostic pop
#endif

TEST(Abi, CudnnAsItsHeaderDeclaresIt) {
#ifdef TD_HAVE_CUDNN_HEADER
  checks_of_cudnn();
  checks_of_cudnn_attributes();
#else
  GTEST_SKIP() << "cudnn.h is not installed";
#endif
}

TEST(Abi, OpenclAsItsHeaderDeclaresIt) {
#ifdef TD_HAVE_OPENCL_HEADER
#define TD_CHECK_SHAPE(name, result, parameters) \
  static_assert(SameShape<decltype(cl::Api::name), decltype(&::name)>::value, #name);
  TD_OPENCL_FUNCTIONS(TD_CHECK_SHAPE)
#undef TD_CHECK_SHAPE
  static_assert(cl::kTypeAll == CL_DEVICE_TYPE_ALL && cl::kProfiling == CL_QUEUE_PROFILING_ENABLE);
  static_assert(cl::kReadWrite == CL_MEM_READ_WRITE && cl::kHostPointer == CL_MEM_ALLOC_HOST_PTR);
  static_assert(cl::kMapRead == CL_MAP_READ && cl::kMapWrite == CL_MAP_WRITE);
  static_assert(cl::kRoundedDivideSqrt == CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT);
  static_assert(cl::kPlatformName == CL_PLATFORM_NAME && cl::kBuildLog == CL_PROGRAM_BUILD_LOG);
  static_assert(cl::kPlatformVersion == CL_PLATFORM_VERSION);
  static_assert(cl::kMaxUnits == CL_DEVICE_MAX_COMPUTE_UNITS);
  static_assert(cl::kMaxGroupSize == CL_DEVICE_MAX_WORK_GROUP_SIZE);
  static_assert(cl::kMaxAllocation == CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  static_assert(cl::kSingleConfig == CL_DEVICE_SINGLE_FP_CONFIG);
  static_assert(cl::kDoubleConfig == CL_DEVICE_DOUBLE_FP_CONFIG);
  static_assert(cl::kGlobalBytes == CL_DEVICE_GLOBAL_MEM_SIZE);
  static_assert(cl::kLocalBytes == CL_DEVICE_LOCAL_MEM_SIZE);
  static_assert(cl::kAvailable == CL_DEVICE_AVAILABLE && cl::kDeviceName == CL_DEVICE_NAME);
  static_assert(cl::kCompilerAvailable == CL_DEVICE_COMPILER_AVAILABLE);
  static_assert(cl::kDriverVersion == CL_DRIVER_VERSION);
  static_assert(cl::kDeviceVersion == CL_DEVICE_VERSION);
  static_assert(cl::kEventStatus == CL_EVENT_COMMAND_EXECUTION_STATUS);
  static_assert(cl::kProfilingEnd == CL_PROFILING_COMMAND_END);
  static_assert(cl::kAllocationFailure == CL_MEM_OBJECT_ALLOCATION_FAILURE);
  static_assert(cl::kOutOfResources == CL_OUT_OF_RESOURCES);
  static_assert(cl::kOutOfHostMemory == CL_OUT_OF_HOST_MEMORY);
  static_assert(cl::kInvalidBufferSize == CL_INVALID_BUFFER_SIZE);
#else
  GTEST_SKIP() << "no CL/cl.h (Debian's opencl-c-headers)";
#endif
}

TEST(Abi, CudaAsItsHeadersDeclareIt) {
#ifdef TD_HAVE_CUDA_HEADER
#define TD_CHECK_SHAPE(name, parameters) \
  static_assert(SameShape<decltype(cuda::Api::name), decltype(&::name)>::value, #name);
  TD_CUDA_FUNCTIONS(TD_CHECK_SHAPE)
#undef TD_CHECK_SHAPE
#define TD_CHECK_SHAPE(name, parameters) \
  static_assert(SameShape<decltype(cuda::NvrtcApi::name), decltype(&::name)>::value, #name);
  TD_NVRTC_FUNCTIONS(TD_CHECK_SHAPE)
#undef TD_CHECK_SHAPE
  static_assert(cuda::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
  static_assert(cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
  static_assert(cuda::kUnavailable == CUDA_ERROR_DEVICE_UNAVAILABLE);
  static_assert(cuda::kNoDevice == CUDA_ERROR_NO_DEVICE);
  static_assert(cuda::kEccUncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE);
  static_assert(cuda::kInvalidHandle == CUDA_ERROR_INVALID_HANDLE);
  static_assert(cuda::kNotReady == CUDA_ERROR_NOT_READY);
  static_assert(cuda::kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
  static_assert(cuda::kCaptureUnsupported == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  static_assert(cuda::kCaptureImplicit == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  static_assert(cuda::kAttributeThreads == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  static_assert(cuda::kAttributeShared == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  static_assert(cuda::kFunctionShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  static_assert(cuda::kAttributeUnits == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  static_assert(cuda::kAttributeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  static_assert(cuda::kAttributeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  static_assert(cuda::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
  static_assert(cuda::kEventDefault == CU_EVENT_DEFAULT);
  static_assert(cuda::kHostPortable == CU_MEMHOSTALLOC_PORTABLE);
  static_assert(cuda::kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  static_assert(cuda::kNvrtcCompilation == NVRTC_ERROR_COMPILATION);
#else
  GTEST_SKIP() << "no cuda.h and nvrtc.h (scripts/setup gpu installs PyPI's)";
#endif
}

}  // namespace
}  // namespace tandem::gpu
