// SPDX-License-Identifier: Apache-2.0
// LSTM over whole sequences in f32: one parallel region per step in which every thread computes the
// matmuls and the gates of its own hidden units, with its weights packed once. Weights that do not
// fit its cache are first multiplied with x of all steps at once. 16-bit arrays are widened; f64
// runs the row's body.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/gemm/gemm_internal.h"
#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rnn/rnn_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/base/parallel.h"
#include "tandem/ops/nn/rnn.h"

namespace tandem::detail {
namespace {

// ---- forward

struct Sizes {
  int64_t steps, n, in, h;
};

bool forward_supports(const KernelCall& c) {
  for (int i = 0; i < 5; ++i)
    if (!dense(c.in[i]) || c.in[i].numel == 0) return false;
  return dense_or_absent(c, 5) && dense_or_absent(c, 6);
}

Sizes forward_sizes(const KernelCall& c) {
  const Array &x = c.in[0], &w = c.in[4];
  return {x.shape[0], x.shape[1], x.shape[2], w.shape[1]};
}

constexpr int64_t kCachedWeights = 1 << 20;  // bytes of a worker's weights that stay in its cache
constexpr int64_t kFewestRows = 8;  // of a step: fewer use a weight too seldom once it is loaded

struct LstmPlan : RecurrentPlan {
  bool project_steps = false;  ///< x is multiplied step by step: `gates` are those of one step
  size_t input_panels = 0;
};

std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  auto plan = std::make_shared<LstmPlan>();
  const Sizes s = forward_sizes(c);
  const int64_t panels = panels_of(s.h), packed = 4 * panels * panel_width();
  plan->workers = step_workers(s.n, s.h, 4);
  plan->big_workers = num_threads();
  plan->project_steps =
      (s.n >= kFewestRows || s.steps == 1) &&
      packed * (s.in + s.h) * int64_t{sizeof(float)} <= kCachedWeights * plan->workers;
  plan->bias = plan->take(rounded(4 * s.h));
  plan->gates = plan->take(rounded((plan->project_steps ? 1 : s.steps) * s.n * 4 * s.h));
  plan->panels = plan->take(rounded(packed * s.h + 16));
  if (plan->project_steps)
    plan->input_panels = plan->take(rounded(packed * s.in + 16));
  else
    plan->big = plan->take(gemm_scratch<float>(s.steps * s.n, 4 * s.h, s.in) *
                           static_cast<size_t>(plan->big_workers));
  plan->part = whole_lines(gemm_scratch<float>(s.n, panel_width(), std::max(s.h, s.in)));
  plan->part_at = plan->take(plan->part * static_cast<size_t>(plan->workers));
  return plan;
}

// gates [t * n, 4h] = x times w_ih of all steps, plus the biases.
void project(const KernelCall& c, const LstmPlan& plan, const Sizes& s) {
  const int64_t g4 = 4 * s.h;
  Gemm<float> all;
  all.m = s.steps * s.n;
  all.n = g4;
  all.k = s.in;
  all.a = c.in[0].as<float>();
  all.am = s.in;
  all.ak = 1;
  all.b = c.in[3].as<float>();
  all.bk = 1;
  all.bn = s.in;
  all.c = at(c, plan.gates);
  all.c_row = g4;
  all.bias = at(c, plan.bias);
  gemm(all, plan.big_workers, at(c, plan.big));
}

// gates of panel p of one step: x (unless they already hold its matmul), then the previous h.
void gates_of_panel(const KernelCall& c, const LstmPlan& plan, const Sizes& s, int64_t p,
                    const float* x, const float* before, float* gates, float* scratch) {
  const int64_t width = panel_width(), u0 = p * width;
  if (s.n == 1 && u0 + width <= s.h) {
    const float *w_ih = at(c, plan.input_panels) + p * 4 * s.in * width,
                *w_hh = at(c, plan.panels) + p * 4 * s.h * width;
    if (plan.project_steps)
      row_times_panels(x, s.in, w_ih, at(c, plan.bias) + u0, 4, false, gates + u0, s.h);
    row_times_panels(before, s.h, w_hh, nullptr, 4, true, gates + u0, s.h);
    return;
  }
  Gemm<float> r;
  r.m = s.n;
  r.n = std::min(width, s.h - u0);
  r.ak = 1;
  r.bk = width;
  r.bn = 1;
  r.c_row = 4 * s.h;
  for (int64_t gate = 0; gate < 4; ++gate) {
    r.c = gates + gate * s.h + u0;
    if (plan.project_steps) {
      r.accumulate = false;
      r.k = r.am = s.in;
      r.a = x;
      r.b = at(c, plan.input_panels) + (p * 4 + gate) * s.in * width;
      r.bias = at(c, plan.bias) + gate * s.h + u0;
      gemm_serial(r, scratch);
    }
    r.accumulate = true;
    r.k = r.am = s.h;
    r.a = before;
    r.b = at(c, plan.panels) + (p * 4 + gate) * s.h * width;
    gemm_serial(r, scratch);
  }
}

// Biases and weights in the order of the steps.
void prepare_weights(const KernelCall& c, const LstmPlan& plan, const Sizes& s) {
  float* bias = at(c, plan.bias);
  const float *b1 = data_or_null(c, 5), *b2 = data_or_null(c, 6);
  for (int64_t i = 0; i < 4 * s.h; ++i) bias[i] = (b1 ? b1[i] : 0.0f) + (b2 ? b2[i] : 0.0f);
  pack_gates(c.in[4].as<float>(), s.h, 4, s.h, at(c, plan.panels));
  if (plan.project_steps)
    pack_gates(c.in[3].as<float>(), s.h, 4, s.in, at(c, plan.input_panels));
  else
    project(c, plan, s);
}

void forward_run(const KernelCall& c) {
  const auto& plan = *static_cast<const LstmPlan*>(c.plan);
  const Sizes s = forward_sizes(c);
  const bool reverse = c.get_attrs<LstmAttrs>().reverse;
  const RowLoops& l = row_loops();
  const int64_t g4 = 4 * s.h, width = panel_width(), state = s.n * s.h;
  prepare_weights(c, plan, s);

  float *y = c.out[0].as<float>(), *saved = c.out[3].as<float>(), *cy = c.out[2].as<float>();
  if (cy != c.in[2].as<float>())
    std::memcpy(cy, c.in[2].data, static_cast<size_t>(state) * sizeof(float));
  const float* before = c.in[1].as<float>();
  for (int64_t k = 0; k < s.steps; ++k) {
    const int64_t t = step_at(k, s.steps, reverse);
    const float* x = c.in[0].as<float>() + t * s.n * s.in;
    float* g = at(c, plan.gates) + (plan.project_steps ? 0 : t * s.n * g4);
    float* after = y + t * state;
    for_panels(c, plan, panels_of(s.h), [&](int64_t first, int64_t last, float* scratch) {
      for (int64_t p = first; p < last; ++p) gates_of_panel(c, plan, s, p, x, before, g, scratch);
      const int64_t u0 = first * width, units = std::min(last * width, s.h) - u0;
      for (int64_t i = 0; i < s.n && units > 0; ++i)
        l.lstm_cell(g + i * g4 + u0, cy + i * s.h + u0, after + i * s.h + u0, cy + i * s.h + u0,
                    saved ? saved + (t * s.n + i) * 5 * s.h + u0 : nullptr, s.h, units);
    });
    before = after;
  }
  std::memcpy(c.out[1].data, before, static_cast<size_t>(state) * sizeof(float));
}

// ---- backward: ggates of a step needs gh = ggates of the next step times w_hh

bool backward_supports(const KernelCall& c) {
  for (int i = 0; i < 4; ++i)
    if (!dense_or_absent(c, i)) return false;
  for (int i = 4; i < 7; ++i)
    if (!dense(c.in[i]) || c.in[i].numel == 0) return false;
  return true;
}

Sizes backward_sizes(const KernelCall& c) {
  const Array& saved = c.in[6];
  return {saved.shape[0], saved.shape[1], 0, c.in[4].shape[1]};
}

std::shared_ptr<const Plan> backward_prepare(const KernelCall& c) {
  auto plan = std::make_shared<RecurrentPlan>();
  const Sizes s = backward_sizes(c);
  const int64_t panels = panels_of(s.h);
  plan->workers = step_workers(s.n, s.h, 4);
  plan->panels = plan->take(rounded(panels * 4 * s.h * panel_width()));
  plan->part = whole_lines(gemm_scratch<float>(s.n, panel_width(), 4 * s.h));
  plan->part_at = plan->take(plan->part * static_cast<size_t>(plan->workers));
  return plan;
}

void backward_run(const KernelCall& c) {
  const auto& plan = *static_cast<const RecurrentPlan*>(c.plan);
  const Sizes s = backward_sizes(c);
  const bool reverse = c.get_attrs<LstmAttrs>().reverse;
  const RowLoops& l = row_loops();
  const int64_t g4 = 4 * s.h, width = panel_width(), panels = panels_of(s.h);
  const int64_t state = s.n * s.h;
  const float *gy = data_or_null(c, 0), *ghn = data_or_null(c, 1), *gcn = data_or_null(c, 2),
              *gsaved = data_or_null(c, 3), *w = c.in[4].as<float>(), *c0 = c.in[5].as<float>(),
              *saved = c.in[6].as<float>();
  float *gg = c.out[0].as<float>(), *gh = c.out[1].as<float>(), *gc = c.out[2].as<float>();
  float* packed = at(c, plan.panels);
  pack_columns(w, s.h, 4, packed);
  // gh of units of panels first..last-1 from the gate gradients `g` of the next step.
  auto recur = [&](const float* g, int64_t first, int64_t last, float* scratch) {
    if (const int64_t whole = std::min(last, s.h / width) - first; s.n == 1 && whole > 0) {
      row_times_panels(g, g4, packed + first * g4 * width, nullptr, whole, false,
                       gh + first * width, width);
      first += whole;
    }
    for (int64_t p = first; p < last; ++p) {
      Gemm<float> r;
      r.m = s.n;
      r.n = std::min(width, s.h - p * width);
      r.k = g4;
      r.a = g;
      r.am = g4;
      r.ak = 1;
      r.b = packed + p * g4 * width;
      r.bk = width;
      r.bn = 1;
      r.c = gh + p * width;
      r.c_row = s.h;
      gemm_serial(r, scratch);
    }
  };
  const float* after = nullptr;
  for (int64_t k = s.steps - 1; k >= 0; --k) {
    const int64_t t = step_at(k, s.steps, reverse);
    float* g = gg + t * s.n * g4;
    const bool first_step = k == s.steps - 1;
    for_panels(c, plan, panels, [&](int64_t first, int64_t last, float* scratch) {
      if (after) recur(after, first, last, scratch);
      const int64_t u0 = first * width, units = std::min(last * width, s.h) - u0;
      for (int64_t i = 0; i < s.n && units > 0; ++i) {
        const int64_t u = i * s.h + u0, row = t * s.n + i;
        const float* past =
            k ? saved + (step_at(k - 1, s.steps, reverse) * s.n + i) * 5 * s.h + 4 * s.h + u0
              : c0 + u;
        const float* h1 = first_step ? (ghn ? ghn + u : nullptr) : gh + u;
        const float* c1 = first_step ? (gcn ? gcn + u : nullptr) : gc + u;
        l.lstm_cell_grad(h1, gy ? gy + t * state + u : nullptr, c1,
                         gsaved ? gsaved + row * 5 * s.h + u0 : nullptr, saved + row * 5 * s.h + u0,
                         past, g + i * g4 + u0, gc + u, s.h, units);
      }
    });
    after = g;
  }
  for_panels(c, plan, panels, [&](int64_t first, int64_t last, float* scratch) {
    recur(after, first, last, scratch);
  });
}

// ---- one step

bool cell_supports(const KernelCall& c) {
  return dense(c.in[0]) && dense(c.in[1]) && c.in[1].numel > 0;
}
void cell_run(const KernelCall& c) {
  const RowLoops& l = row_loops();
  const int64_t n = c.in[1].shape[0], h = c.in[1].shape[1];
  float* saved = c.out[2].as<float>();
  parallel_for(0, n, 1 + 2048 / h, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      l.lstm_cell(c.in[0].as<float>() + i * 4 * h, c.in[1].as<float>() + i * h,
                  c.out[0].as<float>() + i * h, c.out[1].as<float>() + i * h,
                  saved ? saved + i * 5 * h : nullptr, h, h);
  });
}

bool cell_backward_supports(const KernelCall& c) {
  for (int i = 0; i < 3; ++i)
    if (!dense_or_absent(c, i)) return false;
  return dense(c.in[3]) && dense(c.in[4]) && c.in[4].numel > 0;
}
void cell_backward_run(const KernelCall& c) {
  const RowLoops& l = row_loops();
  const int64_t n = c.in[4].shape[0], h = c.in[4].shape[1];
  const float *gh = data_or_null(c, 0), *gc = data_or_null(c, 1), *gs = data_or_null(c, 2);
  parallel_for(0, n, 1 + 2048 / h, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      l.lstm_cell_grad(gh ? gh + i * h : nullptr, nullptr, gc ? gc + i * h : nullptr,
                       gs ? gs + i * 5 * h : nullptr, c.in[3].as<float>() + i * 5 * h,
                       c.in[4].as<float>() + i * h, c.out[0].as<float>() + i * 4 * h,
                       c.out[1].as<float>() + i * h, h, h);
  });
}

constexpr Kernel kLstm{forward_supports, nullptr, forward_prepare, forward_run};
constexpr Kernel kLstmBackward{backward_supports, nullptr, backward_prepare, backward_run};
constexpr Kernel kCell{cell_supports, nullptr, nullptr, cell_run};
constexpr Kernel kCellBackward{cell_backward_supports, nullptr, nullptr, cell_backward_run};

}  // namespace

void register_rnn_kernels() {
  register_f32_and_widened(op::lstm, kLstm);
  register_f32_and_widened(op::lstm_backward, kLstmBackward);
  register_f32_and_widened(op::lstm_cell, kCell);
  register_f32_and_widened(op::lstm_cell_backward, kCellBackward);
  register_gru_kernels();
}

}  // namespace tandem::detail
