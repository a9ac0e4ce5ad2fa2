// SPDX-License-Identifier: Apache-2.0
// parallel_for: the only way kernels get threads. Backed by one pool per process, which one caller
// uses at a time; meanwhile others run their chunks themselves. Chunk boundaries depend only on
// (range, grain, thread count), never on timing.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "tandem/base/export.h"

namespace tandem {

/// Threads that a parallel_for started here would use: the global count, capped by this thread's
/// limit; 1 inside a parallel region and under SerialGuard. Belongs in primitive and plan keys.
TD_API int num_threads();

/// Set the global count; values below 1 restore the default (TANDEM_NUM_THREADS, then
/// OMP_NUM_THREADS, then the processors this process may run on). At most 1024.
TD_API void set_num_threads(int n);

/// True inside a parallel_for body whose range was split into several chunks.
TD_API bool in_parallel_region();

/// Limits parallel_for on this thread to `limit` threads until destroyed; guards nest and the
/// smallest limit applies.
class TD_API ThreadLimitGuard {
 public:
  explicit ThreadLimitGuard(int limit);
  ~ThreadLimitGuard();
  ThreadLimitGuard(const ThreadLimitGuard&) = delete;
  ThreadLimitGuard& operator=(const ThreadLimitGuard&) = delete;

 private:
  int before_;
};

/// Runs every parallel_for of this thread serially (loader workers, background threads).
class SerialGuard : public ThreadLimitGuard {
 public:
  SerialGuard() : ThreadLimitGuard(1) {}
};

namespace detail {

using ChunkFn = void (*)(void* context, int64_t begin, int64_t end);
TD_API void parallel_run(int64_t begin, int64_t end, int64_t grain, ChunkFn fn, void* context);

}  // namespace detail

/// Call `f(chunk_begin, chunk_end)` on disjoint chunks that cover [begin, end), on several threads.
/// The range is split evenly into min(num_threads(), ceil(n / grain)) chunks, so a range of at most
/// `grain` elements runs on the calling thread. An empty range calls nothing. Every chunk runs even
/// if another throws; the exception of the lowest chunk is then rethrown here.
template <class F>
inline void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& f) {
  if (end <= begin) return;
  if (end - begin <= grain) {
    f(begin, end);
    return;
  }
  using Body = std::remove_reference_t<F>;
  detail::parallel_run(
      begin, end, grain,
      [](void* context, int64_t b, int64_t e) { (*static_cast<Body*>(context))(b, e); },
      const_cast<void*>(static_cast<const void*>(std::addressof(f))));
}

}  // namespace tandem
