// SPDX-License-Identifier: Apache-2.0
// Random programs over pool and streams: blocks are made and dropped on four streams, are filled,
// copied and read with the waits that are needed and no others, and hold what they should. On the
// fake device the happens-before checker sees every step; there the same programs with a wait left
// out are reported.
#include <random>

#include "tandem/backend/gpu/fake/fake_driver.h"
#include "tandem/backend/gpu/pool.h"
#include "tests/gpu/drivers_helper.h"
#include "tests/support/errors.h"

namespace tandem::gpu {
namespace {

constexpr size_t kStreams = 4, kMostBlocks = 48;

class Program {
 public:
  Program(Device& device, uint64_t seed)
      : device_(device), pool_(*device.context, "fuzz:0"), random_(seed) {
    for (size_t i = 0; i < kStreams; ++i) {
      streams_.push_back(device.make_stream("stream " + std::to_string(i)));
      events_.push_back(device.make_event());
    }
  }
  ~Program() {
    (void)device_.context->synchronize();
    for (const Block& b : blocks_) pool_.release(b.at);
  }

  void step() {
    const size_t kind = below(10);
    if (blocks_.empty() || (kind < 3 && blocks_.size() < kMostBlocks)) return make();
    if (kind < 5) return write(pick());
    if (kind < 7 && blocks_.size() > 1) return copy(pick(), pick());
    if (kind < 8) return read(pick());
    if (kind < 9 && below(50) == 0) pool_.empty_cache();
    return drop(below(blocks_.size()));
  }
  /// From here on no stream waits for another.
  void leave_out_waits() { careless_ = true; }
  PoolStats stats() const { return pool_.stats(); }

 private:
  struct Block {
    Address at;
    size_t bytes;
    uint8_t value;        // of every byte
    size_t owner;         // stream of the allocation
    size_t writer;        // stream that wrote last
    bool used[kStreams];  // read or written there since
  };

  size_t below(size_t n) { return random_() % n; }
  Block& pick() { return blocks_[below(blocks_.size())]; }

  // `stream` continues after what `from` has queued.
  void wait(size_t stream, size_t from) {
    if (stream == from || careless_) return;
    device_.context->record(events_[from], streams_[from]).check();
    device_.context->wait(streams_[stream], events_[from]).check();
  }
  void use(Block& b, size_t stream) {
    b.used[stream] = true;
    if (stream != b.owner) pool_.add_stream(b.at, streams_[stream]);
  }
  void before_write(Block& b, size_t stream) {
    for (size_t s = 0; s < kStreams; ++s) {
      if (b.used[s]) wait(stream, s);
      b.used[s] = false;
    }
    b.writer = stream;
    use(b, stream);
  }
  void before_read(Block& b, size_t stream) {
    wait(stream, b.writer);
    use(b, stream);
  }

  void make() {
    constexpr size_t kSizes[] = {1, 200, 512, 5000, 70000, 1 << 20, (1 << 20) + 1, 3 << 20};
    const size_t bytes = kSizes[below(below(4) ? 5 : 8)], owner = below(kStreams);
    Block b{pool_.allocate(bytes, streams_[owner], "fuzz"), bytes, 0, owner, owner, {}};
    blocks_.push_back(b);
    write(blocks_.back(), owner);
  }
  void write(Block& b) { write(b, below(kStreams)); }
  void write(Block& b, size_t stream) {
    before_write(b, stream);
    b.value = static_cast<uint8_t>(below(256));
    device_.context->fill(b.at, b.value, b.bytes, streams_[stream]).check();
  }
  void copy(Block& to, Block& from) {
    if (&to == &from || from.bytes < to.bytes) return;
    const size_t stream = below(kStreams);
    before_read(from, stream);
    before_write(to, stream);
    to.value = from.value;
    device_.context->copy(to.at, from.at, to.bytes, streams_[stream]).check();
  }
  void read(Block& b) {
    const size_t stream = below(kStreams);
    before_read(b, stream);
    std::vector<uint8_t> bytes(std::min<size_t>(b.bytes, 5000));
    device_.context
        ->copy_out(bytes.data(), b.at + b.bytes - bytes.size(), bytes.size(), streams_[stream])
        .check();
    device_.context->synchronize_stream(streams_[stream]).check();
    EXPECT_EQ(bytes, std::vector<uint8_t>(bytes.size(), b.value));
  }
  void drop(size_t i) {
    pool_.release(blocks_[i].at);
    blocks_[i] = blocks_.back();
    blocks_.pop_back();
  }

  Device& device_;
  Pool pool_;
  std::mt19937_64 random_;
  std::vector<StreamRef> streams_;
  std::vector<EventRef> events_;
  std::vector<Block> blocks_;
  bool careless_ = false;
};

TEST(Fuzz, TenThousandStepsOnTheFakeDevice) {
  init();
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Device device(open_fake({.bytes = 96 << 20, .seed = seed}));
    Program program(device, seed);
    for (int i = 0; i < 1000 && !testing::Test::HasFailure(); ++i) program.step();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    EXPECT_GT(program.stats().allocations, 100);
  }
}

TEST(Fuzz, ProgramsWithoutWaitsAreReported) {
  init();
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Device device(open_fake({.seed = seed}));
    Program program(device, seed);
    for (int i = 0; i < 100; ++i) program.step();
    program.leave_out_waits();
    const std::string text = thrown([&] {
      for (int i = 0; i < 300; ++i) program.step();
    });
    EXPECT_TRUE(has(text, "missing wait: ")) << seed << ": " << text;
  }
}

class FuzzOverDrivers : public OverDrivers {};
TD_OVER_DRIVERS(FuzzOverDrivers);

TEST_P(FuzzOverDrivers, ATenthOfThemOnEveryDriver) {
  Program program(*device_, 11);
  for (int i = 0; i < 1000 && !HasFailure(); ++i) program.step();
}

}  // namespace
}  // namespace tandem::gpu
