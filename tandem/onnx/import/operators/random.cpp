// SPDX-License-Identifier: Apache-2.0
// ONNX's random ops. With a seed they draw from a Mersenne Twister like NumPy's RandomState, as
// ONNX's reference implementation does, so results can be compared; otherwise from our
// generator.
#include <cmath>
#include <random>

#include "tandem/onnx/export/exporters_internal.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

/// Uniform numbers of 53 bits and normal ones by the polar method.
class SeededDraws {
 public:
  explicit SeededDraws(uint32_t seed) : twister_(seed) {}
  double uniform() {
    const uint32_t a = static_cast<uint32_t>(twister_()) >> 5;
    const uint32_t b = static_cast<uint32_t>(twister_()) >> 6;
    return (a * 67108864.0 + b) / 9007199254740992.0;
  }
  double normal() {
    if (has_) {
      has_ = false;
      return saved_;
    }
    double x, y, r;
    do {
      x = 2 * uniform() - 1;
      y = 2 * uniform() - 1;
      r = x * x + y * y;
    } while (r >= 1 || r == 0);
    const double f = std::sqrt(-2 * std::log(r) / r);
    saved_ = f * x;
    has_ = true;
    return f * y;
  }

 private:
  std::mt19937 twister_;
  double saved_ = 0;
  bool has_ = false;
};

std::optional<SeededDraws> seeded(const OnnxCall& c) {
  const OnnxAttribute* a = c.attribute("seed");
  if (!a) return std::nullopt;
  const double seed = a->kind == OnnxAttribute::i ? static_cast<double>(a->int_value)
                                                  : static_cast<double>(a->float_value);
  TD_CHECK(std::isfinite(seed), Value, "the seed is not finite");
  return SeededDraws(static_cast<uint32_t>(static_cast<int64_t>(seed)));
}

Tensor uniform_numbers(const OnnxCall& c, const Shape& s) {
  std::optional<SeededDraws> draws = seeded(c);
  if (!draws) return rand(s, DType::f64);
  std::vector<double> v(static_cast<size_t>(s.numel().value()));
  for (double& x : v) x = draws->uniform();
  return tensor(v, s);
}
Tensor normal_numbers(const OnnxCall& c, const Shape& s) {
  std::optional<SeededDraws> draws = seeded(c);
  if (!draws) return randn(s, DType::f64);
  std::vector<double> v(static_cast<size_t>(s.numel().value()));
  for (double& x : v) x = draws->normal();
  return tensor(v, s);
}

void set_as(OnnxCall& c, const Tensor& y, OnnxType otherwise) {
  const int64_t wanted = c.attr("dtype", static_cast<int64_t>(otherwise));
  c.set(0, cast_value(OnnxValue(y), static_cast<OnnxType>(wanted)));
}

template <bool normal>
void draw(OnnxCall& c, const Shape& s, OnnxType otherwise) {
  check_onnx_size(s, sizeof(double));
  if (normal) {
    set_as(c, normal_numbers(c, s) * c.attr_float("scale", 1) + c.attr_float("mean", 0), otherwise);
  } else {
    const double low = c.attr_float("low", 0), high = c.attr_float("high", 1);
    set_as(c, uniform_numbers(c, s) * (high - low) + low, otherwise);
  }
}
template <bool normal>
void draw_shape(OnnxCall& c) {
  draw<normal>(c, onnx_shape(c.attr_ints("shape")), OnnxType::f32);
}
template <bool normal>
void draw_like(OnnxCall& c) {
  draw<normal>(c, Shape(c.value(0).shape()), c.type(0));
}

// One trial each, by inversion: from the less likely side.
void bernoulli_of(OnnxCall& c) {
  const Tensor p = c.x(0).to(DType::f64), u = uniform_numbers(c, p.shape());
  set_as(c, where(p <= 0.5, u > 1 - p, u <= p).to(DType::f64), c.type(0));
}

void multinomial_of(OnnxCall& c) {
  const Tensor y = multinomial(softmax(c.x(0).to(DType::f32), -1), c.attr("sample_size", 1), true);
  const auto type = static_cast<OnnxType>(c.attr("dtype", 6));
  c.set(0, cast_value(OnnxValue(y), type));
}

void dropout_of(OnnxCall& c) {
  const Tensor x = c.x(0);
  const double ratio = c.has(1) ? c.number(1) : c.attr_float("ratio", 0.5);
  const bool training = c.version() >= 12 && c.has(2) && c.flag(2);
  const DType mask_type = c.version() < 10 ? x.dtype() : DType::b8;
  if (!training || ratio == 0) {
    c.set(0, x, c.type(0));
    if (c.wants(1)) c.set(1, ones(x.shape(), mask_type));
    return;
  }
  const Tensor mask = uniform_numbers(c, x.shape()) >= ratio;
  c.set_like(0, mask.to(x.dtype()) * x * (1 / (1 - ratio)));
  c.set(1, mask.to(mask_type));
}

}  // namespace

std::span<const OnnxRow> onnx_random_rows() {
  static constexpr OnnxRow kRows[] = {
      drawing({"",
               "RandomUniform",
               1,
               0,
               draw_shape<false>,
               {0, 1, "dtype high low seed shape"},
               &op::rand,
               export_rand}),
      drawing({"",
               "RandomNormal",
               1,
               0,
               draw_shape<true>,
               {0, 1, "dtype mean scale seed shape"},
               &op::randn,
               export_randn}),
      drawing({"", "RandomUniformLike", 1, 0, draw_like<false>, {1, 1, "dtype high low seed"}}),
      drawing({"", "RandomNormalLike", 1, 0, draw_like<true>, {1, 1, "dtype mean scale seed"}}),
      drawing({"",
               "Bernoulli",
               15,
               0,
               bernoulli_of,
               {1, 1, "dtype seed"},
               &op::bernoulli,
               export_bernoulli}),
      drawing({"",
               "Multinomial",
               7,
               0,
               multinomial_of,
               {1, 1, "dtype sample_size ~seed"},
               &op::multinomial,
               export_multinomial}),
      drawing(settings_from(1, {"",
                                "Dropout",
                                1,
                                0,
                                dropout_of,
                                {3, 2, "ratio seed ~is_test"},
                                &op::dropout,
                                export_dropout})),
      exported(op::randint, export_randint),
      exported(op::randperm, export_randperm),
      exported(op::dropout_backward, export_dropout_backward),
  };
  return kRows;
}

}  // namespace tandem::onnx
