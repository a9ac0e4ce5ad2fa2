// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/group_norm.h"

#include "tandem/base/divisors.h"
#include "tandem/nn/layer_internal.h"
#include "tandem/ops/layout.h"
#include "tandem/ops/nn/norm.h"
#include "tandem/ops/view/create.h"

namespace tandem::nn {

GroupNorm::GroupNorm(int64_t groups, Dim channels, GroupNormOptions o)
    : num_groups(groups), num_channels(channels.value()), options(o) {
  TD_CHECK(groups >= 1 && num_channels >= 1 && num_channels % groups == 0, Value,
           "GroupNorm expects num_groups that divide num_channels, got {} and {}\n{}", groups,
           num_channels, divisor_hint("num_groups", groups, num_channels));
  if (o.affine) {
    weight = Param(ones({channels}, o.dtype));
    bias = Param(zeros({channels}, o.dtype));
  }
  TD_REGISTER(weight, bias);
}
Tensor GroupNorm::forward(Tensor x) {
  TD_CHECK(x.dim() >= 2 && dims_equal(x.shape(1), num_channels), Shape,
           "GroupNorm expects {} channels, x is {}\n{}", num_channels, x.shape().to_string(),
           tandem::detail::layout_hint(x.shape(), x.dim() - 2, num_channels,
                                       "Set num_channels to the channels of x."));
  return group_norm(std::move(x), num_groups, detail::value_or_none(weight),
                    detail::value_or_none(bias), options.eps);
}

namespace detail {

InstanceNorm::InstanceNorm(Dim c, const InstanceNormOptions& o)
    : num_features(c.value()), options(o) {
  make_channel_norm(*this, "InstanceNorm", c, o);
}

Tensor InstanceNorm::run(Tensor x, int spatial) {
  const bool single = x.dim() == spatial + 1;
  TD_CHECK(single || x.dim() == spatial + 2, Shape,
           "{} expects {} dimensions, or {} without a batch, x is {}", type(), spatial + 2,
           spatial + 1, x.shape().to_string());
  TD_CHECK(dims_equal(x.shape(single ? 0 : 1), num_features), Shape,
           "{} expects {} channels, x is {}\n{}", type(), num_features, x.shape().to_string(),
           tandem::detail::layout_hint(x.shape(), spatial, num_features,
                                       "Set num_features to the channels of x."));
  if (single) x = x.unsqueeze(0);
  const bool tracked = running_mean.defined(), batch = is_training() || !tracked;
  Tensor mean = tracked ? running_mean.value() : Tensor();
  Tensor var = tracked ? running_var.value() : Tensor();
  BatchNormResult r =
      instance_norm(std::move(x), mean, var, detail::value_or_none(weight),
                    detail::value_or_none(bias), batch, options.momentum, options.eps);
  if (tracked && batch) {
    running_mean.assign_(r.running_mean);
    running_var.assign_(r.running_var);
  }
  return single ? r.y.squeeze(0) : r.y;
}

}  // namespace detail

InstanceNorm1d::InstanceNorm1d(Dim c, InstanceNormOptions o) : InstanceNorm(c, o) {
  TD_REGISTER(weight, bias, running_mean, running_var, num_batches_tracked);
}
Tensor InstanceNorm1d::forward(Tensor x) { return run(std::move(x), 1); }

InstanceNorm2d::InstanceNorm2d(Dim c, InstanceNormOptions o) : InstanceNorm(c, o) {
  TD_REGISTER(weight, bias, running_mean, running_var, num_batches_tracked);
}
Tensor InstanceNorm2d::forward(Tensor x) { return run(std::move(x), 2); }

InstanceNorm3d::InstanceNorm3d(Dim c, InstanceNormOptions o) : InstanceNorm(c, o) {
  TD_REGISTER(weight, bias, running_mean, running_var, num_batches_tracked);
}
Tensor InstanceNorm3d::forward(Tensor x) { return run(std::move(x), 3); }

LocalResponseNorm::LocalResponseNorm(int64_t size, double alpha, double beta, double k)
    : size(size), alpha(alpha), beta(beta), k(k) {
  TD_CHECK(size >= 1, Value, "LocalResponseNorm expects size >= 1, got {}", size);
  this->register_members(this, "");
}
Tensor LocalResponseNorm::forward(Tensor x) {
  return local_response_norm(std::move(x), size, alpha, beta, k);
}

}  // namespace tandem::nn
