// SPDX-License-Identifier: Apache-2.0
// The thread door behind parallel_for. libgomp is called by its ABI (GOMP_parallel), so that clang
// uses the same pool without -fopenmp and oneDNN's threads are ours. After the first region the
// process must not fork and go on computing in the child: libgomp's pool does not survive it.
#include "tandem/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#if TANDEM_STD_THREADS
#include <condition_variable>
#include <deque>
#else
extern "C" {
void GOMP_parallel(void (*fn)(void*), void* data, unsigned num_threads, unsigned flags);
int omp_get_thread_num(void);
int omp_get_num_threads(void);
int omp_in_parallel(void);
}
#endif

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
  int n = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int allowed = CPU_COUNT(&set);
    n = n > 0 ? std::min(n, allowed) : allowed;
  }
  return std::clamp(n, 1, kMaxThreads);
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

#if TANDEM_STD_THREADS

bool in_foreign_region() { return false; }

// Workers take chunks of the oldest open job. A job lives on its caller's stack; the caller leaves
// only when no chunk is left to take and none is running.
class Pool {
 public:
  static Pool& instance() {
    static Pool* pool = new Pool;  // never destroyed: workers are detached
    return *pool;
  }

  void run(Region& region, int threads) {
    Job job{&region};
    std::unique_lock<std::mutex> hold(lock_);
    while (workers_ < threads - 1) {
      std::thread([this] { work(); }).detach();
      ++workers_;
    }
    jobs_.push_back(&job);
    wake_.notify_all();
    while (job.next < region.chunks) run_next(job, hold);
    job.done.wait(hold, [&] { return job.running == 0; });
  }

 private:
  struct Job {
    Region* region;
    int64_t next = 0;
    int64_t running = 0;
    std::condition_variable done{};
  };

  void run_next(Job& job, std::unique_lock<std::mutex>& hold) {
    const int64_t chunk = job.next++;
    ++job.running;
    if (job.next == job.region->chunks) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
    hold.unlock();
    job.region->run_chunk(chunk);
    hold.lock();
    if (--job.running == 0) job.done.notify_one();
  }

  void work() {
    std::unique_lock<std::mutex> hold(lock_);
    for (;;) {
      wake_.wait(hold, [&] { return !jobs_.empty(); });
      run_next(*jobs_.front(), hold);
    }
  }

  std::mutex lock_;
  std::condition_variable wake_;
  std::deque<Job*> jobs_;
  int workers_ = 0;
};

void run_team(Region& region) { Pool::instance().run(region, static_cast<int>(region.chunks)); }

#else

bool in_foreign_region() { return omp_in_parallel() != 0; }

// libgomp may give fewer threads than asked (OMP_THREAD_LIMIT), so each one strides over chunks.
void team_body(void* data) {
  Region& region = *static_cast<Region*>(data);
  const int64_t stride = omp_get_num_threads();
  for (int64_t i = omp_get_thread_num(); i < region.chunks; i += stride) region.run_chunk(i);
}

void run_team(Region& region) {
  GOMP_parallel(team_body, &region, static_cast<unsigned>(region.chunks), 0);
}

#endif

}  // namespace

bool in_parallel_region() { return t_in_region; }

int num_threads() {
  if (t_in_region || t_limit == 1 || in_foreign_region()) return 1;
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
  run_team(region);
  if (region.error) std::rethrow_exception(region.error);
}

}  // namespace tandem
