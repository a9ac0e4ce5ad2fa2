// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/adaround.h"

#include <algorithm>
#include <cmath>

#include "tandem/ops/ops.h"
#include "tandem/quant/roles.h"

namespace tandem::quant {
namespace {

constexpr int64_t kPositions = 8192;             ///< of a batch, at most
constexpr int64_t kMostInputs = 8192;            ///< of a layer that is adapted
constexpr double kStretch = 1.2, kShift = -0.1;  ///< h reaches 0 and 1 at finite V
constexpr double kRate = 0.05, kMoment1 = 0.9, kMoment2 = 0.999, kEps = 1e-8;
constexpr double kWarm = 0.2, kFirstBeta = 20, kLastBeta = 2;

const ConvAttrs* conv_of(const Layer& l) {
  return l.node->op->has(kConvolution) ? static_cast<const ConvAttrs*>(l.node->attrs.get())
                                       : nullptr;
}
int64_t groups_of(const Layer& l) { return conv_of(l) ? conv_of(l)->groups : 1; }

// The layer's weight, or something of its shape, as [groups, outputs, k].
Tensor by_output(const Layer& l, const Tensor& w) {
  const Tensor rows = l.axis == 0 ? w : w.t();
  const int64_t g = groups_of(l), n = rows.size(0) / g;
  return rows.contiguous().reshape({g, n, rows.numel() / (g * n)});
}
Tensor as_weight(const Layer& l, const Tensor& rows) {
  if (l.axis == 0) return rows.reshape(l.weight.shape());
  return rows.reshape({rows.size(1), rows.size(2)}).t().contiguous();
}

// The windows of one sample [1, c, ...] that positions of the result read, every `stride`-th:
// [groups, positions, k].
Tensor windows(const Tensor& x, const ConvAttrs& a, const Tensor& weight, int64_t every) {
  const int dims = x.dim() - 2;
  IntList around;
  for (int d = dims - 1; d >= 0; --d) {
    around.push_back(a.padding[static_cast<size_t>(d)]);
    around.push_back(a.padding_end[static_cast<size_t>(d)]);
  }
  const Tensor padded = pad(x, around);
  std::vector<Tensor> taps;
  const int64_t count = weight.numel() / (weight.size(0) * weight.size(1));
  for (int64_t tap = 0; tap < count; ++tap) {
    Tensor t = padded;
    int64_t rest = tap;
    for (int d = dims - 1; d >= 0; --d) {
      const auto i = static_cast<size_t>(d);
      const int64_t k = weight.size(d + 2), at = rest % k * a.dilation[i].value();
      const int64_t last = padded.size(d + 2) - (k - 1) * a.dilation[i].value() - 1;
      t = slice(t, d + 2, at, at + last + 1, a.stride[i].value());
      rest /= k;
    }
    t = t.reshape({x.size(1), -1});
    taps.push_back(slice(t, 1, 0, t.size(1), every));
  }
  const Tensor all = stack(taps, 1);  // [c, taps, positions]
  return all.reshape({a.groups, -1, all.size(2)}).transpose(1, 2);
}

// What the layer reads for each position of its result: [groups, rows, k].
Tensor rows_of(const Layer& l, const Tensor& x) {
  if (const ConvAttrs* a = conv_of(l)) {
    const int64_t n = x.size(0);
    int64_t positions = 1;
    for (int d = 2; d < x.dim(); ++d)
      positions *= 1 + x.size(d) / a->stride[static_cast<size_t>(d - 2)].value();
    const int64_t every = 1 + n * positions / kPositions;
    std::vector<Tensor> all;
    for (int64_t i = 0; i < n; ++i) all.push_back(windows(x.narrow(0, i, 1), *a, l.weight, every));
    return cat(all, 1);
  }
  const bool turned =
      l.node->op == &op::matmul && static_cast<const MatmulAttrs*>(l.node->attrs.get())->trans_a;
  const Tensor rows = turned && x.dim() > 1 ? x.transpose(-1, -2) : x;
  const Tensor flat = rows.reshape({-1, rows.size(-1)});
  return slice(flat, 0, 0, flat.size(0), 1 + flat.size(0) / kPositions).unsqueeze(0);
}

/// What rounding costs, as a quadratic form of the codes.
struct Cost {
  Tensor products;  ///< [g, k, k], divided by the mean of its diagonal
  Tensor wanted;    ///< [g, n, k]: codes that are not rounded, times `crossed`
  Tensor gradient(const Tensor& q) const { return (matmul(q, products) - wanted) * 2.0; }
  /// For each output [g, n, 1], but for a constant.
  Tensor of(const Tensor& q) const {
    return sum((matmul(q, products) - wanted * 2.0) * q, {-1}, true);
  }
};

Cost cost_of(const Tensor& codes, const LayerSums& s, bool centred) {
  Tensor products = s.products, crossed = s.crossed;
  if (centred) {
    const double n = static_cast<double>(s.rows);
    products = products - matmul(s.r.unsqueeze(2), s.r.unsqueeze(1)) / n;
    crossed = crossed - matmul(s.x.unsqueeze(2), s.r.unsqueeze(1)) / n;
  }
  Tensor unit = mean(products.diagonal(0, 1, 2), {1}, true).unsqueeze(2);
  unit = where(unit > 0, unit, 1.0);
  return {products / unit, matmul(codes, crossed / unit)};
}

/// Adam over V.
class Relaxed {
 public:
  explicit Relaxed(const Tensor& fraction) {
    const Tensor s = (fraction - kShift) / kStretch;
    v_ = log(s / (1.0 - s));
    first_ = zeros(v_.shape());
    second_ = zeros(v_.shape());
  }
  Tensor rounding() const { return clamp(sigmoid(v_) * kStretch + kShift, 0.0, 1.0); }
  // `gradient` is that of h.
  void step(const Tensor& gradient) {
    ++steps_;
    const Tensor s = sigmoid(v_), h = s * kStretch + kShift;
    const Tensor inside = logical_and(h > 0.0, h < 1.0);
    const Tensor g = where(inside, gradient * (s * (1.0 - s) * kStretch), 0.0);
    first_ = first_ * kMoment1 + g * (1 - kMoment1);
    second_ = second_ * kMoment2 + g * g * (1 - kMoment2);
    const double b1 = 1 - std::pow(kMoment1, steps_), b2 = 1 - std::pow(kMoment2, steps_);
    v_ = v_ - first_ / (sqrt(second_ / b2) + kEps) * (kRate / b1);
  }

 private:
  Tensor v_, first_, second_;
  int steps_ = 0;
};

// The gradient of sum (1 - |2 h - 1|^beta).
Tensor pull(const Tensor& h, double beta) {
  const Tensor t = h * 2.0 - 1.0;
  return pow(abs(t), beta - 1) * sign(t) * (-2 * beta);
}

}  // namespace

bool can_adapt(const Layer& l) {
  const int64_t outputs = l.weight.size(l.axis);
  return l.node->op != &op::conv_backward_input && outputs > 0 &&
         l.weight.numel() / outputs <= kMostInputs;
}

void LayerSums::add(const Layer& layer, const Tensor& in_float, const Tensor& in_codes) {
  const NoGradGuard no_grad;
  const Tensor a = rows_of(layer, in_float.to(DType::f32)),
               b = rows_of(layer, in_codes.to(DType::f32));
  const auto sum_up = [&](Tensor& total, const Tensor& more) {
    total = rows > 0 ? total + more : more;
  };
  sum_up(products, matmul(b.transpose(1, 2), b));
  sum_up(crossed, matmul(a.transpose(1, 2), b));
  sum_up(x, sum(a, {1}));
  sum_up(r, sum(b, {1}));
  rows += a.size(1);
}

Tensor adaptive_rounding(const Layer& layer, const Tensor& scale, const LayerSums& sums,
                         bool centred, int64_t steps) {
  const NoGradGuard no_grad;
  const auto most = static_cast<double>(layer.most_code);
  const Tensor w = by_output(layer, layer.weight);
  const Tensor codes = w / (scale.dim() == 0 ? scale : scale.reshape({w.size(0), w.size(1), 1}));
  const Tensor low = clamp(floor(codes), -most, most - 1);
  const Tensor fraction = clamp(codes - low, 0.0, 1.0);
  const Cost cost = cost_of(codes, sums, centred);
  Relaxed relaxed(fraction);
  const double warm = kWarm * static_cast<double>(steps);
  for (int64_t i = 0; i < steps; ++i) {
    const Tensor h = relaxed.rounding();
    Tensor g = cost.gradient(low + h);
    const double past = (static_cast<double>(i) - warm) / (static_cast<double>(steps) - warm);
    if (past >= 0)
      g = g + pull(h, kLastBeta + (kFirstBeta - kLastBeta) * (1 + std::cos(M_PI * past)) / 2);
    relaxed.step(g);
  }
  const Tensor adapted = (relaxed.rounding() >= 0.5).to(DType::f32),
               nearest = clamp(round(codes), -most, most) - low;
  const Tensor best = where(cost.of(low + adapted) < cost.of(low + nearest), adapted, nearest);
  return as_weight(layer, best.to(DType::u8));
}

Tensor mean_error(const Layer& layer, const Tensor& v, const LayerSums& sums) {
  const NoGradGuard no_grad;
  const auto part = [&](const Tensor& w, const Tensor& x) {
    return matmul(by_output(layer, w), x.unsqueeze(2)).reshape({-1});
  };
  return (part(layer.weight, sums.x) - part(v, sums.r)) / static_cast<double>(sums.rows);
}

}  // namespace tandem::quant
