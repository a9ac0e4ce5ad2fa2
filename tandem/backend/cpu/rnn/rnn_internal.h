// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels of recurrent layers: plans and scratch, workers per step, the recurrent
// weights packed so that a worker finds those of its own hidden units together. f32 only.
#pragma once

#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/op_def.h"

namespace tandem::detail {

inline bool dense(const Array& a) { return a.dtype == DType::f32 && a.contiguous && !a.is_scalar; }
inline bool dense_or_absent(const KernelCall& c, int i) {
  return c.n_in <= i || !c.in[i].present() || dense(c.in[i]);
}
inline const float* data_or_null(const KernelCall& c, int i) {
  return c.n_in > i && c.in[i].present() ? c.in[i].as<float>() : nullptr;
}

inline int64_t panel_width() { return micro_table<float>().panel(); }
inline int64_t panels_of(int64_t h) { return micro_table<float>().panels(h); }
inline size_t rounded(int64_t floats) {
  return whole_lines(static_cast<size_t>(floats) * sizeof(float));
}

struct RecurrentPlan : Plan {
  int workers = 1;      ///< per step
  int big_workers = 1;  ///< for the matmuls over all steps
  size_t bias = 0, gates = 0, panels = 0, gradient = 0, big = 0, part_at = 0, part = 0;

  size_t take(size_t bytes) {
    const size_t at = workspace;
    workspace += whole_lines(bytes);
    return at;
  }
};

inline float* at(const KernelCall& c, size_t offset) {
  return reinterpret_cast<float*>(static_cast<char*>(c.scratch) + offset);
}

// Workers per step: a region pays off from about 100,000 multiply-adds each.
inline int step_workers(int64_t n, int64_t h, int64_t gates) {
  const int64_t panels = panels_of(h);
  const auto worth = static_cast<int64_t>(static_cast<double>(gates) * static_cast<double>(n * h) *
                                          static_cast<double>(h) / 100000.0);
  return static_cast<int>(std::clamp<int64_t>(std::min<int64_t>(worth, panels), 1, num_threads()));
}

// f(worker, first panel, last panel, scratch) on the workers of the plan.
template <class F>
inline void for_panels(const KernelCall& c, const RecurrentPlan& plan, int64_t panels, F&& f) {
  parallel_for(0, plan.workers, 1, [&](int64_t first, int64_t last) {
    for (int64_t w = first; w < last; ++w)
      f(panels * w / plan.workers, panels * (w + 1) / plan.workers,
        at(c, plan.part_at + static_cast<size_t>(w) * plan.part));
  });
}

inline int64_t step_at(int64_t k, int64_t steps, bool reverse) {
  return reverse ? steps - 1 - k : k;
}

// w [gates * h, depth] as [panel][gate][depth][width]: column j of a panel is unit panel * width +
// j.
inline void pack_gates(const float* w, int64_t h, int64_t gates, int64_t depth, float* to) {
  const int64_t width = panel_width(), panels = panels_of(h);
  const MicroTable<float>& t = micro_table<float>();
  parallel_for(0, panels, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      for (int64_t gate = 0; gate < gates; ++gate) {
        const int64_t units = std::min(width, h - p * width);
        float* panel = to + (p * gates + gate) * depth * width;
        const float* from = w + (gate * h + p * width) * depth;
        if (units == width) {
          t.transpose(panel, width, from, depth, width, depth);
          continue;
        }
        for (int64_t k = 0; k < depth; ++k)
          for (int64_t j = 0; j < units; ++j) panel[k * width + j] = from[j * depth + k];
      }
  });
}

// One row: to[q * to_panel] (+)= x [depth] times whole panel q of `packed`, each [depth][width].
inline void row_times_panels(const float* x, int64_t depth, const float* packed, const float* bias,
                             int64_t panels, bool accumulate, float* to, int64_t to_panel) {
  const MicroTable<float>& t = micro_table<float>();
  MicroCall<float> c;
  c.ak = 1;
  c.b_row = t.panel();
  c.c = to;
  c.bias = bias;
  for (int64_t k = 0; k < depth; k += kGemmDepth) {
    c.k = std::min(kGemmDepth, depth - k);
    c.a = x + k;
    c.b = packed + k * t.panel();
    c.accumulate = accumulate || k > 0;
    t.run_row(c, panels, depth * t.panel(), to_panel);
  }
}

// w_hh [gates * h, h] as [panel][gates * h][width].
inline void pack_columns(const float* w, int64_t h, int64_t gates, float* to) {
  const int64_t width = panel_width(), panels = panels_of(h);
  parallel_for(0, panels, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p)
      for (int64_t k = 0; k < gates * h; ++k)
        std::memcpy(to + (p * gates * h + k) * width, w + k * h + p * width,
                    static_cast<size_t>(std::min(width, h - p * width)) * sizeof(float));
  });
}

}  // namespace tandem::detail
