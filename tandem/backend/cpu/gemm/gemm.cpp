// SPDX-License-Identifier: Apache-2.0
// Blocking, packing and distribution of a GEMM's tiles. Blocks over k are added in order to the
// same c; k is split in no other way.
#include "tandem/backend/cpu/gemm/gemm_internal.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/epilogue.h"

namespace tandem::detail {
namespace {

constexpr int64_t kAliasBytes = 1024;  ///< rows this far apart map to the same few cache sets
constexpr int64_t kPageBytes = 4096;
constexpr int64_t kRowsAhead = 6;  ///< rows of b prefetched while one is packed
constexpr int kHighTile = 8;       ///< rows
constexpr int64_t kManyPanels = 8;

std::atomic<const GemmTables*> forced{nullptr};

const GemmTables* best_tables() {
  const CpuFeatures& f = cpu_features();
  return f.avx512 ? &kGemmAvx512 : f.avx2 ? &kGemmAvx2 : &kGemmBase;
}

// Size of a core's second-level cache; 0: unknown.
int64_t second_level_bytes() {
#ifdef _SC_LEVEL2_CACHE_SIZE
  static const int64_t bytes = std::max<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), 0);
  return bytes;
#else
  return 0;
#endif
}

template <class T>
struct Blocks {
  static constexpr int64_t kDepth = kGemmDepth, kRows = 112;
  // Half the cache for the packed part of b: the more columns, the less often a is reread. (Block
  // rows and columns do not affect the bits, the depth does.)
  static int64_t columns() {
    const auto fit = second_level_bytes() / 2 / (kDepth * static_cast<int64_t>(sizeof(T)));
    return fit >= 1024 ? 1024 : 512;
  }
};

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// A worker's packing buffers.
template <class T>
struct Buffers {
  T* a;
  T* b;
};

template <class T>
int64_t b_elements(int64_t n, int64_t k) {
  const MicroTable<T>& t = micro_table<T>();
  int64_t columns = round_up(std::min(n, Blocks<T>::columns()), t.panel());
  return round_up(std::min(k, Blocks<T>::kDepth) * columns + t.width, 64);
}
template <class T>
int64_t a_elements(int64_t m, int64_t k) {
  return round_up(
      std::min(k, Blocks<T>::kDepth) * std::min(m, Blocks<T>::kRows) + 2 * micro_table<T>().width,
      64);
}

// Copies `n` elements; a panel's width is copied without calling memcpy, which costs more than the
// copy.
template <class T>
inline void copy_row(T* to, const T* from, int64_t n) {
  constexpr int64_t kPanel = 128 / sizeof(T);
  if (n == kPanel)
    std::memcpy(to, from, kPanel * sizeof(T));
  else
    for (int64_t i = 0; i < n; ++i) to[i] = from[i];
}

// to[p][k][2 * width] for each panel p of columns n0..n1, rows k0..k1 of b.
template <class T>
void pack_b(const MicroTable<T>& t, const Gemm<T>& g, int64_t k0, int64_t k1, int64_t n0,
            int64_t n1, T* to) {
  const int64_t panel = t.panel(), depth = k1 - k0;
  if (g.bn == 1) {
    // Whole rows at a time: rows may be pages apart.
    for (int64_t k = 0; k < depth; ++k) {
      const T* from = g.b + (k0 + k) * g.bk;
      T* row = to + k * panel;
      for (int64_t n = n0; n < n1; n += panel, row += depth * panel) {
        __builtin_prefetch(from + kRowsAhead * g.bk + n);
        __builtin_prefetch(from + kRowsAhead * g.bk + n + panel / 2);
        copy_row(row, from + n, std::min(panel, n1 - n));
      }
    }
    return;
  }
  for (int64_t n = n0; n < n1; n += panel, to += depth * panel) {
    const int64_t width = std::min(panel, n1 - n);
    const T* from = g.b + k0 * g.bk + n * g.bn;
    if (g.bk == 1) {
      t.transpose(to, panel, from, g.bn, width, depth);
      continue;
    }
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < width; ++j) to[k * panel + j] = from[k * g.bk + j * g.bn];
  }
}

// to[tile][k][rows of the tile].
template <class T>
void pack_a(const MicroTable<T>& t, const Gemm<T>& g, int64_t m0, int64_t rows, int64_t k0,
            int64_t depth, T* to) {
  const T* from = g.a + m0 * g.am + k0 * g.ak;
  if (g.ak == 1) {
    t.transpose(to, rows, from, g.am, rows, depth);
    return;
  }
  if (g.am == 1) {
    t.pack(to, from, g.ak, rows, depth);
    return;
  }
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t i = 0; i < rows; ++i) to[k * rows + i] = from[k * g.ak + i * g.am];
}

// The part of b that is packed next: tiles fetch it between their multiply-adds, a piece each, so
// that packing finds it in the second-level cache.
template <class T>
class NextPart {
 public:
  NextPart() = default;
  /// Rows k0..k1, columns n0..n1 of b, for `tiles` tiles.
  NextPart(const Gemm<T>& g, int64_t k0, int64_t k1, int64_t n0, int64_t n1, int64_t tiles) {
    if (k0 >= k1 || n0 >= n1 || (g.bn != 1 && g.bk != 1)) return;
    const bool rows = g.bn == 1;
    from_ = g.b + k0 * g.bk + n0 * g.bn;
    step_ = rows ? g.bk : g.bn;
    run_ = ((rows ? n1 - n0 : k1 - k0) + kLine - 1) / kLine;
    lines_ = run_ * (rows ? k1 - k0 : n1 - n0);
    piece_ = (lines_ + tiles - 1) / tiles;
  }
  /// Leaves to this part what unit `u` of `units` is to fetch.
  void take(int64_t u, int64_t units) {
    done_ = lines_ * u / units;
    lines_ = lines_ * (u + 1) / units;
  }
  /// Call before each tile.
  void fetch_in(MicroCall<T>& c) {
    const int64_t calls = c.k / kAheadSteps;
    c.ahead = nullptr;
    if (done_ >= lines_ || calls == 0) return;
    c.ahead_lines = (piece_ + calls - 1) / calls;
    c.ahead = from_ + done_ / run_ * step_ + done_ % run_ * kLine;
    c.ahead_left = run_ - done_ % run_;
    c.ahead_run = run_;
    c.ahead_jump = step_ - run_ * kLine;
    done_ += calls * c.ahead_lines;
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(T);
  const T* from_ = nullptr;
  int64_t step_ = 0;  ///< elements from one run of lines to the next
  int64_t run_ = 1, lines_ = 0, piece_ = 0, done_ = 0;
};

// One GEMM over rows m0..m1 and columns n0..n1.
template <class T>
class Runner {
 public:
  Runner(const Gemm<T>& g, Buffers<T> buffers, int64_t m0, int64_t m1, int64_t n0, int64_t n1)
      : t_(micro_table<T>()), g_(g), buffers_(buffers), m0_(m0), m1_(m1), n0_(n0), n1_(n1) {
    const int64_t size = sizeof(T), rows = m1 - m0, columns = n1 - n0;
    dots_ = rows == 1 && g.bk == 1 && t_.dots;
    pack_b_ =
        !dots_ && (g.bn != 1 || (rows > 2 * t_.rows && g.k > 16 &&
                                 (g.bk * size % kAliasBytes == 0 || g.bk * size >= kPageBytes)));
    const bool far = columns > t_.panel();
    // In strips of a tile's width, a transposed `a` would be fetched line by line. Low tiles read
    // its rows often: many panels pay for bringing those together.
    const bool often = t_.rows < kHighTile && columns >= kManyPanels * t_.panel() &&
                       g.k >= kManyPanels * t_.panel();
    pack_a_ = (g.am != 1 && g.ak != 1) ||
              (far && rows >= t_.rows && g.k >= 32 &&
               (often || g.am == 1 || (g.ak == 1 && g.am * size % kPageBytes == 0)));
  }

  void fetch(const NextPart<T>& next) { next_ = next; }
  const NextPart<T>& fetched() const { return next_; }
  bool packs_a() const { return pack_a_; }
  bool packs_b() const { return pack_b_; }

  void run() {
    constexpr int64_t kDepth = Blocks<T>::kDepth;
    // Tiles of one height over all rows, distributed evenly over blocks. Blocks that an epilogue
    // rereads stay in the cache together with its own operands.
    const int64_t rows = m1_ - m0_, count = (rows + t_.rows - 1) / t_.rows;
    const int64_t columns = block_columns(count);
    const int64_t most = std::max(Blocks<T>::kRows / t_.rows / (g_.epilogue ? 2 : 1), int64_t{1});
    const int64_t blocks = (count + most - 1) / most;
    for (int64_t n = n0_; n < n1_; n += columns) {
      const int64_t n_end = std::min(n + columns, n1_);
      int64_t k = 0;
      do {
        const int64_t k_end = std::min(k + kDepth, g_.k);
        if (pack_b_) {
          tandem::detail::pack_b(t_, g_, k, k_end, n, n_end, buffers_.b);
          const bool last = k_end == g_.k;
          const int64_t next_n = last ? n_end : n, next_k = last ? 0 : k_end;
          fetch({g_, next_k, std::min(next_k + kDepth, g_.k), next_n,
                 std::min(next_n + columns, n1_), count * t_.panels(n_end - n)});
        }
        for (int64_t i = 0; i < blocks; ++i) {
          const int64_t first = count * i / blocks, last = count * (i + 1) / blocks;
          const int64_t m = m0_ + rows * first / count, m_end = m0_ + rows * last / count;
          block(m, m_end, last - first, n, n_end, k, k_end);
          if (g_.epilogue && k_end == g_.k) g_.epilogue->run(*g_.epilogue, m, m_end, n, n_end);
        }
        k = k_end;
      } while (k < g_.k);
    }
  }

  // Rows m..m_end-1 in `count` tiles.
  void block(int64_t m, int64_t m_end, int64_t count, int64_t n, int64_t n_end, int64_t k,
             int64_t k_end) {
    const int64_t rows = m_end - m, depth = k_end - k;
    const int64_t panel = t_.panel();
    if (dots_) {
      t_.dots({g_.b + n * g_.bn + k, g_.bn, n_end - n, g_.a + m * g_.am + k * g_.ak, g_.ak, depth,
               g_.c + m * g_.c_row + n, g_.bias ? g_.bias + n : nullptr, g_.accumulate || k > 0});
      return;
    }
    fetch_a(m, m_end, k, k_end);
    if (pack_a_) {
      for (int64_t i = 0; i < count; ++i) {
        int64_t r0 = rows * i / count, r1 = rows * (i + 1) / count;
        tandem::detail::pack_a(t_, g_, m + r0, r1 - r0, k, depth, buffers_.a + r0 * depth);
      }
    }
    MicroCall<T> c;
    c.k = depth;
    c.c_row = g_.c_row;
    c.accumulate = g_.accumulate || k > 0;
    int64_t p = 0;
    if (rows == 1) p = whole_panels_of_row(c, m, n, n_end, k);
    const auto tile = [&](int64_t q, int64_t i) {
      const int64_t j = n + q * panel;
      c.columns = static_cast<int>(std::min(panel, n_end - j));
      c.b = pack_b_ ? buffers_.b + q * depth * panel : g_.b + k * g_.bk + j;
      c.b_row = pack_b_ ? panel : g_.bk;
      c.bias = g_.bias ? g_.bias + j : nullptr;
      int64_t r0 = rows * i / count, r1 = rows * (i + 1) / count;
      c.a = pack_a_ ? buffers_.a + r0 * depth : g_.a + (m + r0) * g_.am + k * g_.ak;
      c.am = pack_a_ ? 1 : g_.am;
      c.ak = pack_a_ ? r1 - r0 : g_.ak;
      c.c = g_.c + (m + r0) * g_.c_row + j;
      next_.fetch_in(c);
      t_.run(r1 - r0, c);
    };
    const int64_t panels = t_.panels(n_end - n);
    // A high tile stays in the first-level cache and packed panels pass by: less than half of what
    // a panel would take there, which counts where another thread of the core shares it.
    if (pack_b_ && t_.rows >= kHighTile) {
      for (int64_t i = 0; i < count; ++i)
        for (int64_t q = p; q < panels; ++q) tile(q, i);
      return;
    }
    for (; p < panels; ++p)
      for (int64_t i = 0; i < count; ++i) tile(p, i);
  }

 private:
  // Columns of b that are packed together, for `count` tiles of rows.
  int64_t block_columns(int64_t count) const {
    const int64_t all = Blocks<T>::columns();
    // A packed panel that is used once stays in the first-level cache.
    if (dots_ || (pack_b_ && count == 1)) return t_.panel();
    if (!pack_b_) return all;
    // What is fetched for the next turn lies in the cache beside the packed part, which few rows
    // read too seldom to be worth much of it. Many rows of a are packed for each block of columns.
    if (count * t_.rows <= 2 * Blocks<T>::kRows) return all / 2;
    return pack_a_ ? all : all / 4 * 3;
  }

  // Prefetches rows m..m_end-1 of a, columns k..k_end-1: activations come from far away, and tiles
  // read them in strips that hardware prefetchers do not predict.
  void fetch_a(int64_t m, int64_t m_end, int64_t k, int64_t k_end) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    const bool rows = g_.ak == 1;
    if (!rows && g_.am != 1) return;
    const int64_t lines = rows ? m_end - m : k_end - k, length = rows ? k_end - k : m_end - m;
    const int64_t step = rows ? g_.am : g_.ak;
    const T* from = g_.a + m * g_.am + k * g_.ak;
    for (int64_t i = 0; i < lines; ++i, from += step)
      for (int64_t j = 0; j < length; j += kLine) __builtin_prefetch(from + j, 0, 2);
  }

  // The panels without a rest of the only row; returns how many.
  int64_t whole_panels_of_row(MicroCall<T> c, int64_t m, int64_t n, int64_t n_end,
                              int64_t k) const {
    const int64_t panel = t_.panel(), panels = (n_end - n) / panel;
    c.a = pack_a_ ? buffers_.a : g_.a + m * g_.am + k * g_.ak;
    c.ak = pack_a_ ? 1 : g_.ak;
    c.b = pack_b_ ? buffers_.b : g_.b + k * g_.bk + n;
    c.b_row = pack_b_ ? panel : g_.bk;
    c.bias = g_.bias ? g_.bias + n : nullptr;
    c.c = g_.c + m * g_.c_row + n;
    t_.run_row(c, panels, pack_b_ ? c.k * panel : panel, panel);
    return panels;
  }

  const MicroTable<T>& t_;
  const Gemm<T>& g_;
  Buffers<T> buffers_;
  int64_t m0_, m1_, n0_, n1_;
  bool pack_a_, pack_b_;
  NextPart<T> next_;
  bool dots_;  ///< the only row: b's rows lie along k
};

// A large GEMM whose packed b all workers share. They take parts of the packing, and then blocks of
// rows, as they become free: cores of shared machines are not equally fast, and none waits long for
// another one. Blocks over n and, within them, over k follow each other as stages; the packed b of
// one stage is read while that of the next is made. Who is there does the work: a worker waits for
// nothing but what others have taken and are at.
template <class T>
class SharedRun {
 public:
  static constexpr int64_t kLeast = int64_t{1} << 26;  ///< multiply-adds from which this pays
  static bool pays(const Gemm<T>& g, int workers) {
    const MicroTable<T>& t = micro_table<T>();
    if (workers < 2 || (g.m + t.rows - 1) / t.rows < kUnits * workers) return false;
    const double work =
        static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
    return work >= static_cast<double>(kLeast) && Runner<T>(g, {}, 0, g.m, 0, g.n).packs_b();
  }

  /// `scratch`: parts of `part` bytes for each worker.
  SharedRun(const Gemm<T>& g, int workers, void* scratch, size_t part)
      : t_(micro_table<T>()), g_(g), scratch_(static_cast<char*>(scratch)), part_(part) {
    constexpr int64_t kDepth = Blocks<T>::kDepth;
    const bool packs_a = Runner<T>(g, {}, 0, g.m, 0, g.n).packs_a();
    // Several blocks over k in a stage keep c in the cache. Where a is packed as well, it is packed
    // for each block of columns: wide ones.
    const int64_t steps = (g.k + kDepth - 1) / kDepth, panel = t_.panel();
    const int64_t room = round_up(std::min(g.n, Blocks<T>::columns()), panel);  // see b_elements()
    steps_ = packs_a ? 1 : std::min({steps, kMostSteps, room / panel});
    const int64_t row = std::min(g.k, kDepth) * steps_ * static_cast<int64_t>(sizeof(T));
    const int64_t fit =
        std::max(std::min(kStageBytes / row, room / steps_) / panel, int64_t{1}) * panel;
    const int64_t blocks = (g.n + fit - 1) / fit;
    columns_ = t_.panels((g.n + blocks - 1) / blocks) * panel;
    groups_ = (steps + steps_ - 1) / steps_;
    tiles_ = (g.m + t_.rows - 1) / t_.rows;
    const int64_t most = std::max(Blocks<T>::kRows / t_.rows / (g.epilogue ? 2 : 1), int64_t{1});
    // As many for each worker: with equal cores nobody waits.
    units_ = round_up(std::max((tiles_ + most - 1) / most, int64_t{kUnits} * workers), workers);
    units_ = std::min(units_, tiles_);
    stages_ = std::vector<Stage>(static_cast<size_t>((g.n + columns_ - 1) / columns_ * groups_));
  }

  void work(int w) {
    T* const a = part_of(w);
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (s >= 2) wait(stages_[s - 2].done, units_);
      pack(s);
      wait(stages_[s].packed, chunks(s));
      if (static_cast<int64_t>(s) % groups_ > 0) wait(stages_[s - 1].done, units_);
      for (int64_t u; (u = stages_[s].unit.fetch_add(1)) < units_;) {
        compute(s, u, a);
        stages_[s].done.fetch_add(1);
      }
    }
  }

 private:
  static constexpr int64_t kMostSteps = 3;
  static constexpr int kUnits = 8;  ///< of rows for each worker, at least
  /// Packed b of a stage. Two of them and what passes by fit into a second-level cache.
  static constexpr int64_t kStageBytes = 384 << 10;
  struct alignas(64) Stage {
    std::atomic<int64_t> chunk{0}, packed{0}, unit{0}, done{0};
    Stage() = default;
    Stage(const Stage&) {}  // vectors of them are made once
  };
  struct Range {
    int64_t begin, end;
  };

  static void wait(const std::atomic<int64_t>& count, int64_t all) {
    constexpr int kSpins = 4096;
    for (int i = 0; count.load(std::memory_order_acquire) < all; ++i)
      i < kSpins ? pause() : std::this_thread::yield();
  }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  T* part_of(int64_t w) const {
    return reinterpret_cast<T*>(scratch_ + static_cast<size_t>(w) * part_);
  }
  /// Of two that take turns, in the parts of the first two workers.
  T* b_of(size_t s) const {
    return part_of(static_cast<int64_t>(s % 2)) + a_elements<T>(g_.m, g_.k);
  }
  Range columns(size_t s) const {
    const int64_t n = static_cast<int64_t>(s) / groups_ * columns_;
    return {n, std::min(n + columns_, g_.n)};
  }
  Range depths(size_t s) const {
    const int64_t all = steps_ * Blocks<T>::kDepth, k = static_cast<int64_t>(s) % groups_ * all;
    return {k, std::min(k + all, g_.k)};
  }
  /// Panels of a block over k are packed one at a time.
  int64_t chunks_of_step(size_t s) const {
    const Range n = columns(s);
    return t_.panels(n.end - n.begin);
  }
  int64_t chunks(size_t s) const {
    const Range k = depths(s);
    return chunks_of_step(s) * ((k.end - k.begin + Blocks<T>::kDepth - 1) / Blocks<T>::kDepth);
  }
  /// What a block over k of a stage has before it in the packed b.
  int64_t packed_before(size_t s, int64_t k) const {
    const Range n = columns(s);
    return (k - depths(s).begin) * t_.panels(n.end - n.begin) * t_.panel();
  }

  void pack(size_t s) {
    constexpr int64_t kDepth = Blocks<T>::kDepth;
    const Range n = columns(s), k = depths(s);
    const int64_t each = chunks_of_step(s), all = chunks(s);
    for (int64_t c; (c = stages_[s].chunk.fetch_add(1)) < all;) {
      const int64_t k0 = k.begin + c / each * kDepth, k1 = std::min(k0 + kDepth, k.end);
      const int64_t first = c % each * t_.panel();
      const int64_t n0 = n.begin + first, n1 = std::min(n0 + t_.panel(), n.end);
      pack_b(t_, g_, k0, k1, n0, n1, b_of(s) + packed_before(s, k0) + first * (k1 - k0));
      stages_[s].packed.fetch_add(1);
    }
  }

  void compute(size_t s, int64_t u, T* a) {
    constexpr int64_t kDepth = Blocks<T>::kDepth;
    const Range n = columns(s), k = depths(s);
    const int64_t first = tiles_ * u / units_, last = tiles_ * (u + 1) / units_;
    const int64_t m = g_.m * first / tiles_, m_end = g_.m * last / tiles_;
    const bool more = s + 1 < stages_.size();
    const Range next_n = more ? columns(s + 1) : Range{}, next_k = more ? depths(s + 1) : Range{};
    NextPart<T> next(g_, next_k.begin, next_k.end, next_n.begin, next_n.end, tiles_ * chunks(s));
    next.take(u, units_);
    for (int64_t k0 = k.begin; k0 < k.end; k0 += kDepth) {
      Runner<T> run(g_, {a, b_of(s) + packed_before(s, k0)}, 0, g_.m, 0, g_.n);
      run.fetch(next);
      run.block(m, m_end, last - first, n.begin, n.end, k0, std::min(k0 + kDepth, k.end));
      next = run.fetched();
    }
    if (g_.epilogue && k.end == g_.k) g_.epilogue->run(*g_.epilogue, m, m_end, n.begin, n.end);
  }

  const MicroTable<T>& t_;
  const Gemm<T>& g_;
  char* scratch_;
  size_t part_;
  int64_t columns_, steps_, groups_;  ///< of a stage: columns, blocks over k; stages over k
  int64_t tiles_, units_;  ///< of the rows: tiles, and parts of them that one worker takes
  std::vector<Stage> stages_;
};

// A matrix times one column is the transposed matmul: rows of `a` go into the lanes of a vector, of
// which a single column would use one. Nothing is packed then.
template <class T>
Gemm<T> rows_as_columns(const Gemm<T>& g) {
  if (!micro_table<T>().dots || g.n != 1 || g.m == 1 || g.ak != 1 || g.c_row != 1 || g.bias ||
      g.epilogue)
    return g;
  Gemm<T> t = g;
  t.m = 1;
  t.n = g.m;
  t.a = g.b;
  t.am = g.bn;
  t.ak = g.bk;
  t.b = g.a;
  t.bk = g.ak;
  t.bn = g.am;
  t.c_row = g.m;
  return t;
}

// Parts of rows are ranges of memory, split as loops over the result split it: a thread will most
// likely reread what it wrote. Parts of the columns must be this much cheaper.
constexpr double kRowsPreferred = 0.1;

// How many parts of the rows and of the columns: avoids packing twice, keeps tiles whole.
template <class T>
void grid(const Gemm<T>& g, int workers, int64_t& parts_m, int64_t& parts_n) {
  const MicroTable<T>& t = micro_table<T>();
  const int64_t tiles_m = (g.m + t.rows - 1) / t.rows, panels = t.panels(g.n);
  double best = INFINITY;
  parts_m = parts_n = 1;
  for (int64_t pn = 1; pn <= workers; ++pn) {
    int64_t pm = workers / pn;
    if (pn > panels) break;
    pm = std::min(pm, tiles_m);
    const double m = static_cast<double>((g.m + pm - 1) / pm);
    const double n = static_cast<double>((panels + pn - 1) / pn * t.panel());
    const double k = static_cast<double>(g.k);
    // b is packed, transposed if need be; a is mostly read in place.
    const double cost = m * n * k / static_cast<double>(t.panel()) +
                        (g.bn == 1 ? 0.5 : 1.0) * n * k + (g.ak == 1 ? 0.2 : 0.5) * m * k;
    if (cost < best * (1 - kRowsPreferred)) {
      best = cost;
      parts_m = pm;
      parts_n = pn;
    }
  }
}

}  // namespace

const GemmTables& gemm_tables() {
  static const GemmTables* const best = best_tables();
  const GemmTables* f = forced.load(std::memory_order_relaxed);
  return f ? *f : *best;
}
void use_gemm_tables(const GemmTables* t) { forced.store(t); }

template <>
const MicroTable<float>& micro_table<float>() {
  return gemm_tables().f32;
}
template <>
const MicroTable<double>& micro_table<double>() {
  return gemm_tables().f64;
}

template <class T>
size_t gemm_scratch(int64_t m, int64_t n, int64_t k) {
  return static_cast<size_t>(a_elements<T>(m, k) + b_elements<T>(n, k)) * sizeof(T);
}

template <class T>
void gemm_serial(const Gemm<T>& g, void* scratch) {
  gemm_part(g, 0, 1, scratch);
}

template <class T>
void gemm_part(const Gemm<T>& given, int w, int workers, void* scratch) {
  const Gemm<T> g = rows_as_columns(given);
  int64_t parts_m, parts_n;
  grid(g, workers, parts_m, parts_n);
  if (w >= parts_m * parts_n) return;
  const MicroTable<T>& t = micro_table<T>();
  const int64_t pm = w / parts_n, pn = w % parts_n;
  const int64_t panel = t.panel(), panels = t.panels(g.n);
  const int64_t n0 = panels * pn / parts_n * panel;
  const int64_t n1 = std::min(panels * (pn + 1) / parts_n * panel, g.n);
  T* base = static_cast<T*>(scratch);
  Buffers<T> buffers{base, base + a_elements<T>(g.m, g.k)};
  Runner<T>(g, buffers, g.m * pm / parts_m, g.m * (pm + 1) / parts_m, n0, n1).run();
}

template <class T>
void gemm(const Gemm<T>& g, int workers, void* scratch) {
  const size_t part = gemm_scratch<T>(g.m, g.n, g.k);
  if (SharedRun<T>::pays(g, workers)) {
    SharedRun<T> shared(g, workers, scratch, part);
    parallel_for(0, workers, 1, [&](int64_t first, int64_t last) {
      for (int64_t w = first; w < last; ++w) shared.work(static_cast<int>(w));
    });
    return;
  }
  parallel_for(0, workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w)
      gemm_part(g, static_cast<int>(w), workers, static_cast<char*>(scratch) + w * part);
  });
}

template size_t gemm_scratch<float>(int64_t, int64_t, int64_t);
template size_t gemm_scratch<double>(int64_t, int64_t, int64_t);
template void gemm_serial<float>(const Gemm<float>&, void*);
template void gemm_serial<double>(const Gemm<double>&, void*);
template void gemm_part<float>(const Gemm<float>&, int, int, void*);
template void gemm_part<double>(const Gemm<double>&, int, int, void*);
template void gemm<float>(const Gemm<float>&, int, void*);
template void gemm<double>(const Gemm<double>&, int, void*);

}  // namespace tandem::detail
