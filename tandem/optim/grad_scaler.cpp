// SPDX-License-Identifier: Apache-2.0
#include "tandem/optim/grad_scaler.h"

#include "tandem/ops/ops.h"
#include "tandem/ops/view/create.h"

namespace tandem::optim {
namespace {

constexpr size_t kMaxOptimizers = 16;  // cells cannot be made in a trace: there are that many marks

void check_numbers(double growth, double backoff, double interval) {
  TD_CHECK(growth > 1, Value, "GradScaler: growth_factor must be above 1, got {}", growth);
  TD_CHECK(backoff < 1 && backoff > 0, Value, "GradScaler: backoff_factor lies in (0, 1), got {}",
           backoff);
  TD_CHECK(interval >= 1, Value, "GradScaler: growth_interval must be at least 1, got {}",
           interval);
}

}  // namespace

GradScaler::GradScaler(GradScalerOptions o)
    : enabled_(o.enabled),
      scale_(full({}, o.init_scale, DType::f32)),
      tracker_(full({}, 0, DType::i32)),
      found_(zeros({static_cast<int64_t>(kMaxOptimizers)})),
      numbers_(tensor({o.growth_factor, o.backoff_factor, static_cast<double>(o.growth_interval)},
                      DType::f64)) {
  check_numbers(o.growth_factor, o.backoff_factor, static_cast<double>(o.growth_interval));
  TD_CHECK(o.init_scale > 0, Value, "GradScaler: init_scale must be positive, got {}",
           o.init_scale);
}

Tensor GradScaler::scale(const Tensor& outputs, SourceLocation loc) const {
  if (!enabled_) return outputs;
  return mul(outputs, scale_.value(), loc);
}

std::vector<Tensor> GradScaler::scale(const std::vector<Tensor>& outputs,
                                      SourceLocation loc) const {
  std::vector<Tensor> scaled;
  for (const Tensor& y : outputs) scaled.push_back(scale(y, loc));
  return scaled;
}

size_t GradScaler::slot_of(const Optimizer& optimizer) {
  auto at = slots_.find(&optimizer);
  if (at == slots_.end()) {
    TD_CHECK(slots_.size() < kMaxOptimizers, Unsupported, "GradScaler takes {} optimizers at most",
             kMaxOptimizers);
    at = slots_.emplace(&optimizer, slots_.size()).first;
  }
  return at->second;
}

// What was called in a trace is part of the traced function and does not change eager's stage.
GradScaler::Stage& GradScaler::stage_of(size_t slot) {
  stages_.resize(slots_.size());
  const Trace* t = cell_trace();
  if (!t) return stages_[slot];
  if (trace_ != t->graph) {
    trace_ = t->graph;
    traced_stages_.clear();
  }
  TD_CHECK(stages_[slot] == Stage::ready, Value,
           "GradScaler: unscale_() was called outside the compiled function\nCall unscale_(), "
           "step() and update() together, inside or outside.");
  traced_stages_.resize(slots_.size());
  return traced_stages_[slot];
}

void GradScaler::unscale_(Optimizer& optimizer, SourceLocation loc) try {
  if (!enabled_) return;
  const size_t slot = slot_of(optimizer);
  Stage& stage = stage_of(slot);
  TD_CHECK(stage != Stage::unscaled, Value,
           "unscale_() has already been called on this optimizer since the last update()");
  TD_CHECK(stage != Stage::stepped, Value, "unscale_() is being called after step()");
  NoGradGuard no_grad;
  Tensor inverse = reciprocal(scale_.value().to(DType::f64)).to(DType::f32);
  Tensor finite;
  std::vector<std::pair<Param, Tensor>> made;
  for (const Param& p : optimizer.params()) {
    Tensor g = p.grad();
    if (!g.defined()) continue;
    TD_CHECK(g.dtype() != DType::f16, DType,
             "attempting to unscale f16 gradients of '{}'\nKeep f32 master weights: use "
             "AutocastGuard instead of .to(f16).",
             p.name());
    Tensor all_finite = isfinite(g).all();
    finite = finite.defined() ? logical_and(finite, all_finite) : all_finite;
    made.emplace_back(p, mul(g, inverse.to(g.device()), loc));
  }
  for (auto& [p, g] : made) p.set_grad(std::move(g));
  Tensor mark = finite.defined() ? logical_not(finite).to(DType::f32) : zeros({});
  if (max_over_ranks_) mark = max_over_ranks_(mark);
  found_.write_(0, static_cast<int64_t>(slot), mark.to(found_.device()).reshape({1}), loc);
  stage = Stage::unscaled;
} catch (const Error& e) {
  if (!e.op().empty()) throw;
  throw with_place(e, "GradScaler", loc);
}

void GradScaler::step(Optimizer& optimizer, SourceLocation loc) try {
  if (!enabled_) return optimizer.step(loc);
  const size_t slot = slot_of(optimizer);
  TD_CHECK(stage_of(slot) != Stage::stepped, Value,
           "step() has already been called since the last update()");
  if (stage_of(slot) == Stage::ready) unscale_(optimizer, loc);
  {
    AssignIf keep(found_.value().select(0, static_cast<int64_t>(slot)) == 0.0);
    optimizer.step(loc);
  }
  stage_of(slot) = Stage::stepped;
} catch (const Error& e) {
  if (!e.op().empty()) throw;
  throw with_place(e, "GradScaler", loc);
}

void GradScaler::end_iteration() {
  found_.assign_(0.0);
  if (cell_trace())
    traced_stages_.clear();
  else
    std::fill(stages_.begin(), stages_.end(), Stage::ready);
}

void GradScaler::update(SourceLocation loc) try {
  if (!enabled_) return;
  TD_CHECK(!slots_.empty(), Value,
           "no inf checks were recorded prior to update()\nCall step() or unscale_() first.");
  NoGradGuard no_grad;
  Tensor scale = scale_, wide = scale.to(DType::f64), numbers = numbers_;
  Tensor skipped = sum(found_.value()) > 0.0;
  Tensor count = tracker_.value() + 1;
  Tensor due = count.to(DType::f64) == numbers.select(0, 2);
  Tensor grown = (wide * numbers.select(0, 0)).to(DType::f32);
  grown = tandem::where(logical_and(due, isfinite(grown)), grown, scale);
  Tensor shrunk = (wide * numbers.select(0, 1)).to(DType::f32);
  tracker_.assign_(tandem::where(logical_or(skipped, due), zeros_like(count), count), loc);
  scale_.assign_(tandem::where(skipped, shrunk, grown), loc);
  end_iteration();
} catch (const Error& e) {
  if (!e.op().empty()) throw;
  throw with_place(e, "GradScaler", loc);
}

void GradScaler::update(double new_scale, SourceLocation loc) {
  if (!enabled_) return;
  TD_CHECK(new_scale > 0, Value, "GradScaler: the new scale must be positive, got {}", new_scale);
  scale_.assign_(new_scale, loc);
  end_iteration();
}

double GradScaler::get_scale() const {
  if (!enabled_) return 1.0;
  TD_CHECK(!is_tracing(), Unsupported,
           "get_scale() as a number would be frozen into the trace\nUse scale_tensor(), or read it "
           "outside.");
  return scale_.value().item<float>();
}

double GradScaler::number(int k) const {
  TD_CHECK(!is_tracing(), Unsupported, "a factor of GradScaler cannot be read in a trace");
  return numbers_.value().to_vector<double>()[static_cast<size_t>(k)];
}

void GradScaler::set_number(int k, double v) {
  double n[3];
  for (int i = 0; i < 3; ++i) n[i] = i == k ? v : number(i);
  check_numbers(n[0], n[1], n[2]);
  numbers_.assign_(tensor({n[0], n[1], n[2]}, DType::f64));
}
void GradScaler::set_growth_factor(double v) { set_number(0, v); }
void GradScaler::set_backoff_factor(double v) { set_number(1, v); }
void GradScaler::set_growth_interval(int64_t v) { set_number(2, static_cast<double>(v)); }

StateDict GradScaler::state_dict() const {
  StateDict s;
  if (!enabled_) return s;
  s["scale"] = scale_.value();
  s["growth_factor"] = full({}, number(0), DType::f64);
  s["backoff_factor"] = full({}, number(1), DType::f64);
  s["growth_interval"] = full({}, get_growth_interval(), DType::i64);
  s["_growth_tracker"] = tracker_.value();
  return s;
}

void GradScaler::load_state_dict(const StateDict& state) try {
  if (!enabled_) return;
  TD_CHECK(!state.empty(), Value,
           "the source state dict is empty, possibly because it was saved from a disabled instance "
           "of GradScaler");
  double n[5];
  const char* names[] = {"growth_factor", "backoff_factor", "growth_interval", "scale",
                         "_growth_tracker"};
  for (int k = 0; k < 5; ++k) {
    const Tensor& t = state.at(names[k]);
    TD_CHECK(t.defined() && t.numel() == 1, Shape, "'{}' expects one element", names[k]);
    n[k] = t.to(DType::f64).reshape({}).item<double>();
  }
  check_numbers(n[0], n[1], n[2]);
  TD_CHECK(n[3] > 0, Value, "'scale' must be positive, got {}", n[3]);
  numbers_.assign_(tensor({n[0], n[1], n[2]}, DType::f64));
  scale_.assign_(n[3]);
  tracker_.assign_(static_cast<int64_t>(n[4]));
} catch (const Error& e) {
  if (!e.op().empty()) throw;
  throw with_place(e, "GradScaler", SourceLocation{});
}

}  // namespace tandem::optim
