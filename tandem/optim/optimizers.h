// SPDX-License-Identifier: Apache-2.0
// The optimizers, with PyTorch's options, defaults and order of operations where PyTorch has them;
// LAMB, LARS and Lion follow their papers.
#pragma once

#include <string>

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
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
struct RMSpropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false, maximize = false;
};
struct AdagradOptions {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;
};
struct AdadeltaOptions {
  double lr = 1.0, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;
};
struct AdamaxOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool maximize = false;
};
struct NAdamOptions {
  double lr = 2e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0, momentum_decay = 4e-3;
  bool decoupled_weight_decay = false, maximize = false;
};
struct RAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8, weight_decay = 0;
  bool decoupled_weight_decay = false, maximize = false;
};
struct RpropOptions {
  double lr = 1e-2;
  std::array<double, 2> etas = {0.5, 1.2}, step_sizes = {1e-6, 50};
  bool maximize = false;
};
struct ASGDOptions {
  double lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0;
  bool maximize = false;
};
struct SparseAdamOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  bool maximize = false;
};
struct AdafactorOptions {
  double lr = 1e-2, beta2_decay = -0.8;
  std::optional<double> eps1 = {};  ///< none: the epsilon of the parameter's dtype
  double eps2 = 1e-3, d = 1.0, weight_decay = 0;
  bool maximize = false;
};
struct LionOptions {
  double lr = 1e-4;
  std::array<double, 2> betas = {0.9, 0.99};
  double weight_decay = 0;
  bool maximize = false;
};
struct LAMBOptions {
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-6, weight_decay = 0;
  bool maximize = false;
};
struct LARSOptions {
  double lr = 1e-3, momentum = 0.9, dampening = 0, weight_decay = 0, trust_coefficient = 1e-3,
         eps = 1e-8;
  bool nesterov = false, maximize = false;
};
struct MuonOptions {
  double lr = 1e-3, weight_decay = 0.1, momentum = 0.95;
  bool nesterov = true;
  std::array<double, 3> ns_coefficients = {3.4445, -4.775, 2.0315};
  double eps = 1e-7;
  int64_t ns_steps = 5;
  /// "original": sqrt(max(1, rows / columns)); "match_rms_adamw": 0.2 sqrt(max(rows, columns))
  std::string adjust_lr_fn = "original";
};

/// X(class, base): options are <class>Options. What each does stands at its update in the table.
#define TD_FOR_EACH_OPTIMIZER(X)                                                               \
  X(SGD, "p -= lr (g + weight_decay p), or with momentum its buffer (Sutskever et al. 2013).") \
  X(RMSprop, "Divides by a running root mean square of the gradient (Hinton, lecture 6e).")    \
  X(Adagrad, "Duchi et al. 2011.")                                                             \
  X(Adadelta, "Zeiler 2012.")                                                                  \
  X(Adamax, "Adam with the infinity norm (Kingma and Ba 2015, section 7.1).")                  \
  X(NAdam, "Adam with Nesterov momentum (Dozat 2016).")                                        \
  X(RAdam, "Rectified Adam (Liu et al. 2020).")                                                \
  X(Rprop, "Signs of the gradient only (Riedmiller and Braun 1993); for full batches.")        \
  X(ASGD, "Averaged SGD (Polyak and Juditsky 1992); the average is the state 'ax'.")           \
  X(SparseAdam, "Adam that touches only elements whose gradient is not 0.")                    \
  X(Adafactor, "Shazeer and Stern 2018: second moments as rows and columns.")                  \
  X(Lion, "Signs of an interpolated momentum (Chen et al. 2023).")                             \
  X(LAMB, "Adam scaled by |p| / |update| per parameter (You et al. 2020).")                    \
  X(LARS,                                                                                      \
    "SGD scaled by |p| / |g| per parameter (You et al. 2017); parameters with "                \
    "|p| = 0 or |g| = 0 take the plain step.")

#define X(name, text)                                      \
  /** text */                                              \
  class TD_API name : public Optimizer {                   \
   public:                                                 \
    explicit name(ParamList params, name##Options o = {}); \
                                                           \
   protected:                                              \
    void init(const Options& options, size_t i) override;  \
    void update(Update& u) override;                       \
  };
TD_FOR_EACH_OPTIMIZER(X)
#undef X

namespace detail {
class TD_API AdamBase : public Optimizer {
 protected:
  AdamBase(ParamList params, const AdamOptions& o, bool decoupled, const char* type);
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;

 private:
  bool decoupled_;
};
}  // namespace detail

/// Kingma and Ba 2015; weight decay is added to the gradient.
class TD_API Adam : public detail::AdamBase {
 public:
  explicit Adam(ParamList params, AdamOptions options = {})
      : AdamBase(std::move(params), options, false, "Adam") {}
};
/// Loshchilov and Hutter 2019; weight decay acts on the parameter itself.
class TD_API AdamW : public detail::AdamBase {
 public:
  explicit AdamW(ParamList params, AdamWOptions o = {})
      : AdamBase(std::move(params), {o.lr, o.betas, o.eps, o.weight_decay, o.amsgrad, o.maximize},
                 true, "AdamW") {}
};

/// Jordan et al. 2024: momentum orthogonalised by Newton-Schulz steps in bf16, for matrices; give
/// other parameters to AdamW. Throws Shape for a parameter that is no matrix.
class TD_API Muon : public Optimizer {
 public:
  explicit Muon(ParamList params, MuonOptions options = {});

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;

 private:
  MuonOptions o_;
};

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;
  int64_t max_eval = -1;  ///< -1: max_iter * 5 / 4
  double tolerance_grad = 1e-7, tolerance_change = 1e-9;
  int64_t history_size = 100;
  std::string line_search_fn = "";  ///< or "strong_wolfe"
};
/// Limited-memory BFGS (Nocedal and Wright, chapters 3 and 7): step(closure) calls the closure,
/// which must zero the gradients, compute the loss and call backward(), up to max_eval times. Reads
/// values, so it cannot be traced. One group.
class TD_API LBFGS : public Optimizer {
 public:
  explicit LBFGS(ParamList params, LBFGSOptions options = {});
  using Optimizer::step;
  Tensor step(const std::function<Tensor()>& closure, Where where = Where::here()) override;

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
  void step_all(Where where) override;
  void extra_state(StateDict& state) const override;
  void load_extra_state(const StateDict& state, std::vector<std::string>& known,
                        bool apply) override;

 private:
  struct Point;  // loss and gradient at a step length
  struct Search;
  Tensor direction(const Tensor& grad);
  Tensor gather_grad() const;
  void move(double t, const Tensor& d);

  LBFGSOptions o_;
  int64_t n_iter_ = 0, func_evals_ = 0;
  double t_ = 0, h_diag_ = 1, prev_loss_ = 0;
  Tensor d_, prev_grad_;
  std::vector<Tensor> dirs_, steps_;
  std::vector<double> ro_;
};

}  // namespace tandem::optim
