// SPDX-License-Identifier: Apache-2.0
// Attention in blocks of queries and keys: the matrix of scores never exists as a whole, and a
// causal call skips the blocks above the diagonal. A unit of work (queries of one head forward,
// keys of one head backward) is processed by one thread in one order. f32, and 16-bit arrays
// widened to it; other calls run the row's body.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/attention_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/base/math_prelude.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/nn/attention.h"

namespace tandem::detail {
namespace {

constexpr int64_t kStrip = 16;  ///< queries that a causal call bounds together

// The matrices of one operand: row and column strides, and steps of the leading dimensions of y.
struct Operand3 {
  float* data = nullptr;
  int64_t row = 0, column = 0, share = 1;  ///< heads of y that use one head of this
  int64_t step[kMaxRank] = {};

  Operand3() = default;
  // Aligned with the leading dimensions of y; false: they do not fit.
  bool fill(const Array& a, const Array& y) {
    if (a.dtype != DType::f32 || a.rank < 2 || a.rank > y.rank) return false;
    data = a.as<float>();
    row = a.strides[a.rank - 2];
    column = a.strides[a.rank - 1];
    const int lead = y.rank - 2;
    for (int d = 0; d < lead; ++d) {
      const int k = d - (y.rank - a.rank);
      const bool heads = d == lead - 1;  // one head is shared by all: gradients add up
      if (k < 0 || (a.shape[k] == 1 && !heads)) continue;
      step[d] = a.strides[k];
      if (a.shape[k] == y.shape[d]) continue;
      if (!heads || y.shape[d] % a.shape[k] != 0) return false;
      share = y.shape[d] / a.shape[k];
    }
    return true;
  }
  int64_t offset(const int64_t* index, int lead) const {
    int64_t at = 0;
    for (int d = 0; d < lead; ++d) at += index[d] / (d == lead - 1 ? share : 1) * step[d];
    return at;
  }
};

struct Mask {
  const void* data = nullptr;
  bool is_bool = false;
  int64_t row = 0, column = 0, step[kMaxRank] = {};

  bool fill(const Array& m, const Array& y, int64_t queries, int64_t keys) {
    if (!m.present()) return true;
    if (m.is_scalar || (m.dtype != DType::b8 && m.dtype != DType::f32)) return false;
    if (m.rank > y.rank) return false;
    data = m.data ? m.data : this;
    is_bool = m.dtype == DType::b8;
    for (int k = 0; k < m.rank; ++k) {
      const int d = k + y.rank - m.rank;
      const int64_t size = d == y.rank - 2 ? queries : d == y.rank - 1 ? keys : y.shape[d];
      if (m.shape[k] != 1 && m.shape[k] != size) return false;
      const int64_t s = m.shape[k] == 1 ? 0 : m.strides[k];
      (d == y.rank - 2 ? row : d == y.rank - 1 ? column : step[d]) = s;
    }
    return true;
  }
  void apply(int64_t at, float* s, int64_t n) const {
    if (is_bool) {
      const bool* m = static_cast<const bool*>(data) + at;
      for (int64_t j = 0; j < n; ++j)
        if (!m[j * column]) s[j] = -INFINITY;
    } else {
      const float* m = static_cast<const float*>(data) + at;
      for (int64_t j = 0; j < n; ++j) s[j] += m[j * column];
    }
  }
};

// State shared by forward and backward.
struct Attention {
  Operand3 q, k, v;
  Mask mask;
  int lead = 0;
  int64_t lead_size[kMaxRank], batches = 1;
  int64_t queries, keys, e, f;
  float scale;
  bool causal, good;

  Attention(const AttentionAttrs& a, const Array& qa, const Array& ka, const Array& va,
            const Array* m, const Array& y)
      : lead(y.rank - 2),
        queries(qa.shape[qa.rank - 2]),
        keys(ka.shape[ka.rank - 2]),
        e(qa.shape[qa.rank - 1]),
        f(va.shape[va.rank - 1]),
        causal(a.causal) {
    good = q.fill(qa, y) && k.fill(ka, y) && v.fill(va, y) && q.column == 1 && k.column == 1 &&
           v.column == 1 && (!m || mask.fill(*m, y, queries, keys));
    for (int d = 0; d < lead; ++d) batches *= lead_size[d] = y.shape[d];
    good = good && batches > 0 && queries > 0 && keys > 0 && e > 0 && f > 0;
    scale = static_cast<float>(a.scale != 0 ? a.scale : 1 / std::sqrt(static_cast<double>(e)));
  }
  void index(int64_t batch, int64_t* to) const {
    for (int d = lead; d-- > 0;) {
      to[d] = batch % lead_size[d];
      batch /= lead_size[d];
    }
  }
  int64_t mask_offset(const int64_t* index) const {
    int64_t at = 0;
    for (int d = 0; d < lead; ++d) at += index[d] * mask.step[d];
    return at;
  }
  // End of the keys visible to queries up to `last` (exclusive).
  int64_t key_end(int64_t last) const { return causal ? std::min(keys, last) : keys; }
  // Number of keys of block [k0, k0 + n) visible to query i.
  int64_t seen(int64_t i, int64_t k0, int64_t n) const {
    return causal ? std::clamp<int64_t>(i + 1 - k0, 0, n) : n;
  }
};

// Scores of queries q0.. (rows of them) against n packed keys starting at k0, masked; entries
// hidden from a causal query are arbitrary (the caller checks seen()).
void scores(const Attention& a, const float* q, const float* packed, int64_t mask_at, int64_t q0,
            int64_t rows, int64_t k0, int64_t n, float* s) {
  TileMatmul{rows, n,      a.e,           q + q0 * a.q.row,    a.q.row,
             1,    packed, panel_width(), panel_width() * a.e, s,
             kRow}
      .run();
  for (int64_t i = 0; a.mask.data && i < rows; ++i)
    a.mask.apply(mask_at + (q0 + i) * a.mask.row + k0 * a.mask.column, s + i * kRow, n);
}

struct AttentionPlan : Plan {
  int workers = 1;
  size_t part = 0;
};

std::shared_ptr<const Plan> plan_of(int64_t e, int64_t f, int blocks) {
  auto plan = std::make_shared<AttentionPlan>();
  plan->workers = num_threads();
  plan->part = static_cast<size_t>(blocks * kQueries * kRow + packed_size(e) + packed_size(f)) *
               sizeof(float);
  plan->workspace = plan->part * static_cast<size_t>(plan->workers);
  return plan;
}

// f(worker, its scratch) for every worker.
template <class F>
void for_workers(const KernelCall& c, F&& f) {
  const auto& plan = *static_cast<const AttentionPlan*>(c.plan);
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w) {
      char* scratch = static_cast<char*>(c.scratch) + static_cast<size_t>(w) * plan.part;
      f(w, reinterpret_cast<float*>(scratch));
    }
  });
}
template <class F>
void for_units(const KernelCall& c, int64_t units, F&& f) {
  const int64_t workers = static_cast<const AttentionPlan*>(c.plan)->workers;
  for_workers(c, [&](int64_t w, float* s) {
    for (int64_t u = w; u < units; u += workers) f(u, s);
  });
}

// ---- forward

const Array* mask_of(const KernelCall& c, int i) {
  return c.n_in > i && c.in[i].present() ? &c.in[i] : nullptr;
}

Attention forward_problem(const KernelCall& c) {
  return Attention(c.get_attrs<AttentionAttrs>(), c.in[0], c.in[1], c.in[2], mask_of(c, 3),
                   c.out[0]);
}

bool forward_supports(const KernelCall& c) {
  return c.out[0].dtype == DType::f32 && c.out[0].rank >= 2 && forward_problem(c).good;
}

std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  const Attention a = forward_problem(c);
  return plan_of(a.e, a.f, 1);
}

// Blocks of queries of a head: as few as there can be, and of much the same size.
struct QueryBlocks {
  int64_t count, size;
  explicit QueryBlocks(int64_t queries) : count((queries + kQueries - 1) / kQueries) {
    size = std::min(kQueries, ((queries + count - 1) / count + kStrip - 1) / kStrip * kStrip);
    count = (queries + size - 1) / size;
  }
};

// The queries of some heads against their keys, by one thread.
struct ForwardWorker {
  const Attention& a;
  const Operand3& y;
  float* lse;  ///< or nullptr
  float *s, *packed_k, *packed_v;
  int64_t packed_batch = -1, packed_at = -1, packed_n = 0;  ///< which keys are packed

  // Queries [q0, q0 + rows) of a head, whose keys up to `reach` the blocks of this head read.
  void run(int64_t batch, int64_t q0, int64_t rows, int64_t reach) {
    const RowLoops& l = row_loops();
    int64_t index[kMaxRank];
    a.index(batch, index);
    const float* q = a.q.data + a.q.offset(index, a.lead);
    const int64_t mask_at = a.mask_offset(index);
    float* to = y.data + y.offset(index, a.lead) + q0 * y.row;
    float top[kQueries], sum[kQueries];
    std::fill_n(top, rows, -INFINITY);
    std::fill_n(sum, rows, 0.0f);
    const int64_t end = a.key_end(q0 + rows), strip = a.causal ? kStrip : kQueries;
    for (int64_t k0 = 0; k0 < end; k0 += kKeys) {
      const int64_t n = std::min(kKeys, end - k0);
      pack(batch, index, k0, std::min(kKeys, reach - k0));
      for (int64_t r = 0; r < rows; r += strip) {
        const int64_t r1 = std::min(r + strip, rows), m = std::min(n, a.key_end(q0 + r1) - k0);
        if (m <= 0) continue;
        scores(a, q, packed_k, mask_at, q0 + r, r1 - r, k0, m, s);
        for (int64_t i = r; i < r1; ++i)
          merge_row(l, s + (i - r) * kRow, a.seen(q0 + i, k0, m), m, top[i], sum[i], to + i * y.row,
                    a.f, k0 == 0);
        TileMatmul{r1 - r,         a.f,   m,     s, kRow, 1, packed_v, a.f, panel_width(),
                   to + r * y.row, y.row, k0 > 0}
            .run();
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      if (sum[i] != 0) l.scale(to + i * y.row, to + i * y.row, 1.0f / sum[i], a.f);
      if (lse)
        lse[batch * a.queries + q0 + i] = (top[i] == -INFINITY ? 0.0f : top[i]) + tdm_logf(sum[i]);
    }
  }

  // Rows of heads that were split from one matrix lie far apart, a few cache sets for all of them:
  // values are copied, too.
  void pack(int64_t batch, const int64_t* index, int64_t k0, int64_t n) {
    if (batch == packed_batch && k0 == packed_at && n <= packed_n) return;
    packed_batch = batch;
    packed_at = k0;
    packed_n = n;
    pack_columns(a.k.data + a.k.offset(index, a.lead) + k0 * a.k.row, a.k.row, n, a.e, a.scale,
                 packed_k);
    const float* v = a.v.data + a.v.offset(index, a.lead) + k0 * a.v.row;
    for (int64_t i = 0; i < n; ++i)
      std::memcpy(packed_v + i * a.f, v + i * a.v.row, static_cast<size_t>(a.f) * sizeof(float));
  }
};

void forward_run(const KernelCall& c) {
  const Attention a = forward_problem(c);
  Operand3 y;
  y.fill(c.out[0], c.out[0]);
  const QueryBlocks blocks(a.queries);
  // A thread takes whole heads, whose keys it packs once, where that keeps all threads busy.
  const int64_t workers = static_cast<const AttentionPlan*>(c.plan)->workers;
  const bool whole = a.batches % workers == 0 || a.batches >= 4 * workers;
  const int64_t at_once = whole ? blocks.count : 1, groups = whole ? 1 : blocks.count;
  for_workers(c, [&](int64_t w, float* s) {
    float* const packed = s + kQueries * kRow;
    ForwardWorker worker{a, y, c.out[1].as<float>(), s, packed, packed + packed_size(a.e)};
    for (int64_t u = w; u < a.batches * groups; u += workers) {
      const int64_t first = u % groups * at_once * blocks.size;
      const int64_t last = std::min(a.queries, first + at_once * blocks.size);
      for (int64_t q0 = first; q0 < last; q0 += blocks.size)
        worker.run(u / groups, q0, std::min(blocks.size, last - q0), a.key_end(last));
    }
  });
}

// ---- backward

Attention backward_problem(const KernelCall& c) {
  return Attention(c.get_attrs<AttentionAttrs>(), c.in[1], c.in[2], c.in[3], mask_of(c, 6),
                   c.in[4]);
}

// Every leading dimension of a equals y's, except for shared heads: no sums over broadcasting.
bool whole(const Array& a, const Array& y) {
  if (a.rank != y.rank) return false;
  for (int d = 0; d + 3 < y.rank; ++d)
    if (a.shape[d] != y.shape[d]) return false;
  return true;
}

bool backward_supports(const KernelCall& c) {
  const Array &gy = c.in[0], &q = c.in[1], &k = c.in[2], &v = c.in[3], &y = c.in[4];
  if (c.get_attrs<AttentionAttrs>().mask_grad || y.rank < 2) return false;
  if (!whole(q, y) || !whole(k, y) || !whole(v, y) || !whole(gy, y)) return false;
  Attention a = backward_problem(c);
  Operand3 g, o;
  if (!a.good || !g.fill(gy, y) || !o.fill(y, y) || g.column != 1 || o.column != 1) return false;
  if (y.rank > 2 &&
      (k.shape[y.rank - 3] != v.shape[y.rank - 3] || q.shape[y.rank - 3] != y.shape[y.rank - 3] ||
       gy.shape[y.rank - 3] != y.shape[y.rank - 3]))
    return false;
  const bool glse = c.n_in > 7 && c.in[7].present();
  return c.in[5].contiguous && c.in[5].dtype == DType::f32 &&
         (!glse || (c.in[7].contiguous && c.in[7].dtype == DType::f32));
}

std::shared_ptr<const Plan> backward_prepare(const KernelCall& c) {
  const Attention a = backward_problem(c);
  return plan_of(a.e, a.f, 2);
}

// One query block of one head against all its keys.
struct BackwardBlock {
  const Attention& a;
  const float *q, *k, *v, *gy, *y, *lse, *glse;  ///< of this head
  int64_t gy_row, y_row, mask_at;
  float *gq, *gk, *gv;
  int64_t gq_row, gk_row, gv_row;
  float *s, *dp, *packed_k, *packed_v;
  int64_t& made;  ///< keys before this one already have gradients
  int64_t packed_at = -1, packed_n = -1;

  void run(int64_t q0) {
    const RowLoops& l = row_loops();
    const int64_t rows = std::min(kQueries, a.queries - q0), end = a.key_end(q0 + rows);
    const int64_t strip = a.causal ? kStrip : kQueries;
    const float* g = gy + q0 * gy_row;
    float shift[kQueries];
    for (int64_t i = 0; i < rows; ++i)
      shift[i] = l.dot(g + i * gy_row, y + (q0 + i) * y_row, a.f) - (glse ? glse[q0 + i] : 0.0f);
    for (int64_t k0 = 0; k0 < end; k0 += kKeys) {
      const int64_t n = std::min(kKeys, end - k0);
      pack(k0, n);
      for (int64_t r = 0; r < rows; r += strip) {
        const int64_t r1 = std::min(r + strip, rows), m = std::min(n, a.key_end(q0 + r1) - k0);
        if (m > 0) weights(q0, r, r1, k0, m, shift);
        if (m > 0)
          TileMatmul{r1 - r,
                     a.e,
                     m,
                     dp + r * kRow,
                     kRow,
                     1,
                     k + k0 * a.k.row,
                     a.k.row,
                     panel_width(),
                     gq + (q0 + r) * gq_row,
                     gq_row,
                     k0 > 0}
              .run();
      }
      // Keys j.. are visible to the queries from row j + k0 - q0 on.
      for (int64_t j = 0; j < n;) {
        const int64_t before = k0 + j - q0;  // rows to which key j is hidden
        const int64_t keys = std::min(a.causal && before >= 0 ? kStrip : kQueries, n - j);
        const int64_t r = a.causal ? std::max<int64_t>(0, before / strip * strip) : 0;
        if (r >= rows) break;
        const bool add = k0 + j < made;
        by_key(q, a.q.row, q0, r, rows, j, keys, dp, gk + (k0 + j) * gk_row, a.e, gk_row, add);
        by_key(gy, gy_row, q0, r, rows, j, keys, s, gv + (k0 + j) * gv_row, a.f, gv_row, add);
        j += keys;
      }
      made = std::max(made, k0 + n);
    }
  }

  // The keys are repacked only when another block of them is needed.
  void pack(int64_t k0, int64_t n) {
    if (k0 == packed_at && n == packed_n) return;
    packed_at = k0;
    packed_n = n;
    pack_columns(k + k0 * a.k.row, a.k.row, n, a.e, a.scale, packed_k);
    pack_columns(v + k0 * a.v.row, a.v.row, n, a.f, 1.0f, packed_v);
  }

  // s = softmax weights and dp = gradient with respect to the scores, times scale, of queries
  // r..r1-1.
  void weights(int64_t q0, int64_t r, int64_t r1, int64_t k0, int64_t m, const float* shift) {
    const RowLoops& l = row_loops();
    scores(a, q, packed_k, mask_at, q0 + r, r1 - r, k0, m, s + r * kRow);
    TileMatmul{r1 - r, m,        a.f,           gy + (q0 + r) * gy_row, gy_row,
               1,      packed_v, panel_width(), panel_width() * a.f,    dp + r * kRow,
               kRow}
        .run();
    for (int64_t i = r; i < r1; ++i) {
      const int64_t seen = a.seen(q0 + i, k0, m), at = i * kRow;
      const float e = lse[q0 + i];
      const int64_t whole = filled(s + at, seen, -INFINITY);
      filled(dp + at, seen, 0.0f);
      l.attention_grad(s + at, dp + at, e == -INFINITY ? 0.0f : e, shift[i], a.scale, whole);
      // The entries after it are read with the later rows of the strip.
      if (m > whole) {
        std::fill_n(s + at + whole, m - whole, 0.0f);
        std::fill_n(dp + at + whole, m - whole, 0.0f);
      }
    }
  }

  // gradient [keys, e] = or += weights [queries r..rows-1, keys j..]^T times rows of the queries.
  void by_key(const float* from, int64_t from_row, int64_t q0, int64_t r, int64_t rows, int64_t j,
              int64_t keys, const float* w, float* to, int64_t width, int64_t to_row,
              bool add) const {
    TileMatmul{
        keys,     width,         rows - r, w + r * kRow + j, 1,  kRow, from + (q0 + r) * from_row,
        from_row, panel_width(), to,       to_row,           add}
        .run();
  }
};

void backward_run(const KernelCall& c) {
  const Attention a = backward_problem(c);
  Operand3 gy, y, gq, gk, gv;
  gq.fill(c.out[0], c.in[4]);
  gk.fill(c.out[1], c.in[4]);
  gv.fill(c.out[2], c.in[4]);
  gy.fill(c.in[0], c.in[4]);
  y.fill(c.in[4], c.in[4]);
  const int64_t share = a.k.share, key_heads = a.batches / share;
  const float* lse = c.in[5].as<float>();
  const float* glse = c.n_in > 7 && c.in[7].present() ? c.in[7].as<float>() : nullptr;
  for_units(c, key_heads, [&](int64_t u, float* s) {
    int64_t index[kMaxRank];
    a.index(u * share, index);
    float* to_k = gk.data + gk.offset(index, a.lead);
    float* to_v = gv.data + gv.offset(index, a.lead);
    int64_t made = 0;
    for (int64_t batch = u * share; batch < (u + 1) * share; ++batch) {
      a.index(batch, index);
      BackwardBlock b{a,
                      a.q.data + a.q.offset(index, a.lead),
                      a.k.data + a.k.offset(index, a.lead),
                      a.v.data + a.v.offset(index, a.lead),
                      gy.data + gy.offset(index, a.lead),
                      y.data + y.offset(index, a.lead),
                      lse + batch * a.queries,
                      glse ? glse + batch * a.queries : nullptr,
                      gy.row,
                      y.row,
                      a.mask_offset(index),
                      gq.data + gq.offset(index, a.lead),
                      to_k,
                      to_v,
                      gq.row,
                      gk.row,
                      gv.row,
                      s,
                      s + kQueries * kRow,
                      s + 2 * kQueries * kRow,
                      s + 2 * kQueries * kRow + packed_size(a.e),
                      made};
      for (int64_t q0 = 0; q0 < a.queries; q0 += kQueries) b.run(q0);
    }
    for (int64_t i = made; i < a.keys; ++i) {
      std::fill_n(to_k + i * gk.row, a.e, 0.0f);
      std::fill_n(to_v + i * gv.row, a.f, 0.0f);
    }
  });
}

bool forward_layout(const KernelCall& c, int output, Strides& strides) {
  return output == 0 && dense_strides_as(c.in[0], c.out[0], strides);
}
bool backward_layout(const KernelCall& c, int output, Strides& strides) {
  return dense_strides_as(c.in[1 + output], c.out[output], strides);
}

constexpr Kernel kForward{forward_supports, forward_layout, forward_prepare, forward_run};
constexpr Kernel kBackward{backward_supports, backward_layout, backward_prepare, backward_run};

}  // namespace

void register_attention_kernels() {
  register_kernel(DeviceKind::cpu, op::attention, kWidened);
  register_kernel(DeviceKind::cpu, op::attention, kForward);
  register_kernel(DeviceKind::cpu, op::attention_backward, kWidened);
  register_kernel(DeviceKind::cpu, op::attention_backward, kBackward);
}

}  // namespace tandem::detail
