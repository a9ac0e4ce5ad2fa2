// SPDX-License-Identifier: Apache-2.0
// The part of cuDNN that is used, the backend API of its graphs, declared here so that no toolkit
// is needed to build (NVIDIA, cuDNN, version 9). tests/gpu/abi_test.cpp compares it with the real
// header.
#pragma once

#include "tandem/backend/gpu/cuda/abi_internal.h"

namespace tandem::gpu::cudnn {

using cuda::Result;
using cuda::Stream;

using Handle = struct CudnnTag*;
using Descriptor = void*;

// cudnnStatus_t, cudnnDataType_t, cudnnConvolutionMode_t, cudnnPointwiseMode_t
inline constexpr Result kBadParameter = 2000, kNotSupported = 3000, kInternal = 4000;
inline constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kBF16 = 9;
inline constexpr int kCrossCorrelation = 1, kAdd = 0;

// cudnnBackendDescriptorType_t
inline constexpr int kPointwise = 0, kConvolution = 1, kEngine = 2, kEngineConfig = 3,
                     kHeuristics = 4, kPlan = 5, kForward = 10, kBackwardWeight = 11,
                     kBackwardInput = 12, kPointwiseOperation = 13, kGraph = 15, kVariantPack = 16,
                     kTensor = 17, kDevice = 38;

// cudnnBackendAttributeType_t
inline constexpr int kHandleType = 0, kDataType = 1, kBooleanType = 2, kInt64Type = 3,
                     kFloatType = 4, kDoubleType = 5, kPointerType = 6, kConvolutionModeType = 7,
                     kHeuristicsModeType = 8, kNoteType = 11, kPointwiseModeType = 14,
                     kDescriptorType = 15, kCharType = 24;

// cudnnBackendHeurMode_t, cudnnBackendNumericalNote_t
inline constexpr int kModeB = 1, kModeFallback = 2, kModeA = 3;
inline constexpr int kTensorCore = 0, kDownConverts = 1, kReducedSums = 2, kFft = 3,
                     kNondeterministic = 4, kWinograd = 5, kWinogradLast = 8, kNotes = 10;

// cudnnBackendAttributeName_t. The six of each operation of convolutions follow each other in the
// order of kAlpha and the others.
inline constexpr int kPointwiseMode = 0, kPointwisePrecision = 1;
inline constexpr int kComputeType = 100, kConvolutionMode = 101, kDilations = 102, kStrides = 103,
                     kPaddingEnd = 104, kPadding = 105, kSpatial = 106;
inline constexpr int kHeuristicsMode = 200, kHeuristicsGraph = 201, kResults = 202,
                     kHeuristicsDevice = 204;
inline constexpr int kConfigEngine = 300;
inline constexpr int kPlanHandle = 400, kPlanConfig = 401, kPlanWorkspace = 402, kPlanDevice = 407;
inline constexpr int kForwardFirst = 700, kBackwardInputFirst = 706, kBackwardWeightFirst = 712;
inline constexpr int kAlpha = 0, kBeta = 1, kGeometry = 2, kW = 3, kX = 4, kY = 5;
inline constexpr int kPointwiseGeometry = 750, kPointwiseX = 751, kPointwiseB = 752,
                     kPointwiseY = 753;
inline constexpr int kGraphHandle = 800, kGraphOperations = 801;
inline constexpr int kTensorAlignment = 900, kTensorType = 901, kTensorSizes = 902,
                     kTensorStrides = 903, kTensorId = 906, kTensorVirtual = 907;
inline constexpr int kPackIds = 1000, kPackPointers = 1001, kPackWorkspace = 1003;
inline constexpr int kEngineNumber = 1301, kEngineNotes = 1303;
inline constexpr int kDeviceJson = 2702;

#define TD_CUDNN_FUNCTIONS(X)                                                   \
  X(cudnnCreate, (Handle*))                                                     \
  X(cudnnDestroy, (Handle))                                                     \
  X(cudnnSetStream, (Handle, Stream))                                           \
  X(cudnnBackendCreateDescriptor, (int, Descriptor*))                           \
  X(cudnnBackendDestroyDescriptor, (Descriptor))                                \
  X(cudnnBackendFinalize, (Descriptor))                                         \
  X(cudnnBackendSetAttribute, (Descriptor, int, int, int64_t, const void*))     \
  X(cudnnBackendGetAttribute, (Descriptor, int, int, int64_t, int64_t*, void*)) \
  X(cudnnBackendExecute, (Handle, Descriptor, Descriptor))

#define TD_CUDA_MEMBER(name, parameters) Result(*name) parameters = nullptr;
struct Api {
  TD_CUDNN_FUNCTIONS(TD_CUDA_MEMBER)
  size_t (*cudnnGetVersion)() = nullptr;
  const char* (*cudnnGetErrorString)(Result) = nullptr;
  void (*cudnnGetLastErrorString)(char*, size_t) = nullptr;
};
#undef TD_CUDA_MEMBER

}  // namespace tandem::gpu::cudnn
