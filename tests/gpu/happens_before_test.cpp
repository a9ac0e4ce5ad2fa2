// SPDX-License-Identifier: Apache-2.0
// The happens-before checker: a planted missing wait is reported with both operations, whatever
// order the streams really ran in, and every way to wait that is enough keeps it quiet.
#include <functional>

#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tests/gpu/drivers_helper.h"

namespace tandem::gpu {
namespace {

class HappensBeforeChecker : public testing::Test {
 protected:
  void SetUp() override {
    init();
    device_ = std::make_unique<Device>(open_fake({}));
    other_ = device_->make_stream("other");
    third_ = device_->make_stream("third");
    a_ = device_->allocate(1024);
    b_ = device_->allocate(1024);
  }
  Context& context() { return *device_->context; }
  StreamRef main() { return device_->stream; }
  void order(StreamRef from, StreamRef to) {
    const EventRef e = device_->make_event();
    context().record(e, from).check();
    context().wait(to, e).check();
  }
  Status fill_kernel_on(Address at, StreamRef stream) {
    return device_->launch("fill_f32", 256,
                           Arguments().address(at, 1024).value(1.0f).value(int64_t{256}), stream);
  }
  std::unique_ptr<Device> device_;
  StreamRef other_ = nullptr, third_ = nullptr;
  Address a_ = 0, b_ = 0;
  uint8_t host_[1024] = {};
};

TEST_F(HappensBeforeChecker, NamesBothOperations) {
  ASSERT_OK(fill_kernel_on(a_, main()));
  EXPECT_FAILS(
      context().copy_out(host_, a_, 1024, other_), missing_wait,
      "missing wait: copy_out of 1024 bytes (number 1 of stream other) reads bytes that are "
      "written by kernel fill_f32 (number 1 of stream main). Record an event in main after "
      "that, and wait for it first");
  order(main(), other_);
  EXPECT_OK(context().copy_out(host_, a_, 1024, other_));
  EXPECT_FAILS(
      fill_kernel_on(a_, main()), missing_wait,
      "kernel fill_f32 (number 2 of stream main) writes bytes that are read by copy_out of "
      "1024 bytes (number 1 of stream other)");
}

// Each plants one conflict between main and other; whether a wait between them is needed.
TEST_F(HappensBeforeChecker, FindsEachKindOfConflict) {
  struct Case {
    const char* name;
    std::function<Status(StreamRef)> first, second;
    bool conflict;
  };
  Context& c = context();
  const auto fill = [&](Address at, size_t bytes) {
    return [&c, at, bytes](StreamRef s) { return c.fill(at, 1, bytes, s); };
  };
  const auto read = [&](Address at, size_t bytes, size_t to = 0) {
    return [&c, at, bytes, p = host_ + to](StreamRef s) { return c.copy_out(p, at, bytes, s); };
  };
  const Case cases[] = {
      {"write, write", fill(a_, 1024), fill(a_, 1024), true},
      {"write, read", fill(a_, 1024), read(a_, 1024), true},
      {"read, write", read(a_, 1024), fill(a_, 1024), true},
      {"read, read", read(a_, 512), read(a_, 512, 512), false},
      {"other bytes", fill(a_, 512), fill(a_ + 512, 512), false},
      {"one byte in common", fill(a_, 513), fill(a_ + 512, 512), true},
      {"inside", fill(a_, 1024), read(a_ + 100, 1), true},
      {"around", fill(a_ + 100, 1), read(a_, 1024), true},
      {"other memory", fill(a_, 1024), fill(b_, 1024), false},
      {"the host's memory", read(a_, 512), read(b_, 512), true},
  };
  for (const Case& k : cases) {
    for (const bool wait : {false, true}) {
      ASSERT_OK(c.synchronize());
      ASSERT_OK(k.first(main()));
      if (wait) order(main(), other_);
      const Status status = k.second(other_);
      EXPECT_EQ(status.code(), k.conflict && !wait ? Code::missing_wait : Code::ok)
          << k.name << ": " << status.text();
    }
  }
}

TEST_F(HappensBeforeChecker, KnowsEveryWayToWait) {
  Context& c = context();
  const EventRef e = device_->make_event();
  struct Case {
    const char* name;
    std::function<void()> wait;
    bool enough;
  };
  const Case cases[] = {
      {"an event", [&] { order(main(), other_); }, true},
      {"two events by way of a third stream", [&] { order(main(), third_), order(third_, other_); },
       true},
      {"the host waits for the stream", [&] { c.synchronize_stream(main()).check(); }, true},
      {"the host waits for all", [&] { c.synchronize().check(); }, true},
      {"the host waits for an event",
       [&] {
         c.record(e, main()).check();
         c.synchronize_event(e).check();
       },
       true},
      {"the host asks until it has happened",
       [&] {
         c.record(e, main()).check();
         while (!c.query(e).ok()) {}
       },
       true},
      {"nothing", [] {}, false},
      {"an event of the wrong stream", [&] { order(third_, other_); }, false},
      {"the other direction", [&] { order(other_, main()); }, false},
      {"the host waits for another stream", [&] { c.synchronize_stream(third_).check(); }, false},
  };
  for (const Case& k : cases) {
    ASSERT_OK(c.synchronize());
    ASSERT_OK(c.fill(a_, 1, 1024, main()));
    k.wait();
    EXPECT_EQ(c.fill(a_, 2, 1024, other_).code(), k.enough ? Code::ok : Code::missing_wait)
        << k.name;
  }
}

TEST_F(HappensBeforeChecker, AnEventRecordedTooEarlyIsNotEnough) {
  Context& c = context();
  const EventRef e = device_->make_event();
  ASSERT_OK(c.record(e, main()));
  ASSERT_OK(c.fill(a_, 1, 1024, main()));
  ASSERT_OK(c.wait(other_, e));
  EXPECT_FAILS(c.fill(a_, 2, 1024, other_), missing_wait, "fill of 1024 bytes");
}

TEST_F(HappensBeforeChecker, MemoryThatIsAllocatedAgainHasNoHistory) {
  Context& c = context();
  for (int i = 0; i < 20; ++i) {
    const Address at = device_->allocate(4096);
    ASSERT_OK(c.fill(at, 1, 4096, i % 2 ? main() : other_));
    ASSERT_OK(c.release(at));
  }
}

TEST_F(HappensBeforeChecker, GraphsAreCheckedInsideAndAsAWhole) {
  Context& c = context();
  for (const bool wait : {true, false}) {
    const EventRef fork = device_->make_event(), join = device_->make_event();
    ASSERT_OK(c.begin_capture(main()));
    ASSERT_OK(c.record(fork, main()));
    ASSERT_OK(c.wait(other_, fork));
    ASSERT_OK(c.fill(a_, 1, 1024, main()));
    if (wait) order(main(), other_);
    ASSERT_OK(c.copy(b_, a_, 1024, other_));
    ASSERT_OK(c.record(join, other_));
    ASSERT_OK(c.wait(main(), join));
    GraphRef graph = nullptr;
    const Status status = c.end_capture(main(), graph);
    if (!wait) {
      EXPECT_FAILS(status, missing_wait, "copy of 1024 bytes");
      EXPECT_NE(status.text().find("written by fill of 1024 bytes"), std::string::npos);
      continue;
    }
    ASSERT_OK(status);
    ASSERT_OK(c.replay(graph, main()));
    EXPECT_FAILS(c.copy_out(host_, b_, 1024, other_), missing_wait,
                 "written by a graph of 2 steps (number 1 of stream main)");
    EXPECT_OK(c.copy_out(host_, b_, 1024, main()));
    ASSERT_OK(c.synchronize());
    EXPECT_EQ(host_[1023], 1);
  }
}

}  // namespace
}  // namespace tandem::gpu
