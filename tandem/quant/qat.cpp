// SPDX-License-Identifier: Apache-2.0
#include "tandem/quant/qat.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "tandem/graph/dry_run.h"
#include "tandem/graph/trace.h"
#include "tandem/nn/fine_tune.h"
#include "tandem/nn/norm.h"
#include "tandem/nn/parametrize.h"
#include "tandem/nn/wrapper.h"
#include "tandem/ops/ops.h"
#include "tandem/ops/pointwise/quantize.h"

namespace tandem::quant {
namespace {

constexpr const char* kRounded[] = {"Linear", "Conv1d", "Conv2d", "Conv3d"};
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

// A scale of nothing but zeros is 1.
Tensor usable(const Tensor& scale) {
  return where(scale >= std::numeric_limits<float>::min(), scale, 1.0);
}

class LayerRounding : public nn::Wrapper {
 public:
  explicit LayerRounding(Device device) {
    const auto zero = [&] { return Buffer(zeros(Shape(), DType::f32).to(device)); };
    min_val = zero();
    max_val = zero();
  }
  Tensor forward(nn::Module& layer, Tensor x, const Next& next) override {
    if (fixed_scale.defined()) return next(rounded(x, known(fixed_scale), known(fixed_zero)));
    const bool training = layer.is_training();
    if (!guarded(*switches, training ? switches->on : switches->seen)) return next(std::move(x));
    if (training && guarded(*switches, switches->observing)) observe(x);
    Param& weight = nn::detail::member_param(layer, "weight");
    const nn::detail::Substitute now(weight, rounded_weight(weight.value()));
    const auto [scale, zero] = step();
    return next(rounded(x, scale, zero));
  }
  // Every walk over the net looks whether values were loaded or observed.
  void visit(nn::MemberVisitor& v) override {
    v.buffer("input_fake_quant.min_val", min_val);
    v.buffer("input_fake_quant.max_val", max_val);
    if (is_tracing() || is_dry_run()) return;
    switches->seen = max_val.value().item<float>() > min_val.value().item<float>();
  }
  std::shared_ptr<nn::Wrapper> copy() const override {
    auto own = std::make_shared<LayerRounding>(*this);
    own->switches = switches->copy();
    return own;
  }

  // False: there is no range.
  bool fix(nn::Module& layer) {
    const NoGradGuard no_grad;
    if (!switches->seen || fixed_scale.defined()) return false;
    const Param& weight = nn::detail::member_param(layer, "weight");
    weight.assign_(rounded_weight(weight.value()));
    std::tie(fixed_scale, fixed_zero) = step();
    return true;
  }

  QatOptions options;
  Buffer min_val, max_val;  ///< 0 is always between them; both 0: nothing was observed
  Ref<Switches> switches = make_ref<Switches>();
  Tensor fixed_scale, fixed_zero;  ///< once they are constant

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
  // Scale and zero point of the input.
  std::pair<Tensor, Tensor> step() const {
    const Tensor min = min_val, max = max_val;
    const Tensor scale = usable((max - min) / static_cast<double>(kMostInput));
    return {scale, clamp(round(-min / scale), 0.0, static_cast<double>(kMostInput))};
  }
  static Tensor rounded(const Tensor& x, const Tensor& scale, const Tensor& zero) {
    return fake_quantize(x, scale, zero, {.axis = 0, .low = 0, .high = kMostInput});
  }
  Tensor rounded_weight(const Tensor& w) const {
    const int64_t most = (int64_t{1} << (options.bits - 1)) - 1;
    IntList others;
    for (int d = options.per_channel ? 1 : 0; d < w.dim(); ++d) others.push_back(d);
    const Tensor scale =
        usable(amax(abs(w.detach().to(DType::f32)), others) / static_cast<double>(most));
    return fake_quantize(w, scale, {}, {.axis = 0, .low = -most, .high = most});
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

bool is_rounded(const nn::Module& m) {
  return std::find(std::begin(kRounded), std::end(kRounded), m.type()) != std::end(kRounded);
}
bool has_lora(const nn::Module& m) {
  const auto& members = m.state().members;
  return std::any_of(members.begin(), members.end(),
                     [](const auto& member) { return member.name.starts_with("lora_"); });
}

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
  std::vector<char> used(options.keep_float.size());
  const auto kept = [&](const std::string& name) {
    bool any = false;
    for (size_t i = 0; i < used.size(); ++i)
      if (nn::name_matches(options.keep_float[i], name)) {
        used[i] = 1;
        any = true;
      }
    return any;
  };
  std::vector<nn::Module*> layers, norms;
  for (const auto& [path, m] : net.named_modules()) {
    if (nn::detail::as_batch_norm(*m)) norms.push_back(m);
    if (!is_rounded(*m) || kept(path)) continue;
    TD_CHECK(!has_lora(*m), Value, "'{}' has a LoRA update\nCall merge_lora() first.", path);
    layers.push_back(m);
    names.push_back(path);
  }
  for (size_t i = 0; i < used.size(); ++i)
    TD_CHECK(used[i], Value, "'{}' matches no Linear or convolution of the model",
             options.keep_float[i]);
  TD_CHECK(!names.empty(), Value,
           "the model has no Linear layer and no convolution: there is nothing to quantise");
  const auto add = [&](nn::Module& m, const auto& w) {
    w->options = options;
    set_step(options, *w->switches, 0);
    nn::wrap(m, w);
  };
  for (nn::Module* m : layers)
    add(*m, std::make_shared<LayerRounding>(nn::detail::member_param(*m, "weight").device()));
  for (nn::Module* m : norms) add(*m, std::make_shared<NormFreezing>());
  return names;
}

bool is_prepared(nn::Module& net) {
  const auto modules = net.named_modules();
  return std::any_of(modules.begin(), modules.end(),
                     [](const auto& m) { return nn::wrapper_of<LayerRounding>(*m.second); });
}

size_t fix_rounding(nn::Module& net) {
  size_t layers = 0;
  for (const auto& [path, m] : net.named_modules())
    if (const auto w = nn::wrapper_of<LayerRounding>(*m)) layers += w->fix(*m);
  return layers;
}

void set_qat_step(nn::Module& net, int64_t step) {
  for (const auto& [path, m] : net.named_modules()) {
    if (const auto w = nn::wrapper_of<LayerRounding>(*m)) set_step(w->options, *w->switches, step);
    if (const auto w = nn::wrapper_of<NormFreezing>(*m)) set_step(w->options, *w->switches, step);
  }
}

}  // namespace tandem::quant
