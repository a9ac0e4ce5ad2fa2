// SPDX-License-Identifier: Apache-2.0
// LBFGS.
#pragma once

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct LBFGSOptions {
  double lr = 1;
  int64_t max_iter = 20;
  int64_t max_eval = -1;  ///< -1: max_iter * 5 / 4
  double tolerance_grad = 1e-7, tolerance_change = 1e-9;
  int64_t history_size = 100;
  std::string line_search_fn = "";  ///< or "strong_wolfe"
  template <class V>
  void fields(V& v) {
    v("lr", lr,
      {.doc = "step length, or where the line search starts", .at_least = 0, .resumable = true});
    v("max_iter", max_iter, {.doc = "iterations of one step", .at_least = 1});
    v("max_eval", max_eval, {.doc = "calls of the closure in one step; -1: max_iter * 5 / 4"});
    v("tolerance_grad", tolerance_grad, {.doc = "stop at gradients as small as this"});
    v("tolerance_change", tolerance_change, {.doc = "stop at changes as small as this"});
    v("history_size", history_size, {.doc = "updates that are remembered", .at_least = 1});
    v("line_search_fn", line_search_fn, {.doc = "strong_wolfe, or none"});
  }
};
/// Limited-memory BFGS (Nocedal and Wright, chapters 3 and 7): step(closure) calls the closure,
/// which must zero the gradients, compute the loss and call backward(), up to max_eval times. Reads
/// values, so it cannot be traced. One group.
class TD_API LBFGS : public Optimizer {
 public:
  static constexpr OptimizerAbout kAbout = {
      "lbfgs",
      "Limited-memory BFGS (Nocedal and Wright, chapters 3 and 7); calls a closure several times a "
      "step, so it is for loops in code.",
      ""};
  explicit LBFGS(ParamList params, LBFGSOptions options = {});
  bool elementwise() const override { return false; }
  using Optimizer::step;
  Tensor step(const std::function<Tensor()>& closure,
              SourceLocation loc = SourceLocation::here()) override;

 protected:
  void init(const Options& options, size_t i) override;
  void update(Update& u) override;
  void step_all(SourceLocation loc) override;
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
