// SPDX-License-Identifier: Apache-2.0
// Sorting and what looks for values: sort, topk, searchsorted, nonzero, bincount. Lanes of up to
// 1024 elements are sorted by counting for each element those that come before it, longer ones by a
// bitonic network over their indices, a launch a step. The order is total (equal elements by their
// place), so both give one result.
#include <algorithm>

#include "tandem/backend/gpu/rows/dense_internal.h"
#include "tandem/backend/gpu/rows/register_internal.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/index/search.h"

namespace tandem::gpu {
namespace {

constexpr int64_t kMostCounted = 1024;

// Is a (at place i) before b (at place j)? NaN is larger than every number.
constexpr const char* kBeforeText =
    "#define LESS(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))\n"
    "#define BEFORE(a, i, b, j) (descending                                           "
    "    ? LESS(b, a) || (!LESS(a, b) && (i) < (j))                                   "
    "    : LESS(a, b) || (!LESS(b, a) && (i) < (j)))\n";
constexpr const char* kBeforeEndText = "#undef LESS\n#undef BEFORE\n";

constexpr DenseKernel kSortByCounting{.name = "sort_by_counting",
                                      .body = {kBeforeText, R"td_text(
  const td_i64 j = me % inner, i = me / inner % n, first = me / inner / n * n * inner + j;
  const TI0 v = I0(me);
  td_i64 place = 0;
  for (td_i64 k = 0; k < n; ++k) {
    const TI0 other = I0(first + k * inner);
    place += BEFORE(other, k, v, i) ? 1 : 0;
  }
  if (place < taken) {
    const td_i64 to = (me / inner / n * taken + place) * inner + j;
    P0(to, v);
    P1(to, i);
  }
)td_text",
                                               kBeforeEndText}};

// `order` has `width` places a lane, a power of two; those from n on come last.
constexpr DenseKernel kStartOrder{.name = "start_order", .body = {"  order[me] = me % width;\n"}};

constexpr DenseKernel kBitonicStep{.name = "bitonic_step",
                                   .body = {kBeforeText, R"td_text(
  const td_i64 pairs = width / 2, lane = me / pairs, p = me % pairs;
  const td_i64 low = p / gap * 2 * gap + p % gap, high = low + gap;
  const td_i64 first = lane / inner * n * inner + lane % inner;
  const td_i64 a = order[lane * width + low], b = order[lane * width + high];
  td_i32 swap;
  if (a >= n || b >= n) {
    swap = a > b;
  } else {
    const TI0 x = I0(first + a * inner), y = I0(first + b * inner);
    swap = BEFORE(y, b, x, a) ? 1 : 0;
  }
  if ((low & run) != 0) swap = !swap;
  if (swap) {
    order[lane * width + low] = b;
    order[lane * width + high] = a;
  }
)td_text",
                                            kBeforeEndText}};

constexpr DenseKernel kTakeOrder{.name = "take_order", .body = {R"td_text(
  const td_i64 j = me % inner, i = me / inner % taken, o = me / inner / taken;
  const td_i64 from = order[(o * inner + j) * width + i];
  P0(me, I0((o * n + from) * inner + j));
  P1(me, from);
)td_text"}};

// x as [outer, n, inner].
struct Lanes {
  int64_t n = 1, inner = 1, width = 1;

  Lanes(const Array& x, int64_t dim) {
    const int d = x.rank ? normalize_dim(dim, x.rank) : 0;
    if (x.rank) n = x.shape[d];
    for (int i = d + 1; i < x.rank; ++i) inner *= x.shape[i];
    while (width < n) width *= 2;
  }
  bool counted() const { return n <= kMostCounted; }
  int64_t places(const Array& x) const { return n ? x.numel / n * width : 0; }
};

std::shared_ptr<const Plan> prepare_sort(const KernelCall& c) {
  const Lanes lanes(c.in[0], c.get_attrs<SortAttrs>().dim);
  if (lanes.counted()) return plan_dense(c);
  return plan_dense(c, {static_cast<size_t>(lanes.places(c.in[0])) * sizeof(int64_t)});
}

void run_sort_row(const KernelCall& c) {
  const auto& a = c.get_attrs<SortAttrs>();
  const Array& x = c.in[0];
  if (x.numel == 0) return;
  const Lanes lanes(x, a.dim);
  const int64_t taken = &c.op == &op::topk ? a.k : lanes.n;
  DenseCall call(c);
  call.number("n", lanes.n).number("inner", lanes.inner);
  call.number("descending", int64_t{a.descending}).number("taken", taken);
  if (lanes.counted()) return call.run(kSortByCounting, x.numel);
  const int64_t places = lanes.places(x);
  call.number("width", lanes.width).scratch("order", DType::i64, places);
  call.run(kStartOrder, places);
  for (int64_t run = 2; run <= lanes.width; run *= 2) {
    for (int64_t gap = run / 2; gap > 0; gap /= 2) {
      DenseCall step = call;
      step.number("run", run).number("gap", gap).run(kBitonicStep, places / 2);
    }
  }
  call.run(kTakeOrder, x.numel / lanes.n * taken);
}

// A NaN on either side searches to the right.
constexpr DenseKernel kSearchsorted{.name = "searchsorted", .body = {R"td_text(
  const td_i64 first = me / row * n;
  const TI1 v = I1(me);
  td_i64 low = 0, left = n;
  while (left > 0) {
    const td_i64 middle = left / 2;
    const TI0 x = I0(first + low + middle);
    if (right ? !(x > v) : !(x >= v)) {
      low += middle + 1;
      left -= middle + 1;
    } else {
      left = middle;
    }
  }
  P0(me, (TO0)low);
)td_text"}};

void run_searchsorted(const KernelCall& c) {
  const Array &s = c.in[0], &v = c.in[1];
  DenseCall call(c);
  call.number("n", s.shape[s.rank - 1]);
  call.number("row", s.rank > 1 ? v.shape[v.rank - 1] : v.numel);
  call.number("right", int64_t{c.get_attrs<SearchAttrs>().right}).run(kSearchsorted, v.numel);
}

// One block: each thread counts a part of x, the first one adds the counts up.
constexpr DenseKernel kNonzero{.name = "nonzero", .blocks = true, .body = {R"td_text(
  const td_i64 from = n * t / td_threads(x), to = n * (t + 1) / td_threads(x);
  td_i64 mine = 0;
  for (td_i64 e = from; e < to; ++e) mine += I0(e) != 0 ? 1 : 0;
  counts[t] = mine;
  td_barrier();
  if (t == 0) {
    td_i64 sum = 0;
    for (td_i32 k = 0; k < td_threads(x); ++k) {
      const td_i64 own = counts[k];
      counts[k] = sum;
      sum += own;
    }
    counts[td_threads(x)] = sum;
  }
  td_barrier();
  const td_i64 sizes[8] = {size0, size1, size2, size3, size4, size5, size6, size7};
  td_i64 place = counts[t];
  for (td_i64 e = from; e < to && place < wanted; ++e) {
    if (I0(e) == 0) continue;
    td_i64 left = e;
    for (td_i64 d = 7; d >= 8 - rank; --d) {
      P0(place * rank + d - (8 - rank), left % sizes[d]);
      left /= sizes[d];
    }
    ++place;
  }
  for (td_i64 k = counts[td_threads(x)] * rank + t; k < wanted * rank; k += td_threads(x)) {
    P0(k, fill);
  }
)td_text"}};
static_assert(kMaxRank == 8, "kNonzero has a size for each dimension");

std::shared_ptr<const Plan> prepare_nonzero(const KernelCall& c) {
  return plan_dense(c, {(kThreads + 1) * sizeof(int64_t)});
}
void run_nonzero_row(const KernelCall& c) {
  const auto& a = c.get_attrs<NonzeroAttrs>();
  const Array& x = c.in[0];
  if (c.out[0].numel == 0) return;
  static constexpr const char* kSizes[] = {"size0", "size1", "size2", "size3",
                                           "size4", "size5", "size6", "size7"};
  DenseCall call(c);
  call.number("n", x.numel).number("rank", int64_t{x.rank});
  for (int d = 0; d < kMaxRank; ++d) {
    const int own = d - (kMaxRank - x.rank);
    call.number(kSizes[d], own < 0 ? int64_t{1} : x.shape[own]);
  }
  call.number("wanted", a.size).number("fill", a.fill);
  call.scratch("counts", DType::i64, kThreads + 1).run(kNonzero, 1);
}

// A thread a number that is counted; the first one reports those that are out of range.
constexpr DenseKernel kBincount{.name = "bincount", .reports = true, .body = {R"td_text(
  td_i64 count = 0;
  for (td_i64 e = 0; e < n; ++e) {
    const td_i64 v = I0(e);
    count += v == me ? 1 : 0;
    if (me == 0 && (v < 0 || v >= bins)) td_report(1, v);
  }
  if (me < bins) P0(me, count);
)td_text"}};

void run_bincount_row(const KernelCall& c) {
  const int64_t bins = c.get_attrs<BincountAttrs>().size;
  DenseCall call(c);
  call.number("n", c.in[0].numel).number("bins", bins);
  call.run(kBincount, std::max<int64_t>(bins, 1));
}

}  // namespace

void register_ordering(DeviceKind kind) {
  register_kernel(kind, op::sort, {has_types, nullptr, prepare_sort, run_sort_row});
  register_kernel(kind, op::topk, {has_types, nullptr, prepare_sort, run_sort_row});
  register_kernel(kind, op::searchsorted, {has_types, nullptr, prepare_dense, run_searchsorted});
  register_kernel(kind, op::nonzero, {has_types, nullptr, prepare_nonzero, run_nonzero_row});
  register_kernel(kind, op::bincount, {has_types, nullptr, prepare_dense, run_bincount_row});
}

}  // namespace tandem::gpu
