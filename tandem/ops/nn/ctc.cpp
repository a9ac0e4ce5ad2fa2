// SPDX-License-Identifier: Apache-2.0
// CTC (Graves et al. 2006). The states of a target l_1 ... l_s are blank l_1 blank ... l_s blank;
// forward and backward variables are sums over paths in log space, internally f64. Samples run in
// parallel.
#include <cmath>
#include <limits>
#include <vector>

#include "tandem/ops/index/index.h"
#include "tandem/ops/nn/loss.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/rule_internal.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"

namespace tandem {
namespace {

using detail::Dense;
using detail::placed;

constexpr double kLogZero = -std::numeric_limits<double>::infinity();

double log_add(double a, double b) {
  if (a < b) std::swap(a, b);
  return b == kLogZero ? a : a + std::log1p(std::exp(b - a));
}

bool is_index(DType t) { return t == DType::i64 || t == DType::i32; }

// ---- shape rules; `at` is the index of log_probs among the inputs
void check_ctc(const InferCall& c, int at) {
  const Spec &x = c.in[at], &t = c.in[at + 1], &il = c.in[at + 2], &tl = c.in[at + 3];
  TD_CHECK(is_floating(x.dtype), DType, "log_probs are {}, expected a floating dtype",
           to_string(x.dtype));
  TD_CHECK(x.rank() == 3, Shape, "log_probs are {}, expected [t, n, classes]", x.shape.to_string());
  TD_CHECK(is_index(t.dtype) && is_index(il.dtype) && is_index(tl.dtype), DType,
           "targets and lengths expect int64 or int32, got {}, {} and {}", to_string(t.dtype),
           to_string(il.dtype), to_string(tl.dtype));
  TD_CHECK(t.rank() == 2 && dims_equal(t[0], x[1]), Shape,
           "targets are {}, log_probs {}: expected one row of labels per sample",
           t.shape.to_string(), x.shape.to_string());
  for (const Spec* l : {&il, &tl})
    TD_CHECK(l->rank() == 1 && dims_equal((*l)[0], x[1]), Shape,
             "lengths are {}, expected one per sample, [{}]", l->shape.to_string(),
             x[1].to_string());
  const int64_t blank = c.get_attrs<CtcAttrs>().blank;
  TD_CHECK(blank >= 0 && (x[2].is_symbolic() || blank < x[2].value()), Value,
           "blank is {}, expected a class of 0..{}", blank,
           x[2].is_symbolic() ? -1 : x[2].value() - 1);
}
void ctc_infer(InferCall& c) {
  check_ctc(c, 0);
  c.out[0] = Spec(c.in[0].dtype, Shape(c.in[0][1]), c.in[0].device);
}
void ctc_backward_infer(InferCall& c) {
  check_ctc(c, 1);
  c.out[0] = c.in[1];
}

// ---- loops

struct Ctc {
  Dense<double> x;
  std::vector<int64_t> labels, input_lengths, target_lengths;
  int64_t steps, n, classes, width, blank;
  ErrorWord* error;

  static std::vector<int64_t> integers(const Array& a) {
    Dense<uint64_t> d(a);
    std::vector<int64_t> v(static_cast<size_t>(a.numel));
    for (int64_t i = 0; i < a.numel; ++i) {
      const auto u = d[i];
      v[static_cast<size_t>(i)] =
          a.dtype == DType::i32 ? static_cast<int32_t>(u) : static_cast<int64_t>(u);
    }
    return v;
  }

  Ctc(const KernelCall& c, int at)
      : x(c.in[at]),
        labels(integers(c.in[at + 1])),
        input_lengths(integers(c.in[at + 2])),
        target_lengths(integers(c.in[at + 3])),
        steps(c.in[at].shape[0]),
        n(c.in[at].shape[1]),
        classes(c.in[at].shape[2]),
        width(c.in[at + 1].shape[1]),
        blank(c.get_attrs<CtcAttrs>().blank),
        error(c.error) {}

  int64_t t_of(int64_t b) const { return input_lengths[static_cast<size_t>(b)]; }
  int64_t s_of(int64_t b) const { return target_lengths[static_cast<size_t>(b)]; }
  double at(int64_t t, int64_t b, int64_t k) const { return x[(t * n + b) * classes + k]; }

  void report(int code, int64_t v) const {
    if (error) error->report(code, v);
  }
  // The states of sample b as classes; empty after an error.
  std::vector<int64_t> states(int64_t b) const {
    if (t_of(b) < 0 || t_of(b) > steps) return report(1, t_of(b)), std::vector<int64_t>();
    if (s_of(b) < 0 || s_of(b) > width) return report(2, s_of(b)), std::vector<int64_t>();
    std::vector<int64_t> s(static_cast<size_t>(2 * s_of(b) + 1), blank);
    for (int64_t i = 0; i < s_of(b); ++i) {
      const int64_t k = labels[static_cast<size_t>(b * width + i)];
      if (k < 0 || k >= classes || k == blank) return report(3, k), std::vector<int64_t>();
      s[static_cast<size_t>(2 * i + 1)] = k;
    }
    return s;
  }
  // Whether a path may skip the blank before state i.
  bool skips(const std::vector<int64_t>& s, size_t i) const {
    return i >= 2 && s[i] != blank && s[i] != s[i - 2];
  }

  // log sum over paths that end in state i at step t; [steps][states].
  std::vector<double> forward(int64_t b, const std::vector<int64_t>& s) const {
    const size_t m = s.size();
    std::vector<double> a(static_cast<size_t>(t_of(b)) * m, kLogZero);
    for (int64_t t = 0; t < t_of(b); ++t) {
      double* now = a.data() + static_cast<size_t>(t) * m;
      const double* old = now - m;
      for (size_t i = 0; i < m; ++i) {
        double sum = t == 0 ? (i < 2 ? 0.0 : kLogZero) : old[i];
        if (t > 0 && i > 0) sum = log_add(sum, old[i - 1]);
        if (t > 0 && skips(s, i)) sum = log_add(sum, old[i - 2]);
        now[i] = sum + at(t, b, s[i]);
      }
    }
    return a;
  }
  double log_likelihood(int64_t b, const std::vector<int64_t>& s,
                        const std::vector<double>& a) const {
    if (t_of(b) == 0) return s_of(b) == 0 ? 0.0 : kLogZero;
    const double* last = a.data() + static_cast<size_t>(t_of(b) - 1) * s.size();
    double v = last[s.size() - 1];
    return s.size() > 1 ? log_add(v, last[s.size() - 2]) : v;
  }
};

void ctc_loops(const KernelCall& c) {
  const Ctc k(c, 0);
  Dense<double> y(k.n);
  detail::parallel_for_rows(k.n, k.steps * (2 * k.width + 1) * 16,
                            [&](int64_t first, int64_t last) {
                              for (int64_t b = first; b < last; ++b) {
                                const std::vector<int64_t> s = k.states(b);
                                y[b] = s.empty() ? 0 : -k.log_likelihood(b, s, k.forward(b, s));
                              }
                            });
  y.store(c.out[0]);
}

// d(-log p) / d log_probs[t, k] = -(posterior probability of class k at step t).
void ctc_backward_loops(const KernelCall& c) {
  const Ctc k(c, 1);
  const Dense<double> gy(c.in[0]);
  Dense<double> g(k.steps * k.n * k.classes);
  g.fill(0);
  detail::parallel_for_rows(
      k.n, k.steps * (2 * k.width + 1) * 32, [&](int64_t first, int64_t last) {
        for (int64_t b = first; b < last; ++b) {
          const std::vector<int64_t> s = k.states(b);
          if (s.empty() || gy[b] == 0 || k.t_of(b) == 0) continue;
          const std::vector<double> a = k.forward(b, s);
          const double total = k.log_likelihood(b, s, a);
          const size_t m = s.size();
          std::vector<double> later(m, kLogZero), old;  // log sum over the rest of the path
          for (int64_t t = k.t_of(b) - 1; t >= 0; --t) {
            if (t == k.t_of(b) - 1) {
              later[m - 1] = 0;
              if (m > 1) later[m - 2] = 0;
            } else {
              old = later;
              for (size_t i = 0; i < m; ++i) old[i] += k.at(t + 1, b, s[i]);
              for (size_t i = 0; i < m; ++i) {
                later[i] = old[i];
                if (i + 1 < m) later[i] = log_add(later[i], old[i + 1]);
                if (i + 2 < m && k.skips(s, i + 2)) later[i] = log_add(later[i], old[i + 2]);
              }
            }
            const double* now = a.data() + static_cast<size_t>(t) * m;
            for (size_t i = 0; i < m; ++i)
              g[(t * k.n + b) * k.classes + s[i]] -= gy[b] * std::exp(now[i] + later[i] - total);
          }
        }
      });
  g.store(c.out[0]);
}

// ---- derivative and vmap

void ctc_vjp(VjpCall& c) {
  if (!c.needs(0)) return;
  CtcAttrs a = c.get_attrs<CtcAttrs>();
  c.results[0] =
      call(op::ctc_loss_backward, &a, c.loc(), c.grad(), c.in(0), c.in(1), c.in(2), c.in(3));
}

// Linear in gy; no rule for log_probs, as in PyTorch.
void ctc_backward_vjp(VjpCall& c) {
  TD_CHECK(!c.needs(1), Unsupported,
           "ctc_loss has no second derivative with respect to log_probs\nTake its gradient without "
           "create_graph.");
  if (!c.needs(0)) return;
  Tensor one = ones(c.in_shape(0), c.in_dtype(0), c.loc());
  Tensor derivative = call(op::ctc_loss_backward, c.node.attrs.get(), c.loc(), one, c.in(1),
                           c.in(2), c.in(3), c.in(4));
  c.results[0] = (c.grad() * derivative).sum({0, 2}, false, c.loc());
}

// The batch is folded into the samples: [B, t, n, c] -> [t, B n, c].
std::vector<Tensor> folded(const BatchCall& c, int at) {
  SourceLocation loc = c.node.loc;
  std::vector<Tensor> v;
  v.push_back(detail::merge_dims(
      detail::with_batch(c, at).permute({1, 0, 2, 3}, loc).contiguous(loc), 1, loc));
  for (int i = 1; i < 4; ++i)
    v.push_back(detail::merge_dims(detail::with_batch(c, at + i).contiguous(loc), 0, loc));
  return v;
}
void ctc_batch(BatchCall& c) {
  std::vector<Tensor> v = folded(c, 0);
  Tensor y = call(op::ctc_loss, c.node.attrs.get(), c.node.loc, v[0], v[1], v[2], v[3]);
  c.out[0] = detail::split_dim(y, 0, c.batch_size, c.node.in[2].shape[0], c.node.loc);
}
void ctc_backward_batch(BatchCall& c) {
  SourceLocation loc = c.node.loc;
  std::vector<Tensor> v = folded(c, 1);
  Tensor gy = detail::merge_dims(detail::with_batch(c, 0).contiguous(loc), 0, loc);
  Tensor g = call(op::ctc_loss_backward, c.node.attrs.get(), loc, gy, v[0], v[1], v[2], v[3]);
  c.out[0] =
      detail::split_dim(g, 1, c.batch_size, c.node.in[3].shape[0], loc).permute({1, 0, 2, 3}, loc);
}

double ctc_flops(const InferCall& c) {
  double states = 2 * static_cast<double>(c.in[1][1].value()) + 1;
  return 12 * static_cast<double>((c.in[0][0] * c.in[0][1]).value()) * states;
}

constexpr const char* kInputLength =
    "input length {} is out of range: log_probs have< {log_probs.0}> steps\nCheck the lengths "
    "after the network's strides.";
constexpr const char* kTargetLength =
    "target length {} is out of range: targets have< {targets.1}> labels at most\n"
    "Check target_lengths.";
constexpr const char* kLabel =
    "label {} is out of range or the blank< {blank}><: there are {log_probs.2} classes>\n"
    "Labels are class indices other than the blank.";

// Concatenated targets as rows [n, longest].
Tensor as_rows(const Tensor& targets, const Tensor& lengths, SourceLocation loc) {
  Tensor l = lengths.to(DType::i64, loc);
  Dim n = l.shape(0);
  int64_t longest = l.numel() ? l.amax().item<int64_t>() : 0, total = l.sum().item<int64_t>();
  TD_CHECK(total == targets.numel(), Shape, "targets have {} labels, target_lengths add up to {}",
           targets.numel(), total);
  const DeviceGuard there(targets.device());
  if (total == 0) return zeros({n, longest}, DType::i64, loc);
  Tensor start = cumsum(l, 0, loc) - l;
  Tensor at = clamp_max(start.unsqueeze(1, loc) + arange(longest, loc), total - 1, loc);
  return index_select(targets, 0, at.reshape({-1}, loc), loc).reshape({n, longest}, loc);
}

}  // namespace

namespace op {
constinit const OpDef ctc_loss =
    index_row("ctc_loss", {"log_probs", "targets", "input_lengths", "target_lengths"},
              fields<CtcAttrs>())
        .infer(ctc_infer)
        .vjp(ctc_vjp, 15)
        .batch(ctc_batch)
        .reference(ctc_loops)
        .autocast(Autocast::f32_inside)
        .flops(ctc_flops)
        .errors({kInputLength, kTargetLength, kLabel})
        .doc("-log of the probability of each sample's targets by CTC.");
constinit const OpDef ctc_loss_backward =
    index_row("ctc_loss_backward",
              {"gy", "log_probs", "targets", "input_lengths", "target_lengths"}, fields<CtcAttrs>())
        .infer(ctc_backward_infer)
        .vjp(ctc_backward_vjp, 30)
        .batch(ctc_backward_batch)
        .reference(ctc_backward_loops)
        .errors({kInputLength, kTargetLength, kLabel})
        .doc("Gradient of ctc_loss with respect to log_probs.");
}  // namespace op

Tensor ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths,
                CtcLossOptions o, SourceLocation loc) {
  return detail::named("ctc_loss", loc, [&]() -> Tensor {
    bool single = log_probs.defined() && log_probs.dim() == 2;
    placed("ctc_loss", loc, [&] {
      TD_CHECK(log_probs.defined() && targets.defined() && input_lengths.defined() &&
                   target_lengths.defined(),
               Value, "an input is an undefined tensor");
      TD_CHECK(o.reduction != Reduction::batchmean, Value,
               "Reduction::batchmean is for kl_div\nUse mean.");
      if (single) {
        log_probs = log_probs.unsqueeze(1, loc);
        if (targets.dim() == 1) targets = targets.unsqueeze(0, loc);
        input_lengths = input_lengths.reshape({1}, loc);
        target_lengths = target_lengths.reshape({1}, loc);
      }
      TD_CHECK(target_lengths.dim() == 1, Shape, "target_lengths expect [n], got {}",
               target_lengths.shape().to_string());
      if (targets.dim() == 1) targets = as_rows(targets, target_lengths, loc);
    });
    CtcAttrs a{o.blank};
    Tensor y = call(op::ctc_loss, &a, loc, log_probs, targets, input_lengths, target_lengths);
    if (o.zero_infinity) y = where(isinf(y, loc), 0.0, y, loc);
    if (o.reduction == Reduction::none) return single ? y.squeeze(0, loc) : y;
    if (o.reduction == Reduction::sum) return y.sum({}, false, loc);
    return (y / clamp_min(target_lengths, 1, loc).to(y.dtype(), loc)).mean({}, false, loc);
  });
}

}  // namespace tandem
