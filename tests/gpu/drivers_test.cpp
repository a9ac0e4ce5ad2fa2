// SPDX-License-Identifier: Apache-2.0
// What every driver must do: memory, copies, streams, events, modules, launches, graphs and the
// texts of errors. The fake driver's happens-before checker watches all of it.
#include <cmath>
#include <numeric>

#include "tests/gpu/drivers_helper.h"

namespace tandem::gpu {
namespace {

class DriverTable : public OverDrivers {};
TD_OVER_DRIVERS(DriverTable);

std::vector<float> ramp(size_t n) {
  std::vector<float> v(n);
  std::iota(v.begin(), v.end(), 1.0f);
  return v;
}

TEST_P(DriverTable, TellsWhatTheDeviceIs) {
  const DeviceInfo& info = device_->context->info();
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.version.empty());
  EXPECT_GE(info.bytes, info.largest_allocation);
  EXPECT_GT(info.largest_allocation, 1 << 20);
  EXPECT_GE(info.threads_per_block, kSumThreads);
  EXPECT_GE(info.shared_bytes, 16 << 10);
  EXPECT_GE(info.units, 1);
  Driver& driver = driver_named(GetParam());
  int devices = 0;
  ASSERT_OK(driver.count(devices));
  DeviceInfo again;
  ASSERT_OK(driver.info(0, again));
  EXPECT_EQ(again.name, info.name);
  std::unique_ptr<Context> none;
  EXPECT_FAILS(driver.open(devices, none), unavailable, "there is no device");
  EXPECT_FAILS(driver.open(-1, none), unavailable, "there is no device");
}

TEST_P(DriverTable, CopiesBytesInEveryDirection) {
  Context& c = *device_->context;
  const std::vector<float> x = ramp(1000);
  const Address a = device_->put(x), b = device_->allocate(4000);
  EXPECT_EQ(a % 256, 0u);
  ASSERT_OK(c.fill(b, 0x3f, 4000, device_->stream));
  ASSERT_OK(c.copy(b + 400, a, 2000, device_->stream));  // a sum of an address and a number
  const std::vector<float> y = device_->get<float>(b, 1000);
  for (size_t i = 0; i < y.size(); ++i) {
    uint32_t filled = 0x3f3f3f3f;
    float want;
    std::memcpy(&want, &filled, sizeof want);
    if (i >= 100 && i < 600) want = x[i - 100];
    ASSERT_EQ(y[i], want) << i;
  }
  EXPECT_OK(c.release(a));
  EXPECT_OK(c.release(b));
}

TEST_P(DriverTable, PinnedMemoryIsTheHosts) {
  Context& c = *device_->context;
  void* p = nullptr;
  ASSERT_OK(c.allocate_host(4096, p));
  auto* numbers = static_cast<float*>(p);
  std::iota(numbers, numbers + 1024, 0.0f);
  const Address a = device_->allocate(4096);
  ASSERT_OK(c.copy_in(a, p, 4096, device_->stream));
  ASSERT_OK(c.synchronize_stream(device_->stream));
  std::memset(p, 0, 4096);
  ASSERT_OK(c.copy_out(p, a, 4096, device_->stream));
  ASSERT_OK(c.synchronize());
  for (int i = 0; i < 1024; ++i) ASSERT_EQ(numbers[i], static_cast<float>(i));
  EXPECT_OK(c.release_host(p));
}

TEST_P(DriverTable, OneStreamKeepsItsOrder) {
  const int64_t n = 4096;
  const Address y = device_->allocate(n * 4);
  ASSERT_OK(device_->launch("fill_f32", n, Arguments().address(y, n * 4).value(0.0f).value(n)));
  for (int step = 0; step < 40; ++step) {  // y = 1 * y + y, or filled again
    if (step % 10 == 0) {
      const float v = 1.0f + static_cast<float>(step);
      ASSERT_OK(device_->launch("fill_f32", n, Arguments().address(y, n * 4).value(v).value(n)));
    }
    ASSERT_OK(device_->launch(
        "axpy_f32", n, Arguments().address(y, n * 4).address(y, n * 4).value(1.0f).value(n)));
  }
  for (const float v : device_->get<float>(y, n)) ASSERT_EQ(v, 31.0f * 1024);
}

TEST_P(DriverTable, StreamsMeetInEvents) {
  Context& c = *device_->context;
  const int64_t n = 10000;
  const size_t bytes = n * 4;
  const Address x = device_->allocate(bytes), y = device_->allocate(bytes);
  const StreamRef other = device_->make_stream("other");
  const EventRef filled = device_->make_event(), done = device_->make_event();
  for (int round = 0; round < 10; ++round) {  // the same events over again
    const auto v = static_cast<float>(round);
    ASSERT_OK(device_->launch("fill_f32", n, Arguments().address(x, bytes).value(v).value(n)));
    ASSERT_OK(c.record(filled, device_->stream));
    ASSERT_OK(c.wait(other, filled));
    ASSERT_OK(
        device_->launch("fill_f32", n, Arguments().address(y, bytes).value(1.0f).value(n), other));
    ASSERT_OK(device_->launch("axpy_f32", n,
                              Arguments().address(y, bytes).address(x, bytes).value(2.0f).value(n),
                              other));
    ASSERT_OK(c.record(done, other));
    ASSERT_OK(c.wait(device_->stream, done));
  }
  for (const float v : device_->get<float>(y, n)) ASSERT_EQ(v, 19.0f);
  EXPECT_OK(c.query(done));
  EXPECT_OK(c.synchronize_event(done));
  EXPECT_OK(c.destroy_stream(other));
  EXPECT_OK(c.destroy_event(done));
  EXPECT_OK(c.destroy_event(filled));
}

TEST_P(DriverTable, EventsTellTheTimeBetweenThem) {
  Context& c = *device_->context;
  const EventRef a = device_->make_event(), b = device_->make_event();
  double seconds = -1;
  EXPECT_FAILS(c.elapsed(a, b, seconds), not_ready, "elapsed");
  EXPECT_OK(c.query(a));  // one without a record is no reason to wait
  EXPECT_OK(c.wait(device_->stream, a));
  const int64_t n = 100000;
  const Address y = device_->allocate(n * 4);
  const Arguments fill = Arguments().address(y, n * 4).value(1.0f).value(n);
  ASSERT_OK(c.record(a, device_->stream));
  for (int i = 0; i < 3; ++i) ASSERT_OK(device_->launch("fill_f32", n, fill));
  ASSERT_OK(c.record(b, device_->stream));
  ASSERT_OK(c.synchronize_event(b));
  ASSERT_OK(c.elapsed(a, b, seconds));
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 60);
  double back = 0;
  ASSERT_OK(c.elapsed(b, a, back));
  EXPECT_EQ(back, -seconds);
}

TEST_P(DriverTable, ATextThatDoesNotCompileSaysWhere) {
  KernelSource k = fill_kernel(DType::f32);
  k.name = "wrong";
  k.body = "y[0] = nobody_knows_this;";
  ModuleRef module = nullptr;
  EXPECT_FAILS(device_->context->build({&k, 1}, module), build, "nobody_knows_this");
  EXPECT_EQ(module, nullptr);
  for (int i = 0; is_fake() && i < 4; ++i) {  // the compiler of loops is not turned off by that
    EXPECT_FAILS(device_->context->build({&k, 1}, module), build, "nobody_knows_this");
  }
  k.body = "y[0] = v;";
  ASSERT_OK(device_->context->build({&k, 1}, module));
  KernelRef kernel = nullptr;
  EXPECT_FAILS(device_->context->find(module, "another", kernel), bad_argument, "another");
  EXPECT_OK(device_->context->find(module, "wrong", kernel));
  EXPECT_OK(device_->context->unload(module));
}

TEST_P(DriverTable, AKernelNamedLikeABuiltIn) {
  KernelSource k = fill_kernel(DType::f32);
  k.name = "mad";
  ModuleRef module = nullptr;
  ASSERT_OK(device_->context->build({&k, 1}, module));
  KernelRef kernel = nullptr;
  ASSERT_OK(device_->context->find(module, "mad", kernel));
  const Address y = device_->allocate(4);
  ASSERT_OK(device_->context->launch(
      kernel, {1}, {1}, Arguments().address(y, 4).value(3.0f).value(int64_t{1}), device_->stream));
  EXPECT_EQ(device_->get<float>(y, 1)[0], 3.0f);
}

TEST_P(DriverTable, LaunchesThatFitNoKernel) {
  Context& c = *device_->context;
  const Address y = device_->allocate(1024);
  const KernelRef fill = device_->kernel("fill_f32"), sum = device_->kernel("block_sum_f32");
  auto launch = [&](KernelRef k, Extent threads, const Arguments& a) {
    return c.launch(k, {1}, threads, a, device_->stream);
  };
  const int64_t n = 1;
  EXPECT_FAILS(launch(fill, {1}, Arguments().address(y, 4).value(1.0f)), bad_argument,
               "kernel fill_f32 has 3 parameters, 2 arguments were given");
  EXPECT_FAILS(
      launch(fill, {1}, Arguments().address(y, 4).value(1.0).value(n)), bad_argument,
      "kernel fill_f32: parameter v (1) expects one float32, an argument of 8 bytes was given");
  EXPECT_FAILS(launch(fill, {1}, Arguments().value(y).value(1.0f).value(n)), bad_argument,
               "parameter y (0) expects an address, an argument of 8 bytes was given");
  EXPECT_FAILS(launch(fill, {0}, Arguments().address(y, 4).value(1.0f).value(n)), bad_argument,
               "a launch of nothing");
  EXPECT_FAILS(launch(fill, {1 << 20}, Arguments().address(y, 4).value(1.0f).value(n)),
               bad_argument, "threads");
  EXPECT_FAILS(launch(sum, {64}, Arguments().address(y, 4).address(y, 4).value(n)), bad_argument,
               "kernel block_sum_f32 expects blocks of 128 threads, not 64 x 1 x 1");
  EXPECT_OK(launch(fill, {1}, Arguments().address(y, 4).value(7.0f).value(n)));
  EXPECT_EQ(device_->get<float>(y, 1)[0], 7.0f);
}

TEST_P(DriverTable, MemoryEndsSomewhere) {
  Context& c = *device_->context;
  int64_t free = 0, total = 0, later = 0;
  ASSERT_OK(c.memory(free, total));
  EXPECT_LE(free, total);
  EXPECT_GT(free, 0);
  Address at = 0;
  EXPECT_FAILS(c.allocate(static_cast<size_t>(total) * 2, at), out_of_memory, "");
  EXPECT_EQ(at, 0u);
  ASSERT_OK(c.allocate(1 << 20, at));
  EXPECT_OK(c.release(at));
  ASSERT_OK(c.memory(later, total));
  if (is_fake()) {
    EXPECT_EQ(later, free);
  }
}

// ---- graphs

TEST_P(DriverTable, AGraphDoesItsStepsWithEachReplay) {
  Context& c = *device_->context;
  const int64_t n = 1000;
  const size_t bytes = n * 4;
  const Address x = device_->put(ramp(n)), y = device_->allocate(bytes),
                z = device_->allocate(bytes);
  device_->kernel("axpy_f32");  // built before
  const StreamRef other = device_->make_stream("other");
  const EventRef fork = device_->make_event(), join = device_->make_event();
  ASSERT_OK(c.fill(z, 0, bytes, device_->stream));

  ASSERT_OK(c.begin_capture(device_->stream));
  ASSERT_OK(c.fill(y, 0, bytes, device_->stream));
  ASSERT_OK(c.record(fork, device_->stream));
  ASSERT_OK(c.wait(other, fork));
  ASSERT_OK(device_->launch(
      "axpy_f32", n, Arguments().address(y, bytes).address(x, bytes).value(3.0f).value(n), other));
  ASSERT_OK(device_->launch("axpy_f32", n,
                            Arguments().address(z, bytes).address(x, bytes).value(1.0f).value(n)));
  ASSERT_OK(c.record(join, other));
  ASSERT_OK(c.wait(device_->stream, join));
  ASSERT_OK(device_->launch("axpy_f32", n,
                            Arguments().address(z, bytes).address(y, bytes).value(1.0f).value(n)));
  GraphRef graph = nullptr;
  ASSERT_OK(c.end_capture(device_->stream, graph));

  EXPECT_EQ(device_->get<float>(z, n)[5], 0.0f);  // nothing has run so far
  for (int i = 0; i < 3; ++i) ASSERT_OK(c.replay(graph, device_->stream));
  const std::vector<float> got = device_->get<float>(z, n);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], 12.0f * static_cast<float>(i + 1));
  EXPECT_OK(c.destroy_graph(graph));
}

TEST_P(DriverTable, ACaptureThatCannotEnd) {
  Context& c = *device_->context;
  const Address y = device_->allocate(1024);
  const StreamRef other = device_->make_stream("other");
  const EventRef fork = device_->make_event();
  ASSERT_OK(c.begin_capture(device_->stream));
  ASSERT_OK(c.fill(y, 1, 1024, device_->stream));
  ASSERT_OK(c.record(fork, device_->stream));
  ASSERT_OK(c.wait(other, fork));
  ASSERT_OK(c.fill(y, 2, 1024, other));
  GraphRef graph = nullptr;
  EXPECT_FALSE(c.end_capture(device_->stream, graph).ok());  // other was not waited for
  EXPECT_EQ(graph, nullptr);
  EXPECT_FALSE(c.end_capture(device_->stream, graph).ok());  // and none runs any more
  ASSERT_OK(c.fill(y, 7, 1024, device_->stream));
  EXPECT_EQ(device_->get<uint8_t>(y, 1)[0], 7);
}

}  // namespace
}  // namespace tandem::gpu
