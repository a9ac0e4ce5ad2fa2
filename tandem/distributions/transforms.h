// SPDX-License-Identifier: Apache-2.0
// Invertible maps of random variables with torch.distributions.transforms' names, and the choice of
// one for a constraint. A transform acts on the last domain_dims() dimensions of x; the logarithm
// of the Jacobian's absolute determinant has the other ones.
#pragma once

#include <memory>
#include <vector>

#include "tandem/distributions/distributions.h"

namespace tandem::distributions {

class TD_API Transform {
 public:
  virtual ~Transform() = default;
  virtual const char* name() const = 0;
  virtual Tensor operator()(const Tensor& x) const = 0;
  virtual Tensor inv(const Tensor& y) const = 0;
  /// log |dy/dx| at a pair. Throws Unsupported for maps that are not one to one.
  virtual Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const;
  /// Trailing dimensions that an input, an output depends on as a whole.
  virtual int domain_dims() const { return 0; }
  virtual int codomain_dims() const { return domain_dims(); }
  virtual bool bijective() const { return true; }
  /// 1 where it grows, -1 where it falls; 0 where it does neither.
  virtual Tensor sign() const;
  /// Shape of the output (input) for one of the input (output).
  virtual Shape forward_shape(const Shape& shape) const { return shape; }
  virtual Shape inverse_shape(const Shape& shape) const { return shape; }

 protected:
  [[noreturn]] void lacks(const char* what) const;
};
using TransformPtr = std::shared_ptr<const Transform>;

#define TD_TRANSFORM                                 \
  const char* name() const override;                 \
  Tensor operator()(const Tensor& x) const override; \
  Tensor inv(const Tensor& y) const override;
#define TD_JACOBIAN Tensor log_abs_det_jacobian(const Tensor& x, const Tensor& y) const override;
#define TD_SHAPES                                         \
  Shape forward_shape(const Shape& shape) const override; \
  Shape inverse_shape(const Shape& shape) const override;

/// exp(x), to positive numbers.
struct TD_API ExpTransform : Transform {
  TD_TRANSFORM TD_JACOBIAN Tensor sign() const override;
};
/// x^exponent, of positive numbers.
struct TD_API PowerTransform : Transform {
  Tensor exponent;
  explicit PowerTransform(const Operand& exponent);
  TD_TRANSFORM TD_JACOBIAN TD_SHAPES Tensor sign() const override;
};
/// sigmoid(x), kept off 0 and 1.
struct TD_API SigmoidTransform : Transform {
  TD_TRANSFORM TD_JACOBIAN Tensor sign() const override;
};
/// log(1 + exp(x)), to positive numbers.
struct TD_API SoftplusTransform : Transform {
  TD_TRANSFORM TD_JACOBIAN Tensor sign() const override;
};
/// tanh(x), to -1..1.
struct TD_API TanhTransform : Transform {
  TD_TRANSFORM TD_JACOBIAN Tensor sign() const override;
};
/// |x|; the inverse is y itself.
struct TD_API AbsTransform : Transform {
  TD_TRANSFORM bool bijective() const override { return false; }
};
/// loc + scale * x. With event_dim the last dimensions count as one event.
struct TD_API AffineTransform : Transform {
  Tensor loc, scale;
  int64_t event_dim;
  AffineTransform(const Operand& loc, const Operand& scale, int64_t event_dim = 0);
  int domain_dims() const override { return static_cast<int>(event_dim); }
  TD_TRANSFORM TD_JACOBIAN TD_SHAPES Tensor sign() const override;
};
/// [..., n] to probabilities [..., n + 1] by breaking a stick.
struct TD_API StickBreakingTransform : Transform {
  int domain_dims() const override { return 1; }
  TD_TRANSFORM TD_JACOBIAN TD_SHAPES
};
/// softmax over the last dimension; the inverse is log(y).
struct TD_API SoftmaxTransform : Transform {
  int domain_dims() const override { return 1; }
  bool bijective() const override { return false; }
  TD_TRANSFORM
};
/// [..., n (n - 1) / 2] to the Cholesky factor [..., n, n] of a correlation matrix.
struct TD_API CorrCholeskyTransform : Transform {
  int domain_dims() const override { return 1; }
  int codomain_dims() const override { return 2; }
  TD_TRANSFORM TD_JACOBIAN TD_SHAPES
};
/// Matrices to lower triangular ones with a positive diagonal.
struct TD_API LowerCholeskyTransform : Transform {
  int domain_dims() const override { return 2; }
  bool bijective() const override { return false; }
  TD_TRANSFORM
};
/// Matrices to symmetric positive definite ones.
struct TD_API PositiveDefiniteTransform : Transform {
  int domain_dims() const override { return 2; }
  bool bijective() const override { return false; }
  TD_TRANSFORM
};
/// A distribution function; the inverse is its icdf.
struct TD_API CumulativeDistributionTransform : Transform {
  std::shared_ptr<const Distribution> distribution;
  explicit CumulativeDistributionTransform(std::shared_ptr<const Distribution> distribution);
  TD_TRANSFORM TD_JACOBIAN Tensor sign() const override;
};
/// The last dimensions in another shape of as many elements.
struct TD_API ReshapeTransform : Transform {
  Shape in_shape, out_shape;
  ReshapeTransform(Shape in_shape, Shape out_shape);
  int domain_dims() const override { return in_shape.rank(); }
  int codomain_dims() const override { return out_shape.rank(); }
  TD_TRANSFORM TD_JACOBIAN TD_SHAPES
};
/// One after the other; without parts x itself.
struct TD_API ComposeTransform : Transform {
  std::vector<TransformPtr> parts;
  explicit ComposeTransform(std::vector<TransformPtr> parts);
  int domain_dims() const override;
  int codomain_dims() const override;
  bool bijective() const override;
  TD_TRANSFORM TD_JACOBIAN TD_SHAPES Tensor sign() const override;
};
/// Another transform whose next dimensions count as part of the event.
struct TD_API IndependentTransform : Transform {
  TransformPtr base;
  int64_t reinterpreted_batch_ndims;
  IndependentTransform(TransformPtr base, int64_t reinterpreted_batch_ndims);
  int domain_dims() const override;
  int codomain_dims() const override;
  bool bijective() const override { return base->bijective(); }
  TD_TRANSFORM TD_JACOBIAN TD_SHAPES Tensor sign() const override { return base->sign(); }
};
/// Transforms of consecutive pieces of `dim`, of `lengths` (1 each by default).
struct TD_API CatTransform : Transform {
  std::vector<TransformPtr> transforms;
  int64_t dim;
  std::vector<int64_t> lengths;
  CatTransform(std::vector<TransformPtr> transforms, int64_t dim = 0,
               std::vector<int64_t> lengths = {});
  int domain_dims() const override;
  bool bijective() const override;
  TD_TRANSFORM TD_JACOBIAN
};
/// Transforms of the slices of `dim`.
struct TD_API StackTransform : Transform {
  std::vector<TransformPtr> transforms;
  int64_t dim;
  explicit StackTransform(std::vector<TransformPtr> transforms, int64_t dim = 0);
  bool bijective() const override;
  TD_TRANSFORM TD_JACOBIAN
};

#undef TD_TRANSFORM
#undef TD_JACOBIAN
#undef TD_SHAPES

/// x itself.
TD_API TransformPtr identity_transform();

/// The values that a parameter may have; see biject_to.
struct Constraint {
  enum class Kind {
    real,
    positive,
    greater_than,
    less_than,
    interval,
    simplex,
    lower_cholesky,
    positive_definite,
    corr_cholesky
  };
  Kind kind = Kind::real;
  double lower = 0, upper = 1;  ///< of greater_than, less_than and interval
};
/// A bijection from all real numbers to the constraint's values; Unsupported where there is none
/// (matrices). transform_to: a map that is easy to optimise over, not always one to one.
TD_API TransformPtr biject_to(const Constraint& constraint);
TD_API TransformPtr transform_to(const Constraint& constraint);

}  // namespace tandem::distributions
