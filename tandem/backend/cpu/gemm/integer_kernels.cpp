// SPDX-License-Identifier: Apache-2.0
// The kernels of ops/matmul/integer.h. Rows of codes are copied as 16-bit differences from their
// zero point, or as they are where tiles multiply bytes, channels-last and padded; what a zero
// point of the weight contributes follows from the sum of each window; then a row of outputs is a
// matmul whose operand is the copy itself, as in packed_conv. A matrix is an image one pixel wide.
// Threads share the rows, or, where these are few, the panels of the weight. Sums are exact: no
// order matters.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/backend/cpu/gemm/integer_internal.h"
#include "tandem/backend/cpu/gemm/packed_internal.h"
#include "tandem/backend/cpu/gemm/requantise_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/small_vec.h"
#include "tandem/ops/matmul/integer.h"

namespace tandem::detail {

namespace {

constinit std::atomic<const IntegerLoops*> forced{nullptr};
constinit std::atomic<bool> requantises{true};

const IntegerLoops* best_loops() {
  const CpuFeatures& f = cpu_features();
  if (const IntegerLoops* amx = integer_amx_loops()) return amx;
  for (const auto& [has, loops] : {std::pair<bool, const IntegerLoops*>{f.vnni, &kIntegerVnni},
                                   {f.avx512, &kIntegerAvx512},
                                   {f.avx2, &kIntegerAvx2}})
    if (has && loops->rows > 0) return loops;
  return &kIntegerBase;
}

constexpr double kUnitProducts = 4e6;
constexpr int64_t kFewRows = 8;       ///< per worker: fewer are split by panels
constexpr int64_t kFewPixels = 48;    ///< the same of images whose rows follow each other
constexpr int64_t kWideBlock = 128;   ///< columns: loops over blocks of fewer are slow
constexpr int64_t kPanelGroup = 4;    ///< most panels of one unit of work
constexpr int64_t kUnitSums = 4096;   ///< of few rows more panels: each unit runs an epilogue
constexpr int64_t kMostSums = 65536;  ///< of a unit's rows: they stay in the cache for the epilogue
constexpr double kProductsPerThread = 131072;
constexpr double kWideProducts = 32e6;  ///< of one unit of wide tiles: each arranges the panels
constexpr int64_t kWidePixels = 256;    ///< of one unit, that its panels are arranged for
constexpr int64_t kWideRows = 8;        ///< fewer are not worth arranging a panel for
constexpr int64_t kBeyond = 64;         ///< elements after a copy that tiles may read
constexpr int64_t kWidestReach = 16;    ///< fewer channels: many pixels reach beyond the last one

int64_t whole_blocks(int64_t codes) { return (codes + kBeyond - 1) / kBeyond * kBeyond; }

struct Problem {
  int64_t n = 1, in_h = 1, in_w = 1, c = 1, h = 1, w = 1, o = 1;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, top = 0, left = 0;
  int64_t step_n = 0, step_h = 0, step_w = 0, step_c = 1;  ///< of x

  int64_t wide() const { return (w - 1) * stride_w + kernel_w; }
  int64_t row() const { return wide() * c; }
  int64_t depth() const { return kernel_w * c; }
  int64_t pairs() const { return (depth() + 1) / 2; }
  int64_t panels() const { return (o + kPackedPanel - 1) / kPackedPanel; }
  int64_t panel_size() const { return kernel_h * pairs() * 2 * kPackedPanel; }
  int64_t in_rows(int64_t rows) const { return (rows - 1) * stride_h + kernel_h; }
  /// Outputs that follow each other read the copy at equal distances, across rows, too.
  bool merged() const { return kernel_w == 1 && (w == 1 || (stride_h == 1 && stride_w == 1)); }
  /// Rows of the copy follow each other and are read once.
  bool is_matrix() const {
    return in_w == 1 && w == 1 && kernel_h == 1 && kernel_w == 1 && stride_h == 1;
  }
  /// Is each pixel one of x, and does x hold them one after the other?
  bool is_dense() const {
    return kernel_h == 1 && kernel_w == 1 && stride_h == 1 && stride_w == 1 && top == 0 &&
           left == 0 && h == in_h && w == in_w && step_c == 1 && (w == 1 || step_w == c) &&
           (h == 1 || step_h == w * c) && (n == 1 || step_n == h * w * c);
  }
  int64_t step() const { return (w == 1 ? stride_h * wide() : stride_w) * c; }
  double products() const {
    return static_cast<double>(w * o) * static_cast<double>(kernel_h * depth());
  }
};

Problem of_matrix(const Array& x, int64_t columns) {
  Problem p;
  p.c = x.shape[x.rank - 1];
  p.in_h = p.h = p.c > 0 ? x.numel / p.c : 0;
  p.o = columns;
  p.step_h = x.rank < 2 ? 0 : x.contiguous ? p.c : x.strides[x.rank - 2];
  p.step_c = x.strides[x.rank - 1];
  return p;
}

Problem of_image(const KernelCall& call, bool channels_last) {
  const Array &x = call.in[0], &y = call.out[0];
  const int h = channels_last ? 1 : 2, channel = channels_last ? 3 : 1;
  Problem p;
  p.n = x.shape[0], p.in_h = x.shape[h], p.in_w = x.shape[h + 1], p.c = x.shape[channel];
  p.h = y.shape[h], p.w = y.shape[h + 1], p.o = y.shape[channel];
  p.step_n = x.strides[0], p.step_h = x.strides[h], p.step_w = x.strides[h + 1];
  p.step_c = x.strides[channel];
  const auto window = [&](const IntList& stride, const IntList& padding) {
    p.stride_h = stride[0].value(), p.stride_w = stride[1].value();
    p.top = padding[0].value(), p.left = padding[1].value();
  };
  if (channels_last) {
    const auto& a = call.get_attrs<PackedAttrs>();
    window(a.stride, a.padding);
    p.kernel_h = a.kernel[0].value(), p.kernel_w = a.kernel[1].value();
  } else {
    const auto& a = call.get_attrs<ConvAttrs>();
    window(a.stride, a.padding);
    p.kernel_h = call.in[1].shape[2], p.kernel_w = call.in[1].shape[3];
  }
  return p;
}

Problem problem_of(const KernelCall& c) {
  if (&c.op == &op::packed_integer_matmul)
    return of_matrix(c.in[0], c.get_attrs<PackedAttrs>().columns);
  if (&c.op == &op::matmul_integer) return of_matrix(c.in[0], c.in[1].shape[1]);
  return of_image(c, &c.op == &op::packed_integer_conv);
}
bool is_packed(const KernelCall& c) {
  return &c.op == &op::packed_integer_matmul || &c.op == &op::packed_integer_conv;
}

struct IntegerPlan : EpiloguePlan {
  int workers = 1;
  bool by_panels = false;
  int64_t blocks = 1;  ///< of a sample's output rows: a unit each
  int64_t part = 0;    ///< elements of copied rows of a worker, or of a sample
  int64_t panel = 0;   ///< bytes of an arranged panel of a worker
  size_t weight = 0;   ///< bytes of the weight in scratch, before the rows
  size_t columns = 0;  ///< bytes of zero points or a bias in scratch, behind the weight
  size_t sums = 0;     ///< bytes of a unit's sums, in scratch after all else
  size_t sums_at = 0;
};

void run_with(const KernelCall& c, const Epilogue& e);

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<IntegerPlan>();
  const Problem p = problem_of(c);
  const double all = p.products() * static_cast<double>(p.h * p.n);
  plan->workers =
      std::max(1, static_cast<int>(std::min<double>(num_threads(), all / kProductsPerThread)));
  // Plans are kept while tests choose other loops.
  const WideTiles* wide = integer_amx_loops() ? integer_amx_loops()->wide : nullptr;
  // A weight that does not stay in the cache is read once; wide tiles arrange it for all threads.
  const bool large = p.panels() * p.panel_size() >= 1 << 19 && p.n * p.h * p.w <= 64;
  const bool few = (p.merged() && p.w > 1 ? p.h * p.n * p.w < kFewPixels * plan->workers
                                          : p.h * p.n < kFewRows * plan->workers) ||
                   (wide && p.n * p.h * p.w <= kWidePixels);
  plan->by_panels = large || (few && p.panels() >= 2 * plan->workers && plan->workers > 1);
  const double unit =
      wide ? std::max(kUnitProducts, std::min(kWideProducts, all / plan->workers)) : kUnitProducts;
  int64_t least = p.merged() ? 4 * integer_loops().rows / p.w + 1 : 1;
  const int64_t most = wide ? p.h : std::clamp<int64_t>(kMostSums / (p.w * p.o + 1), 1, p.h);
  if (wide) least = std::min(kWidePixels / p.w + 1, (p.h + plan->workers - 1) / plan->workers);
  const int64_t rows =
      plan->by_panels
          ? p.h
          : std::clamp<int64_t>(std::min(static_cast<int64_t>(unit / (p.products() + 1)), most),
                                std::min(least, p.h), p.h);
  plan->blocks = (p.h + rows - 1) / rows;
  if (p.n * plan->blocks % plan->workers != 0)
    plan->blocks = std::min(even_units(plan->blocks, plan->workers), p.h);
  plan->part = (p.in_rows(rows) * p.row() + kBeyond + 31) / 32 * 32;
  if (!is_packed(c)) {
    plan->weight = whole_lines(static_cast<size_t>(p.panels() * p.panel_size()));
  }
  plan->columns = whole_lines(static_cast<size_t>(p.panels() * kPackedPanel) * sizeof(int32_t));
  if (wide) plan->panel = wide->panel_bytes(p.kernel_h, p.pairs());
  plan->workspace = plan->weight + 2 * plan->columns +
                    static_cast<size_t>(plan->panel) * static_cast<size_t>(plan->workers) +
                    sizeof(int16_t) * static_cast<size_t>(plan->part) *
                        static_cast<size_t>(plan->by_panels ? p.n : plan->workers);
  if (!plan->by_panels) {
    const int64_t sums = (p.h + plan->blocks - 1) / plan->blocks * p.w * p.o;
    plan->sums = whole_lines(static_cast<size_t>(sums) * sizeof(int32_t));
    plan->sums_at = take_lines(plan->workspace, plan->sums * static_cast<size_t>(plan->workers));
  }
  plan->run_with = run_with;
  return plan;
}

// Differences of the codes of x and their zero point, or u8 codes: those of i8 plus 128.
struct Codes {
  const Array* x;
  int32_t zero;

  bool is_signed() const { return x->dtype == DType::i8; }
  /// What stands for 0 in a copy.
  int16_t nothing(const int16_t*) const { return 0; }
  uint8_t nothing(const uint8_t*) const {
    return static_cast<uint8_t>(is_signed() ? zero + 128 : zero);
  }
  void copy(int64_t at, int64_t n, int16_t* to) const {
    const IntegerLoops& l = integer_loops();
    if (is_signed())
      l.centre_i8(to, x->as<int8_t>() + at, n, zero);
    else
      l.centre_u8(to, x->as<uint8_t>() + at, n, zero);
  }
  void copy(int64_t at, int64_t n, uint8_t* to) const {
    std::memcpy(to, x->as<uint8_t>() + at, static_cast<size_t>(n));
    if (is_signed()) flip(to, n);
  }
  template <class T>
  void copy(int64_t at, int64_t step, int64_t n, T* to, int64_t to_step) const {
    const int32_t less = std::is_same_v<T, uint8_t> ? (is_signed() ? -128 : 0) : zero;
    if (is_signed())
      scatter(x->as<int8_t>() + at, step, n, to, to_step, less);
    else
      scatter(x->as<uint8_t>() + at, step, n, to, to_step, less);
  }
  /// `count` pixels of a row whose channels are p.step_c apart.
  template <class T>
  void interleave(const Problem& p, int64_t from, int64_t count, T* to) const {
    constexpr int64_t kColours = 3;
    if constexpr (std::is_same_v<T, uint8_t>)
      if (p.c == kColours && p.step_w == 1 && !is_signed()) {
        const uint8_t *a = x->as<uint8_t>() + from, *b = a + p.step_c, *c = b + p.step_c;
        for (int64_t j = 0; j < count; ++j, to += kColours)
          to[0] = a[j], to[1] = b[j], to[2] = c[j];
        return;
      }
    for (int64_t i = 0; i < p.c; ++i) copy(from + i * p.step_c, p.step_w, count, to + i, p.c);
  }

 private:
  template <class F, class T>
  static void scatter(const F* from, int64_t step, int64_t n, T* to, int64_t to_step,
                      int32_t less) {
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = static_cast<T>(from[i * step] - less);
  }
  static void flip(uint8_t* x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] ^= 0x80;
  }
};

// Row `at` of sample n of x, padded, to `to`.
template <class T>
void copy_row(const Problem& p, const Codes& x, int64_t n, int64_t at, T* to) {
  const T nothing = x.nothing(to);
  if (at < 0 || at >= p.in_h) {
    std::fill_n(to, p.row(), nothing);
    return;
  }
  const int64_t from = n * p.step_n + at * p.step_h;
  // Strides that pass over all pixels may end before the padding does.
  const int64_t left = std::min(p.left, p.wide()), count = std::min(p.in_w, p.wide() - left);
  std::fill_n(to, left * p.c, nothing);
  to += left * p.c;
  if (p.step_c == 1 && (p.step_w == p.c || count == 1)) {
    x.copy(from, count * p.c, to);
  } else {
    x.interleave(p, from, count, to);
  }
  std::fill_n(to + count * p.c, (p.wide() - left - count) * p.c, nothing);
}

struct Operands {
  Codes x;
  const char* w;
  int32_t* y;
  const Epilogue* epilogue;
  const int32_t *bias = nullptr, *zero = nullptr;  ///< [o]: of the weight
  const int32_t* sums = nullptr;                   ///< of each window, beside zero
  int32_t x_zero = 0;        ///< what wide tiles take from the bias by themselves; 0: it is done
  char* panels = nullptr;    ///< where workers arrange theirs
  int64_t panel = 0;         ///< bytes of one
  char* own_sums = nullptr;  ///< of the workers, in place of y
  const Requantise* codes = nullptr;  ///< of the epilogue; tiles can make them
  const uint8_t* end = nullptr;       ///< of x, where tiles read it in its place ...
  uint8_t* spare = nullptr;           ///< ... but for those that would read beyond
};

// Sums of a tile on their way to codes: those of a tile become codes while the next one is
// computed.
class TileOfCodes {
 public:
  TileOfCodes(const Problem& p, const Operands& op) : codes_(op.codes), columns_(p.o) {}
  /// Lets t store its sums here, those of columns from `column` of its panel on.
  void hold(IntegerTile& t, int64_t column) {
    t.c = sums_[now_] + column;
    t.c_row = kRequantisedColumns;
    t.spare = true;
  }
  /// What is held: rows from `skip` of a tile whose first one is row0 of the result.
  void take(int64_t panel, int64_t row0, int64_t skip, int64_t rows) {
    const int64_t column0 = panel * kPackedPanel;
    finish();
    waiting_ = {sums_[now_] + skip * kRequantisedColumns, row0 + skip, rows - skip, column0,
                std::min(kPackedPanel, columns_ - column0)};
    now_ = 1 - now_;
  }
  void finish() {
    if (waiting_.rows > 0) requantise_loop()(*codes_, waiting_);
    waiting_.rows = 0;
  }

 private:
  const Requantise* codes_;
  int64_t columns_;
  int now_ = 0;
  RequantisedTile waiting_;
  alignas(64) int32_t sums_[2][kMostWideRows * kRequantisedColumns] = {};
};
static_assert(kRequantisedColumns == kPackedPanel);

// Codes of tiles that lie in x: copied where the tile would read more than `reach` allows.
inline const uint8_t* readable(const Operands& op, const uint8_t* codes, int64_t rows, int64_t am,
                               int64_t reach) {
  if (!op.end || codes + (rows - 1) * am + reach <= op.end) return codes;
  const int64_t there = op.end - codes, all = std::min(rows * am, there);
  std::memcpy(op.spare, codes, static_cast<size_t>(all));
  std::fill_n(op.spare + all, kBeyond, uint8_t(0));
  return op.spare;
}
inline const int16_t* readable(const Operands&, const int16_t* x, int64_t, int64_t, int64_t) {
  return x;
}

constexpr int64_t kNearPairs = 256;  ///< of a panel: 16 KB of 8 bits stay in the first-level cache
constexpr int64_t kAheadBytes = 6144;

using Sums = SmallVec<int32_t, 64>;
int32_t sum(const int16_t* x, int64_t n) { return integer_loops().sum(x, n); }
int32_t sum(const uint8_t* x, int64_t n) { return integer_loops().sum_codes(x, n); }
// What `rows` rows of windows sum up to, less the zero point of x, where the weight has one.
template <class T>
Sums sums_of(const Problem& p, const Operands& op, const T* x, int64_t rows) {
  Sums sums;
  if (!op.zero) return sums;
  const bool centred = std::is_same_v<T, int16_t>;
  const uint32_t zeros = centred ? 0
                                 : static_cast<uint32_t>(op.x.nothing(x)) *
                                       static_cast<uint32_t>(p.kernel_h * p.depth());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t v = 0; v < p.w; ++v) {
      const T* from = x + r * p.stride_h * p.row() + v * p.stride_w * p.c;
      uint32_t of_window = -zeros;
      for (int64_t s = 0; s < p.kernel_h; ++s)
        of_window += static_cast<uint32_t>(sum(from + s * p.row(), p.depth()));
      sums.push_back(static_cast<int32_t>(of_window));
    }
  return sums;
}

// Subtracts the terms of the weight's zero points from the columns of a panel.
void finish_panel(const Problem& p, const Operands& op, int64_t rows, int64_t panel, int32_t* y) {
  if (!op.zero) return;
  IntegerFinish f;
  const int64_t j = panel * kPackedPanel;
  f.c = y + j;
  f.c_row = p.o;
  f.rows = rows * p.w;
  f.columns = std::min(kPackedPanel, p.o - j);
  f.zero = op.zero + j;
  f.sums = op.sums;
  integer_loops().finish(f);
}

// A tile of `rows` rows over one or two vectors of columns.
void run_tile(const IntegerLoops& l, int64_t rows, IntegerTile& t, const int16_t* x) {
  t.a = x;
  l.tile[rows - 1][(t.columns + l.width - 1) / l.width - 1](t);
}
void run_tile(const IntegerLoops& l, int64_t rows, IntegerTile& t, const uint8_t* x) {
  t.codes = x;
  l.byte_tile[rows - 1](t);
}
int64_t columns_of_tile(const IntegerLoops& l, int64_t rows, const int16_t*) {
  return l.width * l.vectors(rows);
}
int64_t columns_of_tile(const IntegerLoops&, int64_t, const uint8_t*) { return kPackedPanel; }

// multiply() of a matrix: blocks of the depth, whose weights stay near for all tiles.
template <class T>
void multiply_matrix(const Problem& p, const Operands& op, const T* x, int64_t rows, int64_t p0,
                     int64_t p1, int32_t* y) {
  const IntegerLoops& l = integer_loops();
  const int64_t tiles = (rows + l.rows - 1) / l.rows, across = columns_of_tile(l, rows, x);
  IntegerTile t;
  t.am = p.c;
  t.c_row = p.o;
  for (int64_t panel = p0; panel < p1; ++panel) {
    const int64_t columns = std::min(kPackedPanel, p.o - panel * kPackedPanel);
    for (int64_t q = 0; q < p.pairs(); q += kNearPairs) {
      t.pairs = std::min(kNearPairs, p.pairs() - q);
      t.accumulate = q > 0;
      for (int64_t j = 0; j < columns; j += across) {
        const char* w = op.w + panel * p.panel_size() + q * 2 * kPackedPanel + 2 * j;
        t.w = w;
        t.columns = static_cast<int>(std::min(columns - j, across));
        t.bias = op.bias ? op.bias + panel * kPackedPanel + j : nullptr;
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t r0 = rows * i / tiles, r1 = rows * (i + 1) / tiles;
          t.ahead = i == 0 && j == 0 ? w + kAheadBytes : nullptr;
          t.c = y + r0 * p.o + panel * kPackedPanel + j;
          run_tile(l, r1 - r0, t, x + r0 * p.c + 2 * q);
        }
      }
    }
    finish_panel(p, op, rows, panel, y);
  }
}

// What all tiles of an image have in common.
IntegerTile tile_of(const Problem& p) {
  IntegerTile t;
  t.pairs = p.pairs();
  t.segments = p.kernel_h;
  t.am = p.merged() ? p.step() : p.stride_w * p.c;
  t.a_segment = p.row();
  t.c_row = p.o;
  return t;
}

// How wide tiles cover outputs that follow each other in `lines` lines of `w`. All have as many
// rows, for which the registers are set once: the last one of a line repeats some of the one
// before.
struct WideCover {
  int64_t lines, w, tiles = 1, first, second, apart;  ///< apart: lines from one tile to the next

  WideCover(int64_t lines_, int64_t w_) : lines(lines_), w(w_), first(w_), second(0), apart(1) {
    constexpr int64_t kHalf = kMostWideRows / 2;
    if (w <= kHalf) {  // two lines in one tile: half the weights read, and twice as many sums
      if (lines > 1) second = w, apart = 2;
      return;
    }
    tiles = (w + kMostWideRows - 1) / kMostWideRows;
    const int64_t rows = (w + tiles - 1) / tiles;
    first = std::min(rows, kHalf), second = rows - first;
  }
  bool pairs() const { return apart == 2; }
  int64_t first_line(int64_t r) const { return std::min(r, lines - apart); }
  int64_t start(int64_t i) const { return std::min(i * (first + second), w - first - second); }
};

// multiply() by wide tiles; `arranged` is where the worker puts a panel.
void multiply_wide(const Problem& p, const Operands& op, const uint8_t* x, int64_t rows, int64_t p0,
                   int64_t p1, int32_t* y, int64_t row0, char* arranged) {
  const WideTiles& l = *integer_loops().wide;
  const WideCover cover = p.merged() ? WideCover(1, rows * p.w) : WideCover(rows, p.w);
  const int64_t line = p.stride_h * p.row(), reach = l.reach(p.pairs());
  const int first = static_cast<int>(cover.first), second = static_cast<int>(cover.second);
  const int all = first + second;
  IntegerTile t = tile_of(p);
  t.second = cover.pairs() ? line : cover.first * t.am;
  TileOfCodes codes(p, op);
  int32_t bias[kPackedPanel];
  l.configure(first, second, p.pairs());
  for (int64_t panel = p0; panel < p1; ++panel) {
    l.arrange(op.w + panel * p.panel_size(), p.kernel_h, p.pairs(), arranged,
              op.x_zero != 0 ? bias : nullptr);
    t.bias = op.bias + panel * kPackedPanel;
    if (op.x_zero != 0) {
      for (int64_t j = 0; j < kPackedPanel; ++j)  // wraps
        bias[j] =
            static_cast<int32_t>(static_cast<uint32_t>(t.bias[j]) -
                                 static_cast<uint32_t>(op.x_zero) * static_cast<uint32_t>(bias[j]));
      t.bias = bias;
    }
    t.columns = static_cast<int>(std::min(kPackedPanel, p.o - panel * kPackedPanel));
    int64_t done = 0;  // rows: what tiles repeat has been overwritten, if it lay in its own place
    for (int64_t k = 0; k < cover.lines; k += cover.apart)
      for (int64_t i = 0; i < cover.tiles; ++i) {
        const int64_t r = cover.first_line(k), w0 = cover.pairs() ? 0 : cover.start(i),
                      at = r * p.w + w0;
        t.codes = readable(op, x + r * line + w0 * t.am, all, t.am, reach);
        if (!op.codes) {
          t.c = y + at * p.o + panel * kPackedPanel;
          l.run(t, arranged, first, second);
          continue;
        }
        codes.hold(t, 0);
        l.run(t, arranged, first, second);
        codes.take(panel, row0 + at, done - at, all);
        done = at + all;
      }
    finish_panel(p, op, rows, panel, y);
  }
  codes.finish();
  l.release();
}

// Can multiply() make codes?
template <class T>
bool makes_codes(const Problem& p, const Operands& op, int64_t rows) {
  return op.codes && (!p.is_matrix() || (std::is_same_v<T, uint8_t> && integer_loops().wide &&
                                         rows * p.w >= kWideRows));
}

// multiply() into codes by tiles that are not wide.
template <class T>
void multiply_to_codes(const Problem& p, const Operands& op, const T* x, int64_t rows, int64_t p0,
                       int64_t p1, int64_t row0) {
  const IntegerLoops& l = integer_loops();
  const bool merged = p.merged();
  const int64_t lines = merged ? 1 : rows, w = merged ? rows * p.w : p.w;
  const int64_t tiles = (w + l.rows - 1) / l.rows, reach = whole_blocks(p.depth());
  const int64_t across = std::min(columns_of_tile(l, l.rows, x), kPackedPanel);
  IntegerTile t = tile_of(p);
  TileOfCodes codes(p, op);
  for (int64_t panel = p0; panel < p1; ++panel) {
    const int64_t columns = std::min(kPackedPanel, p.o - panel * kPackedPanel);
    for (int64_t r = 0; r < lines; ++r)
      for (int64_t i = 0; i < tiles; ++i) {
        const int64_t w0 = w * i / tiles, w1 = w * (i + 1) / tiles;
        const T* from =
            readable(op, x + r * p.stride_h * p.row() + w0 * t.am, w1 - w0, t.am, reach);
        for (int64_t j = 0; j < columns; j += across) {
          t.w = op.w + panel * p.panel_size() + 2 * j;
          t.bias = op.bias ? op.bias + panel * kPackedPanel + j : nullptr;
          t.columns = static_cast<int>(std::min<int64_t>(columns - j, across));
          codes.hold(t, j);
          run_tile(l, w1 - w0, t, from);
        }
        codes.take(panel, row0 + r * p.w + w0, 0, w1 - w0);
      }
  }
  codes.finish();
}

// Output rows of a sample, panels p0..p1-1; x is the first copied row that they read, y the first
// output, row0 its row in the result.
template <class T>
void multiply(const Problem& p, const Operands& op, const T* x, int64_t rows, int64_t p0,
              int64_t p1, int32_t* y, int64_t row0, size_t worker) {
  if constexpr (std::is_same_v<T, uint8_t>)
    if (integer_loops().wide && rows * p.w >= kWideRows)
      return multiply_wide(p, op, x, rows, p0, p1, y, row0,
                           op.panels + static_cast<int64_t>(worker) * op.panel);
  if (makes_codes<T>(p, op, rows)) return multiply_to_codes(p, op, x, rows, p0, p1, row0);
  if (p.is_matrix()) return multiply_matrix(p, op, x, rows, p0, p1, y);
  const IntegerLoops& l = integer_loops();
  const bool merged = p.merged();
  const int64_t lines = merged ? 1 : rows, w = merged ? rows * p.w : p.w;
  const int64_t tiles = (w + l.rows - 1) / l.rows;
  IntegerTile t = tile_of(p);
  for (int64_t panel = p0; panel < p1; ++panel) {
    const int64_t columns = std::min(kPackedPanel, p.o - panel * kPackedPanel);
    const int64_t across = std::min(columns_of_tile(l, l.rows, x), kPackedPanel);
    for (int64_t j = 0; j < columns; j += across) {
      t.w = op.w + panel * p.panel_size() + 2 * j;
      t.bias = op.bias ? op.bias + panel * kPackedPanel + j : nullptr;
      t.columns = static_cast<int>(std::min<int64_t>(columns - j, across));
      for (int64_t r = 0; r < lines; ++r)
        for (int64_t i = 0; i < tiles; ++i) {
          const int64_t w0 = w * i / tiles, w1 = w * (i + 1) / tiles;
          t.c = y + (r * p.w + w0) * p.o + panel * kPackedPanel + j;
          run_tile(l, w1 - w0, t, x + r * p.stride_h * p.row() + w0 * t.am);
        }
    }
    finish_panel(p, op, rows, panel, y);
  }
}

// The first of `rows` pixels from `row` on, where tiles can read them as they lie; or nullptr.
// `spare` takes the last ones.
const uint8_t* in_place(const Problem& p, Operands& op, int64_t rows, int64_t row, uint8_t* spare) {
  if (!p.is_dense() || op.x.is_signed() || p.c < kWidestReach) return nullptr;
  if (p.is_matrix() && (!integer_loops().wide || rows < kWideRows)) return nullptr;
  const auto* x = op.x.x->as<uint8_t>();
  op.end = x + op.x.x->numel;
  op.spare = spare;
  return x + row * p.c;
}
const int16_t* in_place(const Problem&, Operands&, int64_t, int64_t, int16_t*) { return nullptr; }

template <class T>
void run_rows(const Problem& p, const IntegerPlan& plan, const Operands& op, T* scratch) {
  const int64_t blocks = plan.blocks;
  share_units(plan.workers, p.n * blocks, [&](size_t worker, int64_t u) {
    T* copy = scratch + static_cast<int64_t>(worker) * plan.part;
    const int64_t n = u / blocks, b = u % blocks;
    const int64_t h0 = p.h * b / blocks, h1 = p.h * (b + 1) / blocks, count = p.in_rows(h1 - h0);
    const int64_t row = (n * p.h + h0) * p.w;
    Operands own = op;
    const T* from = in_place(p, own, (h1 - h0) * p.w, row, copy);
    if (!from) {
      for (int64_t r = 0; r < count; ++r)
        copy_row(p, op.x, n, h0 * p.stride_h - p.top + r, copy + r * p.row());
      std::fill_n(copy + count * p.row(), kBeyond, T(0));
      from = copy;
    }
    const Sums sums = sums_of(p, op, from, h1 - h0);
    own.sums = sums.data();
    int32_t* y = op.own_sums ? reinterpret_cast<int32_t*>(op.own_sums + worker * plan.sums)
                             : op.y + row * p.o;
    multiply(p, own, from, h1 - h0, 0, p.panels(), y, row, worker);
    if (op.epilogue && !makes_codes<T>(p, op, h1 - h0))
      op.epilogue->run_block(y, row, (n * p.h + h1) * p.w, p.o);
  });
}

template <class T>
void run_panels(const Problem& p, const IntegerPlan& plan, const Operands& op, T* scratch) {
  const int64_t rows = p.in_rows(p.h);
  parallel_for(0, p.n * rows, 1 + 65536 / (p.row() + 1), [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k)
      copy_row(p, op.x, k / rows, k % rows - p.top,
               scratch + k / rows * plan.part + k % rows * p.row());
  });
  for (int64_t n = 0; n < p.n; ++n)
    std::fill_n(scratch + n * plan.part + rows * p.row(), kBeyond, T(0));
  std::vector<Sums> sums;  // of each sample
  for (int64_t n = 0; n < p.n; ++n) sums.push_back(sums_of(p, op, scratch + n * plan.part, p.h));
  const int64_t units = plan.workers > 1 ? 4 * plan.workers : 1;
  const int64_t most = std::max(kPanelGroup, kUnitSums / (p.n * p.h * p.w * kPackedPanel));
  const int64_t group = std::clamp<int64_t>(p.panels() / units, 1, most);
  const int64_t all = p.n * p.h * p.w;
  const bool at_once = group * kPackedPanel >= std::min(kWideBlock, p.o);
  share_units(plan.workers, (p.panels() + group - 1) / group, [&](size_t worker, int64_t u) {
    const int64_t j = u * group, next = std::min(j + group, p.panels());
    for (int64_t n = 0; n < p.n; ++n) {
      Operands own = op;
      own.sums = sums[static_cast<size_t>(n)].data();
      multiply(p, own, scratch + n * plan.part, p.h, j, next, op.y + n * p.h * p.w * p.o,
               n * p.h * p.w, worker);
    }
    if (op.epilogue && at_once && !makes_codes<T>(p, op, p.h))
      op.epilogue->run(*op.epilogue, 0, all, j * kPackedPanel, std::min(next * kPackedPanel, p.o));
  });
  if (!op.epilogue || at_once || makes_codes<T>(p, op, p.h)) return;
  share_units(plan.workers, plan.workers, [&](size_t, int64_t u) {
    const int64_t first = all * u / plan.workers, last = all * (u + 1) / plan.workers;
    op.epilogue->run_block(op.y + first * p.o, first, last, p.o);
  });
}

const Array* operand(const KernelCall& c, int i) {
  return i < c.n_in && c.in[i].present() ? &c.in[i] : nullptr;
}

void pack_weight(const KernelCall& c) {
  const IntegerWeight w(c.in[1]);
  parallel_for(0, w.panels(), 1 + 32768 / (w.panel_size() + 1), [&](int64_t first, int64_t last) {
    pack_integer_panels(w, first, last, static_cast<int8_t*>(c.scratch) + first * w.panel_size());
  });
}

// bias[j] less what the zero point of x contributes to column j, where tiles take codes as they
// are.
void take_zero(const Problem& p, const Operands& op, int32_t* bias) {
  const int32_t zero = op.x.nothing(static_cast<const uint8_t*>(nullptr));
  const int64_t given = op.bias ? p.o : 0;
  std::fill(bias + given, bias + p.panels() * kPackedPanel, 0);
  if (zero == 0) return;
  const std::vector<uint8_t> ones(static_cast<size_t>(2 * p.pairs() + kBeyond), 1);
  parallel_for(0, p.panels(), 1 + 65536 / (p.panel_size() + 1), [&](int64_t first, int64_t last) {
    for (int64_t panel = first; panel < last; ++panel) {
      int32_t sums[kPackedPanel];
      IntegerTile t;
      t.pairs = p.pairs();
      t.segments = p.kernel_h;
      t.codes = ones.data();
      t.w = op.w + panel * p.panel_size();
      t.c = sums;
      t.columns = static_cast<int>(std::min(kPackedPanel, p.o - panel * kPackedPanel));
      integer_loops().byte_tile[0](t);
      for (int64_t j = 0; j < t.columns; ++j) {
        auto& b = reinterpret_cast<uint32_t&>(bias[panel * kPackedPanel + j]);
        b -= static_cast<uint32_t>(zero) * static_cast<uint32_t>(sums[j]);
      }
    }
  });
}

// The zero points of the columns less what packing takes from the weights, in `to`; nullptr: all 0.
const int32_t* zero_points(const KernelCall& c, int64_t columns, int32_t* to) {
  const bool packed = is_packed(c);
  const Array* z = operand(c, packed ? 4 : 3);
  if (!z && (packed || c.in[1].dtype == DType::i8)) return nullptr;
  const bool is_signed = z ? z->dtype == DType::i8 : false;
  bool any = false;
  for (int64_t j = 0; j < columns; ++j) {
    to[j] = integer_zero(z, j) - (is_signed ? 0 : 128);
    any = any || to[j] != 0;
  }
  return any ? to : nullptr;
}

void run_integer(const KernelCall& c, const Epilogue* e) {
  const auto& plan = *static_cast<const IntegerPlan*>(c.plan);
  const Problem p = problem_of(c);
  const bool packed = is_packed(c);
  if (!packed) pack_weight(c);
  Operands op{{&c.in[0], integer_zero(operand(c, 2), 0)},
              packed ? c.in[1].as<const char>() : static_cast<const char*>(c.scratch),
              c.out[0].as<int32_t>(),
              e};
  char* scratch = static_cast<char*>(c.scratch) + plan.weight;
  if (e && e->run_at && !plan.by_panels) op.own_sums = static_cast<char*>(c.scratch) + plan.sums_at;
  if (const Array* b = packed ? operand(c, 3) : nullptr) {
    auto* own = reinterpret_cast<int32_t*>(scratch);
    for (int64_t j = 0; j < p.o; ++j) own[j] = b->as<int32_t>()[j * b->strides[b->rank - 1]];
    op.bias = own;
  }
  op.zero = zero_points(c, p.o, reinterpret_cast<int32_t*>(scratch + plan.columns));
  if (!op.zero && requantise_loop()) op.codes = codes_of(e);
  const auto run = [&](auto* rows) {
    if (plan.by_panels)
      run_panels(p, plan, op, rows);
    else
      run_rows(p, plan, op, rows);
  };
  op.panels = scratch + 2 * plan.columns;
  op.panel = plan.panel;
  char* rows = op.panels + plan.panel * plan.workers;
  if (!integer_loops().takes_bytes()) return run(reinterpret_cast<int16_t*>(rows));
  auto* bias = reinterpret_cast<int32_t*>(scratch);
  if (integer_loops().wide && (plan.by_panels ? p.h : p.h / plan.blocks) * p.w >= kWideRows) {
    op.x_zero = op.x.nothing(static_cast<const uint8_t*>(nullptr));
    std::fill(bias + (op.bias ? p.o : 0), bias + p.panels() * kPackedPanel, 0);
  } else {
    take_zero(p, op, bias);
  }
  op.bias = bias;
  run(reinterpret_cast<uint8_t*>(rows));
}
void run_with(const KernelCall& c, const Epilogue& e) { run_integer(c, &e); }
void run(const KernelCall& c) { run_integer(c, nullptr); }

bool all_present(const KernelCall& c) {
  for (int i = 0; i < c.n_in; ++i)
    if (c.in[i].present() && (c.in[i].is_scalar || c.in[i].numel == 0)) return false;
  return true;
}
bool supports_packed(const KernelCall& c) { return all_present(c) && c.in[1].contiguous; }
/// Rows that are a step apart: more than two dimensions need not be.
bool supports_matmul(const KernelCall& c) {
  return all_present(c) && (c.in[0].contiguous || c.in[0].rank <= 2);
}
bool supports_packed_matmul(const KernelCall& c) {
  return supports_matmul(c) && supports_packed(c);
}
bool supports_conv(const KernelCall& c) {
  const auto& a = c.get_attrs<ConvAttrs>();
  if (!all_present(c) || c.in[0].rank != 4 || a.groups != 1) return false;
  return a.dilation[0].value() == 1 && a.dilation[1].value() == 1;
}
bool conv_layout(const KernelCall& c, int, Strides& strides) {
  strides = channels_last_strides(c.out[0].shape, 4);
  return true;
}
EpilogueKind blocks(const KernelCall& c) {
  return &c.op == &op::conv_integer ? EpilogueKind::none : EpilogueKind::blocks;
}

}  // namespace

const IntegerLoops& integer_loops() {
  static const IntegerLoops* best = best_loops();
  const IntegerLoops* t = forced.load(std::memory_order_relaxed);
  return t ? *t : *best;
}
void use_integer_loops(const IntegerLoops* t) { forced = t; }
const Requantise* codes_of(const Epilogue* e) {
  return e && requantises.load(std::memory_order_relaxed) ? e->codes : nullptr;
}
void use_requantise(bool on) { requantises = on; }
RequantiseLoop requantise_loop() {
  const CpuFeatures& f = cpu_features();
  if (f.avx512 && kRequantiseAvx512) return kRequantiseAvx512;
  return f.avx2 ? kRequantiseAvx2 : nullptr;
}

void register_integer_kernels() {
  runtime_of(op::pack_integer);
  register_epilogue(prepare, blocks);
  const auto add = [](const OpDef& op, bool (*supports)(const KernelCall&),
                      bool (*layout)(const KernelCall&, int, Strides&)) {
    register_kernel(DeviceKind::cpu, op, {supports, layout, prepare, run});
  };
  add(op::matmul_integer, supports_matmul, nullptr);
  add(op::conv_integer, supports_conv, conv_layout);
  add(op::packed_integer_matmul, supports_packed_matmul, nullptr);
  add(op::packed_integer_conv, supports_packed, nullptr);
}

}  // namespace tandem::detail
