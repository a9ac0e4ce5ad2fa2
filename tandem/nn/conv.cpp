// SPDX-License-Identifier: Apache-2.0
#include "tandem/nn/conv.h"

#include <numeric>

#include "tandem/base/divisors.h"
#include "tandem/nn/init.h"
#include "tandem/nn/layer_internal.h"
#include "tandem/nn/wrapper.h"
#include "tandem/ops/conv/conv.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace detail {
namespace {

// One number per spatial dimension, validated.
IntList spread(const char* name, const IntList& list, int rank, int64_t least) {
  TD_CHECK(list.rank() == 1 || list.rank() == rank, Value, "{} expects 1 or {} numbers, got {}",
           name, rank, list.to_string());
  IntList r = list;
  while (r.rank() < rank) r.push_back(list[0]);
  for (Dim v : r)
    TD_CHECK(v.value() >= least, Value, "{} expects numbers {} {}, got {}", name,
             least ? ">" : "of at least", 0, list.to_string());
  return r;
}

void check_groups(int64_t groups, int64_t in, int64_t out) {
  TD_CHECK(groups > 0 && in % groups == 0 && out % groups == 0, Value,
           "groups = {} must divide in_channels = {} and out_channels = {}\n{}", groups, in, out,
           divisor_hint("groups", groups, std::gcd(in, out)));
}

// weight [first, second, ...kernel] and bias, uniform by the fan-in.
void make_parameters(Param& weight, Param& bias, int64_t first, int64_t second,
                     const IntList& kernel, bool with_bias, int64_t out, DType dtype) {
  Shape shape{first, second};
  for (Dim k : kernel) shape.push_back(k);
  Shape window = shape;
  window.erase(0);
  const int64_t fan_in = window.numel().value();
  weight = Param(init::fan_in_uniform(shape, fan_in, dtype));
  if (with_bias) bias = Param(init::fan_in_uniform({out}, fan_in, dtype));
}

}  // namespace

ConvNd::ConvNd(int rank, Dim in, Dim out, const IntList& kernel, const ConvOptions& o)
    : in_channels(in.value()),
      out_channels(out.value()),
      kernel_size(spread("kernel_size", kernel, rank, 1)),
      options(o) {
  check_groups(o.groups, in_channels, out_channels);
  const std::string &name = o.padding.name(), &mode = o.padding_mode;
  TD_CHECK(name.empty() || name == "same" || name == "valid", Value,
           "padding is \"{}\", expected \"same\", \"valid\" or sizes", name);
  TD_CHECK(mode == "zeros" || mode == "reflect" || mode == "replicate" || mode == "circular", Value,
           "padding_mode '{}' is not one of zeros, reflect, replicate, circular", mode);
  if (name == "same")
    for (Dim s : o.stride)
      TD_CHECK(s == Dim(1), Value, "padding \"same\" expects stride 1, stride is {}",
               o.stride.to_string());
  make_parameters(weight, bias, out_channels, in_channels / o.groups, kernel_size, o.bias,
                  out_channels, o.dtype);
}

// x padded as padding_mode says.
Tensor ConvNd::padded(Tensor x, int rank) const {
  IntList sizes;  // before and after, last dimension first
  const IntList dilation = spread("dilation", options.dilation, rank, 1);
  const bool named = !options.padding.name().empty();
  const IntList own = named ? IntList() : spread("padding", options.padding.sizes(), rank, 0);
  for (int i = rank - 1; i >= 0; --i) {
    const int64_t same = dilation[i].value() * (kernel_size[i].value() - 1);
    const bool none = options.padding.name() == "valid";
    const int64_t before = none ? 0 : named ? same / 2 : own[i].value();
    sizes.push_back(before);
    sizes.push_back(none ? 0 : named ? same - before : before);
  }
  return pad(std::move(x), sizes, options.padding_mode);
}

Tensor ConvNd::run(Tensor x, int rank) {
  Tensor b = detail::value_or_none(bias);
  using Sized =
      Tensor (*)(Tensor, Tensor, Tensor, IntList, IntList, IntList, int64_t, SourceLocation);
  using Named =
      Tensor (*)(Tensor, Tensor, Tensor, IntList, PaddingMode, IntList, int64_t, SourceLocation);
  IntList sizes = options.padding.sizes();
  if (options.padding_mode != "zeros") {
    TD_CHECK(x.dim() == rank + 1 || x.dim() == rank + 2, Shape,
             "x is {}, expected {} dimensions, or {} without a batch", x.shape().to_string(),
             rank + 2, rank + 1);
    x = padded(std::move(x), rank);
    sizes = {0};
  } else if (!options.padding.name().empty()) {
    Named f = rank == 1 ? Named{conv1d} : rank == 2 ? Named{conv2d} : Named{conv3d};
    return f(std::move(x), weight, std::move(b), options.stride, options.padding.name(),
             options.dilation, options.groups, SourceLocation::here());
  }
  Sized f = rank == 1 ? Sized{conv1d} : rank == 2 ? Sized{conv2d} : Sized{conv3d};
  return f(std::move(x), weight, std::move(b), options.stride, sizes, options.dilation,
           options.groups, SourceLocation::here());
}

static const char kConvTranspose = 0;

const ConvTransposeNd* as_conv_transpose(const Module& m) {
  return m.state().kind == &kConvTranspose ? static_cast<const ConvTransposeNd*>(&m) : nullptr;
}

ConvTransposeNd::ConvTransposeNd(int rank, Dim in, Dim out, const IntList& kernel,
                                 const ConvTransposeOptions& o)
    : in_channels(in.value()),
      out_channels(out.value()),
      kernel_size(spread("kernel_size", kernel, rank, 1)),
      options(o) {
  state().kind = &kConvTranspose;
  check_groups(o.groups, in_channels, out_channels);
  make_parameters(weight, bias, in_channels, out_channels / o.groups, kernel_size, o.bias,
                  out_channels, o.dtype);
}

Tensor ConvTransposeNd::run(Tensor x, const IntList& output_size, int rank) {
  IntList extra = options.output_padding;
  if (!output_size.empty()) {
    const IntList stride = spread("stride", options.stride, rank, 1);
    const IntList padding = spread("padding", options.padding, rank, 0);
    const IntList dilation = spread("dilation", options.dilation, rank, 1);
    const int skip = output_size.rank() - rank, lead = x.dim() - rank;
    TD_CHECK(lead == 1 || lead == 2, Shape,
             "x is {}, expected {} dimensions, or {} without a batch", x.shape().to_string(),
             rank + 2, rank + 1);
    TD_CHECK(skip == 0 || skip == lead, Value, "output_size {} expects {} or {} numbers",
             output_size.to_string(), rank, rank + lead);
    extra = {};
    for (int i = 0; i < rank; ++i) {
      const int64_t least = (x.size(lead + i) - 1) * stride[i].value() - 2 * padding[i].value() +
                            dilation[i].value() * (kernel_size[i].value() - 1) + 1;
      const int64_t e = output_size[skip + i].value() - least;
      TD_CHECK(e >= 0 && e < stride[i].value(), Value,
               "output_size {} is not possible in spatial dimension {}: expected {} to {}",
               output_size.to_string(), i, least, least + stride[i].value() - 1);
      extra.push_back(e);
    }
  }
  auto f = rank == 1 ? conv_transpose1d : rank == 2 ? conv_transpose2d : conv_transpose3d;
  return f(std::move(x), weight, detail::value_or_none(bias), options.stride, options.padding,
           extra, options.groups, options.dilation, SourceLocation::here());
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

ConvTranspose1d::ConvTranspose1d(Dim in, Dim out, IntList kernel, ConvTransposeOptions o)
    : ConvTransposeNd(1, in, out, kernel, o) {
  TD_REGISTER(weight, bias);
}
Tensor ConvTranspose1d::forward(Tensor x, IntList output_size) {
  return run(std::move(x), output_size, 1);
}
Tensor ConvTranspose1d::operator()(Tensor x, IntList output_size, SourceLocation loc) {
  return scoped(loc, [&] {
    return call_in_wrappers(*this, std::move(x),
                            [&](Tensor y) { return forward(std::move(y), output_size); });
  });
}

ConvTranspose2d::ConvTranspose2d(Dim in, Dim out, IntList kernel, ConvTransposeOptions o)
    : ConvTransposeNd(2, in, out, kernel, o) {
  TD_REGISTER(weight, bias);
}
Tensor ConvTranspose2d::forward(Tensor x, IntList output_size) {
  return run(std::move(x), output_size, 2);
}
Tensor ConvTranspose2d::operator()(Tensor x, IntList output_size, SourceLocation loc) {
  return scoped(loc, [&] {
    return call_in_wrappers(*this, std::move(x),
                            [&](Tensor y) { return forward(std::move(y), output_size); });
  });
}

ConvTranspose3d::ConvTranspose3d(Dim in, Dim out, IntList kernel, ConvTransposeOptions o)
    : ConvTransposeNd(3, in, out, kernel, o) {
  TD_REGISTER(weight, bias);
}
Tensor ConvTranspose3d::forward(Tensor x, IntList output_size) {
  return run(std::move(x), output_size, 3);
}
Tensor ConvTranspose3d::operator()(Tensor x, IntList output_size, SourceLocation loc) {
  return scoped(loc, [&] {
    return call_in_wrappers(*this, std::move(x),
                            [&](Tensor y) { return forward(std::move(y), output_size); });
  });
}

}  // namespace tandem::nn
