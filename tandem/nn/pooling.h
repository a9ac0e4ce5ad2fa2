// SPDX-License-Identifier: Apache-2.0
// Pooling layers over one to three dimensions. x is [n, c, ...] or [c, ...]; sizes are one number
// (for all dimensions) or a list. None has parameters; each calls the function of the same name.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/nn/one_size.h"
#include "tandem/ops/conv/pool.h"

namespace tandem::nn {

struct MaxPoolOptions {
  IntList stride = {};  ///< empty: the kernel size
  IntList padding = {0};
  IntList dilation = {1};
  bool ceil_mode = false;
};
struct AvgPoolOptions {
  IntList stride = {};  ///< empty: the kernel size
  IntList padding = {0};
  bool ceil_mode = false;
  bool count_include_pad = true;
  int64_t divisor_override = 0;  ///< the divisor, if not 0 (2d and 3d)
};
struct LPPoolOptions {
  IntList stride = {};  ///< empty: the kernel size
  bool ceil_mode = false;
};
struct MaxUnpoolOptions {
  IntList stride = {};  ///< empty: the kernel size
  IntList padding = {0};
};

/// Largest element of each window.
class TD_API MaxPool1d : public Module {
 public:
  explicit MaxPool1d(IntList kernel_size, MaxPoolOptions options = {});
  TD_LIST_OF_ONE(MaxPool1d, MaxPoolOptions);
  Tensor forward(Tensor x);
  /// The values and their i64 positions in x's spatial plane (return_indices).
  OutputAndIndices forward_with_indices(Tensor x, SourceLocation loc = SourceLocation::here());
  IntList kernel_size;
  MaxPoolOptions options;
};
/// Largest element of each window.
class TD_API MaxPool2d : public Module {
 public:
  explicit MaxPool2d(IntList kernel_size, MaxPoolOptions options = {});
  TD_LIST_OF_ONE(MaxPool2d, MaxPoolOptions);
  Tensor forward(Tensor x);
  /// The values and their i64 positions in x's spatial plane (return_indices).
  OutputAndIndices forward_with_indices(Tensor x, SourceLocation loc = SourceLocation::here());
  IntList kernel_size;
  MaxPoolOptions options;
};
/// Largest element of each window.
class TD_API MaxPool3d : public Module {
 public:
  explicit MaxPool3d(IntList kernel_size, MaxPoolOptions options = {});
  TD_LIST_OF_ONE(MaxPool3d, MaxPoolOptions);
  Tensor forward(Tensor x);
  /// The values and their i64 positions in x's spatial plane (return_indices).
  OutputAndIndices forward_with_indices(Tensor x, SourceLocation loc = SourceLocation::here());
  IntList kernel_size;
  MaxPoolOptions options;
};
/// Mean of each window.
class TD_API AvgPool1d : public Module {
 public:
  explicit AvgPool1d(IntList kernel_size, AvgPoolOptions options = {});
  TD_LIST_OF_ONE(AvgPool1d, AvgPoolOptions);
  Tensor forward(Tensor x);
  IntList kernel_size;
  AvgPoolOptions options;
};
/// Mean of each window.
class TD_API AvgPool2d : public Module {
 public:
  explicit AvgPool2d(IntList kernel_size, AvgPoolOptions options = {});
  TD_LIST_OF_ONE(AvgPool2d, AvgPoolOptions);
  Tensor forward(Tensor x);
  IntList kernel_size;
  AvgPoolOptions options;
};
/// Mean of each window.
class TD_API AvgPool3d : public Module {
 public:
  explicit AvgPool3d(IntList kernel_size, AvgPoolOptions options = {});
  TD_LIST_OF_ONE(AvgPool3d, AvgPoolOptions);
  Tensor forward(Tensor x);
  IntList kernel_size;
  AvgPoolOptions options;
};
/// Mean over windows so that the result is [n, c, *output_size]; -1 keeps a size.
class TD_API AdaptiveAvgPool1d : public Module {
 public:
  explicit AdaptiveAvgPool1d(IntList output_size);
  TD_LIST_OF_ONE(AdaptiveAvgPool1d);
  Tensor forward(Tensor x);
  IntList output_size;
};
/// Mean over windows so that the result is [n, c, *output_size]; -1 keeps a size.
class TD_API AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(IntList output_size);
  TD_LIST_OF_ONE(AdaptiveAvgPool2d);
  Tensor forward(Tensor x);
  IntList output_size;
};
/// Mean over windows so that the result is [n, c, *output_size]; -1 keeps a size.
class TD_API AdaptiveAvgPool3d : public Module {
 public:
  explicit AdaptiveAvgPool3d(IntList output_size);
  TD_LIST_OF_ONE(AdaptiveAvgPool3d);
  Tensor forward(Tensor x);
  IntList output_size;
};
/// Largest element over windows so that the result is [n, c, *output_size]; -1 keeps a size.
class TD_API AdaptiveMaxPool1d : public Module {
 public:
  explicit AdaptiveMaxPool1d(IntList output_size);
  TD_LIST_OF_ONE(AdaptiveMaxPool1d);
  Tensor forward(Tensor x);
  /// The values and their i64 positions in x's spatial plane (return_indices).
  OutputAndIndices forward_with_indices(Tensor x, SourceLocation loc = SourceLocation::here());
  IntList output_size;
};
/// Largest element over windows so that the result is [n, c, *output_size]; -1 keeps a size.
class TD_API AdaptiveMaxPool2d : public Module {
 public:
  explicit AdaptiveMaxPool2d(IntList output_size);
  TD_LIST_OF_ONE(AdaptiveMaxPool2d);
  Tensor forward(Tensor x);
  /// The values and their i64 positions in x's spatial plane (return_indices).
  OutputAndIndices forward_with_indices(Tensor x, SourceLocation loc = SourceLocation::here());
  IntList output_size;
};
/// Largest element over windows so that the result is [n, c, *output_size]; -1 keeps a size.
class TD_API AdaptiveMaxPool3d : public Module {
 public:
  explicit AdaptiveMaxPool3d(IntList output_size);
  TD_LIST_OF_ONE(AdaptiveMaxPool3d);
  Tensor forward(Tensor x);
  /// The values and their i64 positions in x's spatial plane (return_indices).
  OutputAndIndices forward_with_indices(Tensor x, SourceLocation loc = SourceLocation::here());
  IntList output_size;
};
/// (sum of x^norm_type over each window)^(1 / norm_type).
class TD_API LPPool1d : public Module {
 public:
  LPPool1d(double norm_type, IntList kernel_size, LPPoolOptions options = {});
  Tensor forward(Tensor x);
  double norm_type;
  IntList kernel_size;
  LPPoolOptions options;
};
/// (sum of x^norm_type over each window)^(1 / norm_type).
class TD_API LPPool2d : public Module {
 public:
  LPPool2d(double norm_type, IntList kernel_size, LPPoolOptions options = {});
  Tensor forward(Tensor x);
  double norm_type;
  IntList kernel_size;
  LPPoolOptions options;
};
/// (sum of x^norm_type over each window)^(1 / norm_type).
class TD_API LPPool3d : public Module {
 public:
  LPPool3d(double norm_type, IntList kernel_size, LPPoolOptions options = {});
  Tensor forward(Tensor x);
  double norm_type;
  IntList kernel_size;
  LPPoolOptions options;
};
/// Zeros with x at the positions returned by MaxPool1d; pass output_size (spatial, or full) unless
/// the smallest possible one is meant.
class TD_API MaxUnpool1d : public Module {
 public:
  explicit MaxUnpool1d(IntList kernel_size, MaxUnpoolOptions options = {});
  TD_LIST_OF_ONE(MaxUnpool1d, MaxUnpoolOptions);
  Tensor forward(Tensor x, const Tensor& indices, IntList output_size = {});
  Tensor operator()(Tensor x, const Tensor& indices, IntList output_size = {},
                    SourceLocation loc = SourceLocation::here());
  IntList kernel_size;
  MaxUnpoolOptions options;
};
/// Zeros with x at the positions returned by MaxPool2d; pass output_size (spatial, or full) unless
/// the smallest possible one is meant.
class TD_API MaxUnpool2d : public Module {
 public:
  explicit MaxUnpool2d(IntList kernel_size, MaxUnpoolOptions options = {});
  TD_LIST_OF_ONE(MaxUnpool2d, MaxUnpoolOptions);
  Tensor forward(Tensor x, const Tensor& indices, IntList output_size = {});
  Tensor operator()(Tensor x, const Tensor& indices, IntList output_size = {},
                    SourceLocation loc = SourceLocation::here());
  IntList kernel_size;
  MaxUnpoolOptions options;
};
/// Zeros with x at the positions returned by MaxPool3d; pass output_size (spatial, or full) unless
/// the smallest possible one is meant.
class TD_API MaxUnpool3d : public Module {
 public:
  explicit MaxUnpool3d(IntList kernel_size, MaxUnpoolOptions options = {});
  TD_LIST_OF_ONE(MaxUnpool3d, MaxUnpoolOptions);
  Tensor forward(Tensor x, const Tensor& indices, IntList output_size = {});
  Tensor operator()(Tensor x, const Tensor& indices, IntList output_size = {},
                    SourceLocation loc = SourceLocation::here());
  IntList kernel_size;
  MaxUnpoolOptions options;
};
/// Largest element of windows that start at random steps; the options give output_size or
/// output_ratio.
class TD_API FractionalMaxPool2d : public Module {
 public:
  FractionalMaxPool2d(IntList kernel_size, FractionalPoolOptions options);
  Tensor forward(Tensor x);
  /// The values and their i64 positions in x's spatial plane (return_indices).
  OutputAndIndices forward_with_indices(Tensor x, SourceLocation loc = SourceLocation::here());
  IntList kernel_size;
  FractionalPoolOptions options;
};
/// Largest element of windows that start at random steps; the options give output_size or
/// output_ratio.
class TD_API FractionalMaxPool3d : public Module {
 public:
  FractionalMaxPool3d(IntList kernel_size, FractionalPoolOptions options);
  Tensor forward(Tensor x);
  /// The values and their i64 positions in x's spatial plane (return_indices).
  OutputAndIndices forward_with_indices(Tensor x, SourceLocation loc = SourceLocation::here());
  IntList kernel_size;
  FractionalPoolOptions options;
};

}  // namespace tandem::nn
