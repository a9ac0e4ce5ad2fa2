// SPDX-License-Identifier: Apache-2.0
// softmax_cross_entropy and its derivative: one pass of vector code over each row of logits, or
// over columns of them where samples have inner dimensions (the pixels of a segmentation) or rows
// are short; both have the same bits. Logits of 16 bits are widened a row at a time, columns of
// them as a whole. f64 runs the row's reference.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tandem/backend/cpu/registry_internal.h"
#include "tandem/backend/cpu/rows/short_rows_internal.h"
#include "tandem/backend/cpu/widened_internal.h"
#include "tandem/base/math_prelude.h"
#include "tandem/base/parallel.h"
#include "tandem/codegen/tile_kernels.h"
#include "tandem/ops/nn/loss.h"

namespace tandem::detail {
namespace {

enum { kMean, kSum, kNone };

bool dense(const Array& a, DType t) { return a.dtype == t && a.contiguous && !a.is_scalar; }

// n floats from element `at` of an array on: its own, or widened into `to`.
const float* floats_of(const Array& a, int64_t at, int64_t n, float* to) {
  if (a.dtype == DType::f32) return a.as<float>() + at;
  codegen::tiles().load[static_cast<int>(a.dtype)](to, a.as<uint16_t>() + at, nullptr, nullptr,
                                                   nullptr, n);
  return to;
}
float float_of(const Array& a, int64_t at) {
  float v;
  return *floats_of(a, at, 1, &v);
}
// Where n floats are to be written, and the end of that: rounds them into a 16-bit array.
float* room_for(const Array& a, int64_t at, float* own) {
  return a.dtype == DType::f32 ? a.as<float>() + at : own;
}
void keep_floats(const Array& a, int64_t at, int64_t n, const float* from) {
  if (a.dtype == DType::f32) return;
  codegen::tiles().store[static_cast<int>(a.dtype)](a.as<uint16_t>() + at, from, nullptr, nullptr,
                                                    nullptr, n);
}
// A thread's row of floats where an array has 16 bits.
std::vector<float> row_of(const Array& a, int64_t n) {
  return std::vector<float>(a.dtype == DType::f32 ? 0 : static_cast<size_t>(n));
}

// Logits [n, classes, inner], labels and class weights of a call; the weights are input `w`. Rows
// are counted as the labels are: n * inner of them.
struct Rows {
  const ClassLossAttrs& attrs;
  int64_t classes, inner, rows;
  const Array& logits;
  const float* weight;
  const int64_t* target;
  double smoothing, smooth_weight = 0;
  ErrorWord* error;

  Rows(const KernelCall& c, int ix, int w)
      : attrs(c.get_attrs<ClassLossAttrs>()),
        classes(c.in[ix].shape[1]),
        inner(c.in[ix].numel / (c.in[ix].shape[0] * classes)),
        rows(c.in[ix].shape[0] * inner),
        logits(c.in[ix]),
        weight(c.n_in > w && c.in[w].present() ? c.in[w].as<float>() : nullptr),
        target(c.in[ix + 1].as<int64_t>()),
        smoothing(attrs.label_smoothing / static_cast<double>(classes)),
        error(c.error) {
    if (smoothing == 0) return;
    for (int64_t j = 0; j < classes; ++j) smooth_weight += weight_of(j);
    smooth_weight *= smoothing;
  }
  double weight_of(int64_t j) const { return weight ? weight[j] : 1.0; }
  double keep() const { return 1 - attrs.label_smoothing; }
  // -1 if ignored; an invalid label is reported and ignored.
  int64_t label(int64_t r) const {
    const int64_t t = target[r];
    if (t == attrs.ignore_index) return -1;
    if (t >= 0 && t < classes) return t;
    error->report(1, t);
    return -1;
  }
  // Logit j of row r.
  float logit(int64_t r, int64_t j) const {
    return float_of(logits, (r / inner * classes + j) * inner + r % inner);
  }
  const float* x() const { return logits.as<float>(); }
  // f(row, count, offset of their first logit) for rows that are columns beside each other.
  template <class F>
  void for_columns(int64_t first, int64_t last, F&& f) const {
    for (int64_t r = first; r < last;) {
      const int64_t p = r % inner, n = std::min({kMostColumns, inner - p, last - r});
      f(r, n, r / inner * classes * inner + p);
      r += n;
    }
  }
  bool short_rows() const {
    return inner == 1 && classes < kShortRow && logits.dtype == DType::f32;
  }
  // f(row, their columns, where those begin) for rows that are short; `x` has room for them.
  template <class F>
  void for_short_rows(int64_t first, int64_t last, float* x, F&& f) const {
    for (int64_t r = first; r < last; r += kMostColumns) {
      const int64_t n = std::min(kMostColumns, last - r);
      f(r, turn_rows(x, this->x() + r * classes, classes, n), x);
    }
  }
  int64_t grain() const { return std::max<int64_t>(1, 4096 / std::max<int64_t>(classes, 1)); }
};

bool supports_rows(const KernelCall& c, int ix, int w) {
  const Array& x = c.in[ix];
  const bool narrow = is_short_float(x.dtype);
  return x.rank >= 2 && x.numel > 0 && dense(x, x.dtype) && dense(c.in[ix + 1], DType::i64) &&
         (x.dtype == DType::f32 || (narrow && x.numel == x.shape[0] * x.shape[1])) &&
         (c.n_in <= w || !c.in[w].present() || dense(c.in[w], DType::f32)) &&
         c.out[0].dtype == x.dtype;
}

bool forward_supports(const KernelCall& c) { return supports_rows(c, 0, 2); }

struct LossPlan : Plan {};

std::shared_ptr<const Plan> forward_prepare(const KernelCall& c) {
  auto plan = std::make_shared<LossPlan>();
  plan->workspace = static_cast<size_t>(c.in[0].numel / c.in[0].shape[1]) * sizeof(double);
  return plan;
}

// The loss of row r, of which e = log(sum of exp(x)).
double loss_of(const Rows& s, int64_t r, float e) {
  const int64_t t = s.label(r);
  if (t < 0) return 0;
  double loss = 0;
  const double w = s.keep() * s.weight_of(t);
  if (w != 0) loss = w * (static_cast<double>(e) - s.logit(r, t));
  for (int64_t j = 0; s.smoothing > 0 && j < s.classes; ++j)
    loss += s.smoothing * s.weight_of(j) * (static_cast<double>(e) - s.logit(r, j));
  return loss;
}

void forward_run(const KernelCall& c) {
  const RowLoops& l = row_loops();
  const Rows s(c, 0, 2);
  auto* loss = static_cast<double*>(c.scratch);
  float* lse = c.out[1].as<float>();
  parallel_for(0, s.rows, s.grain(), [&](int64_t first, int64_t last) {
    float top[kMostColumns], log_sum[kMostColumns];  // logarithms are taken of many rows at once
    double sums[kMostColumns];
    const auto finish = [&](int64_t r, int64_t n) {
      l.log_add(log_sum, top, sums, n);
      for (int64_t k = 0; k < n; ++k) {
        if (lse) lse[r + k] = log_sum[k];
        loss[r + k] = loss_of(s, r + k, log_sum[k]);
      }
    };
    if (s.inner > 1)
      return s.for_columns(first, last, [&](int64_t r, int64_t n, int64_t at) {
        l.column_sum_exp({s.classes, s.inner, n}, s.x() + at, top, sums);
        finish(r, n);
      });
    if (s.short_rows()) {
      alignas(64) float x[kShortRows];
      return s.for_short_rows(first, last, x,
                              [&](int64_t r, const Columns& lines, const float* from) {
                                l.column_sum_exp(lines, from, top, sums);
                                finish(r, lines.count);
                              });
    }
    std::vector<float> row = row_of(s.logits, s.classes);
    for (int64_t r = first; r < last; r += kMostColumns) {
      const int64_t n = std::min(kMostColumns, last - r);
      for (int64_t k = 0; k < n; ++k)
        sum_exp(l, floats_of(s.logits, (r + k) * s.classes, s.classes, row.data()), s.classes,
                top[k], sums[k]);
      finish(r, n);
    }
  });
  double sum = 0, total = 0;
  const auto write = [&](int64_t at, double v) {
    const auto own = static_cast<float>(v);
    if (c.out[0].dtype == DType::f32) c.out[0].as<float>()[at] = own;
    keep_floats(c.out[0], at, 1, &own);
  };
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t t = s.target[r];
    if (s.attrs.reduction == kNone) write(r, loss[r]);
    sum += loss[r];
    if (t != s.attrs.ignore_index && t >= 0 && t < s.classes) total += s.weight_of(t);
  }
  if (s.attrs.reduction != kNone) write(0, s.attrs.reduction == kMean ? sum / total : sum);
  if (c.out[2].data) *c.out[2].as<float>() = static_cast<float>(total);
}

bool backward_supports(const KernelCall& c) {
  return supports_rows(c, 1, 5) && dense(c.in[0], c.in[1].dtype) && dense(c.in[3], DType::f32) &&
         (c.get_attrs<ClassLossAttrs>().reduction != kMean || dense(c.in[4], DType::f32));
}

void backward_run(const KernelCall& c) {
  const RowLoops& l = row_loops();
  const Rows s(c, 1, 5);
  const float* lse = c.in[3].as<float>();
  const Array& gx = c.out[0];
  const double total = s.attrs.reduction == kMean ? *c.in[4].as<float>() : 1.0;
  const auto factor = [&](int64_t r) {
    return float_of(c.in[0], s.attrs.reduction == kNone ? r : 0) / total;
  };
  const auto own = [&](int64_t t) { return s.keep() * s.weight_of(t); };
  const auto smooth = static_cast<float>(s.smoothing);
  const auto rows = [&](int64_t first, int64_t last) {
    std::vector<float> row = row_of(gx, s.classes);
    for (int64_t r = first; r < last; ++r) {
      const int64_t at = r * s.classes, t = s.label(r);
      float* to = room_for(gx, at, row.data());
      if (t < 0) {
        std::fill_n(to, s.classes, 0.0f);
      } else {
        const double k = factor(r);
        l.cross_entropy_grad(to, floats_of(s.logits, at, s.classes, to), lse[r],
                             static_cast<float>(k), static_cast<float>(own(t) + s.smooth_weight),
                             smooth, s.weight, s.classes);
        to[t] = static_cast<float>(to[t] - k * own(t));
      }
      keep_floats(gx, at, s.classes, to);
    }
  };
  const auto columns = [&](int64_t row, const Columns& lines, const float* x, float* first) {
    const int64_t n = lines.count;
    float k[kMostColumns], sum[kMostColumns];
    int64_t label[kMostColumns];
    for (int64_t p = 0; p < n; ++p) {
      label[p] = s.label(row + p);
      k[p] = label[p] < 0 ? 0.0f : static_cast<float>(factor(row + p));
      sum[p] = label[p] < 0 ? 0.0f : static_cast<float>(own(label[p]) + s.smooth_weight);
    }
    l.column_cross_entropy_grad(lines, first, x, lse + row, k, sum, smooth, s.weight);
    for (int64_t p = 0; p < n; ++p) {
      float* to = first + p;
      if (label[p] >= 0) {
        float& mine = to[label[p] * lines.step];
        mine = static_cast<float>(mine - factor(row + p) * own(label[p]));
      } else {
        for (int64_t j = 0; j < s.classes; ++j) to[j * lines.step] = 0;
      }
    }
  };
  const auto short_rows = [&](int64_t first, int64_t last) {
    alignas(64) float x[kShortRows], y[kShortRows];
    s.for_short_rows(first, last, x, [&](int64_t r, const Columns& lines, const float* from) {
      columns(r, lines, from, y);
      turn_columns(gx.as<float>() + r * s.classes, y, lines);
    });
  };
  parallel_for(0, s.rows, s.grain(), [&](int64_t first, int64_t last) {
    if (s.short_rows()) return short_rows(first, last);
    if (s.inner == 1) return rows(first, last);
    s.for_columns(first, last, [&](int64_t r, int64_t n, int64_t at) {
      columns(r, {s.classes, s.inner, n}, s.x() + at, gx.as<float>() + at);
    });
  });
}

// ---- binary_cross_entropy: one pass that also checks that x is a probability

bool bce_supports(const KernelCall& c) {
  const Array &x = c.in[0], &t = c.in[1];
  return x.contiguous && t.contiguous && !x.is_scalar && !t.is_scalar && x.dtype == t.dtype &&
         (x.dtype == DType::f32 || x.dtype == DType::f64);
}

bool bce_piece(float* y, const float* x, const float* t, int64_t n) {
  return row_loops().cross_entropy_of_two(y, x, t, n);
}
bool bce_piece(double* y, const double* x, const double* t, int64_t n) {
  bool inside = true;
  for (int64_t i = 0; i < n; ++i) {
    inside &= x[i] >= 0 && x[i] <= 1;
    // Clamped like clamp_min, which keeps a NaN.
    const double a = tdm_log1p(-x[i]), b = tdm_log(x[i]), cut = -100;
    y[i] = (t[i] - 1) * (a < cut ? cut : a) - t[i] * (b < cut ? cut : b);
  }
  return inside;
}

template <class T>
void bce_loop(const KernelCall& c) {
  constexpr int64_t kPiece = 4096;
  const T *x = c.in[0].as<T>(), *t = c.in[1].as<T>();
  T* y = c.out[0].as<T>();
  parallel_for(0, c.in[0].numel, kPiece, [&](int64_t first, int64_t last) {
    bool inside = true;
    for (int64_t i = first; i < last; i += kPiece)
      inside &= bce_piece(y + i, x + i, t + i, std::min(kPiece, last - i));
    if (!inside && c.error) c.error->report(1, 0);
  });
}

void bce_run(const KernelCall& c) {
  c.in[0].dtype == DType::f64 ? bce_loop<double>(c) : bce_loop<float>(c);
}

constexpr Kernel kLossForward = {forward_supports, nullptr, forward_prepare, forward_run};
constexpr Kernel kLossBackward = {backward_supports, nullptr, nullptr, backward_run};

}  // namespace

void register_loss_kernels() {
  register_kernel(DeviceKind::cpu, op::binary_cross_entropy,
                  {bce_supports, nullptr, nullptr, bce_run});
  register_kernel(DeviceKind::cpu, op::softmax_cross_entropy, kWidened);
  register_kernel(DeviceKind::cpu, op::softmax_cross_entropy, kLossForward);
  register_kernel(DeviceKind::cpu, op::softmax_cross_entropy_backward, kWidened);
  register_kernel(DeviceKind::cpu, op::softmax_cross_entropy_backward, kLossBackward);
}

}  // namespace tandem::detail
