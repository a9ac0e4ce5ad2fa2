// SPDX-License-Identifier: Apache-2.0
// Tests of the driver table run over every driver: TEST_P of a class derived from OverDrivers,
// which is skipped with the driver's own reason where there is no device.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tandem/backend/gpu/cuda/nvrtc.h"
#include "tandem/backend/gpu/drivers.h"
#include "tandem/backend/gpu/kernels.h"
#include "tandem/base/error.h"
#include "tandem/init.h"
#include "tests/support/sanitized.h"

namespace tandem::gpu {

/// Why NVRTC cannot be tested here; "" where it can. Its major 13 knows all architectures.
inline std::string no_nvrtc() {
  const LibraryReport r = nvrtc_report();
  if (!r.problem.empty()) return r.problem;
  if (kSanitized) return "a sanitizer's dlopen does not look beside the library that calls it";
  return r.version.rfind("13.", 0) == 0 ? "" : "NVRTC " + r.version + " is older than 13";
}

#define EXPECT_OK(call)                                        \
  do {                                                         \
    const ::tandem::gpu::Status status_of_call = (call);       \
    EXPECT_TRUE(status_of_call.ok()) << status_of_call.text(); \
  } while (0)
#define ASSERT_OK(call)                                        \
  do {                                                         \
    const ::tandem::gpu::Status status_of_call = (call);       \
    ASSERT_TRUE(status_of_call.ok()) << status_of_call.text(); \
  } while (0)
/// The call gives this code, and its text holds `part`.
#define EXPECT_FAILS(call, expected, part)                                                   \
  do {                                                                                       \
    const ::tandem::gpu::Status status_of_call = (call);                                     \
    EXPECT_STREQ(::tandem::gpu::to_string(status_of_call.code()),                            \
                 ::tandem::gpu::to_string(::tandem::gpu::Code::expected))                    \
        << status_of_call.text();                                                            \
    EXPECT_NE(status_of_call.text().find(part), std::string::npos) << status_of_call.text(); \
  } while (0)

/// A context with one stream and short ways to copy and launch.
struct Device {
  explicit Device(std::unique_ptr<Context> opened) : context(std::move(opened)) {
    context->create_stream("main", stream).check();
  }

  Address allocate(size_t bytes) {
    Address at = 0;
    context->allocate(bytes, at).check();
    return at;
  }
  StreamRef make_stream(const std::string& name) {
    StreamRef s = nullptr;
    context->create_stream(name, s).check();
    return s;
  }
  EventRef make_event() {
    EventRef e = nullptr;
    context->create_event(e).check();
    return e;
  }
  template <class T>
  Address put(const std::vector<T>& values) {
    const Address at = allocate(values.size() * sizeof(T));
    context->copy_in(at, values.data(), values.size() * sizeof(T), stream).check();
    context->synchronize_stream(stream).check();
    return at;
  }
  /// Waits for all streams.
  template <class T>
  std::vector<T> get(Address at, size_t count) {
    std::vector<T> values(count);
    context->synchronize().check();
    context->copy_out(values.data(), at, count * sizeof(T), stream).check();
    context->synchronize_stream(stream).check();
    return values;
  }
  /// A kernel of kernels.h, built with the first question.
  KernelRef kernel(const std::string& name) {
    KernelRef& k = kernels[name];
    if (k) return k;
    for (const KernelSource& source : all_kernels(context->info().f64)) {
      if (source.name != name) continue;
      ModuleRef module = nullptr;
      context->build({&source, 1}, module).check();
      context->find(module, name, k).check();
    }
    return k;
  }
  Status launch(const std::string& name, int64_t n, const Arguments& arguments,
                StreamRef in = nullptr) {
    return context->launch(kernel(name), blocks_for(n, kSumThreads), {kSumThreads}, arguments,
                           in ? in : stream);
  }

  std::unique_ptr<Context> context;
  StreamRef stream = nullptr;
  std::map<std::string, KernelRef> kernels;
};

class OverDrivers : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    init();
    Driver& driver = driver_named(GetParam());
    std::unique_ptr<Context> context;
    const Status status = driver.open(0, context);
    if (status.code() == Code::unavailable) GTEST_SKIP() << driver.name() << ": " << status.text();
    ASSERT_TRUE(status.ok()) << status.text();
    device_ = std::make_unique<Device>(std::move(context));
  }
  bool is_fake() const { return std::strcmp(GetParam(), "fake") == 0; }
  std::unique_ptr<Device> device_;
};

#define TD_OVER_DRIVERS(Class)                                                        \
  INSTANTIATE_TEST_SUITE_P(Drivers, Class, testing::Values("cuda", "opencl", "fake"), \
                           [](const auto& info) { return std::string(info.param); })

}  // namespace tandem::gpu
