// SPDX-License-Identifier: Apache-2.0
// The caching allocator. Small blocks (up to 64 KB) come from lists of the calling thread, refilled
// in batches from a shared pool of 256 KB slabs; large blocks are cached by rounded size under one
// mutex. Nothing here is ever destroyed: global tensors outlive every destructor.
#include "tandem/tensor/allocator.h"

#include "tandem/tensor/block_internal.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "tandem/base/budget.h"
#include "tandem/base/bytes_in_words.h"
#include "tandem/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#define TD_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TD_ASAN 1
#endif
#endif
#ifdef TD_ASAN
#include <sanitizer/asan_interface.h>
#define TD_POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define TD_UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define TD_POISON(p, n) ((void)(p), (void)(n))
#define TD_UNPOISON(p, n) ((void)(p), (void)(n))
#endif

namespace tandem {
namespace {

constexpr size_t kAlign = 64;
constexpr size_t kSmallMax = 64 << 10;
constexpr size_t kFineMax = 1 << 10;  // below: classes of 64 B; above: 8 classes per power of two
constexpr int kClasses = 16 + 8 * 6;
constexpr size_t kSlab = 256 << 10;
constexpr size_t kHuge = 2 << 20;
constexpr size_t kMapped = 1 << 20;          // from here on blocks are mapped in whole huge pages
constexpr size_t kAbsurd = size_t{1} << 46;  // more than any machine maps; avoids overflow
constexpr size_t kCacheSlack = size_t{256} << 20;

/// Head of a free block; lies in its first bytes.
struct FreeBlock {
  FreeBlock* next;
};
/// Head of a cached large block. `stamp` orders returns, so that the oldest is released first.
struct FreeLarge {
  FreeLarge* next;
  uint64_t stamp;
};

int class_of(size_t bytes) {
  if (bytes <= kFineMax) return bytes == 0 ? 0 : static_cast<int>((bytes - 1) / kAlign);
  const size_t n = bytes - 1;
  const int log2 = 63 - __builtin_clzll(n);
  return 16 + (log2 - 10) * 8 + static_cast<int>((n >> (log2 - 3)) & 7);
}
size_t class_bytes(int c) {
  if (c < 16) return static_cast<size_t>(c + 1) * kAlign;
  const int log2 = 10 + (c - 16) / 8;
  return static_cast<size_t>(8 + (c - 16) % 8 + 1) << (log2 - 3);
}
size_t round_large(size_t bytes) {
  if (bytes >= kMapped) return (bytes + kHuge - 1) & ~(kHuge - 1);
  const int log2 = 63 - __builtin_clzll(bytes - 1);
  const size_t step = size_t{1} << (log2 - 3);
  return (bytes + step - 1) & ~(step - 1);
}
/// Blocks moved between a thread and the pool at once.
uint32_t batch_of(int c) {
  const size_t n = (32 << 10) / class_bytes(c);
  return static_cast<uint32_t>(n < 1 ? 1 : n > 64 ? 64 : n);
}

void* map_huge(size_t bytes) {
  // One huge page more than needed, so that it contains an aligned range; the rest is returned.
  const size_t span = bytes + kHuge;
  void* raw = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const uintptr_t first = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t begin = (first + kHuge - 1) & ~(kHuge - 1);
  if (begin > first) munmap(raw, begin - first);
  const uintptr_t end = begin + bytes;
  if (first + span > end) munmap(reinterpret_cast<void*>(end), first + span - end);
  void* p = reinterpret_cast<void*>(begin);
#ifdef MADV_HUGEPAGE
  madvise(p, bytes, MADV_HUGEPAGE);
#endif
  return p;
}
void* take_from_system(size_t rounded) {
  return rounded >= kMapped ? map_huge(rounded) : std::aligned_alloc(kAlign, rounded);
}
void give_to_system(void* p, size_t rounded) {
  if (rounded >= kMapped)
    munmap(p, rounded);
  else
    std::free(p);
}

/// State shared by all threads; one mutex.
class Central {
 public:
  /// Up to batch_of(c) blocks of class c as a list; at least one. Sets `count`.
  FreeBlock* take_small(int c, uint32_t* count) {
    std::lock_guard lock(mutex_);
    const uint32_t want = batch_of(c);
    const size_t size = class_bytes(c);
    FreeBlock* list = nullptr;
    uint32_t n = 0;
    for (; n < want && pool_[c]; ++n) {
      FreeBlock* b = pool_[c];
      pool_[c] = b->next;
      b->next = list;
      list = b;
    }
    for (; n < want; ++n) {
      if (slab_left_ < size) {
        if (n > 0) break;
        new_slab();
      }
      FreeBlock* b = reinterpret_cast<FreeBlock*>(slab_);
      slab_ += size;
      slab_left_ -= size;
      TD_UNPOISON(b, sizeof(FreeBlock));
      b->next = list;
      list = b;
    }
    *count = n;
    return list;
  }

  void put_small(int c, FreeBlock* first, FreeBlock* last) noexcept {
    std::lock_guard lock(mutex_);
    last->next = pool_[c];
    pool_[c] = first;
  }

  void* take_large(size_t bytes) {
    if (bytes > kAbsurd) fail_beyond_memory(bytes);
    const size_t rounded = round_large(bytes);
    std::lock_guard lock(mutex_);
    FreeLarge** bin = nullptr;
    try {
      bin = &bins_[rounded];  // created here, so that returning a block never allocates
    } catch (const std::bad_alloc&) {
      fail_system(bytes);
    }
    if (FreeLarge* b = *bin) {
      *bin = b->next;
      cached_ -= rounded;
      count_in(rounded);
      return b;
    }
    void* p = reserve(rounded, bytes);
    count_in(rounded);
    return p;
  }

  void put_large(void* p, size_t bytes) noexcept {
    const size_t rounded = round_large(bytes);
    std::lock_guard lock(mutex_);
    in_use_ -= rounded;
    FreeLarge* b = ::new (p) FreeLarge{nullptr, ++stamp_};
    FreeLarge*& bin = bins_.find(rounded)->second;
    b->next = bin;
    bin = b;
    cached_ += rounded;
  }

  size_t trim() noexcept {
    std::lock_guard lock(mutex_);
    return release(0);
  }

  AllocatorStats stats() {
    std::lock_guard lock(mutex_);
    AllocatorStats s;
    s.in_use = static_cast<int64_t>(in_use_);
    s.peak = static_cast<int64_t>(peak_);
    s.cached = static_cast<int64_t>(cached_);
    s.reserved = s.in_use + s.cached;
    s.allocations = static_cast<int64_t>(allocations_);
    return s;
  }
  void reset_peak() {
    std::lock_guard lock(mutex_);
    peak_ = in_use_;
  }
  void set_cap(size_t cap) {
    std::lock_guard lock(mutex_);
    cap_ = cap;
    if (cap_ != 0 && in_use_ + cached_ > cap_) release(cap_ > in_use_ ? cap_ - in_use_ : 0);
  }

 private:
  void count_in(size_t bytes) {
    in_use_ += bytes;
    ++allocations_;
    if (in_use_ > peak_) peak_ = in_use_;
    if (in_use_ > high_) high_ = in_use_;
  }

  void new_slab() {
    // The rest of the old slab is smaller than one block of the requested class; it serves the
    // classes that it fits, so nothing is lost.
    while (slab_left_ >= kAlign) {
      int c = class_of(slab_left_);
      if (class_bytes(c) > slab_left_) --c;
      FreeBlock* b = reinterpret_cast<FreeBlock*>(slab_);
      TD_UNPOISON(b, sizeof(FreeBlock));
      b->next = pool_[c];
      pool_[c] = b;
      slab_ += class_bytes(c);
      slab_left_ -= class_bytes(c);
    }
    slab_ = static_cast<char*>(reserve(kSlab, kSlab));
    slab_left_ = kSlab;
    TD_POISON(slab_, kSlab);
    count_in(kSlab);
  }

  /// Fresh memory within the cap and the machine; releases cached blocks first where needed.
  void* reserve(size_t rounded, size_t bytes) {
    if (cap_ != 0 && in_use_ + cached_ + rounded > cap_) {
      if (in_use_ + rounded > cap_) fail_cap(bytes);
      release(cap_ - in_use_ - rounded);
    }
    if (in_use_ + rounded > machine_) fail_beyond_memory(bytes);
    // Changing sizes must not pile up blocks that are never requested again.
    const size_t most = high_ + high_ / 4 + kCacheSlack;
    if (in_use_ + cached_ + rounded > most) {
      const size_t used = in_use_ + rounded;
      release(most > used ? most - used : 0);
    }
    void* p = take_from_system(rounded);
    if (p == nullptr && cached_ > 0) {
      release(0);
      p = take_from_system(rounded);
    }
    if (p == nullptr) fail_system(bytes);
    return p;
  }

  /// Release cached blocks, oldest first, until at most `keep` bytes are cached.
  size_t release(size_t keep) noexcept {
    size_t freed = 0;
    while (cached_ > keep) {
      FreeLarge** oldest = nullptr;
      size_t size = 0;
      for (auto& [rounded, bin] : bins_) {
        // Lists are newest first: the last one is the oldest of its size.
        FreeLarge** at = &bin;
        if (*at == nullptr) continue;
        while ((*at)->next) at = &(*at)->next;
        if (oldest == nullptr || (*at)->stamp < (*oldest)->stamp) {
          oldest = at;
          size = rounded;
        }
      }
      if (oldest == nullptr) break;
      void* p = *oldest;
      *oldest = nullptr;
      give_to_system(p, size);
      cached_ -= size;
      freed += size;
    }
    return freed;
  }

  [[noreturn]] TD_COLD void fail_cap(size_t bytes) const {
    TD_FAIL(Memory,
            "an allocation of {} does not fit: {} are in use and the cap is {}\n"
            "Use a smaller batch, drop tensors that are no longer needed, or raise "
            "set_allocator_cap().",
            bytes_in_words(bytes), bytes_in_words(in_use_), bytes_in_words(cap_));
  }
  [[noreturn]] TD_COLD void fail_beyond_memory(size_t bytes) const {
    TD_FAIL(Memory,
            "an allocation of {} is more than this machine has: {} are in use of {} memory\n"
            "Check the sizes, or use a smaller batch.",
            bytes_in_words(bytes), bytes_in_words(in_use_), bytes_in_words(machine_));
  }
  [[noreturn]] TD_COLD void fail_system(size_t bytes) const {
    TD_FAIL(Memory,
            "the system gave no memory for an allocation of {}: {} are in use, {}\n"
            "Use a smaller batch, or stop other programs on this machine.",
            bytes_in_words(bytes), bytes_in_words(in_use_),
            cap_ == 0 ? "no cap is set" : "the cap is " + bytes_in_words(cap_));
  }

  std::mutex mutex_;
  FreeBlock* pool_[kClasses] = {};
  char* slab_ = nullptr;
  size_t slab_left_ = 0;
  std::map<size_t, FreeLarge*> bins_;
  uint64_t stamp_ = 0;
  size_t in_use_ = 0, peak_ = 0, cached_ = 0, cap_ = 0, allocations_ = 0;
  size_t high_ = 0;  // as peak_, but never reset
  const size_t machine_ =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
};

Central& central() {
  alignas(Central) static unsigned char place[sizeof(Central)];
  static Central* c = ::new (place) Central;  // no memory needed, no destructor run
  return *c;
}

/// The free lists of one thread.
struct ThreadCache {
  struct List {
    FreeBlock* head = nullptr;
    uint32_t count = 0;
    uint32_t most = 0;  ///< beyond it half goes to the pool, so that a thread which only frees
                        ///< (a consumer of another's tensors) does not hoard
  };
  List lists[kClasses];
  ThreadCache() {
    for (int c = 0; c < kClasses; ++c) lists[c].most = 4 * batch_of(c) + 4;
  }
};

// A plain pointer, so that access is a single thread-local load: no guard, no call.
#define TD_TLS static thread_local __attribute__((tls_model("initial-exec")))
TD_TLS constinit ThreadCache* tls_cache = nullptr;
TD_TLS constinit bool tls_over = false;  // this thread's cache is already gone: use the pool

// A thread's small blocks are charged to its open budgets by the batch.
void give_back(ThreadCache::List& list, int c, uint32_t n) noexcept {
  Budget::give_back(n * class_bytes(c));
  FreeBlock* first = list.head;
  FreeBlock* last = first;
  for (uint32_t i = 1; i < n; ++i) last = last->next;
  list.head = last->next;
  list.count -= n;
  central().put_small(c, first, last);
}

/// Passes the lists of an exiting thread to the pool.
struct Reaper {
  bool armed = false;
  ~Reaper() {
    tls_over = true;
    ThreadCache* cache = std::exchange(tls_cache, nullptr);
    if (cache == nullptr) return;
    for (int c = 0; c < kClasses; ++c)
      if (cache->lists[c].count > 0) give_back(cache->lists[c], c, cache->lists[c].count);
    delete cache;
  }
};
thread_local Reaper tls_reaper;

TD_NOINLINE void* allocate_slow(int c) {
  uint32_t n = 0;
  if (tls_cache == nullptr && !tls_over) {
    tls_cache = new (std::nothrow) ThreadCache;
    if (tls_cache != nullptr) tls_reaper.armed = true;  // registers the destructor
  }
  Budget::take(batch_of(c) * class_bytes(c));
  FreeBlock* list = central().take_small(c, &n);
  Budget::give_back((batch_of(c) - n) * class_bytes(c));
  if (tls_cache == nullptr) {
    if (list->next) {
      FreeBlock* last = list->next;
      while (last->next) last = last->next;
      central().put_small(c, list->next, last);
    }
    return list;
  }
  tls_cache->lists[c].head = list->next;
  tls_cache->lists[c].count = n - 1;
  return list;
}

void* allocate_large(size_t bytes) {
  const size_t charged = bytes > kAbsurd ? bytes : round_large(bytes);
  Budget::take(charged);
  try {
    return central().take_large(bytes);
  } catch (...) {
    Budget::give_back(charged);
    throw;
  }
}

TD_NOINLINE void deallocate_slow(FreeBlock* b, int c) noexcept {
  if (tls_cache == nullptr) {
    Budget::give_back(class_bytes(c));
    central().put_small(c, b, b);
    return;
  }
  ThreadCache::List& list = tls_cache->lists[c];
  b->next = list.head;
  list.head = b;
  ++list.count;
  give_back(list, c, list.count / 2);
}

}  // namespace

namespace detail {

size_t block_bytes(size_t bytes) {
  return bytes > kSmallMax ? round_large(bytes) : class_bytes(class_of(bytes));
}

void* allocate(size_t bytes) {
  if (TD_UNLIKELY(bytes > kSmallMax)) return allocate_large(bytes);
  const int c = class_of(bytes);
  void* p;
  if (ThreadCache* cache = tls_cache; TD_LIKELY(cache && cache->lists[c].head)) {
    ThreadCache::List& list = cache->lists[c];
    p = list.head;
    list.head = list.head->next;
    --list.count;
  } else {
    p = allocate_slow(c);
  }
  TD_UNPOISON(p, bytes);
  return p;
}

void deallocate(void* p, size_t bytes) noexcept {
  if (TD_UNLIKELY(bytes > kSmallMax)) {
    Budget::give_back(round_large(bytes));
    central().put_large(p, bytes);
    return;
  }
  const int c = class_of(bytes);
  TD_POISON(p, class_bytes(c));
  TD_UNPOISON(p, sizeof(FreeBlock));
  FreeBlock* b = ::new (p) FreeBlock{nullptr};
  ThreadCache* cache = tls_cache;
  if (TD_LIKELY(cache && cache->lists[c].count < cache->lists[c].most)) {
    ThreadCache::List& list = cache->lists[c];
    b->next = list.head;
    list.head = b;
    ++list.count;
    return;
  }
  deallocate_slow(b, c);
}

}  // namespace detail

AllocatorStats allocator_stats() { return central().stats(); }
void reset_allocator_peak() { central().reset_peak(); }
void set_allocator_cap(int64_t bytes) {
  TD_CHECK(bytes >= 0, Value, "the allocator's cap must be 0 (none) or positive, got {}", bytes);
  central().set_cap(static_cast<size_t>(bytes));
}
int64_t trim_allocator() { return static_cast<int64_t>(central().trim()); }

}  // namespace tandem
