// SPDX-License-Identifier: Apache-2.0
#include "tandem/models/generative/ddpm.h"

#include <cmath>

#include "tandem/graph/context.h"
#include "tandem/ops/ops.h"

namespace tandem::models {
namespace {

Tensor kept_at(int64_t steps) {
  auto f = [steps](double t) {
    const double c = std::cos((t / static_cast<double>(steps) + 0.008) / 1.008 * M_PI / 2);
    return c * c;
  };
  std::vector<float> out;
  for (int64_t t = 1; t <= steps; ++t)
    out.push_back(static_cast<float>(std::max(f(static_cast<double>(t)) / f(0), 1e-5)));
  return tensor(out);
}

Tensor waves(int64_t steps, int64_t width) {
  std::vector<float> out;
  for (int64_t t = 0; t < steps; ++t)
    for (int64_t k = 0; k < width; ++k) {
      const double rate = std::exp(-std::log(10000.0) * static_cast<double>(k / 2) * 2 /
                                   static_cast<double>(width));
      const double angle = static_cast<double>(t) * rate;
      out.push_back(static_cast<float>(k % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  return tensor(out, {steps, width});
}

const DDPMOptions& checked(const DDPMOptions& o) {
  TD_CHECK(o.size > 0 && o.size % 4 == 0 && o.width > 0 && o.width % 4 == 0 && o.steps > 1, Value,
           "DDPM expects a size and a width that are multiples of 4, got {} and {}", o.size,
           o.width);
  return o;
}

Tensor twice(Tensor x) { return interpolate(std::move(x), {.scale_factor = 2.0}); }

}  // namespace

DDPM::Block::Block(int64_t in, int64_t out, int64_t told)
    : norm1(4, in),
      norm2(4, out),
      conv1(in, out, 3, {.padding = {1}}),
      conv2(out, out, 3, {.padding = {1}}),
      fc(told, out) {
  if (in != out) skip.emplace(in, out, 1);
  TD_REGISTER(norm1, norm2, conv1, conv2, fc, skip);
}
Tensor DDPM::Block::forward(Tensor x, Tensor told) {
  Tensor h = conv1(silu(norm1(x))) + fc(std::move(told)).unsqueeze(2).unsqueeze(3);
  h = conv2(silu(norm2(std::move(h))));
  return h + (skip ? (*skip)(std::move(x)) : x);
}
Tensor DDPM::Block::operator()(Tensor x, Tensor told, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(told)); });
}

DDPM::DDPM(DDPMOptions o)
    : o_(checked(o)),
      kept_(kept_at(o.steps)),
      waves_(waves(o.steps, 4 * o.width)),
      label_(o.classes + 1, 4 * o.width),
      time1_(4 * o.width, 4 * o.width),
      time2_(4 * o.width, 4 * o.width),
      first_(1, o.width, 3, {.padding = {1}}),
      last_(o.width, 1, 3, {.padding = {1}}),
      down1_(o.width, o.width, 4 * o.width),
      down2_(o.width, 2 * o.width, 4 * o.width),
      down3_(2 * o.width, 4 * o.width, 4 * o.width),
      middle_(4 * o.width, 4 * o.width, 4 * o.width),
      up2_(6 * o.width, 2 * o.width, 4 * o.width),
      up1_(3 * o.width, o.width, 4 * o.width),
      norm_(4, o.width) {
  TD_REGISTER(kept_, waves_, label_, time1_, time2_, first_, last_, down1_, down2_, down3_, middle_,
              up2_, up1_, norm_);
  NoGradGuard no_grad;
  last_.weight.assign_(zeros(last_.weight.shape()));
}

Tensor DDPM::forward(Tensor x, Tensor t, Tensor y) {
  const Tensor told =
      silu(time2_(silu(time1_(index_select(waves_.value(), 0, t)))) + label_(std::move(y)));
  const Tensor a = down1_(first_(std::move(x)), told);
  const Tensor b = down2_(avg_pool2d(a, 2), told);
  Tensor h = middle_(down3_(avg_pool2d(b, 2), told), told);
  h = up2_(cat({twice(std::move(h)), b}, 1), told);
  h = up1_(cat({twice(std::move(h)), a}, 1), told);
  return last_(silu(norm_(std::move(h))));
}
Tensor DDPM::operator()(Tensor x, Tensor t, Tensor y, SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), std::move(t), std::move(y)); });
}

Tensor DDPM::loss(const Tensor& x, const Tensor& y) {
  const Dim n = x.shape(0);
  const Tensor t = randint(0, o_.steps, {n}), noise = randn_like(x);
  const Tensor left = index_select(kept_.value(), 0, t).reshape({n, 1, 1, 1});
  const Tensor noisy = (x * 2 - 1) * sqrt(left) + noise * sqrt(1 - left);
  const Tensor told = where(rand({n}) < o_.class_dropout, full({n}, o_.classes, DType::i64), y);
  return mse_loss((*this)(noisy, t, told), noise);
}

Tensor DDPM::sample(const Tensor& y, int64_t steps, double guidance) {
  TD_CHECK(steps >= 1 && steps <= o_.steps, Value, "DDPM: 1 to {} steps of the sampler, got {}",
           o_.steps, steps);
  NoGradGuard no_grad;
  const int64_t n = y.size(0);
  const std::vector<float> kept = kept_.value().to_vector<float>();
  auto place = [&](int64_t i) { return i * o_.steps / steps + o_.steps / steps - 1; };
  Tensor x = randn({n, 1, o_.size, o_.size});
  for (int64_t i = steps; i-- > 0;) {
    const Tensor t = full({n}, place(i), DType::i64);
    Tensor noise = (*this)(x, t, y);
    if (guidance != 1) {
      const Tensor any = (*this)(x, t, full({n}, o_.classes, DType::i64));
      noise = any + (noise - any) * guidance;
    }
    const double now = kept[static_cast<size_t>(place(i))];
    const double next = i > 0 ? kept[static_cast<size_t>(place(i - 1))] : 1.0;
    const Tensor clean = clamp((x - noise * std::sqrt(1 - now)) / std::sqrt(now), -1.0, 1.0);
    noise = (x - clean * std::sqrt(now)) / std::sqrt(1 - now);
    x = clean * std::sqrt(next) + noise * std::sqrt(1 - next);
  }
  return clamp((x + 1) * 0.5, 0.0, 1.0);
}

}  // namespace tandem::models
