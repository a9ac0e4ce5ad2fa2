// SPDX-License-Identifier: Apache-2.0
// The pool: blocks are used again in stream order, streams that share a block are waited for, what
// is counted is true, and out of memory is an error with names after which everything works.
#include "tandem/backend/gpu/pool.h"

#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tests/gpu/drivers_helper.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kPoolMiB = 1 << 20;

class PoolOverDrivers : public OverDrivers {
 protected:
  void SetUp() override {
    OverDrivers::SetUp();
    if (device_) pool_ = std::make_unique<Pool>(*device_->context, "test:0");
  }
  void TearDown() override { pool_.reset(); }  // before its context
  std::unique_ptr<Pool> pool_;
};
TD_OVER_DRIVERS(PoolOverDrivers);

TEST_P(PoolOverDrivers, OneStreamGetsItsBlocksBackAtOnce) {
  Pool& p = *pool_;
  const StreamRef s = device_->stream;
  const Address a = p.allocate(1000, s, "a");
  ASSERT_OK(device_->context->fill(a, 1, 1000, s));
  p.release(a);
  const Address b = p.allocate(900, s, "b");
  EXPECT_EQ(b, a);
  ASSERT_OK(device_->context->fill(b, 2, 900, s));
  const Address c = p.allocate(1, s, "c");
  EXPECT_NE(c, b);
  EXPECT_EQ(c % 256, 0u);
  EXPECT_EQ(device_->get<uint8_t>(b, 900), std::vector<uint8_t>(900, 2));
  p.release(b);
  p.release(c);
  EXPECT_EQ(p.stats().allocated, 0);
}

TEST_P(PoolOverDrivers, CountsWhatIsInUse) {
  Pool& p = *pool_;
  const StreamRef s = device_->stream;
  EXPECT_EQ(p.stats().reserved, 0);
  const Address a = p.allocate(0, s, "nothing"), b = p.allocate(513, s, "two units");
  const Address c = p.allocate(3 * kPoolMiB, s, "large");
  PoolStats stats = p.stats();
  EXPECT_EQ(stats.allocated, 512 + 1024 + 3 * kPoolMiB);
  EXPECT_EQ(stats.reserved, 22 * kPoolMiB);
  EXPECT_EQ(stats.blocks, 3);
  EXPECT_EQ(stats.segments, 2);
  EXPECT_EQ(stats.largest_free, 17 * kPoolMiB);
  const std::vector<std::pair<std::string, int64_t>> want = {
      {"large", 3 * kPoolMiB}, {"two units", 1024}, {"nothing", 512}};
  EXPECT_EQ(p.holders(), want);
  EXPECT_EQ(p.empty_cache(), 0);  // both segments are in use
  p.release(c);
  EXPECT_EQ(p.empty_cache(), 20 * kPoolMiB);
  p.release(a);
  p.release(b);
  stats = p.stats();
  EXPECT_EQ(stats.allocated, 0);
  EXPECT_EQ(stats.max_allocated, 512 + 1024 + 3 * kPoolMiB);
  EXPECT_EQ(stats.reserved, 2 * kPoolMiB);
  EXPECT_EQ(stats.max_reserved, 22 * kPoolMiB);
  EXPECT_EQ(stats.largest_free, 2 * kPoolMiB);  // pieces are one again
  EXPECT_EQ(stats.allocations, 3);
  p.reset_peaks();
  EXPECT_EQ(p.stats().max_allocated, 0);
  EXPECT_EQ(p.empty_cache(), 2 * kPoolMiB);
  EXPECT_EQ(p.stats().reserved, 0);
}

// What two streams do with one block; on the fake device the checker watches.
TEST_P(PoolOverDrivers, ASharedBlockWaitsForAllItsStreams) {
  Pool& p = *pool_;
  Context& c = *device_->context;
  const StreamRef s = device_->stream, other = device_->make_stream("other");
  const size_t bytes = 1 << 16;
  std::vector<uint8_t> seen(bytes);
  for (uint8_t round = 1; round < 20; ++round) {
    const Address a = p.allocate(bytes, s, "shared");
    ASSERT_OK(c.fill(a, round, bytes, s));
    const EventRef e = device_->make_event();
    ASSERT_OK(c.record(e, s));
    ASSERT_OK(c.wait(other, e));
    p.add_stream(a, other);
    ASSERT_OK(c.copy_out(seen.data(), a, bytes, other));
    p.release(a);  // other still reads
    const Address b = p.allocate(bytes, s, "next");
    EXPECT_EQ(b, a);
    ASSERT_OK(c.fill(b, 0xee, bytes, s));
    ASSERT_OK(c.synchronize());
    ASSERT_EQ(seen, std::vector<uint8_t>(bytes, round));
    p.release(b);
  }
}

TEST_P(PoolOverDrivers, AStreamThatIsDestroyedLeavesItsBlocks) {
  Pool& p = *pool_;
  Context& c = *device_->context;
  const StreamRef gone = device_->make_stream("gone");
  const Address a = p.allocate(4096, gone, "a");
  ASSERT_OK(c.fill(a, 1, 4096, gone));
  p.release(a);
  p.forget_stream(gone);
  ASSERT_OK(c.destroy_stream(gone));
  const Address b = p.allocate(4096, device_->stream, "b");
  EXPECT_EQ(b, a);
  EXPECT_EQ(p.stats().segments, 1);
  ASSERT_OK(c.fill(b, 2, 4096, device_->stream));
  EXPECT_EQ(device_->get<uint8_t>(b, 4096), std::vector<uint8_t>(4096, 2));
  p.release(b);
}

// ---- a device of 64 MiB

class SmallDevice : public testing::Test {
 protected:
  void SetUp() override {
    init();
    std::unique_ptr<FakeContext> made = open_fake({.bytes = 64 * kPoolMiB});
    fake_ = made.get();
    device_ = std::make_unique<Device>(std::move(made));
    pool_ = std::make_unique<Pool>(*fake_, "fake:0");
  }
  void TearDown() override { pool_.reset(); }
  FakeContext* fake_ = nullptr;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Pool> pool_;
};

TEST_F(SmallDevice, OutOfMemoryNamesTheLargestHoldersAndEverythingGoesOn) {
  Pool& p = *pool_;
  const StreamRef s = device_->stream;
  const Address a = p.allocate(40 * kPoolMiB, s, "encoder.0.weight");
  const Address b = p.allocate(12 * kPoolMiB, s, "gelu");
  const Address c = p.allocate(2 * kPoolMiB, s, "gelu");
  try {
    p.allocate(30 * kPoolMiB, s, "matmul");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Memory);
    EXPECT_EQ(e.message(),
              "out of memory on fake:0: 30.0 MB wanted for matmul, 10.0 MB of 64.0 MB are free. "
              "This process uses 54.0 MB in 3 blocks and keeps 0 B ready, in pieces of at most "
              "0 B. Largest holders: encoder.0.weight 40.0 MB, gelu 14.0 MB");
    EXPECT_EQ(e.hint(), "Use a smaller batch, or let go of tensors that are no longer needed");
  }
  EXPECT_EQ(p.stats().out_of_memory, 1);
  p.release(a);
  const Address d = p.allocate(30 * kPoolMiB, s, "matmul");
  ASSERT_OK(fake_->fill(d, 1, 30 * kPoolMiB, s));
  ASSERT_OK(fake_->synchronize());
  for (const Address x : {b, c, d}) p.release(x);
}

TEST_F(SmallDevice, BeforeItIsFullCachesAreGivenBack) {
  Pool& p = *pool_;
  const Address a = p.allocate(30 * kPoolMiB, device_->stream, "a");
  p.release(a);
  const Address b = p.allocate(50 * kPoolMiB, device_->stream, "b");  // only without a's segment
  EXPECT_EQ(p.stats().retries, 1);
  EXPECT_EQ(p.stats().reserved, 50 * kPoolMiB);
  p.release(b);
}

TEST_F(SmallDevice, BeforeItIsFullBlocksOfOtherStreamsAreTakenBehindAnEvent) {
  Pool& p = *pool_;
  const StreamRef other = device_->make_stream("other");
  const Address a = p.allocate(40 * kPoolMiB, device_->stream, "a");
  ASSERT_OK(fake_->fill(a, 1, 40 * kPoolMiB, device_->stream));
  p.release(a);
  const Address b = p.allocate(30 * kPoolMiB, other, "b");
  EXPECT_EQ(b, a);
  EXPECT_EQ(p.stats().from_other_streams, 1);
  EXPECT_EQ(p.stats().retries, 0);
  ASSERT_OK(fake_->fill(b, 2, 30 * kPoolMiB, other));
  const Address c = p.allocate(9 * kPoolMiB, device_->stream, "c");  // what is left of a
  EXPECT_EQ(c, a + 30 * kPoolMiB);
  ASSERT_OK(fake_->fill(c, 3, 9 * kPoolMiB, device_->stream));
  p.release(b);
  const Address d = p.allocate(30 * kPoolMiB, device_->stream, "d");  // at home again
  EXPECT_EQ(d, a);
  ASSERT_OK(fake_->fill(d, 4, 30 * kPoolMiB, device_->stream));
  ASSERT_OK(fake_->synchronize());
  p.release(c);
  p.release(d);
}

TEST_F(SmallDevice, ErrorsOfTheDriverLoseNoBlock) {
  Pool& p = *pool_;
  const StreamRef s = device_->stream, other = device_->make_stream("other");
  const Address kept = p.allocate(kPoolMiB, s, "kept");
  for (int i = 0; i < 100; ++i) {
    fake_->fail_after(Operation::allocate, 0, Code::driver);
    EXPECT_THROW(p.allocate(30 * kPoolMiB, s, "a"), Error);
    const Address a = p.allocate(30 * kPoolMiB, s, "a");
    p.add_stream(a, other);
    ASSERT_OK(fake_->fill(a, 1, kPoolMiB, s));
    fake_->fail_after(i % 2 ? Operation::create : Operation::record, 0, Code::driver);
    p.release(a);  // the mark fails, or its event
    const Address b = p.allocate(30 * kPoolMiB, s, "b");
    EXPECT_EQ(b, a);
    p.release(b);
    if (i % 2 == 1) {  // a failure that was not met is met here
      StreamRef none = nullptr;
      (void)fake_->create_stream("none", none);
    }
    p.empty_cache();
  }
  p.release(kept);
  p.empty_cache();
  EXPECT_EQ(p.stats().reserved, 0);
}

}  // namespace
}  // namespace tandem::gpu
