// SPDX-License-Identifier: Apache-2.0
// Padding layers. `padding` is one number for all sides, or (before, after) for the last dimension,
// then for the one before it. x is [n, c, ...] or [c, ...]; negative numbers crop.
#pragma once

#include "tandem/nn/module.h"
#include "tandem/nn/one_size.h"

namespace tandem::nn {

/// x with zeros around its spatial dimensions.
class TD_API ZeroPad1d : public Module {
 public:
  explicit ZeroPad1d(IntList padding);
  TD_LIST_OF_ONE(ZeroPad1d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x with zeros around its spatial dimensions.
class TD_API ZeroPad2d : public Module {
 public:
  explicit ZeroPad2d(IntList padding);
  TD_LIST_OF_ONE(ZeroPad2d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x with zeros around its spatial dimensions.
class TD_API ZeroPad3d : public Module {
 public:
  explicit ZeroPad3d(IntList padding);
  TD_LIST_OF_ONE(ZeroPad3d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x with `value` around its spatial dimensions.
class TD_API ConstantPad1d : public Module {
 public:
  ConstantPad1d(IntList padding, Scalar value);
  Tensor forward(Tensor x);
  IntList padding;
  Scalar value;
};
/// x with `value` around its spatial dimensions.
class TD_API ConstantPad2d : public Module {
 public:
  ConstantPad2d(IntList padding, Scalar value);
  Tensor forward(Tensor x);
  IntList padding;
  Scalar value;
};
/// x with `value` around its spatial dimensions.
class TD_API ConstantPad3d : public Module {
 public:
  ConstantPad3d(IntList padding, Scalar value);
  Tensor forward(Tensor x);
  IntList padding;
  Scalar value;
};
/// x extended around its spatial dimensions by its mirror image at the edge elements.
class TD_API ReflectionPad1d : public Module {
 public:
  explicit ReflectionPad1d(IntList padding);
  TD_LIST_OF_ONE(ReflectionPad1d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x extended around its spatial dimensions by its mirror image at the edge elements.
class TD_API ReflectionPad2d : public Module {
 public:
  explicit ReflectionPad2d(IntList padding);
  TD_LIST_OF_ONE(ReflectionPad2d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x extended around its spatial dimensions by its mirror image at the edge elements.
class TD_API ReflectionPad3d : public Module {
 public:
  explicit ReflectionPad3d(IntList padding);
  TD_LIST_OF_ONE(ReflectionPad3d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x extended around its spatial dimensions by the nearest edge element.
class TD_API ReplicationPad1d : public Module {
 public:
  explicit ReplicationPad1d(IntList padding);
  TD_LIST_OF_ONE(ReplicationPad1d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x extended around its spatial dimensions by the nearest edge element.
class TD_API ReplicationPad2d : public Module {
 public:
  explicit ReplicationPad2d(IntList padding);
  TD_LIST_OF_ONE(ReplicationPad2d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x extended around its spatial dimensions by the nearest edge element.
class TD_API ReplicationPad3d : public Module {
 public:
  explicit ReplicationPad3d(IntList padding);
  TD_LIST_OF_ONE(ReplicationPad3d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x extended around its spatial dimensions by the elements of the opposite end.
class TD_API CircularPad1d : public Module {
 public:
  explicit CircularPad1d(IntList padding);
  TD_LIST_OF_ONE(CircularPad1d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x extended around its spatial dimensions by the elements of the opposite end.
class TD_API CircularPad2d : public Module {
 public:
  explicit CircularPad2d(IntList padding);
  TD_LIST_OF_ONE(CircularPad2d);
  Tensor forward(Tensor x);
  IntList padding;
};
/// x extended around its spatial dimensions by the elements of the opposite end.
class TD_API CircularPad3d : public Module {
 public:
  explicit CircularPad3d(IntList padding);
  TD_LIST_OF_ONE(CircularPad3d);
  Tensor forward(Tensor x);
  IntList padding;
};

}  // namespace tandem::nn
