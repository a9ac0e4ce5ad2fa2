// SPDX-License-Identifier: Apache-2.0
// GradScaler: loss scaling for low-precision training. Scale, growth count and the marks of
// infinite gradients are cells and a skipped step is an AssignIf, so nothing is read on the host:
// the same code runs in eager and inside a compiled step.
#pragma once

#include <functional>
#include <unordered_map>

#include "tandem/optim/optimizer.h"

namespace tandem::optim {

struct GradScalerOptions {
  double init_scale = 65536.0;
  double growth_factor = 2.0;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  bool enabled = true;
};

/// As torch.amp.GradScaler: `scaler.scale(loss).backward(); scaler.step(opt); scaler.update();`.
/// Of one compiled function, unscale_() and step() of an optimizer are both in it or both outside.
class TD_API GradScaler {
 public:
  /// Throws Value unless growth_factor > 1, backoff_factor < 1 and growth_interval > 0.
  explicit GradScaler(GradScalerOptions options = {});

  /// The outputs times the scale, in their dtype.
  Tensor scale(const Tensor& outputs, SourceLocation loc = SourceLocation::here()) const;
  std::vector<Tensor> scale(const std::vector<Tensor>& outputs,
                            SourceLocation loc = SourceLocation::here()) const;
  /// Divide the gradients of the optimizer's parameters by the scale (to clip them, say) and note
  /// whether one of them is infinite or NaN. Throws Value when called twice before update() or
  /// after step(), DType for f16 gradients.
  void unscale_(Optimizer& optimizer, SourceLocation loc = SourceLocation::here());
  /// unscale_() unless that was done, then the optimizer's step; where a gradient is not finite
  /// parameters, moments and step counts keep their values. Throws Value when called twice.
  void step(Optimizer& optimizer, SourceLocation loc = SourceLocation::here());
  /// Shrink the scale by backoff_factor if a step was skipped; grow it by growth_factor after
  /// growth_interval steps in a row that were not. Ends the iteration of all optimizers. Throws
  /// Value if no optimizer was unscaled.
  void update(SourceLocation loc = SourceLocation::here());
  /// The same, but the scale becomes `new_scale`.
  void update(double new_scale, SourceLocation loc = SourceLocation::here());

  /// The scale (1 when not enabled); throws Unsupported in a trace, where scale_tensor() goes.
  double get_scale() const;
  Tensor scale_tensor() const { return scale_.value(); }
  double get_growth_factor() const { return number(0); }
  double get_backoff_factor() const { return number(1); }
  int64_t get_growth_interval() const { return static_cast<int64_t>(number(2)); }
  void set_growth_factor(double v);
  void set_backoff_factor(double v);
  void set_growth_interval(int64_t v);
  bool is_enabled() const { return enabled_; }
  /// Where ranks hold parts of the gradients: gives the largest mark of all ranks, so that they
  /// skip the same steps. Empty: this process has all gradients.
  void set_max_over_ranks(std::function<Tensor(const Tensor&)> max) {
    max_over_ranks_ = std::move(max);
  }

  /// "scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"; empty when
  /// not enabled.
  StateDict state_dict() const;
  /// Throws Value when a name is missing or the state is that of a disabled scaler.
  void load_state_dict(const StateDict& state);

 private:
  enum class Stage : uint8_t { ready, unscaled, stepped };
  double number(int k) const;
  void set_number(int k, double v);
  size_t slot_of(const Optimizer& optimizer);
  Stage& stage_of(size_t slot);
  void end_iteration();

  bool enabled_;
  Buffer scale_;    ///< f32
  Buffer tracker_;  ///< i32: steps since the scale changed
  Buffer found_;    ///< f32, one mark per optimizer
  Buffer numbers_;  ///< f64: growth, backoff, interval
  std::unordered_map<const Optimizer*, size_t> slots_;
  std::vector<Stage> stages_;         ///< in eager
  std::vector<Stage> traced_stages_;  ///< in the running trace
  Ref<Graph> trace_;                  ///< to which those belong
  std::function<Tensor(const Tensor&)> max_over_ranks_;
};

}  // namespace tandem::optim
