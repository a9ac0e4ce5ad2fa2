// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/norm.h"

#include "tandem/graph/trace.h"
#include "tandem/nn/layer_internal.h"
#include "tandem/ops/layout.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/pointwise/pointwise.h"
#include "tandem/ops/random/random.h"
#include "tandem/ops/reduce/reduce.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/dim_tensor.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace detail {

static const char kBatchNorm = 0;

BatchNorm* as_batch_norm(Module& m) {
  return m.state().kind == &kBatchNorm ? static_cast<BatchNorm*>(&m) : nullptr;
}

BatchNorm::BatchNorm(Dim c, const BatchNormOptions& o) : num_features(c.value()), options(o) {
  state().kind = &kBatchNorm;
  make_channel_norm(*this, "BatchNorm", c, o);
}

Tensor BatchNorm::run(Tensor x, int min_rank, int max_rank) {
  TD_CHECK(x.dim() >= min_rank && x.dim() <= max_rank, Shape, "{} expects {} dimensions, x is {}",
           type(),
           min_rank == max_rank ? std::to_string(min_rank)
                                : std::to_string(min_rank) + " or " + std::to_string(max_rank),
           x.shape().to_string());
  TD_CHECK(dims_equal(x.shape(1), num_features), Shape, "{} expects {} channels, x is {} ({})\n{}",
           type(), num_features, x.shape().to_string(), x.shape(1).to_string(),
           tandem::detail::layout_hint(x.shape(), x.dim() - 2, num_features,
                                       "Set num_features to the channels of x."));
  Tensor w = detail::value_or_none(weight);
  Tensor b = detail::value_or_none(bias);
  bool tracked = running_mean.defined();
  bool batch = is_training() || !tracked;
  if (batch && spread()) {
    Tensor unbiased;
    BatchNormStats r = stats_over_ranks(x, w, b, unbiased);
    if (tracked) track(r.mean, unbiased);
    return r.y;
  }
  if (!batch || !tracked) {
    Tensor mean = tracked ? running_mean.value() : Tensor();
    Tensor var = tracked ? running_var.value() : Tensor();
    return batch_norm(std::move(x), mean, var, w, b, batch, 0.0, options.eps).y;
  }
  if (options.momentum) {
    num_batches_tracked.assign_(num_batches_tracked.value() + 1);
    BatchNormResult r = batch_norm(std::move(x), running_mean, running_var, w, b, true,
                                   *options.momentum, options.eps);
    running_mean.assign_(r.running_mean);
    running_var.assign_(r.running_var);
    return r.y;
  }
  // Cumulative average: with a momentum of 1 the statistics are the batch's.
  BatchNormResult r =
      batch_norm(std::move(x), running_mean, running_var, w, b, true, 1.0, options.eps);
  track(r.running_mean, r.running_var);
  return r.y;
}

void BatchNorm::set_sum_over_ranks(std::function<Tensor(const Tensor&)> sum) {
  spread_->sum = std::move(sum);
  spread_->on = spread_->sum != nullptr;
}

bool BatchNorm::spread() const {
  if (Trace* t = cell_trace()) t->guard(*spread_, spread_->on);
  return spread_->on;
}

// Mean first, then the squares around it, so that nothing cancels; each process counts by its part.
BatchNormStats BatchNorm::stats_over_ranks(const Tensor& input, const Tensor& w, const Tensor& b,
                                           Tensor& unbiased) const {
  const bool wide = input.dtype() == DType::f32 || input.dtype() == DType::f64;
  const Tensor x = wide ? input : input.to(DType::f32);
  std::vector<int> dims{0};
  std::vector<Dim> channels{1, num_features};
  for (int d = 2; d < x.dim(); ++d) {
    dims.push_back(d);
    channels.push_back(1);
  }
  const Shape spread(channels);
  Dim own = x.shape(0);
  for (int d = 2; d < x.dim(); ++d) own = own * x.shape(d);
  const Tensor sums =
      spread_->sum(cat({tandem::sum(x, dims), dim_tensor(own).to(x.dtype()).reshape({1})}, 0));
  const Tensor n = narrow(sums, 0, num_features, 1).detach();
  BatchNormStats r;
  r.mean = narrow(sums, 0, 0, num_features) / n;
  const Tensor centred = x - r.mean.reshape(spread);
  const Tensor squares = spread_->sum(tandem::sum(square(centred), dims));
  r.var = squares / n;
  unbiased = squares / (n - 1.0);
  r.y = centred * rsqrt(r.var + options.eps).reshape(spread);
  if (w.defined()) r.y = r.y * w.to(x.dtype()).reshape(spread);
  if (b.defined()) r.y = r.y + b.to(x.dtype()).reshape(spread);
  if (!wide) r.y = r.y.to(input.dtype());
  return r;
}

// The factor of a cumulative average is 1 / number of batches, a tensor rather than a constant.
void BatchNorm::track(const Tensor& mean, const Tensor& unbiased_var) {
  const NoGradGuard no_grad;
  const Tensor count = num_batches_tracked.value() + 1;
  num_batches_tracked.assign_(count);
  const DType t = running_mean.dtype();
  const Tensor factor = options.momentum ? full({}, *options.momentum, t) : reciprocal(count.to(t));
  running_mean.assign_(lerp(running_mean.value(), mean.detach().to(t), factor));
  running_var.assign_(lerp(running_var.value(), unbiased_var.detach().to(t), factor));
}

}  // namespace detail

BatchNorm1d::BatchNorm1d(Dim c, BatchNormOptions o) : BatchNorm(c, o) {
  TD_REGISTER(weight, bias, running_mean, running_var, num_batches_tracked);
}
Tensor BatchNorm1d::forward(Tensor x) { return run(std::move(x), 2, 3); }

BatchNorm2d::BatchNorm2d(Dim c, BatchNormOptions o) : BatchNorm(c, o) {
  TD_REGISTER(weight, bias, running_mean, running_var, num_batches_tracked);
}
Tensor BatchNorm2d::forward(Tensor x) { return run(std::move(x), 4, 4); }

BatchNorm3d::BatchNorm3d(Dim c, BatchNormOptions o) : BatchNorm(c, o) {
  TD_REGISTER(weight, bias, running_mean, running_var, num_batches_tracked);
}
Tensor BatchNorm3d::forward(Tensor x) { return run(std::move(x), 5, 5); }

LayerNorm::LayerNorm(IntList shape, LayerNormOptions o) : normalized_shape(shape), options(o) {
  TD_CHECK(shape.rank() > 0, Value, "LayerNorm expects at least one dimension");
  if (o.elementwise_affine) {
    weight = Param(ones(shape, o.dtype));
    if (o.bias) bias = Param(zeros(shape, o.dtype));
  }
  TD_REGISTER(weight, bias);
}
Tensor LayerNorm::forward(Tensor x) {
  return layer_norm(std::move(x), normalized_shape, detail::value_or_none(weight),
                    detail::value_or_none(bias), options.eps);
}

Dropout::Dropout(double p) : p(p) {
  TD_CHECK(p >= 0 && p <= 1, Value, "Dropout expects a probability in 0..1, got {}", p);
  this->register_members(this, "");
}
Tensor Dropout::forward(Tensor x) { return dropout(std::move(x), p, is_training()); }

}  // namespace tandem::nn
