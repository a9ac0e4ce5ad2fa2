// SPDX-License-Identifier: Apache-2.0
// Plans of the real cuDNN for a GPU that need not be there: cuDNN takes a description of a device
// in place of one. So that it takes what conv_by_library.cpp asks for, and with which engines, is
// seen without hardware, where the library is installed.
#include <fmt/format.h>

#include "tandem/backend/gpu/cuda/cudnn_internal.h"
#include "tests/gpu/drivers_helper.h"

namespace tandem::gpu {
namespace {

// A GPU of the size of an H100, as cuDNN 9.19 writes such descriptions.
constexpr const char* kSizes =
    R"("driverVer": 13000, "cudaDeviceId": 0, "deviceName": "NVIDIA H100",
        "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
        "regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32,
        "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
        "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
        "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
        "supportCoopLaunch": 1, "totalGlobalMem": 84942979072, "smClockRateKHz": 1980000,
        "memClockRateKHz": 2619000, "l2CacheSize": 52428800})";
std::string described(int capability) {
  return fmt::format("{{\"deviceVer\": {}, {}", capability, kSizes);
}

struct Geometry {
  const char* name;
  std::vector<int64_t> x, w;  // [n, c, ...], [o, c / groups, ...]
  int64_t by = 1, padding = 0, padding_end = 0, dilation = 1;
};
const Geometry kGeometries[] = {
    {"3 x 3", {8, 64, 28, 28}, {64, 64, 3, 3}, 1, 1, 1},
    {"1 x 1", {8, 64, 28, 28}, {256, 64, 1, 1}},
    {"stride", {8, 32, 28, 28}, {64, 32, 3, 3}, 2, 1, 1},
    {"first", {8, 3, 224, 224}, {64, 3, 7, 7}, 2, 3, 3},
    {"dilation", {8, 32, 28, 28}, {64, 32, 3, 3}, 1, 2, 2, 2},
    {"padding at one side", {8, 32, 28, 28}, {64, 32, 2, 2}, 1, 0, 1},
    {"depthwise", {8, 32, 28, 28}, {64, 1, 3, 3}, 1, 1, 1},
    {"groups", {8, 32, 28, 28}, {64, 8, 3, 3}, 1, 1, 1},
    {"odd sizes", {7, 5, 13, 11}, {3, 5, 3, 3}, 1, 1, 1},
    {"one dimension", {8, 32, 100}, {64, 32, 3}, 1, 1, 1},
    {"three dimensions", {2, 32, 8, 14, 14}, {64, 32, 3, 3, 3}, 1, 1, 1},
};

ConvProblem::Lie lie(const std::vector<int64_t>& size, bool last) {
  ConvProblem::Lie l;
  const int rank = static_cast<int>(size.size());
  int64_t step = 1;
  const auto put = [&](int d) {
    l.size[d] = size[static_cast<size_t>(d)];
    l.stride[d] = step;
    step *= l.size[d];
  };
  if (last) put(1);
  for (int d = rank - 1; d >= 2; --d) put(d);
  if (!last) put(1);
  put(0);
  return l;
}

// Bit 0, 1, 2 of `last`: x, w, y are channels-last.
ConvProblem problem(const Geometry& g, ConvResult result, DType t, int last) {
  ConvProblem p;
  p.result = result;
  p.dtype = t;
  p.spatial = static_cast<int>(g.x.size()) - 2;
  std::vector<int64_t> y{g.x[0], g.w[0]};
  for (int i = 0; i < p.spatial; ++i) {
    const auto d = static_cast<size_t>(i + 2);
    p.by[i] = g.by;
    p.padding[i] = g.padding;
    p.padding_end[i] = g.padding_end;
    p.dilation[i] = g.dilation;
    y.push_back((g.x[d] + g.padding + g.padding_end - g.dilation * (g.w[d] - 1) - 1) / g.by + 1);
  }
  p.x = lie(g.x, last & 1);
  p.w = lie(g.w, last & 2);
  p.y = lie(y, last & 4);
  return p;
}

int64_t bytes_of(const ConvProblem::Lie& l, const ConvProblem& p) {
  int64_t n = static_cast<int64_t>(size_of(p.dtype));
  for (int d = 0; d < p.spatial + 2; ++d) n *= l.size[d];
  return n;
}

class CudnnPlans : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized)
      GTEST_SKIP() << "a sanitizer's dlopen does not look beside the library that calls it";
    const Status status = describe_cudnn(cudnn_library(), described(900), library_);
    if (!status.ok()) GTEST_SKIP() << status.text();
  }
  std::unique_ptr<ConvPlan> plan(const ConvProblem& p) {
    std::unique_ptr<ConvPlan> made;
    const Status status = library_->plan(p, made);
    EXPECT_TRUE(status.ok()) << status.text();
    return made;
  }
  std::unique_ptr<ConvLibrary> library_;
};

// Every kind of convolution in every order of its operands.
void expect_plans(ConvLibrary& library, const Geometry& g, ConvResult result, DType t) {
  for (int last = 0; last < 8; ++last) {
    SCOPED_TRACE(
        fmt::format("{} result {} {} {}", g.name, static_cast<int>(result), to_string(t), last));
    const ConvProblem p = problem(g, result, t, last);
    std::unique_ptr<ConvPlan> made;
    ASSERT_OK(library.plan(p, made));
    EXPECT_EQ(made->algorithm.rfind("engine ", 0), 0u) << made->algorithm;
    EXPECT_LE(static_cast<int64_t>(made->workspace),
              bytes_of(p.x, p) + bytes_of(p.w, p) + bytes_of(p.y, p) + (256 << 20));
  }
}

TEST_F(CudnnPlans, AreMadeFromAmpereToBlackwell) {
  for (const int capability : {800, 860, 890, 900, 1000, 1200}) {
    std::unique_ptr<ConvLibrary> library;
    ASSERT_OK(describe_cudnn(cudnn_library(), described(capability), library));
    for (const Geometry& g : kGeometries) {
      for (const ConvResult result : {ConvResult::y, ConvResult::x, ConvResult::w}) {
        SCOPED_TRACE(capability);
        expect_plans(*library, g, result, DType::bf16);
        if (capability != 900) continue;
        for (const DType t : {DType::f32, DType::f16, DType::f64}) {
          expect_plans(*library, g, result, t);
        }
      }
    }
  }
}

TEST_F(CudnnPlans, AddABias) {
  for (const Geometry& g : kGeometries) {
    for (const DType t : {DType::f32, DType::bf16, DType::f16}) {
      for (const int last : {0, 5, 7}) {
        SCOPED_TRACE(fmt::format("{} {} {}", g.name, to_string(t), last));
        ConvProblem p = problem(g, ConvResult::y, t, last);
        p.bias = true;
        EXPECT_NE(plan(p), nullptr);
      }
    }
  }
}

// Exact f32 is never given to the units that round its factors, and tf32 is.
TEST_F(CudnnPlans, RoundNoMoreThanAllowed) {
  const std::string units = ", tensor cores";
  const auto uses_units = [&](const ConvProblem& p) {
    const auto made = plan(p);
    return made && made->algorithm.find(units) != std::string::npos;
  };
  for (const ConvResult result : {ConvResult::y, ConvResult::x, ConvResult::w}) {
    for (const Geometry& g : kGeometries) {
      ConvProblem p = problem(g, result, DType::f32, 0);
      EXPECT_FALSE(uses_units(p)) << g.name;
    }
    ConvProblem p = problem(kGeometries[0], result, DType::f32, 7);
    p.tf32 = true;
    EXPECT_TRUE(uses_units(p));
    EXPECT_TRUE(uses_units(problem(kGeometries[0], result, DType::bf16, 7)));
    EXPECT_TRUE(uses_units(problem(kGeometries[0], result, DType::f16, 0)));
  }
}

// Why images are given as they lie: the same engine runs, with room for a copy of what lies
// otherwise, and of nothing else.
TEST_F(CudnnPlans, ConvertWhatIsNotChannelsLast) {
  for (const ConvResult result : {ConvResult::y, ConvResult::x, ConvResult::w}) {
    const ConvProblem all = problem(kGeometries[0], result, DType::bf16, 7);
    const ConvProblem image = problem(kGeometries[0], result, DType::bf16, 6);
    const auto fast = plan(all), mixed = plan(image);
    ASSERT_TRUE(fast && mixed);
    EXPECT_EQ(fast->algorithm, mixed->algorithm);
    const auto copy =
        static_cast<int64_t>(mixed->workspace) - static_cast<int64_t>(fast->workspace);
    EXPECT_NEAR(static_cast<double>(copy), static_cast<double>(bytes_of(all.x, all)), 4096);
  }
}

TEST_F(CudnnPlans, SayWhatIsNotTaken) {
  ConvProblem p = problem(kGeometries[0], ConvResult::y, DType::i32, 0);
  std::unique_ptr<ConvPlan> made;
  EXPECT_FAILS(library_->plan(p, made), unavailable, "cuDNN convolves floating dtypes");
  p = problem(kGeometries[0], ConvResult::y, DType::f32, 0);
  p.y.size[3] += 1;  // not what the convolution gives
  EXPECT_FAILS(library_->plan(p, made), unavailable,
               "cudnnBackendFinalize: CUDNN_STATUS_BAD_PARAM");
  EXPECT_EQ(made, nullptr);
  p = problem(kGeometries[0], ConvResult::y, DType::f32, 0);
  ASSERT_OK(library_->plan(p, made));
  EXPECT_FAILS(made->run({}, nullptr), unavailable, "for a device that is not there");
  std::unique_ptr<ConvLibrary> none;
  EXPECT_FAILS(describe_cudnn(cudnn_library(), "{}", none), unavailable, "cudnnBackendFinalize");
}

TEST(Cudnn, SaysWhyItIsOff) {
  const CudnnLibrary off{.report = {.name = "cuDNN", .problem = "it is not there"}};
  std::unique_ptr<ConvLibrary> made;
  EXPECT_FAILS(describe_cudnn(off, described(900), made), unavailable,
               "cuDNN is off: it is not there");
  const cuda::Api api;
  EXPECT_FAILS(open_cudnn(off, api, nullptr, made), unavailable, "cuDNN is off: it is not there");
}

}  // namespace
}  // namespace tandem::gpu
