// SPDX-License-Identifier: Apache-2.0
// The thread pool behind parallel_for: one per process, created at the first region. The caller of
// a region takes the chunks that no worker has started, so a worker that sleeps, was descheduled or
// does not exist costs only speed; the caller waits for started chunks only. A second simultaneous
// caller, and a forked child until it creates its own pool, run on their own thread.
#include "tandem/base/parallel.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>

#include "tandem/base/cpu_count.h"
namespace tandem {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kNoLimit = std::numeric_limits<int>::max();

thread_local int t_limit = kNoLimit;
thread_local bool t_in_region = false;

// Leading integer of an environment variable ("4,2" is 4); 0 when absent or not a count.
int env_threads(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return 0;
  char* rest = nullptr;
  const long n = std::strtol(text, &rest, 10);
  const bool ends_well = rest != text && (*rest == '\0' || *rest == ',' || *rest == ' ');
  return ends_well && n > 0 ? static_cast<int>(std::min<long>(n, kMaxThreads)) : 0;
}

int default_threads() {
  if (int n = env_threads("TANDEM_NUM_THREADS")) return n;
  if (int n = env_threads("OMP_NUM_THREADS")) return n;
  return std::min(cpu_count(), kMaxThreads);
}

std::atomic<int>& global_threads() {
  static std::atomic<int> count{default_threads()};
  return count;
}

// One call of parallel_for: the range in `chunks` near-equal parts, longer ones first.
struct Region {
  int64_t begin, size, chunks;
  detail::ChunkFn fn;
  void* context;
  std::mutex error_lock;
  std::exception_ptr error;
  int64_t error_chunk = std::numeric_limits<int64_t>::max();

  Region(int64_t first, int64_t n, int64_t parts, detail::ChunkFn f, void* c)
      : begin(first), size(n), chunks(parts), fn(f), context(c) {}

  int64_t chunk_begin(int64_t i) const {
    return begin + i * (size / chunks) + std::min(i, size % chunks);
  }

  void run_chunk(int64_t i) noexcept {
    const bool outer = t_in_region;
    t_in_region = true;
    try {
      fn(context, chunk_begin(i), chunk_begin(i + 1));
    } catch (...) {
      std::lock_guard<std::mutex> hold(error_lock);
      if (i < error_chunk) {
        error_chunk = i;
        error = std::current_exception();
      }
    }
    t_in_region = outer;
  }
};

inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until `ready` holds or `limit` has passed; returns whether it held. The clock is read
// rarely: reading it costs as much as a few pauses.
template <class F>
bool spin(std::chrono::nanoseconds limit, F&& ready) {
  constexpr int kLook = 32;
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    for (int i = 0; i < kLook; ++i) {
      if (ready()) return true;
      pause_core();
    }
    if (std::chrono::steady_clock::now() - start > limit) return ready();
  }
}

void futex_wait(uint32_t* word, uint32_t seen) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futex_wake(uint32_t* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}
uint32_t* futex(std::atomic<uint32_t>& word) { return reinterpret_cast<uint32_t*>(&word); }
// The half of a 64-bit atomic that changes most.
uint32_t* futex(std::atomic<uint64_t>& word) {
  return reinterpret_cast<uint32_t*>(&word) + (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? 0 : 1);
}

class Pool {
 public:
  /// The pool of this process; never destroyed, because its workers are detached.
  static Pool& instance() {
    Pool* pool = current.load(std::memory_order_acquire);
    return pool ? *pool : make();
  }

  void run(Region& region) {
    if (busy_.load(std::memory_order_relaxed) || busy_.exchange(true, std::memory_order_acquire)) {
      for (int64_t i = 0; i < region.chunks; ++i) region.run_chunk(i);
      return;
    }
    const auto count = static_cast<int>(region.chunks);
    if (workers_ < count - 1 && !refused_) start(count - 1);
    region_ = &region;
    ++epoch_;
    word_.store(epoch_ << kCountBits | static_cast<uint64_t>(count), std::memory_order_seq_cst);
    for (int i = 1; i < count; ++i) wake(slots_[i]);
    region.run_chunk(0);
    for (int i = count; --i > 0;)  // the last are woken last
      if (claim(epoch_, i)) {
        region.run_chunk(i);
        slots_[i].state.store(epoch_ << kStateBits | kDone, std::memory_order_relaxed);
      }
    for (int i = 1; i < count; ++i) wait_for(i);
    busy_.store(false, std::memory_order_release);
  }

 private:
  static constexpr int kCountBits = 11, kStateBits = 2;
  static constexpr uint64_t kClaimed = 1, kAwaited = 2, kDone = 3;
  static constexpr std::chrono::microseconds kWorkerSpins{120}, kCallerSpins{60};
  static_assert(kMaxThreads < 1 << kCountBits);

  // Chunk i and worker i.
  struct alignas(64) Slot {
    // The number of the last region in which the chunk was started, and its state. A claim can only
    // succeed while its region lives: all chunks of a finished region are claimed.
    std::atomic<uint64_t> state{0};
    std::atomic<uint32_t> asleep{0};
  };

  static std::atomic<Pool*> current;

  static Pool& make() {
    static std::once_flag once;
    std::call_once(once, [] {
      // A child has none of the workers; it creates a pool of its own when it needs one.
      pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
    });
    auto* fresh = new Pool;
    Pool* expected = nullptr;
    if (current.compare_exchange_strong(expected, fresh)) return *fresh;
    delete fresh;
    return *expected;
  }

  void start(int wanted) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);  // signals are for the program's own threads
    try {
      while (workers_ < wanted) {
        std::thread([this, w = workers_ + 1] { work(w); }).detach();
        ++workers_;
      }
    } catch (const std::system_error&) {
      refused_ = true;  // no more threads available: the existing ones do the work
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  bool claim(uint64_t epoch, int i) {
    uint64_t seen = slots_[i].state.load(std::memory_order_relaxed);
    return seen < epoch << kStateBits &&
           slots_[i].state.compare_exchange_strong(seen, epoch << kStateBits | kClaimed,
                                                   std::memory_order_acq_rel);
  }

  bool run_if_free(uint64_t epoch, int i) {
    if (!claim(epoch, i)) return false;
    region_->run_chunk(i);
    std::atomic<uint64_t>& state = slots_[i].state;
    const uint64_t before = state.exchange(epoch << kStateBits | kDone, std::memory_order_acq_rel);
    if ((before & kDone) == kAwaited) futex_wake(futex(state));
    return true;
  }

  void wait_for(int i) {
    std::atomic<uint64_t>& state = slots_[i].state;
    auto done = [&] { return (state.load(std::memory_order_acquire) & kDone) == kDone; };
    while (!spin(kCallerSpins, done)) {
      uint64_t seen = epoch_ << kStateBits | kClaimed;
      const uint64_t awaited = epoch_ << kStateBits | kAwaited;
      if (state.compare_exchange_strong(seen, awaited) || seen == awaited)
        futex_wait(futex(state), static_cast<uint32_t>(awaited));
    }
  }

  [[noreturn]] void work(int self) {
    pthread_setname_np(pthread_self(), "tandem");
    uint64_t seen = 0;
    bool useful = true;
    for (;;) {
      seen = next_word(seen, slots_[self], useful);
      const auto count = static_cast<int>(seen & ((1u << kCountBits) - 1));
      const uint64_t epoch = seen >> kCountBits;
      useful = self < count;  // a smaller team than before: sleep, wake only for larger ones
      if (!useful) continue;
      run_if_free(epoch, self);  // may have the chunk's data of the last region in its cache
      for (int i = 1; i < count; ++i) run_if_free(epoch, 1 + (self + i - 1) % (count - 1));
    }
  }

  // Waits for a word other than `seen`, first spinning, then asleep until somebody calls wake().
  uint64_t next_word(uint64_t seen, Slot& own, bool awake) {
    auto changed = [&] { return word_.load(std::memory_order_seq_cst) != seen; };
    while (!changed()) {
      if (awake && spin(kWorkerSpins, changed)) break;
      own.asleep.store(1, std::memory_order_seq_cst);
      // Either this sees the caller's word, or the caller sees `asleep`.
      if (changed()) {
        own.asleep.store(0, std::memory_order_relaxed);
        break;
      }
      while (own.asleep.load(std::memory_order_acquire)) futex_wait(futex(own.asleep), 1);
    }
    return word_.load(std::memory_order_acquire);
  }

  static void wake(Slot& slot) {
    if (!slot.asleep.load(std::memory_order_seq_cst)) return;
    slot.asleep.store(0, std::memory_order_release);
    futex_wake(futex(slot.asleep));
  }

  alignas(64) std::atomic<uint64_t> word_{0};  // number of the region, its chunks
  Region* region_ = nullptr;                   // belongs to the number in word_
  alignas(64) std::atomic<bool> busy_{false};  // whoever sets it owns what follows
  uint64_t epoch_ = 0;
  int workers_ = 0;
  bool refused_ = false;
  Slot slots_[kMaxThreads + 1];
};

std::atomic<Pool*> Pool::current{nullptr};

}  // namespace

bool in_parallel_region() { return t_in_region; }

int num_threads() {
  if (t_in_region || t_limit == 1) return 1;
  return std::min(global_threads().load(std::memory_order_relaxed), t_limit);
}

void set_num_threads(int n) {
  global_threads().store(n < 1 ? default_threads() : std::min(n, kMaxThreads),
                         std::memory_order_relaxed);
}

ThreadLimitGuard::ThreadLimitGuard(int limit) : before_(t_limit) {
  t_limit = std::min(before_, std::max(limit, 1));
}

ThreadLimitGuard::~ThreadLimitGuard() { t_limit = before_; }

void detail::parallel_run(int64_t begin, int64_t end, int64_t grain, ChunkFn fn, void* context) {
  const int64_t size = end - begin;
  const int64_t grains = grain > 1 ? size / grain + (size % grain != 0) : size;
  const int64_t chunks = std::min<int64_t>(num_threads(), grains);
  if (chunks <= 1) {
    fn(context, begin, end);
    return;
  }
  Region region(begin, size, chunks, fn, context);
  Pool::instance().run(region);
  if (region.error) std::rethrow_exception(region.error);
}

}  // namespace tandem
