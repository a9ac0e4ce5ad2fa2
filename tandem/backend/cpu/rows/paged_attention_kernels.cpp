// SPDX-License-Identifier: Apache-2.0
// paged_attention in f32 and bf16 (computed in f32): keys are read where they lie in the pool, and
// only those that a query sees. Few queries of a text (decoding) take each key by itself; more
// (prompts) take blocks of keys through the matmul tiles. A query's numbers do not depend on the
// texts beside it.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/attention_internal.h"
#include "tandem/base/copy_bytes.h"
#include "tandem/base/half.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/function_internal.h"
#include "tandem/ops/nn/paged_attention.h"

namespace tandem::detail {
namespace {

constexpr int64_t kFewQueries = 8;  ///< of a head of keys: below, keys are not packed

void load(const Array& a, int64_t at, int64_t n, float* to) {
  if (a.dtype == DType::f32)
    copy_bytes(to, a.as<float>() + at, static_cast<size_t>(n) * sizeof(float));
  else
    for (int64_t i = 0; i < n; ++i) to[i] = bfloat16_bits_to_float(a.as<uint16_t>()[at + i]);
}
void store(const Array& a, int64_t at, int64_t n, const float* from) {
  if (a.dtype == DType::f32)
    copy_bytes(a.as<float>() + at, from, static_cast<size_t>(n) * sizeof(float));
  else
    for (int64_t i = 0; i < n; ++i) a.as<uint16_t>()[at + i] = float_to_bfloat16_bits(from[i]);
}

struct Paged {
  const Array &qa, &ka, &va, &ya, &table, &positions;
  int64_t n, heads, group, l, e, f, slots, block, blocks, window;
  int64_t k_row, k_head, v_row, v_head;
  float scale, softcap;

  explicit Paged(const KernelCall& c)
      : qa(c.in[0]),
        ka(c.in[1]),
        va(c.in[2]),
        ya(c.out[0]),
        table(c.in[3]),
        positions(c.in[4]),
        n(qa.shape[0]),
        heads(c.in[1].shape[1]),
        group(heads ? qa.shape[1] / heads : 0),
        l(qa.shape[2]),
        e(qa.shape[3]),
        f(ya.shape[3]),
        slots(c.in[1].shape[0]),
        block(c.get_attrs<PagedAttentionAttrs>().block),
        blocks(table.shape[1]),
        window(c.get_attrs<PagedAttentionAttrs>().window),
        k_row(c.in[1].strides[0]),
        k_head(c.in[1].strides[1]),
        v_row(c.in[2].strides[0]),
        v_head(c.in[2].strides[1]),
        softcap(static_cast<float>(c.get_attrs<PagedAttentionAttrs>().softcap)) {
    const double s = c.get_attrs<PagedAttentionAttrs>().scale;
    scale = static_cast<float>(s != 0 ? s : 1 / std::sqrt(static_cast<double>(e)));
  }
  int64_t position(int64_t i, int64_t t) const {
    return index_at(positions.data, positions.dtype,
                    i * positions.strides[0] + t * positions.strides[1]);
  }
  int64_t block_of(int64_t i, int64_t b) const {
    return index_at(table.data, table.dtype, i * table.strides[0] + b * table.strides[1]);
  }
  int64_t slot(int64_t i, int64_t p) const { return block_of(i, p / block) * block + p % block; }
  static int64_t place(const Array& a, int64_t i, int64_t head, int64_t t) {
    return i * a.strides[0] + head * a.strides[1] + t * a.strides[2];
  }
  int64_t first_key(int64_t at) const {
    return window > 0 ? std::max<int64_t>(0, at - window + 1) : 0;
  }
};

// The rows of scores and their state: a query is row t * group + head within the group.
struct Unit {
  const Paged& p;
  int64_t i, head;     ///< text, and head of keys
  int64_t row0, rows;  ///< of l * group
  float* s = nullptr;  ///< scores, [kQueries][kRow]
  /// Keys and values of a block, queries and answers as f32, a row after the other.
  float *keys = nullptr, *packed = nullptr, *values = nullptr, *asks = nullptr, *answers = nullptr;
  float top[kQueries] = {}, sum[kQueries] = {};

  int64_t at(int64_t r) const { return p.position(i, (row0 + r) / p.group); }
  int64_t place(const Array& a, int64_t r) const {
    return Paged::place(a, i, head * p.group + (row0 + r) % p.group, (row0 + r) / p.group);
  }
  const float* query(int64_t r) const { return asks + r * p.e; }
  float* answer(int64_t r) const { return answers + r * p.f; }
  int64_t key_place(int64_t k) const { return p.slot(i, k) * p.k_row + head * p.k_head; }
  int64_t value_place(int64_t k) const { return p.slot(i, k) * p.v_row + head * p.v_head; }

  void run() {
    int64_t first = INT64_MAX, end = 0;
    for (int64_t r = 0; r < rows; ++r) {
      top[r] = -INFINITY, sum[r] = 0;
      std::fill_n(answer(r), p.f, 0.0f);
      load(p.qa, place(p.qa, r), p.e, asks + r * p.e);
      const int64_t last = at(r);
      if (last < 0) continue;
      first = std::min(first, p.first_key(last));
      end = std::max(end, last + 1);
    }
    const bool few = rows < kFewQueries;
    for (int64_t k0 = first / kKeys * kKeys; first < end && k0 < end; k0 += kKeys) {
      const int64_t count = std::min(kKeys, end - k0);
      if (few)
        one_by_one(k0, count);
      else
        by_tiles(k0, count);
    }
    for (int64_t r = 0; r < rows; ++r) {
      if (sum[r] != 0) row_loops().scale(answer(r), answer(r), 1.0f / sum[r], p.f);
      store(p.ya, place(p.ya, r), p.f, answer(r));
    }
  }

  // A row of the pool, where it lies or widened to `to`.
  static const float* row(const Array& a, int64_t at, int64_t n, float* to) {
    if (a.dtype == DType::f32) return a.as<float>() + at;
    load(a, at, n, to);
    return to;
  }

  // Keys [from, to) of the block are seen by row r.
  void bounds(int64_t r, int64_t k0, int64_t count, int64_t& from, int64_t& to) const {
    const int64_t last = at(r);
    from = last < 0 ? 0 : std::clamp<int64_t>(p.first_key(last) - k0, 0, count);
    to = std::clamp<int64_t>(last + 1 - k0, from, count);
  }
  // Scores of row r become weights, 0 outside of [from, to).
  void weigh(int64_t r, int64_t from, int64_t to, int64_t count) {
    float* row = s + r * kRow;
    if (from == to) {
      std::fill_n(row, count, 0.0f);
      return;
    }
    if (p.softcap > 0)
      for (int64_t j = from; j < to; ++j) row[j] = p.softcap * std::tanh(row[j] / p.softcap);
    std::fill_n(row, from, -INFINITY);
    merge_row(row_loops(), row, to, count, top[r], sum[r], answer(r), p.f, top[r] == -INFINITY);
  }

  void one_by_one(int64_t k0, int64_t count) {
    const RowLoops& l = row_loops();
    int64_t from[kFewQueries], to[kFewQueries];
    for (int64_t r = 0; r < rows; ++r) bounds(r, k0, count, from[r], to[r]);
    for (int64_t j = 0; j < count; ++j) {
      const float* key = row(p.ka, key_place(k0 + j), p.e, keys);
      for (int64_t r = 0; r < rows; ++r)
        if (j >= from[r] && j < to[r]) s[r * kRow + j] = l.dot(query(r), key, p.e) * p.scale;
    }
    for (int64_t r = 0; r < rows; ++r) weigh(r, from[r], to[r], count);
    for (int64_t j = 0; j < count; ++j) {
      const float* value = row(p.va, value_place(k0 + j), p.f, values);
      for (int64_t r = 0; r < rows; ++r)
        if (j >= from[r] && j < to[r]) l.add_scaled(answer(r), value, s[r * kRow + j], p.f);
    }
  }

  void by_tiles(int64_t k0, int64_t count) {
    for (int64_t j = 0; j < count; ++j) {
      load(p.ka, key_place(k0 + j), p.e, keys + j * p.e);
      load(p.va, value_place(k0 + j), p.f, values + j * p.f);
    }
    pack_columns(keys, p.e, count, p.e, p.scale, packed);
    TileMatmul{rows, count, p.e, asks, p.e, 1, packed, panel_width(), panel_width() * p.e, s, kRow}
        .run();
    for (int64_t r = 0; r < rows; ++r) {
      int64_t from = 0, to = 0;
      bounds(r, k0, count, from, to);
      weigh(r, from, to, count);
    }
    TileMatmul{rows, p.f, count, s, kRow, 1, values, p.f, panel_width(), answers, p.f, true}.run();
  }
};

int64_t floats_of_unit(const Paged& p) {
  return kQueries * kRow + (kKeys + kQueries) * (p.e + p.f) + packed_size(p.e) + 64;
}

bool supports(const KernelCall& c) {
  for (int i = 0; i < 3; ++i)
    if (c.in[i].strides[c.in[i].rank - 1] != 1) return false;
  const Array& q = c.in[0];
  if (q.dtype != DType::f32 && q.dtype != DType::bf16) return false;
  return q.numel > 0 && c.in[1].numel > 0 && c.in[2].numel > 0 && c.in[3].numel > 0;
}

struct PagedPlan : Plan {
  int workers = 1;
  size_t part = 0;
};

std::shared_ptr<const Plan> prepare(const KernelCall& c) {
  auto plan = std::make_shared<PagedPlan>();
  plan->workers = num_threads();
  plan->part = static_cast<size_t>(floats_of_unit(Paged(c))) * sizeof(float);
  plan->workspace = plan->part * static_cast<size_t>(plan->workers);
  return plan;
}

// Are all blocks that queries see inside of the pool? Reports the first that is not.
bool check(const KernelCall& c, const Paged& p) {
  for (int64_t i = 0; i < p.n; ++i) {
    int64_t last = -1;
    for (int64_t t = 0; t < p.l; ++t) last = std::max(last, p.position(i, t));
    if (last >= p.blocks * p.block) {
      report_error(c, 1, last);
      return false;
    }
    for (int64_t b = 0; b * p.block <= last; ++b) {
      const int64_t block = p.block_of(i, b);
      if (block >= 0 && block < p.slots / p.block) continue;
      report_error(c, 1, block);
      return false;
    }
  }
  return true;
}

void run(const KernelCall& c) {
  const Paged p(c);
  if (!check(c, p)) return;
  const auto& plan = *static_cast<const PagedPlan*>(c.plan);
  const int64_t rows = p.l * p.group, parts = (rows + kQueries - 1) / kQueries;
  const int64_t units = p.n * p.heads * parts;
  parallel_for(0, plan.workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w) {
      auto* at = reinterpret_cast<float*>(static_cast<char*>(c.scratch) +
                                          static_cast<size_t>(w) * plan.part);
      for (int64_t u = w; u < units; u += plan.workers) {
        Unit unit{p, u / (p.heads * parts), u / parts % p.heads, u % parts * kQueries, 0};
        unit.rows = std::min(kQueries, rows - unit.row0);
        unit.s = at;
        unit.keys = unit.s + kQueries * kRow;
        unit.values = unit.keys + kKeys * p.e;
        unit.asks = unit.values + kKeys * p.f;
        unit.answers = unit.asks + kQueries * p.e;
        unit.packed = unit.answers + kQueries * p.f;
        unit.run();
      }
    }
  });
}

}  // namespace

void register_paged_attention_kernels() {
  register_kernel(DeviceKind::cpu, op::paged_attention, {supports, nullptr, prepare, run});
}

}  // namespace tandem::detail
