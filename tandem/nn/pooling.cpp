// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/pooling.h"

namespace tandem::nn {

MaxPool1d::MaxPool1d(IntList kernel, MaxPoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor MaxPool1d::forward(Tensor x) {
  return max_pool1d(std::move(x), kernel_size, options.stride, options.padding, options.dilation,
                    options.ceil_mode);
}
OutputAndIndices MaxPool1d::forward_with_indices(Tensor x, SourceLocation loc) {
  return scoped(loc, [&] {
    return max_pool1d_with_indices(std::move(x), kernel_size, options.stride, options.padding,
                                   options.dilation, options.ceil_mode);
  });
}
MaxPool2d::MaxPool2d(IntList kernel, MaxPoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor MaxPool2d::forward(Tensor x) {
  return max_pool2d(std::move(x), kernel_size, options.stride, options.padding, options.dilation,
                    options.ceil_mode);
}
OutputAndIndices MaxPool2d::forward_with_indices(Tensor x, SourceLocation loc) {
  return scoped(loc, [&] {
    return max_pool2d_with_indices(std::move(x), kernel_size, options.stride, options.padding,
                                   options.dilation, options.ceil_mode);
  });
}
MaxPool3d::MaxPool3d(IntList kernel, MaxPoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor MaxPool3d::forward(Tensor x) {
  return max_pool3d(std::move(x), kernel_size, options.stride, options.padding, options.dilation,
                    options.ceil_mode);
}
OutputAndIndices MaxPool3d::forward_with_indices(Tensor x, SourceLocation loc) {
  return scoped(loc, [&] {
    return max_pool3d_with_indices(std::move(x), kernel_size, options.stride, options.padding,
                                   options.dilation, options.ceil_mode);
  });
}
AvgPool1d::AvgPool1d(IntList kernel, AvgPoolOptions o) : kernel_size(kernel), options(o) {
  TD_CHECK(o.divisor_override == 0, Value,
           "AvgPool1d takes no divisor_override\nScale the result.");
  this->register_members(this, "");
}
Tensor AvgPool1d::forward(Tensor x) {
  return avg_pool1d(std::move(x), kernel_size, options.stride, options.padding, options.ceil_mode,
                    options.count_include_pad);
}
AvgPool2d::AvgPool2d(IntList kernel, AvgPoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor AvgPool2d::forward(Tensor x) {
  return avg_pool2d(std::move(x), kernel_size, options.stride, options.padding, options.ceil_mode,
                    options.count_include_pad, options.divisor_override);
}
AvgPool3d::AvgPool3d(IntList kernel, AvgPoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor AvgPool3d::forward(Tensor x) {
  return avg_pool3d(std::move(x), kernel_size, options.stride, options.padding, options.ceil_mode,
                    options.count_include_pad, options.divisor_override);
}
AdaptiveAvgPool1d::AdaptiveAvgPool1d(IntList size) : output_size(size) {
  this->register_members(this, "");
}
Tensor AdaptiveAvgPool1d::forward(Tensor x) {
  return adaptive_avg_pool1d(std::move(x), output_size);
}
AdaptiveAvgPool2d::AdaptiveAvgPool2d(IntList size) : output_size(size) {
  this->register_members(this, "");
}
Tensor AdaptiveAvgPool2d::forward(Tensor x) {
  return adaptive_avg_pool2d(std::move(x), output_size);
}
AdaptiveAvgPool3d::AdaptiveAvgPool3d(IntList size) : output_size(size) {
  this->register_members(this, "");
}
Tensor AdaptiveAvgPool3d::forward(Tensor x) {
  return adaptive_avg_pool3d(std::move(x), output_size);
}
AdaptiveMaxPool1d::AdaptiveMaxPool1d(IntList size) : output_size(size) {
  this->register_members(this, "");
}
Tensor AdaptiveMaxPool1d::forward(Tensor x) {
  return adaptive_max_pool1d(std::move(x), output_size);
}
OutputAndIndices AdaptiveMaxPool1d::forward_with_indices(Tensor x, SourceLocation loc) {
  return scoped(loc, [&] { return adaptive_max_pool1d_with_indices(std::move(x), output_size); });
}
AdaptiveMaxPool2d::AdaptiveMaxPool2d(IntList size) : output_size(size) {
  this->register_members(this, "");
}
Tensor AdaptiveMaxPool2d::forward(Tensor x) {
  return adaptive_max_pool2d(std::move(x), output_size);
}
OutputAndIndices AdaptiveMaxPool2d::forward_with_indices(Tensor x, SourceLocation loc) {
  return scoped(loc, [&] { return adaptive_max_pool2d_with_indices(std::move(x), output_size); });
}
AdaptiveMaxPool3d::AdaptiveMaxPool3d(IntList size) : output_size(size) {
  this->register_members(this, "");
}
Tensor AdaptiveMaxPool3d::forward(Tensor x) {
  return adaptive_max_pool3d(std::move(x), output_size);
}
OutputAndIndices AdaptiveMaxPool3d::forward_with_indices(Tensor x, SourceLocation loc) {
  return scoped(loc, [&] { return adaptive_max_pool3d_with_indices(std::move(x), output_size); });
}
LPPool1d::LPPool1d(double norm_type, IntList kernel, LPPoolOptions o)
    : norm_type(norm_type), kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor LPPool1d::forward(Tensor x) {
  return lp_pool1d(std::move(x), norm_type, kernel_size, options.stride, options.ceil_mode);
}
LPPool2d::LPPool2d(double norm_type, IntList kernel, LPPoolOptions o)
    : norm_type(norm_type), kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor LPPool2d::forward(Tensor x) {
  return lp_pool2d(std::move(x), norm_type, kernel_size, options.stride, options.ceil_mode);
}
LPPool3d::LPPool3d(double norm_type, IntList kernel, LPPoolOptions o)
    : norm_type(norm_type), kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor LPPool3d::forward(Tensor x) {
  return lp_pool3d(std::move(x), norm_type, kernel_size, options.stride, options.ceil_mode);
}
MaxUnpool1d::MaxUnpool1d(IntList kernel, MaxUnpoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor MaxUnpool1d::forward(Tensor x, const Tensor& indices, IntList output_size) {
  return max_unpool1d(std::move(x), indices, kernel_size, options.stride, options.padding,
                      output_size);
}
Tensor MaxUnpool1d::operator()(Tensor x, const Tensor& indices, IntList output_size,
                               SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), indices, output_size); });
}
MaxUnpool2d::MaxUnpool2d(IntList kernel, MaxUnpoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor MaxUnpool2d::forward(Tensor x, const Tensor& indices, IntList output_size) {
  return max_unpool2d(std::move(x), indices, kernel_size, options.stride, options.padding,
                      output_size);
}
Tensor MaxUnpool2d::operator()(Tensor x, const Tensor& indices, IntList output_size,
                               SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), indices, output_size); });
}
MaxUnpool3d::MaxUnpool3d(IntList kernel, MaxUnpoolOptions o) : kernel_size(kernel), options(o) {
  this->register_members(this, "");
}
Tensor MaxUnpool3d::forward(Tensor x, const Tensor& indices, IntList output_size) {
  return max_unpool3d(std::move(x), indices, kernel_size, options.stride, options.padding,
                      output_size);
}
Tensor MaxUnpool3d::operator()(Tensor x, const Tensor& indices, IntList output_size,
                               SourceLocation loc) {
  return scoped(loc, [&] { return forward(std::move(x), indices, output_size); });
}
#define TD_FRACTIONAL(n)                                                                         \
  FractionalMaxPool##n##d::FractionalMaxPool##n##d(IntList kernel, FractionalPoolOptions o)      \
      : kernel_size(kernel), options(std::move(o)) {                                             \
    this->register_members(this, "");                                                            \
  }                                                                                              \
  Tensor FractionalMaxPool##n##d::forward(Tensor x) {                                            \
    return fractional_max_pool##n##d(std::move(x), kernel_size, options);                        \
  }                                                                                              \
  OutputAndIndices FractionalMaxPool##n##d::forward_with_indices(Tensor x, SourceLocation loc) { \
    return scoped(loc, [&] {                                                                     \
      return fractional_max_pool##n##d_with_indices(std::move(x), kernel_size, options);         \
    });                                                                                          \
  }
TD_FRACTIONAL(2)
TD_FRACTIONAL(3)
#undef TD_FRACTIONAL

}  // namespace tandem::nn
