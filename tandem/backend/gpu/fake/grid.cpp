// SPDX-License-Identifier: Apache-2.0
// Fibers are ucontext's, each with a stack of its own; the stacks are mapped once per launch. A
// fiber that never comes back from its barrier is left behind: there is only C above it.
#include "tandem/backend/gpu/fake/grid_internal.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstring>
#include <memory>
#include <numeric>

#include "tandem/backend/gpu/fake/random_internal.h"

namespace tandem::gpu {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

struct Fiber {
  GridThread self{};  // first: the barrier gets its address
  ucontext_t context{};
  ucontext_t* scheduler = nullptr;
  const GridLaunch* launch = nullptr;
  enum State : uint8_t { running, at_meeting, at_barrier, done } state = running;
};

void call(const GridLaunch& launch, GridThread& self) {
  std::vector<void*> slots = launch.slots;
  slots[0] = &self;
  launch.code(slots.data(), 0);
}

void leave(GridThread* self, Fiber::State state) {
  Fiber* f = reinterpret_cast<Fiber*>(self);
  f->state = state;
  swapcontext(&f->context, f->scheduler);
}
void reach_barrier(GridThread* self) { leave(self, Fiber::at_barrier); }
void reach_meeting(GridThread* self) { leave(self, Fiber::at_meeting); }

// makecontext() passes numbers of 32 bits.
void enter_fiber(unsigned high, unsigned low) {
  Fiber* f = reinterpret_cast<Fiber*>(uint64_t{high} << 32 | low);
  call(*f->launch, f->self);
  leave(&f->self, Fiber::done);
}

class Stacks {
 public:
  explicit Stacks(size_t count) : bytes_(count * kStackBytes) {
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Stacks() {
    if (good()) munmap(base_, bytes_);
  }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  bool good() const { return base_ != MAP_FAILED; }
  char* of(size_t i) const { return static_cast<char*>(base_) + i * kStackBytes; }

 private:
  size_t bytes_;
  void* base_;
};

class Grid {
 public:
  Grid(const GridLaunch& launch, uint64_t seed)
      : launch_(launch),
        random_(seed),
        threads_(static_cast<size_t>(launch.threads.count())),
        together_(launch.warps ? size_t{kWarp} : 1),
        shared_(launch.shared_bytes + 1),
        lanes_(launch.warps ? threads_ * kLaneBytes : 0),
        order_((threads_ + together_ - 1) / together_),
        stacks_(launch.has_barrier ? threads_ : 1) {
    std::iota(order_.begin(), order_.end(), size_t{0});
    if (launch.has_barrier) fibers_ = std::make_unique<Fiber[]>(threads_);
  }

  std::string run() {
    if (!stacks_.good()) return "there is no memory for the stacks of the emulated threads";
    std::vector<int64_t> blocks(static_cast<size_t>(launch_.blocks.count()));
    std::iota(blocks.begin(), blocks.end(), int64_t{0});
    random_.shuffle(blocks);
    for (const int64_t b : blocks) {
      std::memset(shared_.data(), 0xff, shared_.size());  // NaN
      random_.shuffle(order_);
      const std::string problem = launch_.has_barrier ? run_fibers(b) : run_loop(b);
      if (!problem.empty()) return problem;
    }
    return "";
  }

 private:
  static Extent at(int64_t i, Extent size) {
    const auto n = static_cast<uint64_t>(i);
    return {static_cast<uint32_t>(n % size.x), static_cast<uint32_t>(n / size.x % size.y),
            static_cast<uint32_t>(n / size.x / size.y)};
  }
  GridThread thread(int64_t block, size_t i) {
    return {at(static_cast<int64_t>(i), launch_.threads),
            at(block, launch_.blocks),
            launch_.threads,
            launch_.blocks,
            shared_.data(),
            reach_barrier,
            lanes_.data(),
            reach_meeting,
            0};
  }

  std::string run_loop(int64_t block) {
    for (const size_t i : order_) {
      GridThread self = thread(block, i);
      call(launch_, self);
    }
    return "";
  }

  std::string run_fibers(int64_t block) {
    for (size_t i = 0; i < threads_; ++i) {
      Fiber& f = fibers_[i];
      f.self = thread(block, i);
      f.launch = &launch_;
      f.scheduler = &scheduler_;
      f.state = Fiber::running;
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = stacks_.of(i);
      f.context.uc_stack.ss_size = kStackBytes;
      f.context.uc_link = nullptr;
      const uint64_t self = reinterpret_cast<uint64_t>(&f);
      makecontext(&f.context, reinterpret_cast<void (*)()>(enter_fiber), 2,
                  static_cast<unsigned>(self >> 32), static_cast<unsigned>(self));
    }
    for (size_t done = 0; done == 0;) {
      for (const size_t i : order_) {
        if (!run_together(i * together_, done)) {
          return "lanes of a warp meet, and others of it wait at a barrier or have ended";
        }
      }
      if (done != 0 && done != threads_) {
        return fmt::format(
            "{} of {} threads of a block wait at a barrier that the others never reach",
            threads_ - done, threads_);
      }
      random_.shuffle(order_);
    }
    return "";
  }

  // The threads from `first` on that run as one, from meeting to meeting, to the next barrier or
  // their end. False: not all of them meet.
  bool run_together(size_t first, size_t& done) {
    const size_t count = std::min(together_, threads_ - first);
    for (size_t meeting = count; meeting == count;) {
      meeting = 0;
      const size_t turn = count > 1 ? random_.below(count) : 0;
      for (size_t i = 0; i < count; ++i) {
        Fiber& f = fibers_[first + (i + turn) % count];
        swapcontext(&scheduler_, &f.context);
        meeting += f.state == Fiber::at_meeting;
        done += f.state == Fiber::done;
      }
      if (meeting != 0 && meeting != count) return false;
    }
    return true;
  }

  static constexpr size_t kLaneBytes = 64;  // twice those of a meeting

  const GridLaunch& launch_;
  Random random_;
  size_t threads_, together_;
  std::vector<char> shared_, lanes_;
  std::vector<size_t> order_;
  Stacks stacks_;
  std::unique_ptr<Fiber[]> fibers_;
  ucontext_t scheduler_{};
};

}  // namespace

std::string run_grid(const GridLaunch& launch, uint64_t seed) { return Grid(launch, seed).run(); }

}  // namespace tandem::gpu
