// SPDX-License-Identifier: Apache-2.0
// GRU and plain recurrent layers over whole sequences in f32: first one matmul with x for all
// steps, then one parallel region per step in which every thread computes the recurrent
// matmul and the activations of its own hidden units. Other dtypes run the rows' bodies.
#include <algorithm>
#include <cstring>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rnn/rnn_internal.h"
#include "tandem/backend/cpu/rows/row_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/ops/nn/rnn.h"

namespace tandem::detail {
namespace {

struct Sizes {
  int64_t steps, n, in, h;
};

// x, h0, w_ih, w_hh, b_ih?, b_hh?
bool forward_supports(const KernelCall& c) {
  for (int i = 0; i < 4; ++i)
    if (!dense(c.in[i]) || c.in[i].numel == 0) return false;
  return dense_or_absent(c, 4) && dense_or_absent(c, 5);
}
Sizes forward_sizes(const KernelCall& c) {
  const Array &x = c.in[0], &w = c.in[3];
  return {x.shape[0], x.shape[1], x.shape[2], w.shape[1]};
}

template <int64_t kGates>
std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  auto plan = std::make_shared<RecurrentPlan>();
  const Sizes s = forward_sizes(c);
  const int64_t all = kGates * s.h;
  plan->workers = step_workers(s.n, s.h, kGates);
  plan->big_workers = num_threads();
  plan->bias = plan->take(rounded(all));
  plan->gates = plan->take(rounded(s.steps * s.n * all));
  plan->gradient = plan->take(rounded(s.n * s.h));
  plan->panels = plan->take(rounded(kGates * panels_of(s.h) * s.h * panel_width() + 16));
  plan->big = plan->take(gemm_scratch<float>(s.steps * s.n, all, s.in) *
                         static_cast<size_t>(plan->big_workers));
  plan->part = whole_lines(gemm_scratch<float>(s.n, panel_width(), s.h));
  plan->part_at = plan->take(plan->part * static_cast<size_t>(plan->workers));
  return plan;
}

// gates [t * n, all] = x times w_ih of all steps plus b_ih, and b_hh for the first `both` columns.
void project(const KernelCall& c, const RecurrentPlan& plan, const Sizes& s, int64_t all,
             int64_t both, float* gates) {
  float* bias = at(c, plan.bias);
  const float *b1 = data_or_null(c, 4), *b2 = data_or_null(c, 5);
  for (int64_t i = 0; i < all; ++i) bias[i] = (b1 ? b1[i] : 0.0f) + (b2 && i < both ? b2[i] : 0.0f);
  Gemm<float> g;
  g.m = s.steps * s.n;
  g.n = all;
  g.k = s.in;
  g.a = c.in[0].as<float>();
  g.am = s.in;
  g.ak = 1;
  g.b = c.in[2].as<float>();
  g.bk = 1;
  g.bn = s.in;
  g.c = gates;
  g.c_row = all;
  g.bias = bias;
  gemm(g, plan.big_workers, at(c, plan.big));
}

// to [n, ...] (+)= states [n, h] times one gate's packed weights of one panel.
void recurrent_matmul(const Sizes& s, const float* states, const float* packed, int64_t units,
                      float* to, int64_t row, bool accumulate, float* scratch) {
  Gemm<float> r;
  r.m = s.n;
  r.n = units;
  r.k = s.h;
  r.a = states;
  r.am = s.h;
  r.ak = 1;
  r.b = packed;
  r.bk = panel_width();
  r.bn = 1;
  r.c = to;
  r.c_row = row;
  r.accumulate = accumulate;
  gemm_serial(r, scratch);
}

void gru_run(const KernelCall& c) {
  const auto& plan = *static_cast<const RecurrentPlan*>(c.plan);
  const Sizes s = forward_sizes(c);
  const bool reverse = c.get_attrs<LstmAttrs>().reverse;
  const RowLoops& l = row_loops();
  const int64_t all = 3 * s.h, width = panel_width(), state = s.n * s.h;
  float *gates = at(c, plan.gates), *packed = at(c, plan.panels), *q = at(c, plan.gradient);
  project(c, plan, s, all, 2 * s.h, gates);
  pack_gates(c.in[3].as<float>(), s.h, 3, s.h, packed);
  const float* b = data_or_null(c, 5);
  if (b) b += 2 * s.h;
  float *y = c.out[0].as<float>(), *saved = c.out[2].as<float>();
  const float* before = c.in[1].as<float>();
  for (int64_t k = 0; k < s.steps; ++k) {
    const int64_t t = step_at(k, s.steps, reverse);
    float *g = gates + t * s.n * all, *after = y + t * state;
    for_panels(c, plan, panels_of(s.h), [&](int64_t first, int64_t last, float* scratch) {
      for (int64_t p = first; p < last; ++p) {
        const int64_t u = p * width, units = std::min(width, s.h - u);
        const float* w = packed + p * 3 * s.h * width;
        if (s.n == 1 && units == width) {
          row_times_panels(before, s.h, w, nullptr, 2, true, g + u, s.h);
          row_times_panels(before, s.h, w + 2 * s.h * width, nullptr, 1, false, q + u, s.h);
        } else {
          for (int64_t gate = 0; gate < 2; ++gate)
            recurrent_matmul(s, before, w + gate * s.h * width, units, g + gate * s.h + u, all,
                             true, scratch);
          recurrent_matmul(s, before, w + 2 * s.h * width, units, q + u, s.h, false, scratch);
        }
        for (int64_t i = 0; i < s.n; ++i)
          l.gru_cell(g + i * all + u, q + i * s.h + u, b ? b + u : nullptr, before + i * s.h + u,
                     after + i * s.h + u, saved ? saved + (t * s.n + i) * 4 * s.h + u : nullptr,
                     s.h, units);
      }
    });
    before = after;
  }
  std::memcpy(c.out[1].data, before, static_cast<size_t>(state) * sizeof(float));
}

void rnn_run(const KernelCall& c) {
  const auto& plan = *static_cast<const RecurrentPlan*>(c.plan);
  const Sizes s = forward_sizes(c);
  const auto& a = c.get_attrs<RnnAttrs>();
  const RowLoops& l = row_loops();
  const int64_t width = panel_width(), state = s.n * s.h;
  float* packed = at(c, plan.panels);
  float* y = c.out[0].as<float>();
  project(c, plan, s, s.h, s.h, y);  // the sums become the states in place
  pack_gates(c.in[3].as<float>(), s.h, 1, s.h, packed);
  const float* before = c.in[1].as<float>();
  for (int64_t k = 0; k < s.steps; ++k) {
    float* after = y + step_at(k, s.steps, a.reverse) * state;
    for_panels(c, plan, panels_of(s.h), [&](int64_t first, int64_t last, float* scratch) {
      for (int64_t p = first; p < last; ++p) {
        const int64_t u = p * width, units = std::min(width, s.h - u);
        recurrent_matmul(s, before, packed + p * s.h * width, units, after + u, s.h, true, scratch);
        for (int64_t i = 0; i < s.n; ++i) {
          float* v = after + i * s.h + u;
          if (!a.relu)
            l.tanh(v, v, units);
          else
            for (int64_t j = 0; j < units; ++j) v[j] = v[j] < 0 ? 0 : v[j];
        }
      }
    });
    before = after;
  }
  std::memcpy(c.out[1].data, before, static_cast<size_t>(state) * sizeof(float));
}

// ---- backward: a step passes to the one before it its gradients times w_hh

template <int64_t kGates>
std::shared_ptr<const Plan> backward_prepare(const KernelCall& c) {
  auto plan = std::make_shared<RecurrentPlan>();
  const Array& y = c.in[kGates == 3 ? 5 : 3];
  const int64_t n = y.shape[1], h = y.shape[2];
  plan->workers = step_workers(n, h, kGates);
  plan->panels = plan->take(rounded(panels_of(h) * kGates * h * panel_width()));
  plan->part = whole_lines(gemm_scratch<float>(n, panel_width(), kGates * h));
  plan->part_at = plan->take(plan->part * static_cast<size_t>(plan->workers));
  return plan;
}

// gh [n, h] (+)= g [n, gates * h] times w_hh, units of panels first..last-1.
void recur(const Sizes& s, int64_t gates, const float* g, const float* packed, float* gh,
           bool accumulate, int64_t first, int64_t last, float* scratch) {
  const int64_t width = panel_width();
  for (int64_t p = first; p < last; ++p) {
    Gemm<float> r;
    r.m = s.n;
    r.n = std::min(width, s.h - p * width);
    r.k = gates * s.h;
    r.a = g;
    r.am = gates * s.h;
    r.ak = 1;
    r.b = packed + p * gates * s.h * width;
    r.bk = width;
    r.bn = 1;
    r.c = gh + p * width;
    r.c_row = s.h;
    r.accumulate = accumulate;
    gemm_serial(r, scratch);
  }
}

// One sample's units of the derivative of a GRU step. `gh` comes from the step after and receives
// what passes straight to the one before; gates are `h` apart.
void gru_cell_grad(float* gh, const float* gy, const float* extra, const float* saved,
                   const float* before, float* gx, float* gp, int64_t h, int64_t n) {
  const float *r = saved, *z = r + h, *u = z + h, *q = u + h;
  for (int64_t k = 0; k < n; ++k) {
    const float g = gh[k] + (gy ? gy[k] : 0.0f);
    float gu = g * (1.0f - z[k]), gz = g * (before[k] - u[k]);
    if (extra) gu += extra[2 * h + k], gz += extra[h + k];
    const float au = gu * (1.0f - u[k] * u[k]);
    float gr = au * q[k], gq = au * r[k];
    if (extra) gr += extra[k], gq += extra[3 * h + k];
    gx[k] = gp[k] = gr * r[k] * (1.0f - r[k]);
    gx[h + k] = gp[h + k] = gz * z[k] * (1.0f - z[k]);
    gx[2 * h + k] = au;
    gp[2 * h + k] = gq;
    gh[k] = g * z[k];
  }
}

// gy?, ghn?, gsaved?, w_hh, h0, y, saved
bool gru_backward_supports(const KernelCall& c) {
  for (int i = 0; i < 3; ++i)
    if (!dense_or_absent(c, i)) return false;
  for (int i = 3; i < 7; ++i)
    if (!dense(c.in[i]) || c.in[i].numel == 0) return false;
  return true;
}

void start_from(const KernelCall& c, int i, float* gh, int64_t n) {
  if (const float* given = data_or_null(c, i))
    std::memcpy(gh, given, static_cast<size_t>(n) * sizeof(float));
  else
    std::fill(gh, gh + n, 0.0f);
}

void gru_backward_run(const KernelCall& c) {
  const auto& plan = *static_cast<const RecurrentPlan*>(c.plan);
  const Array& ys = c.in[5];
  const Sizes s{ys.shape[0], ys.shape[1], 0, ys.shape[2]};
  const bool reverse = c.get_attrs<LstmAttrs>().reverse;
  const int64_t all = 3 * s.h, width = panel_width(), state = s.n * s.h, panels = panels_of(s.h);
  const float *gy = data_or_null(c, 0), *extra = data_or_null(c, 2), *h0 = c.in[4].as<float>(),
              *y = ys.as<float>(), *saved = c.in[6].as<float>();
  float *gx = c.out[0].as<float>(), *gp = c.out[1].as<float>(), *gh = c.out[2].as<float>();
  float* packed = at(c, plan.panels);
  pack_columns(c.in[3].as<float>(), s.h, 3, packed);
  start_from(c, 1, gh, state);
  const float* after = nullptr;
  for (int64_t k = s.steps - 1; k >= 0; --k) {
    const int64_t t = step_at(k, s.steps, reverse);
    const float* before = k ? y + step_at(k - 1, s.steps, reverse) * state : h0;
    for_panels(c, plan, panels, [&](int64_t first, int64_t last, float* scratch) {
      if (after) recur(s, 3, after, packed, gh, true, first, last, scratch);
      const int64_t u = first * width, units = std::min(last * width, s.h) - u;
      for (int64_t i = 0; i < s.n && units > 0; ++i) {
        const int64_t at = i * s.h + u, row = t * s.n + i;
        gru_cell_grad(gh + at, gy ? gy + t * state + at : nullptr,
                      extra ? extra + row * 4 * s.h + u : nullptr, saved + row * 4 * s.h + u,
                      before + at, gx + row * all + u, gp + row * all + u, s.h, units);
      }
    });
    after = gp + t * s.n * all;
  }
  for_panels(c, plan, panels, [&](int64_t first, int64_t last, float* scratch) {
    recur(s, 3, after, packed, gh, true, first, last, scratch);
  });
}

// gy?, ghn?, w_hh, y
bool rnn_backward_supports(const KernelCall& c) {
  return dense_or_absent(c, 0) && dense_or_absent(c, 1) && dense(c.in[2]) && dense(c.in[3]) &&
         c.in[3].numel > 0;
}

void rnn_backward_run(const KernelCall& c) {
  const auto& plan = *static_cast<const RecurrentPlan*>(c.plan);
  const Array& ys = c.in[3];
  const Sizes s{ys.shape[0], ys.shape[1], 0, ys.shape[2]};
  const auto& a = c.get_attrs<RnnAttrs>();
  const int64_t width = panel_width(), state = s.n * s.h, panels = panels_of(s.h);
  const float *gy = data_or_null(c, 0), *y = ys.as<float>();
  float *gg = c.out[0].as<float>(), *gh = c.out[1].as<float>(), *packed = at(c, plan.panels);
  pack_columns(c.in[2].as<float>(), s.h, 1, packed);
  start_from(c, 1, gh, state);
  const float* after = nullptr;
  for (int64_t k = s.steps - 1; k >= 0; --k) {
    const int64_t t = step_at(k, s.steps, a.reverse);
    float* g = gg + t * state;
    for_panels(c, plan, panels, [&](int64_t first, int64_t last, float* scratch) {
      if (after) recur(s, 1, after, packed, gh, false, first, last, scratch);
      const int64_t u = first * width, units = std::min(last * width, s.h) - u;
      for (int64_t i = 0; i < s.n; ++i)
        for (int64_t j = i * s.h + u; j < i * s.h + u + units; ++j) {
          const float d = gh[j] + (gy ? gy[t * state + j] : 0.0f), v = y[t * state + j];
          g[j] = a.relu ? (v > 0 ? d : 0.0f) : d * (1.0f - v * v);
        }
    });
    after = g;
  }
  for_panels(c, plan, panels, [&](int64_t first, int64_t last, float* scratch) {
    recur(s, 1, after, packed, gh, false, first, last, scratch);
  });
}

constexpr Kernel kGru{forward_supports, nullptr, forward_prepare<3>, gru_run};
constexpr Kernel kGruBackward{gru_backward_supports, nullptr, backward_prepare<3>,
                              gru_backward_run};
constexpr Kernel kRnn{forward_supports, nullptr, forward_prepare<1>, rnn_run};
constexpr Kernel kRnnBackward{rnn_backward_supports, nullptr, backward_prepare<1>,
                              rnn_backward_run};

}  // namespace

void register_gru_kernels() {
  register_f32_and_widened(op::gru, kGru);
  register_f32_and_widened(op::gru_backward, kGruBackward);
  register_f32_and_widened(op::rnn, kRnn);
  register_f32_and_widened(op::rnn_backward, kRnnBackward);
}

}  // namespace tandem::detail
