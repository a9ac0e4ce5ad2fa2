// SPDX-License-Identifier: Apache-2.0
// SGD, Adam, AdamW, RMSprop, Adagrad with PyTorch's options, defaults and order of operations.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};
/// p -= lr * (g + weight_decay * p), with momentum: buf = momentum * buf + (1 - dampening) * g.
class TD_API SGD : public Optimizer {
 public:
  SGD(std::vector<Param> params, SGDOptions options = {});

 protected:
  void update(size_t i, const Tensor& grad, Where where) override;

 private:
  SGDOptions o_;
};

struct AdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool amsgrad = false, maximize = false;
};
struct AdamWOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 1e-2;
  bool amsgrad = false, maximize = false;
};

namespace detail {
class TD_API AdamBase : public Optimizer {
 protected:
  AdamBase(std::vector<Param> params, const AdamOptions& o, bool decoupled, const char* type);
  void update(size_t i, const Tensor& grad, Where where) override;

 private:
  AdamOptions o_;
  bool decoupled_;
};
}  // namespace detail

/// Kingma and Ba 2015; weight decay is added to the gradient.
class TD_API Adam : public detail::AdamBase {
 public:
  Adam(std::vector<Param> params, AdamOptions options = {})
      : AdamBase(std::move(params), options, false, "Adam") {}
};
/// Loshchilov and Hutter 2019; weight decay acts on the parameter itself.
class TD_API AdamW : public detail::AdamBase {
 public:
  AdamW(std::vector<Param> params, AdamWOptions o = {})
      : AdamBase(std::move(params), {o.lr, o.betas, o.eps, o.weight_decay, o.amsgrad, o.maximize},
                 true, "AdamW") {}
};

struct RMSpropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false, maximize = false;
};
/// Divides by a running root mean square of the gradient (Hinton, lecture 6e).
class TD_API RMSprop : public Optimizer {
 public:
  RMSprop(std::vector<Param> params, RMSpropOptions options = {});

 protected:
  void update(size_t i, const Tensor& grad, Where where) override;

 private:
  RMSpropOptions o_;
};

struct AdagradOptions {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;
};
/// Duchi et al. 2011.
class TD_API Adagrad : public Optimizer {
 public:
  Adagrad(std::vector<Param> params, AdagradOptions options = {});

 protected:
  void update(size_t i, const Tensor& grad, Where where) override;

 private:
  AdagradOptions o_;
};

}  // namespace tandem::optim
