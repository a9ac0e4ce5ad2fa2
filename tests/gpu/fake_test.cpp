// SPDX-License-Identifier: Apache-2.0
// What the fake device finds: writes beside an allocation, barriers that some threads miss or a
// kernel lacks, memory that nobody wrote, and errors that are asked for.
#include <cmath>
#include <set>

#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tests/gpu/drivers_helper.h"

namespace tandem::gpu {
namespace {

class Fake : public testing::Test {
 protected:
  void SetUp() override {
    init();
    open({});
  }
  void open(const FakeOptions& options) {
    std::unique_ptr<FakeContext> made = open_fake(options);
    fake_ = made.get();
    device_ = std::make_unique<Device>(std::move(made));
  }
  KernelRef build(const KernelSource& source) {
    ModuleRef module = nullptr;
    fake_->build({&source, 1}, module).check();
    KernelRef k = nullptr;
    fake_->find(module, source.name, k).check();
    return k;
  }
  std::unique_ptr<Device> device_;
  FakeContext* fake_ = nullptr;
};

TEST_F(Fake, AWriteBesideAnAllocationIsNamed) {
  const KernelRef poke =
      build({"poke",
             {{Parameter::out, DType::u8, "y"}, {Parameter::value, DType::i64, "i"}},
             {},
             "y[i] = 1;"});
  const Address y = device_->allocate(100);
  struct Case {
    int64_t at;
    const char* text;
  };
  const Case cases[] = {
      {100, "kernel poke: byte 0 past the end of a block of 100 bytes"},
      {200, "kernel poke: byte 100 past the end of a block of 100 bytes"},
      {-1, "kernel poke: byte 1 before the start of a block of 100 bytes"},
  };
  for (const Case& k : cases) {
    ASSERT_OK(
        fake_->launch(poke, {}, {}, Arguments().address(y, 100).value(k.at), device_->stream));
    EXPECT_FAILS(fake_->synchronize(), launch, k.text);
    EXPECT_OK(fake_->synchronize());  // told once
  }
  ASSERT_OK(
      fake_->launch(poke, {}, {}, Arguments().address(y, 100).value(int64_t{99}), device_->stream));
  EXPECT_EQ(device_->get<uint8_t>(y, 100)[99], 1);
  ASSERT_OK(fake_->launch(poke, {}, {}, Arguments().address(y, 100).value(int64_t{100}),
                          device_->stream));
  EXPECT_OK(fake_->release(y));  // is not in the way of giving it back, and is told afterwards
  EXPECT_FAILS(fake_->synchronize(), launch, "kernel poke: byte 0 past the end");
}

TEST_F(Fake, RangesMustLieInOneAllocation) {
  const Address a = device_->allocate(1000);
  uint8_t host[2000] = {};
  EXPECT_FAILS(fake_->copy_in(a + 500, host, 600, device_->stream), bad_argument,
               "copy_in: 600 bytes from");
  EXPECT_FAILS(fake_->copy_out(host, a + 1000, 1, device_->stream), bad_argument,
               "copy_out: no allocation holds");
  EXPECT_FAILS(fake_->fill(12345, 0, 1, device_->stream), bad_argument, "no allocation holds");
  EXPECT_FAILS(fake_->copy(a + 10, a, 100, device_->stream), bad_argument, "overlap");
  EXPECT_FAILS(device_->launch("fill_f32", 300,
                               Arguments().address(a, 1200).value(0.0f).value(int64_t{300})),
               bad_argument, "kernel fill_f32, parameter y: 1200 bytes from");
  EXPECT_FAILS(fake_->release(a + 1), bad_argument, "no allocation begins");
  ASSERT_OK(fake_->release(a));
  EXPECT_FAILS(fake_->fill(a, 0, 1, device_->stream), bad_argument, "no allocation holds");
}

TEST_F(Fake, ABarrierThatSomeThreadsMiss) {
  const KernelRef k = build({"divergent",
                             {{Parameter::out, DType::i32, "y"}},
                             {},
                             "if (td_thread(x) < 3) td_barrier();\n  y[0] = 1;"});
  const Address y = device_->allocate(4);
  ASSERT_OK(fake_->launch(k, {}, {8}, Arguments().address(y, 4), device_->stream));
  EXPECT_FAILS(
      fake_->synchronize(), launch,
      "kernel divergent: 3 of 8 threads of a block wait at a barrier that the others never "
      "reach");
  ASSERT_OK(fake_->fill(y, 5, 4, device_->stream));
  EXPECT_EQ(device_->get<uint8_t>(y, 1)[0], 5);
}

// Neighbours hand values on through shared memory, with a barrier between or without.
KernelSource neighbours(bool barrier) {
  return {barrier ? "with_barrier" : "without_barrier",
          {{Parameter::out, DType::i32, "y"}},
          {{DType::i32, "s", 64}},
          std::string("const td_u32 t = td_thread(x);\n  s[t] = (td_i32)t;\n  ") +
              (barrier ? "td_barrier();" : "") + "\n  y[t] = s[(t + 1) % 64];"};
}

TEST_F(Fake, AMissingBarrierGivesAnotherResultWithAnotherSeed) {
  std::vector<int32_t> want(64);
  for (size_t i = 0; i < 64; ++i) want[i] = static_cast<int32_t>((i + 1) % 64);
  int wrong = 0;
  std::set<std::vector<int32_t>> results;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    open({.seed = seed});
    const Address y = device_->allocate(256);
    for (const bool barrier : {true, false}) {
      ASSERT_OK(fake_->launch(build(neighbours(barrier)), {}, {64}, Arguments().address(y, 256),
                              device_->stream));
      const std::vector<int32_t> got = device_->get<int32_t>(y, 64);
      if (barrier) {
        ASSERT_EQ(got, want) << seed;
      } else {
        wrong += got != want;
        results.insert(got);
      }
    }
  }
  EXPECT_EQ(wrong, 10);
  EXPECT_GT(results.size(), 5u);
}

TEST_F(Fake, WhatNobodyWroteIsNaN) {
  const Address a = device_->allocate(64);
  for (const float v : device_->get<float>(a, 16)) EXPECT_TRUE(std::isnan(v));
  const KernelRef k = build({"shared_before",
                             {{Parameter::out, DType::f32, "y"}},
                             {{DType::f32, "s", 4}},
                             "y[td_block(x)] = s[3];\n  s[3] = 1;"});
  ASSERT_OK(fake_->launch(k, {2}, {}, Arguments().address(a, 64), device_->stream));
  for (const float v : device_->get<float>(a, 2)) EXPECT_TRUE(std::isnan(v));
}

TEST_F(Fake, StreamsRunInAnOrderOfTheirOwn) {
  std::set<uint8_t> last;
  for (uint64_t seed = 1; seed <= 64 && last.size() < 2; ++seed) {
    open({.seed = seed, .checks_waits = false});
    const StreamRef other = device_->make_stream("other");
    const Address a = device_->allocate(1);
    for (int i = 0; i < 20; ++i) {
      ASSERT_OK(fake_->fill(a, 1, 1, device_->stream));
      ASSERT_OK(fake_->fill(a, 2, 1, other));
    }
    last.insert(device_->get<uint8_t>(a, 1)[0]);
  }
  EXPECT_EQ(last, (std::set<uint8_t>{1, 2}));
}

TEST_F(Fake, WorkIsDoneLater) {
  const EventRef e = device_->make_event();
  const Address a = device_->allocate(1 << 20);
  int later = 0;
  for (int i = 0; i < 200; ++i) {
    for (int k = 0; k < 10; ++k) ASSERT_OK(fake_->fill(a, 1, 1 << 20, device_->stream));
    ASSERT_OK(fake_->record(e, device_->stream));
    later += fake_->query(e).code() == Code::not_ready;
    ASSERT_OK(fake_->synchronize_event(e));
    ASSERT_OK(fake_->query(e));
  }
  EXPECT_GT(later, 0);
}

// ---- errors that are asked for

// A program with every kind of call; gives back all that it made, whatever fails.
Status run_program(FakeContext& c) {
  Address at = 0;
  void* pinned = nullptr;
  StreamRef stream = nullptr;
  EventRef event = nullptr;
  ModuleRef module = nullptr;
  GraphRef graph = nullptr;
  const auto work = [&]() -> Status {
    TD_GPU_TRY(c.create_stream("work", stream));
    TD_GPU_TRY(c.create_event(event));
    TD_GPU_TRY(c.allocate(4096, at));
    TD_GPU_TRY(c.allocate_host(4096, pinned));
    const KernelSource source = fill_kernel(DType::f32);
    TD_GPU_TRY(c.build({&source, 1}, module));
    KernelRef k = nullptr;
    TD_GPU_TRY(c.find(module, source.name, k));
    const Arguments fill = Arguments().address(at, 4096).value(1.5f).value(int64_t{1024});
    TD_GPU_TRY(c.launch(k, {8}, {128}, fill, stream));
    TD_GPU_TRY(c.record(event, stream));
    TD_GPU_TRY(c.wait(stream, event));
    TD_GPU_TRY(c.begin_capture(stream));
    const Status captured = c.launch(k, {8}, {128}, fill, stream);
    TD_GPU_TRY(c.end_capture(stream, graph));
    TD_GPU_TRY(captured);
    TD_GPU_TRY(c.replay(graph, stream));
    TD_GPU_TRY(c.copy_out(pinned, at, 4096, stream));
    TD_GPU_TRY(c.synchronize_stream(stream));
    if (static_cast<float*>(pinned)[1023] != 1.5f) return {Code::driver, "another value"};
    return {};
  };
  const Status status = work();
  if (graph) EXPECT_OK(c.destroy_graph(graph));
  if (module) EXPECT_OK(c.unload(module));
  if (event) EXPECT_OK(c.destroy_event(event));
  if (stream) EXPECT_OK(c.destroy_stream(stream));
  if (pinned) EXPECT_OK(c.release_host(pinned));
  if (at) EXPECT_OK(c.release(at));
  return status;
}

TEST_F(Fake, AThousandErrorsAndTheDeviceGoesOnWorking) {
  const Operation operations[] = {Operation::allocate, Operation::allocate_host, Operation::create,
                                  Operation::copy,     Operation::launch,        Operation::build,
                                  Operation::record,   Operation::capture,       Operation::replay};
  const Code codes[] = {Code::out_of_memory, Code::driver, Code::launch};
  const int64_t before = fake_->live_objects();
  ASSERT_OK(run_program(*fake_));
  int errors = 0;
  for (int i = 0; errors < 1000; ++i) {
    const Operation operation = operations[i % 9];
    const bool two = operation == Operation::create || operation == Operation::launch ||
                     operation == Operation::record || operation == Operation::capture;
    const Code code = codes[i % 3];
    fake_->fail_after(operation, two ? i / 9 % 2 : 0, code);
    const Status status = run_program(*fake_);
    ASSERT_EQ(status.code(), code) << i << ": " << status.text();
    ASSERT_NE(status.text().find("injected"), std::string::npos) << status.text();
    ++errors;
    ASSERT_EQ(fake_->live_objects(), before) << i;
  }
  EXPECT_OK(run_program(*fake_));
}

TEST_F(Fake, ALostDeviceStaysLost) {
  const Address a = device_->allocate(64);
  fake_->fail_after(Operation::launch, 1, Code::lost);
  const Arguments fill = Arguments().address(a, 64).value(1.0f).value(int64_t{16});
  EXPECT_OK(device_->launch("fill_f32", 16, fill));
  EXPECT_FAILS(device_->launch("fill_f32", 16, fill), lost, "injected");
  EXPECT_FAILS(device_->launch("fill_f32", 16, fill), lost, "the device is lost");
  EXPECT_FAILS(fake_->synchronize(), lost, "open it again");
  Address b = 0;
  EXPECT_FAILS(fake_->allocate(1, b), lost, "open it again");
  open({});
  EXPECT_OK(run_program(*fake_));
}

TEST_F(Fake, ObjectsThatAreGoneAreRecognised) {
  const StreamRef s = device_->make_stream("short");
  const EventRef e = device_->make_event();
  ASSERT_OK(fake_->destroy_stream(s));
  ASSERT_OK(fake_->destroy_event(e));
  EXPECT_FAILS(fake_->destroy_stream(s), bad_argument, "no such stream");
  EXPECT_FAILS(fake_->record(e, device_->stream), bad_argument, "no such event");
  EXPECT_FAILS(fake_->wait(s, e), bad_argument, "no such stream");
  EXPECT_FAILS(fake_->replay(nullptr, device_->stream), bad_argument, "no such graph");
  EXPECT_FAILS(fake_->unload(nullptr), bad_argument, "no such module");
  EXPECT_FAILS(fake_->launch(nullptr, {}, {}, {}, device_->stream), bad_argument, "no such kernel");
}

TEST(StatusKinds, AreErrorsOfTheirKind) {
  const struct {
    Code code;
    ErrorKind kind;
  } rows[] = {{Code::unavailable, ErrorKind::Unsupported}, {Code::bad_argument, ErrorKind::Value},
              {Code::out_of_memory, ErrorKind::Memory},    {Code::build, ErrorKind::Device},
              {Code::launch, ErrorKind::Device},           {Code::lost, ErrorKind::Device}};
  for (const auto& row : rows) {
    try {
      Status(row.code, "words").check();
      FAIL() << to_string(row.code);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), row.kind) << to_string(row.code);
      EXPECT_EQ(e.message(), "words");
    }
  }
  Status().check();
}

}  // namespace
}  // namespace tandem::gpu
