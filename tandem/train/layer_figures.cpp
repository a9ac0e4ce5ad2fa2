// SPDX-License-Identifier: Apache-2.0
#include "tandem/train/layer_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "tandem/graph/op_def.h"
#include "tandem/graph/profiler.h"
#include "tandem/graph/rng.h"
#include "tandem/ops/ops.h"

namespace tandem::train {
namespace {

double number(const Tensor& t) { return t.to(DType::f64).item<double>(); }

// Sums of one tensor; the whole is put together from them.
struct Sums {
  double sum = 0, squares = 0, zeros = 0;
  int64_t count = 0, finite = 0;
  double low = INFINITY, high = -INFINITY;
  void add(const Tensor& value) {
    if (!value.defined() || value.numel() == 0) return;
    for (const float f : value.detach().to(DType::f32).to_vector<float>()) {
      const double v = f;
      ++count;
      if (!std::isfinite(v)) continue;
      ++finite;
      zeros += v == 0;
      sum += v;
      squares += v * v;
      low = std::min(low, v);
      high = std::max(high, v);
    }
  }
  ValueFigures figures() const {
    ValueFigures f{.count = count, .nonfinite = count - finite};
    if (finite == 0) return f;
    const auto n = static_cast<double>(finite);
    f.mean = sum / n;
    f.deviation = std::sqrt(std::max(squares / n - f.mean * f.mean, 0.0));
    f.rms = std::sqrt(squares / n);
    f.low = low;
    f.high = high;
    f.zeros = zeros / n;
    return f;
  }
};

// Sees the results of pointwise ops: which of them has zeros, and which units are never anything
// else?
struct Rectifiers : OpHook {
  std::vector<RectifierFigures> found;
  bool off = false;
  void after(const OpDef& op, std::span<const Tensor> out) override {
    if (off || op.family != Family::pointwise || out.size() != 1) return;
    const Tensor& y = out[0];
    if (!y.defined() || y.dim() < 2 || !is_floating(y.dtype()) || y.numel() == 0) return;
    off = true;
    NoGradGuard no_grad;
    const std::vector<float> v = y.detach().to(DType::f32).to_vector<float>();
    const auto units = static_cast<size_t>(y.size(1));
    const size_t inner = v.size() / (static_cast<size_t>(y.size(0)) * units);
    std::vector<char> alive(units);
    size_t zeros = 0;
    for (size_t i = 0; i < v.size(); ++i) {
      zeros += v[i] == 0;
      if (v[i] != 0) alive[i / inner % units] = 1;
    }
    if (zeros > 0 && zeros < v.size())
      found.push_back({current_layer(), std::string(op.name),
                       static_cast<double>(zeros) / static_cast<double>(v.size()), y.size(1),
                       std::count(alive.begin(), alive.end(), 0)});
    off = false;
  }
};

/// Hooks on all layers that take one, taken off at the end.
struct Hooks {
  std::vector<std::pair<nn::Module*, int>> placed;
  ~Hooks() {
    for (auto& [m, id] : placed) m->remove_hook(id);
  }
};

std::string shape_text(const Shape& s) {
  std::string text = "(";
  for (int d = 0; d < s.rank(); ++d)
    text += d == 0 ? "None" : fmt::format(", {}", s.values()[static_cast<size_t>(d)]);
  return text + ")";
}

std::string size_text(double bytes) {
  return bytes >= 1048576 ? fmt::format("{:.2f} MB", bytes / 1048576)
                          : fmt::format("{:.2f} KB", bytes / 1024);
}

io::Json json_of(const ValueFigures& f) {
  return io::Json::Object{
      {"mean", f.mean}, {"deviation", f.deviation}, {"low", f.low},     {"high", f.high},
      {"rms", f.rms},   {"zeros", f.zeros},         {"count", f.count}, {"nonfinite", f.nonfinite}};
}

// The model as it was found: mode, random numbers, no gradients.
struct Restored {
  nn::Module& model;
  bool training = model.is_training();
  GeneratorState rng = generator_state();
  ~Restored() {
    model.train(training);
    model.zero_grad();
    set_generator_state(rng);
  }
};

// The figures of one model, gathered part by part.
class FiguresOf {
 public:
  FiguresOf(nn::Module& model, const LayerFiguresOptions& o) : model_(model), o_(o) {
    for (auto& [path, module] : model.named_modules()) {
      LayerFigures f{.path = path, .type = module->type()};
      f.depth = path.empty() ? 0 : 1 + std::count(path.begin(), path.end(), '.');
      place_.emplace(path, r_.layers.size());
      r_.layers.push_back(std::move(f));
    }
  }

  ModelFigures all(const std::function<Tensor()>& run) {
    const Restored restored{model_};
    model_.eval();
    model_.zero_grad();
    {
      NoGradGuard no_grad(!o_.gradients);
      see_outputs(run);
      measure(run);
    }
    add_parameters();
    add_buffers();
    for (LayerFigures& f : r_.layers) {
      if (auto it = activations_.find(f.path); it != activations_.end())
        f.activation = it->second.figures();
      if (auto it = values_.find(f.path); it != values_.end()) {
        f.weight = it->second.first.figures();
        f.gradient = it->second.second.figures();
      }
    }
    r_.rectifiers = std::move(rectifiers_.found);
    return std::move(r_);
  }

 private:
  // Parameters belong to the module with the longest path in front of their name.
  LayerFigures& owner(const std::string& name) {
    for (size_t dot = name.rfind('.'); dot != name.npos && dot > 0; dot = name.rfind('.', dot - 1))
      if (auto it = place_.find(name.substr(0, dot)); it != place_.end())
        return r_.layers[it->second];
    return r_.layers[place_.at("")];
  }

  void place_hooks(Hooks& hooks) {
    for (auto& [path, module] : model_.named_modules()) {
      if (!module->state().forward) continue;
      const size_t at = place_.at(path);
      hooks.placed.emplace_back(
          module,
          module->register_forward_hook([this, at](nn::Module&, const Tensor&, const Tensor& y) {
            r_.layers[at].called = true;
            r_.layers[at].output = y.shape();
            if (o_.statistics && is_floating(y.dtype())) {
              rectifiers_.off = true;
              activations_[r_.layers[at].path].add(y);
              rectifiers_.off = false;
            }
            return Tensor();
          }));
    }
  }

  // The first run: outputs of layers and their statistics, and gradients if they are wanted.
  void see_outputs(const std::function<Tensor()>& run) {
    Hooks hooks;
    place_hooks(hooks);
    std::optional<HookGuard> watch;
    if (o_.statistics) watch.emplace(rectifiers_);
    const Tensor loss = run();
    rectifiers_.off = true;
    if (o_.gradients) loss.backward();
  }

  // Time and work of a second run, which no statistics disturb; gradients stay those of the first.
  void measure(const std::function<Tensor()>& run) {
    const std::vector<Param> params = model_.parameters();
    std::vector<Tensor> gradients;
    for (const Param& p : params) gradients.push_back(p.grad());
    ProfilerGuard profiler;
    const Tensor loss = run();
    if (o_.gradients) loss.backward();
    const Profile profile = profiler.profile();
    for (size_t i = 0; i < params.size(); ++i) params[i].set_grad(gradients[i]);
    for (const ProfileEvent& e : profile.events) {
      // The nearest module above the scope: functions may have scopes of their own.
      LayerFigures& f = owner(scope_path(e.scope) + ".x");
      f.seconds += 1e-9 * static_cast<double>(e.end_ns - e.start_ns);
      f.flops += e.flops;
    }
  }

  void add_parameters() {
    double squares = 0;
    for (const auto& [name, p] : model_.named_parameters()) {
      LayerFigures& f = owner(name);
      f.parameters += p.numel();
      if (p.requires_grad()) f.trainable += p.numel();
      r_.parameters += p.numel();
      if (p.requires_grad()) r_.trainable += p.numel();
      r_.bytes += p.numel() * static_cast<int64_t>(size_of(p.dtype()));
      if (!o_.statistics) continue;
      auto& [weight, gradient] = values_[f.path];
      weight.add(p.value());
      if (const Tensor g = p.grad(); g.defined()) {
        gradient.add(g);
        NoGradGuard no_grad;
        const Tensor wide = g.to(DType::f64);
        squares += number((wide * wide).sum());
      }
    }
    r_.gradient_norm = std::sqrt(squares);
  }

  void add_buffers() {
    for (const auto& [name, b] : model_.named_buffers()) {
      if (!b.defined()) continue;
      owner(name).buffers += b.numel();
      r_.buffers += b.numel();
      r_.bytes += b.numel() * static_cast<int64_t>(size_of(b.dtype()));
    }
  }

  nn::Module& model_;
  const LayerFiguresOptions& o_;
  ModelFigures r_;
  std::map<std::string, size_t> place_;  // of a path in r_.layers
  Rectifiers rectifiers_;
  std::map<std::string, Sums> activations_;
  std::map<std::string, std::pair<Sums, Sums>> values_;  // weights and gradients by path
};

}  // namespace

ValueFigures value_figures(const std::vector<Tensor>& values) {
  Sums s;
  for (const Tensor& t : values) s.add(t);
  return s.figures();
}

ModelFigures model_figures(nn::Module& model, const std::function<Tensor()>& run,
                           const LayerFiguresOptions& o) {
  return FiguresOf(model, o).all(run);
}

std::string summary_table(const ModelFigures& m, const std::string& name) {
  size_t wide = 12, shapes = 12;
  std::vector<std::array<std::string, 3>> rows;
  for (const LayerFigures& f : m.layers) {
    if (f.path.empty()) continue;
    rows.push_back({fmt::format("{} ({})", f.path, f.type), f.called ? shape_text(f.output) : "?",
                    std::to_string(f.parameters)});
    wide = std::max(wide, rows.back()[0].size());
    shapes = std::max(shapes, rows.back()[1].size());
  }
  std::string line, s = fmt::format("Model: \"{}\"\n", name);
  for (size_t k = 0; k < wide + shapes + 16; ++k) line += "─";
  s += line + "\n" +
       fmt::format("{:<{}}  {:<{}}  {:>12}\n", "Layer (type)", wide, "Output Shape", shapes,
                   "Param #");
  s += line + "\n";
  for (const auto& row : rows)
    s += fmt::format("{:<{}}  {:<{}}  {:>12}\n", row[0], wide, row[1], shapes, row[2]);
  s += line + "\n";
  auto total = [](const char* what, int64_t n) { return fmt::format(" {} params: {}\n", what, n); };
  const int64_t fixed = m.parameters - m.trainable + m.buffers;
  s += fmt::format(" Total params: {} ({})\n", m.parameters + m.buffers,
                   size_text(static_cast<double>(m.bytes)));
  return s + total("Trainable", m.trainable) + total("Non-trainable", fixed);
}

io::Json to_json(const ModelFigures& m) {
  io::Json::Array layers, rectifiers;
  for (const LayerFigures& f : m.layers) {
    io::Json::Object o{{"path", f.path},           {"type", f.type},
                       {"depth", f.depth},         {"parameters", f.parameters},
                       {"trainable", f.trainable}, {"seconds", f.seconds},
                       {"flops", f.flops}};
    if (f.called) o.emplace_back("output", f.output.to_string());
    if (f.activation.count) o.emplace_back("activation", json_of(f.activation));
    if (f.weight.count) o.emplace_back("weight", json_of(f.weight));
    if (f.gradient.count) o.emplace_back("gradient", json_of(f.gradient));
    layers.push_back(std::move(o));
  }
  for (const RectifierFigures& f : m.rectifiers)
    rectifiers.push_back(io::Json::Object{{"layer", f.layer},
                                          {"op", f.op},
                                          {"zeros", f.zeros},
                                          {"units", f.units},
                                          {"dead_units", f.dead_units}});
  return io::Json::Object{{"layers", std::move(layers)},
                          {"rectifiers", std::move(rectifiers)},
                          {"parameters", m.parameters},
                          {"trainable", m.trainable},
                          {"buffers", m.buffers},
                          {"bytes", m.bytes},
                          {"gradient_norm", m.gradient_norm}};
}

}  // namespace tandem::train
