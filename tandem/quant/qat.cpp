// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/qat.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include "tandem/graph/dry_run.h"
#include "tandem/graph/trace.h"
#include "tandem/nn/conv.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/parametrize.h"
#include "tandem/nn/wrapper.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"

namespace tandem::quant {
namespace {

// The layers that are rounded, and the dimension of the outputs in their weight.
struct RoundedType {
  const char* type;
  int axis;
};
constexpr RoundedType kRounded[] = {
    {"Linear", 0},          {"Conv1d", 0},          {"Conv2d", 0},         {"Conv3d", 0},
    {"ConvTranspose1d", 1}, {"ConvTranspose2d", 1}, {"ConvTranspose3d", 1}};
constexpr int64_t kMostInput = 255;

/// Switches that programs are compiled for.
struct Switches : RefCounted {
  bool on = false;         ///< in training: it rounds
  bool observing = false;  ///< in training: ranges move
  bool seen = false;       ///< a range was observed: it rounds in evaluation
  bool frozen = false;     ///< of a batch norm

  Ref<Switches> copy() const {
    Ref<Switches> own = make_ref<Switches>();
    own->on = on;
    own->observing = observing;
    own->seen = seen;
    own->frozen = frozen;
    return own;
  }
};

bool guarded(Switches& s, const bool& which) {
  if (Trace* t = cell_trace()) t->guard(s, which);
  return which;
}

// The factor of LSQ's gradients of a step that so many numbers are divided by.
double step_factor(int64_t numbers, int64_t most) {
  return 1 / std::sqrt(static_cast<double>(std::max<int64_t>(numbers, 1) * most));
}

// A scale of nothing but zeros is 1.
Tensor usable(const Tensor& scale) {
  return where(scale >= std::numeric_limits<float>::min(), scale, 1.0);
}

/// A value that is rounded by the range that was observed of it.
class RangeRounding : public nn::Wrapper {
 public:
  RangeRounding(std::string name, bool learns, Device device) : name_(std::move(name)) {
    const auto zero = [&] { return zeros(Shape(), DType::f32).to(device); };
    min_val = Buffer(zero());
    max_val = Buffer(zero());
    if (learns) log_step = Param(zero());
  }
  // Every walk over the net looks whether values were loaded or observed.
  void visit(nn::MemberVisitor& v) override {
    v.buffer(name_ + ".min_val", min_val);
    v.buffer(name_ + ".max_val", max_val);
    if (log_step.defined()) v.param(name_ + ".log_step", log_step);
    if (is_tracing() || is_dry_run()) return;
    switches->seen = max_val.value().item<float>() > min_val.value().item<float>();
  }
  /// Make the step constant. False: there is no range, or it is constant already.
  bool fix_step() {
    if (!switches->seen || fixed_scale.defined()) return false;
    std::tie(fixed_scale, fixed_zero) = step();
    return true;
  }

  QatOptions options;
  Param log_step;           ///< undefined: the step is not trained
  Buffer min_val, max_val;  ///< 0 is always between them; both 0: nothing was observed
  Ref<Switches> switches = make_ref<Switches>();
  Tensor fixed_scale, fixed_zero;  ///< once they are constant

 protected:
  bool is_on(const nn::Module& layer) const {
    return fixed_scale.defined() ||
           guarded(*switches, layer.is_training() ? switches->on : switches->seen);
  }
  // In training x is observed first.
  Tensor rounded(const nn::Module& layer, const Tensor& x) {
    FakeQuantizeAttrs codes{.axis = 0, .low = 0, .high = kMostInput};
    if (fixed_scale.defined())
      return fake_quantize(x, known(fixed_scale), known(fixed_zero), codes);
    if (log_step.defined() && layer.is_training()) {
      int64_t of_sample = 1;
      for (int d = 1; d < x.dim(); ++d) of_sample *= x.size(d);
      codes.gradient_factor = step_factor(of_sample, kMostInput);
    }
    if (layer.is_training() && guarded(*switches, switches->observing)) observe(x);
    const auto [scale, zero] = step();
    return fake_quantize(x, scale, zero, codes);
  }

 private:
  static Tensor known(const Tensor& t) { return is_tracing() ? constant(t) : t; }
  // Batches with values that are not finite change nothing.
  void observe(const Tensor& x) {
    const NoGradGuard no_grad;
    const Tensor v = x.detach().to(DType::f32), low = minimum(amin(v), 0.0),
                 high = maximum(amax(v), 0.0), min = min_val, max = max_val;
    const bool average = options.observer == Observer::moving_average;
    const double c = options.averaging_constant;
    const Tensor first = max == min, finite = isfinite(high - low);
    const auto moved = [&](const Tensor& old, const Tensor& now, const Tensor& extreme) {
      const Tensor value = average ? where(first, now, old + (now - old) * c) : extreme;
      return where(finite, value, old);
    };
    min_val.assign_(moved(min, low, minimum(min, low)));
    max_val.assign_(moved(max, high, maximum(max, high)));
  }
  // Scale and zero point.
  std::pair<Tensor, Tensor> step() const {
    const Tensor min = min_val, max = max_val;
    Tensor scale = usable((max - min) / static_cast<double>(kMostInput));
    if (log_step.defined()) scale = scale * exp(log_step.value());
    return {scale, clamp(round(-min / scale.detach()), 0.0, static_cast<double>(kMostInput))};
  }
  std::string name_;
};

/// The input and the weight of a layer.
class LayerRounding : public RangeRounding {
 public:
  LayerRounding(const Tensor& weight, int axis, const QatOptions& o)
      : RangeRounding("input_fake_quant", o.learn_steps, weight.device()), axis_(axis) {
    if (!o.learn_steps) return;
    const Shape steps = o.per_channel ? Shape(weight.size(axis)) : Shape();
    weight_log_step = Param(zeros(steps, DType::f32).to(weight.device()));
  }
  void visit(nn::MemberVisitor& v) override {
    RangeRounding::visit(v);
    if (weight_log_step.defined()) v.param("weight_fake_quant.log_step", weight_log_step);
  }
  Param weight_log_step;  ///< undefined: the steps are not trained
  Tensor forward(nn::Module& layer, Tensor x, const Next& next) override {
    if (!is_on(layer)) return next(std::move(x));
    const Tensor in = rounded(layer, x);
    if (fixed_scale.defined()) return next(in);
    Param& weight = nn::detail::member_param(layer, "weight");
    const nn::detail::Substitute now(weight, rounded_weight(weight.value()));
    return next(in);
  }
  std::shared_ptr<nn::Wrapper> copy() const override {
    auto own = std::make_shared<LayerRounding>(*this);
    own->switches = switches->copy();
    return own;
  }
  // False: there is no range.
  bool fix(nn::Module& layer) {
    const NoGradGuard no_grad;
    if (!fix_step()) return false;
    const Param& weight = nn::detail::member_param(layer, "weight");
    weight.assign_(rounded_weight(weight.value()));
    return true;
  }

 private:
  Tensor rounded_weight(const Tensor& w) const {
    const int64_t most = (int64_t{1} << (options.bits - 1)) - 1;
    IntList others;
    for (int d = 0; d < w.dim(); ++d)
      if (!options.per_channel || d != axis_) others.push_back(d);
    Tensor scale = usable(amax(abs(w.detach().to(DType::f32)), others) / static_cast<double>(most));
    FakeQuantizeAttrs codes{.axis = axis_, .low = -most, .high = most};
    if (weight_log_step.defined()) {
      scale = scale * exp(weight_log_step.value());
      codes.gradient_factor = step_factor(w.numel() / scale.numel(), most);
    }
    return fake_quantize(w, scale, {}, codes);
  }
  int axis_;  ///< of the outputs in the weight
};

/// The result of a module.
class ResultRounding : public RangeRounding {
 public:
  ResultRounding(bool learns, Device device) : RangeRounding("output_fake_quant", learns, device) {}
  Tensor forward(nn::Module& layer, Tensor x, const Next& next) override {
    const Tensor y = next(std::move(x));
    return is_on(layer) ? rounded(layer, y) : y;
  }
  std::shared_ptr<nn::Wrapper> copy() const override {
    auto own = std::make_shared<ResultRounding>(*this);
    own->switches = switches->copy();
    return own;
  }
};

class NormFreezing : public nn::Wrapper {
 public:
  Tensor forward(nn::Module& layer, Tensor x, const Next& next) override {
    const auto* norm = nn::detail::as_batch_norm(layer);
    if (!norm->running_mean.defined() || !layer.is_training() ||
        !guarded(*switches, switches->frozen))
      return next(std::move(x));
    const auto value = [](const Param& p) { return p.defined() ? p.value() : Tensor(); };
    return batch_norm(std::move(x), norm->running_mean, norm->running_var, value(norm->weight),
                      value(norm->bias), false, 0.0, norm->options.eps)
        .y;
  }
  std::shared_ptr<nn::Wrapper> copy() const override {
    auto own = std::make_shared<NormFreezing>(*this);
    own->switches = switches->copy();
    return own;
  }
  QatOptions options;
  Ref<Switches> switches = make_ref<Switches>();
};

// Its row; nullptr: it is not rounded. The outputs of a transposed convolution with groups have no
// dimension of their own in its weight.
const RoundedType* rounded_type(const nn::Module& m) {
  const nn::detail::ConvTransposeNd* turned = nn::detail::as_conv_transpose(m);
  if (turned && turned->options.groups != 1) return nullptr;
  const auto* at = std::find_if(std::begin(kRounded), std::end(kRounded),
                                [&](const RoundedType& r) { return m.type() == r.type; });
  return at == std::end(kRounded) ? nullptr : at;
}
bool has_lora(const nn::Module& m) {
  const auto& members = m.state().members;
  return std::any_of(members.begin(), members.end(),
                     [](const auto& member) { return member.name.starts_with("lora_"); });
}

/// Patterns of names, and which of them have matched.
class NamePatterns {
 public:
  explicit NamePatterns(const std::vector<std::string>& patterns)
      : patterns_(patterns), used_(patterns.size()) {}
  bool match(const std::string& name) {
    bool any = false;
    for (size_t i = 0; i < used_.size(); ++i)
      if (nn::name_matches(patterns_[i], name)) {
        used_[i] = 1;
        any = true;
      }
    return any;
  }
  void check(const char* what) const {
    for (size_t i = 0; i < used_.size(); ++i)
      TD_CHECK(used_[i], Value, "'{}' matches no {} of the model", patterns_[i], what);
  }

 private:
  const std::vector<std::string>& patterns_;
  std::vector<char> used_;
};

/// Wrappers that are taken off again unless they are kept.
class Added {
 public:
  ~Added() {
    for (const auto& [m, w] : all_) nn::unwrap(*m, *w);
  }
  void wrap(nn::Module& m, const std::shared_ptr<nn::Wrapper>& w) {
    nn::wrap(m, w);
    all_.emplace_back(&m, w);
  }
  void keep() { all_.clear(); }

 private:
  std::vector<std::pair<nn::Module*, std::shared_ptr<nn::Wrapper>>> all_;
};

void set_step(const QatOptions& o, Switches& s, int64_t step) {
  const auto reached = [&](int64_t at) { return at >= 0 && step >= at; };
  s.on = reached(o.start);
  s.observing = s.on && !reached(o.freeze_observers);
  s.frozen = reached(o.freeze_batch_norms);
}

}  // namespace

std::vector<std::string> prepare_qat(nn::Module& net, const QatOptions& options) {
  check_fields(any_fields(options), "prepare_qat");
  TD_CHECK(options.freeze_observers < 0 || options.freeze_observers > options.start, Value,
           "ranges are observed from update {} on and frozen from update {} on\nFreeze them later "
           "than they start, or give -1.",
           options.start, options.freeze_observers);
  TD_CHECK(!is_prepared(net), Value, "the net is prepared already");
  std::vector<std::string> names;
  NamePatterns kept(options.keep_float), results(options.round_outputs);
  std::vector<std::pair<nn::Module*, int>> layers;
  std::vector<nn::Module*> norms, rounded;
  Device device;
  for (const auto& [path, m] : net.named_modules()) {
    if (nn::detail::as_batch_norm(*m)) norms.push_back(m);
    if (results.match(path)) rounded.push_back(m);
    const RoundedType* type = rounded_type(*m);
    if (!type || kept.match(path)) continue;
    TD_CHECK(!has_lora(*m), Value, "'{}' has a LoRA update\nCall merge_lora() first.", path);
    device = nn::detail::member_param(*m, "weight").device();
    layers.emplace_back(m, type->axis);
    names.push_back(path);
  }
  kept.check("Linear or convolution");
  results.check("module");
  TD_CHECK(!names.empty(), Value,
           "the model has no Linear layer and no convolution: there is nothing to quantise");
  Added added;
  const auto add = [&](nn::Module& m, const auto& w) {
    w->options = options;
    set_step(options, *w->switches, 0);
    added.wrap(m, w);
  };
  for (const auto& [m, axis] : layers)
    add(*m, std::make_shared<LayerRounding>(nn::detail::member_param(*m, "weight").value(), axis,
                                            options));
  for (nn::Module* m : norms) add(*m, std::make_shared<NormFreezing>());
  // Around what is there: a norm's results as they leave it.
  for (nn::Module* m : rounded)
    add(*m, std::make_shared<ResultRounding>(options.learn_steps, device));
  added.keep();
  return names;
}

bool is_prepared(nn::Module& net) {
  const auto modules = net.named_modules();
  return std::any_of(modules.begin(), modules.end(),
                     [](const auto& m) { return nn::wrapper_of<LayerRounding>(*m.second); });
}

size_t fix_rounding(nn::Module& net) {
  size_t layers = 0;
  for (const auto& [path, m] : net.named_modules()) {
    if (const auto w = nn::wrapper_of<LayerRounding>(*m)) layers += w->fix(*m);
    if (const auto w = nn::wrapper_of<ResultRounding>(*m)) w->fix_step();
  }
  return layers;
}

void set_qat_step(nn::Module& net, int64_t step) {
  for (const auto& [path, m] : net.named_modules()) {
    for (const std::shared_ptr<nn::Wrapper>& w : nn::wrappers(*m))
      if (const auto r = std::dynamic_pointer_cast<RangeRounding>(w))
        set_step(r->options, *r->switches, step);
    if (const auto w = nn::wrapper_of<NormFreezing>(*m)) set_step(w->options, *w->switches, step);
  }
}

}  // namespace tandem::quant
