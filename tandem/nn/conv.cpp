// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/conv.h"

#include "tandem/nn/init.h"
#include "tandem/ops/conv.h"
#include "tandem/ops/pool.h"

namespace tandem::nn {
namespace detail {

ConvNd::ConvNd(int rank, Dim in, Dim out, const IntList& kernel, const ConvOptions& o)
    : in_channels(in.value()), out_channels(out.value()), kernel_size(kernel), options(o) {
  TD_CHECK(kernel.rank() == 1 || kernel.rank() == rank, Value,
           "kernel_size wants 1 or {} numbers, got {}", rank, kernel.to_string());
  while (kernel_size.rank() < rank) kernel_size.push_back(kernel[0]);
  TD_CHECK(o.groups > 0 && in_channels % o.groups == 0 && out_channels % o.groups == 0, Value,
           "groups = {} must divide in_channels = {} and out_channels = {}", o.groups, in_channels,
           out_channels);
  Shape shape{out, in_channels / o.groups};
  int64_t fan_in = in_channels / o.groups;
  for (Dim k : kernel_size) {
    TD_CHECK(k.value() > 0, Value, "kernel_size wants numbers > 0, got {}", kernel.to_string());
    shape.push_back(k);
    fan_in *= k.value();
  }
  weight = Param(init::fan_in_uniform(shape, fan_in, o.dtype));
  if (o.bias) bias = Param(init::fan_in_uniform({out}, fan_in, o.dtype));
}

Tensor ConvNd::run(Tensor x, int rank) {
  Tensor b = bias.defined() ? bias.value() : Tensor();
  using Conv = Tensor (*)(Tensor, Tensor, Tensor, IntList, IntList, IntList, int64_t, Where);
  Conv f = rank == 1 ? Conv{conv1d} : rank == 2 ? Conv{conv2d} : Conv{conv3d};
  return f(std::move(x), weight, std::move(b), options.stride, options.padding, options.dilation,
           options.groups, Where::here());
}

}  // namespace detail

Conv1d::Conv1d(Dim in, Dim out, IntList kernel, ConvOptions o) : ConvNd(1, in, out, kernel, o) {
  TD_REGISTER(weight, bias);
}
Tensor Conv1d::forward(Tensor x) { return run(std::move(x), 1); }

Conv2d::Conv2d(Dim in, Dim out, IntList kernel, ConvOptions o) : ConvNd(2, in, out, kernel, o) {
  TD_REGISTER(weight, bias);
}
Tensor Conv2d::forward(Tensor x) { return run(std::move(x), 2); }

Conv3d::Conv3d(Dim in, Dim out, IntList kernel, ConvOptions o) : ConvNd(3, in, out, kernel, o) {
  TD_REGISTER(weight, bias);
}
Tensor Conv3d::forward(Tensor x) { return run(std::move(x), 3); }

MaxPool2d::MaxPool2d(IntList kernel, PoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor MaxPool2d::forward(Tensor x) {
  return max_pool2d(std::move(x), kernel_size, options.stride, options.padding, options.dilation,
                    options.ceil_mode);
}

AvgPool2d::AvgPool2d(IntList kernel, PoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor AvgPool2d::forward(Tensor x) {
  return avg_pool2d(std::move(x), kernel_size, options.stride, options.padding, options.ceil_mode,
                    options.count_include_pad);
}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(IntList size) : output_size(size) {
  this->register_members(this, "");
}
Tensor AdaptiveAvgPool2d::forward(Tensor x) {
  return adaptive_avg_pool2d(std::move(x), output_size);
}

}  // namespace tandem::nn
