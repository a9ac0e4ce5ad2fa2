// SPDX-License-Identifier: Apache-2.0
// Convolutions and transposed convolutions. Sizes are one number (for all dimensions) or a list;
// parameters, defaults and state_dict keys are PyTorch's.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

#include "tandem/nn/module.h"

namespace tandem::nn {

/// Padding of a convolution: sizes, "same" (the output is as large as the input; stride 1) or
/// "valid" (none).
class ConvPadding {
 public:
  template <class... D>
    requires(sizeof...(D) >= 1 && (std::convertible_to<D, Dim> && ...))
  ConvPadding(D... sizes) : sizes_(sizes...) {}
  ConvPadding(const IntList& sizes) : sizes_(sizes) {}
  template <class S>
    requires(std::convertible_to<const S&, std::string_view> && !std::integral<S>)
  ConvPadding(const S& name) : name_(std::string_view(name)) {}
  /// "same", "valid", or "" if sizes were given.
  const std::string& name() const { return name_; }
  const IntList& sizes() const { return sizes_; }

 private:
  IntList sizes_{0};
  std::string name_;
};

struct ConvOptions {
  IntList stride = {1};
  ConvPadding padding = {0};
  IntList dilation = {1};
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  ///< or reflect, replicate, circular
  DType dtype = DType::f32;
};

namespace detail {
/// Base of Conv1d, Conv2d, Conv3d: weight [out, in/groups, ...kernel], bias [out], both uniform in
/// +-1/sqrt(in/groups * window).
class TD_API ConvNd : public Module {
 public:
  Param weight, bias;
  int64_t in_channels, out_channels;
  IntList kernel_size;
  ConvOptions options;

 protected:
  ConvNd(int rank, Dim in, Dim out, const IntList& kernel, const ConvOptions& options);
  Tensor run(Tensor x, int rank);

 private:
  Tensor padded(Tensor x, int rank) const;
};
}  // namespace detail

/// x [n, in, l] -> [n, out, l'].
class TD_API Conv1d : public detail::ConvNd {
 public:
  Conv1d(Dim in_channels, Dim out_channels, IntList kernel_size, ConvOptions options = {});
  Tensor forward(Tensor x);
};
/// x [n, in, h, w] -> [n, out, h', w'].
class TD_API Conv2d : public detail::ConvNd {
 public:
  Conv2d(Dim in_channels, Dim out_channels, IntList kernel_size, ConvOptions options = {});
  Tensor forward(Tensor x);
};
/// x [n, in, d, h, w] -> [n, out, d', h', w'].
class TD_API Conv3d : public detail::ConvNd {
 public:
  Conv3d(Dim in_channels, Dim out_channels, IntList kernel_size, ConvOptions options = {});
  Tensor forward(Tensor x);
};

struct ConvTransposeOptions {
  IntList stride = {1}, padding = {0}, output_padding = {0};
  int64_t groups = 1;
  bool bias = true;
  IntList dilation = {1};
  DType dtype = DType::f32;
};

namespace detail {
/// Base of ConvTranspose1d, 2d, 3d: weight [in, out/groups, ...kernel], bias [out], both uniform in
/// +-1/sqrt(out/groups * window).
class TD_API ConvTransposeNd : public Module {
 public:
  Param weight, bias;
  int64_t in_channels, out_channels;
  IntList kernel_size;
  ConvTransposeOptions options;

 protected:
  ConvTransposeNd(int rank, Dim in, Dim out, const IntList& kernel,
                  const ConvTransposeOptions& options);
  Tensor run(Tensor x, const IntList& output_size, int rank);
};
/// `m` as a transposed convolution; nullptr if it is not one.
TD_API const ConvTransposeNd* as_conv_transpose(const Module& m);
}  // namespace detail

/// x [n, in, l] -> [n, out, ...]. output_size (spatial, or full) selects among the sizes that the
/// convolution maps to x's size; it replaces output_padding.
class TD_API ConvTranspose1d : public detail::ConvTransposeNd {
 public:
  ConvTranspose1d(Dim in_channels, Dim out_channels, IntList kernel_size,
                  ConvTransposeOptions options = {});
  Tensor forward(Tensor x) { return forward(std::move(x), {}); }
  Tensor forward(Tensor x, IntList output_size);
  using Module::operator();
  Tensor operator()(Tensor x, IntList output_size, SourceLocation loc = SourceLocation::here());
};
/// x [n, in, h, w] -> [n, out, ...]; output_size as for ConvTranspose1d.
class TD_API ConvTranspose2d : public detail::ConvTransposeNd {
 public:
  ConvTranspose2d(Dim in_channels, Dim out_channels, IntList kernel_size,
                  ConvTransposeOptions options = {});
  Tensor forward(Tensor x) { return forward(std::move(x), {}); }
  Tensor forward(Tensor x, IntList output_size);
  using Module::operator();
  Tensor operator()(Tensor x, IntList output_size, SourceLocation loc = SourceLocation::here());
};
/// x [n, in, d, h, w] -> [n, out, ...]; output_size as for ConvTranspose1d.
class TD_API ConvTranspose3d : public detail::ConvTransposeNd {
 public:
  ConvTranspose3d(Dim in_channels, Dim out_channels, IntList kernel_size,
                  ConvTransposeOptions options = {});
  Tensor forward(Tensor x) { return forward(std::move(x), {}); }
  Tensor forward(Tensor x, IntList output_size);
  using Module::operator();
  Tensor operator()(Tensor x, IntList output_size, SourceLocation loc = SourceLocation::here());
};

}  // namespace tandem::nn
