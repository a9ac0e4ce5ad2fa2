// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tandem/base/half.h"
#include "tandem/base/parallel.h"
#include "tandem/graph/context.h"
#include "tandem/ops/linalg/factors.h"
#include "tandem/ops/ops.h"

namespace tandem::quant {
namespace {

constexpr int64_t kGptqBlock = 128, kGptqRows = 16;
constexpr int kAwqSteps = 20;  ///< of the exponent, from 0

/// The codes of a group.
struct Step {
  float scale = 1;
  int zero = 0;

  int code(float w, int most) const {
    const float q = std::nearbyint(w / scale) + static_cast<float>(zero);
    return q > 0 ? static_cast<int>(std::min(q, static_cast<float>(most))) : 0;  // NaN: 0
  }
  float number(int code) const { return static_cast<float>(code - zero) * scale; }
};

float rounded_scale(float s) {
  const float f16 = half_bits_to_float(float_to_half_bits(s));
  TD_CHECK(std::isfinite(f16), Value,
           "a group's step is {:g}: scales are stored as f16, which ends at 65504", s);
  return f16 > 0 ? f16 : 1.0f;
}

Step step_of(const float* w, int64_t n, const WeightOptions& o) {
  float low = 0, high = 0;
  for (int64_t i = 0; i < n; ++i) {
    low = std::min(low, w[i]);
    high = std::max(high, w[i]);
  }
  const int most = (1 << o.bits) - 1;
  Step s;
  if (o.symmetric) {
    s.scale = rounded_scale(2 * std::max(-low, high) / static_cast<float>(most));
    s.zero = 1 << (o.bits - 1);
  } else {
    s.scale = rounded_scale((high - low) / static_cast<float>(most));
    s.zero = std::clamp(static_cast<int>(std::nearbyint(-low / s.scale)), 0, most);
  }
  return s;
}

/// A weight on its way to codes, dense in f32, and what comes of it.
struct Rounding {
  Rounding(const Tensor& weight, const WeightOptions& options) : o(options) {
    TD_CHECK(weight.defined() && weight.dim() == 2, Shape, "expected a weight [n, k], got {}",
             weight.defined() ? weight.shape().to_string() : "none");
    TD_CHECK(o.bits == 2 || o.bits == 4 || o.bits == 8, Value,
             "codes of {} bits were asked for, expected 2, 4 or 8", o.bits);
    TD_CHECK(o.group > 0 && o.group * o.bits % 8 == 0, Value,
             "groups of {} were asked for, expected a positive number that fills whole bytes",
             o.group);
    n = weight.size(0), k = weight.size(1), groups = (k + o.group - 1) / o.group;
    w = weight.to(DType::f32).to_vector<float>();
    for (const float v : w)
      TD_CHECK(std::isfinite(v), Value, "the weight holds {}, which no code stands for", v);
    steps.resize(static_cast<size_t>(n * groups));
    codes.assign(static_cast<size_t>(n * groups * o.group), uint8_t(1 << (o.bits - 1)));
  }
  float* row(int64_t r) { return w.data() + r * k; }
  Step& step(int64_t r, int64_t g) { return steps[static_cast<size_t>(r * groups + g)]; }
  uint8_t& code(int64_t r, int64_t i) {
    return codes[static_cast<size_t>(r * groups * o.group + i)];
  }
  void find_step(int64_t r, int64_t g) {
    const int64_t first = g * o.group;
    step(r, g) = step_of(row(r) + first, std::min(o.group, k - first), o);
  }
  /// Rounds element i of row r; what it stands for.
  float round(int64_t r, int64_t i) {
    const Step& s = step(r, i / o.group);
    const int q = s.code(row(r)[i], (1 << o.bits) - 1);
    code(r, i) = static_cast<uint8_t>(q);
    return s.number(q);
  }
  PackedCodes packed() const {
    PackedCodes out;
    out.bits = o.bits;
    out.codes = pack_codes(tensor(codes, Shape(n, groups, o.group)), o.bits);
    std::vector<float> scale;
    for (const Step& s : steps) scale.push_back(s.scale);
    out.scale = tensor(scale, Shape(n, groups));
    if (o.symmetric) return out;
    const int64_t whole = 8 / o.bits, wide = (groups + whole - 1) / whole * whole;
    std::vector<uint8_t> zero(static_cast<size_t>(n * wide), 0);
    for (int64_t r = 0; r < n; ++r)
      for (int64_t g = 0; g < groups; ++g)
        zero[static_cast<size_t>(r * wide + g)] =
            static_cast<uint8_t>(steps[static_cast<size_t>(r * groups + g)].zero);
    out.zero = pack_codes(tensor(zero, Shape(n, wide)), o.bits);
    return out;
  }

  WeightOptions o;
  int64_t n, k, groups;
  std::vector<float> w;
  std::vector<Step> steps;
  std::vector<uint8_t> codes;
};

void check_sums(const Tensor& w, const InputSums& inputs) {
  TD_CHECK(inputs.rows > 0 && inputs.products.size(0) == w.size(1), Value,
           "the weight reads {} inputs, there are sums of {} rows of {}", w.size(1), inputs.rows,
           inputs.rows > 0 ? inputs.products.size(0) : 0);
}

// The order in which inputs are rounded.
std::vector<int64_t> input_order(const std::vector<float>& diagonal, bool by_size) {
  std::vector<int64_t> order(diagonal.size());
  std::iota(order.begin(), order.end(), 0);
  if (by_size)
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return diagonal[static_cast<size_t>(a)] > diagonal[static_cast<size_t>(b)];
    });
  return order;
}

// The upper Cholesky factor of the inverse of the damped products, in that order. Inputs that were
// always 0 are given the mean.
std::vector<float> inverse_factor(const InputSums& inputs, const std::vector<int64_t>& order,
                                  double damp) {
  const Tensor at = tensor(order);
  Tensor h = inputs.products.to(DType::f64) / static_cast<double>(inputs.rows);
  h = index_select(index_select(h, 0, at), 1, at);
  const Tensor diagonal = h.diagonal();
  const double mean_size = mean(diagonal).item<double>();
  const double add = mean_size > 0 ? damp * mean_size : 1.0;
  const Tensor more = where(diagonal > 0, add, mean_size + add);
  h = h + diag_embed(more);
  const Tensor inverse = cholesky_inverse(cholesky(h));
  return cholesky(inverse, true).to(DType::f32).to_vector<float>();
}

/// Some rows on their way through GPTQ.
class GptqTile {
 public:
  GptqTile(Rounding& r, const std::vector<int64_t>& order, const float* factor, int64_t first,
           int64_t last)
      : r_(r), order_(order), factor_(factor), first_(first), rows_(last - first), k_(r.k) {
    left_.resize(static_cast<size_t>(rows_ * k_));
    errors_.resize(static_cast<size_t>(rows_ * kGptqBlock));
    for (int64_t n = 0; n < rows_; ++n) {
      for (int64_t g = 0; r.o.act_order && g < r.groups; ++g) r.find_step(first + n, g);
      for (int64_t i = 0; i < k_; ++i) left(n)[i] = r.row(first + n)[at(i)];
    }
  }
  void run() {
    for (int64_t b = 0; b < k_; b += kGptqBlock) {
      const int64_t end = std::min(b + kGptqBlock, k_);
      for (int64_t i = b; i < end; ++i)
        for (int64_t n = 0; n < rows_; ++n) {
          const float error = round(n, i);
          errors(n)[i - b] = error;
          pass_on(n, i, error, i + 1, end);
        }
      for (int64_t i = b; i < end; ++i)
        for (int64_t n = 0; n < rows_; ++n) pass_on(n, i, errors(n)[i - b], end, k_);
    }
  }

 private:
  int64_t at(int64_t i) const { return order_[static_cast<size_t>(i)]; }
  float* left(int64_t n) { return left_.data() + n * k_; }
  float* errors(int64_t n) { return errors_.data() + n * kGptqBlock; }
  // Without an order of its own a group's step is that of what earlier inputs have left of it.
  float round(int64_t n, int64_t i) {
    float* row = r_.row(first_ + n);
    if (!r_.o.act_order && i % r_.o.group == 0) {
      std::copy_n(left(n) + i, std::min(r_.o.group, k_ - i), row + i);
      r_.find_step(first_ + n, i / r_.o.group);
    }
    row[at(i)] = left(n)[i];
    return (left(n)[i] - r_.round(first_ + n, at(i))) / factor_[i * k_ + i];
  }
  void pass_on(int64_t n, int64_t i, float error, int64_t from, int64_t to) {
    const float* u = factor_ + i * k_;
    float* own = left(n);
    for (int64_t j = from; j < to; ++j) own[j] -= error * u[j];
  }

  Rounding& r_;
  const std::vector<int64_t>& order_;
  const float* factor_;
  int64_t first_, rows_, k_;
  std::vector<float> left_, errors_;
};

}  // namespace

std::string to_string(WeightMethod m) {
  return m == WeightMethod::rtn ? "rtn" : m == WeightMethod::gptq ? "gptq" : "awq";
}
WeightMethod weight_method_of(std::string_view name) {
  for (const WeightMethod m : {WeightMethod::rtn, WeightMethod::gptq, WeightMethod::awq})
    if (to_string(m) == name) return m;
  TD_FAIL(Value, "'{}' is not a method of rounding weights\nThere are rtn, gptq and awq.", name);
}

void InputSums::add(const Tensor& in) {
  const NoGradGuard no_grad;
  const Tensor x = in.to(DType::f32).reshape({-1, in.size(-1)});
  const Tensor p = matmul(x.t(), x), m = sum(abs(x), {0});
  products = rows > 0 ? products + p : p;
  magnitudes = rows > 0 ? magnitudes + m : m;
  rows += x.size(0);
}

PackedCodes round_weight(const Tensor& w, const WeightOptions& o) {
  Rounding r(w, o);
  parallel_for(0, r.n, 1 + 4096 / (r.k + 1), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      for (int64_t g = 0; g < r.groups; ++g) r.find_step(i, g);
      for (int64_t j = 0; j < r.k; ++j) r.round(i, j);
    }
  });
  return r.packed();
}

PackedCodes gptq_weight(const Tensor& w, const InputSums& inputs, const WeightOptions& o) {
  check_sums(w, inputs);
  const NoGradGuard no_grad;
  Rounding r(w, o);
  const std::vector<int64_t> order =
      input_order(inputs.products.diagonal().to_vector<float>(), o.act_order);
  const std::vector<float> factor = inverse_factor(inputs, order, o.damp);
  // No row enters another: those of a tile share what is read of the factor.
  parallel_for(0, (r.n + kGptqRows - 1) / kGptqRows, 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t)
      GptqTile(r, order, factor.data(), t * kGptqRows, std::min((t + 1) * kGptqRows, r.n)).run();
  });
  return r.packed();
}

double output_error(const Tensor& w, const Tensor& v, const InputSums& inputs) {
  check_sums(w, inputs);
  const NoGradGuard no_grad;
  const Tensor d = w.to(DType::f32) - v.to(DType::f32);
  return sum(matmul(d, inputs.products) * d).item<double>() / static_cast<double>(inputs.rows);
}

Tensor awq_scales(const std::vector<Tensor>& weights, const InputSums& inputs,
                  const WeightOptions& o) {
  const NoGradGuard no_grad;
  const Tensor size = inputs.magnitudes / static_cast<double>(inputs.rows);
  const int64_t k = size.size(0);
  Tensor best = ones({k});
  double least = INFINITY;
  for (int step = 0; step < kAwqSteps; ++step) {
    Tensor s = clamp(pow(size, static_cast<double>(step) / kAwqSteps), 1e-4, 1e8);
    s = s / sqrt(max(s) * min(s));
    double error = 0;
    for (const Tensor& w : weights) {
      const PackedCodes q = round_weight(w.to(DType::f32) * s, o);
      error += output_error(w, dequantize_codes(q).narrow(1, 0, k) / s, inputs);
    }
    if (!(error < least)) continue;
    least = error;
    best = s;
  }
  return best;
}

}  // namespace tandem::quant
