// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/stepper.h"

#include <algorithm>
#include <functional>

#include "tandem/base/nearest.h"
#include "tandem/compile/compile.h"
#include "tandem/onnx/import/rows.h"
#include "tandem/ops/ops.h"

namespace tandem::onnx {
namespace {

size_t place_of(const std::vector<OnnxPort>& ports, const std::string& name, const char* what) {
  std::vector<std::string> names;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return i;
    names.push_back(ports[i].name);
  }
  const std::string near = nearest_word(name, names);
  TD_FAIL(Value, "OnnxStepper: the model has no {} '{}'{}", what, name,
          near.empty() ? "" : fmt::format("\nDid you mean '{}'?", near));
}

/// The sizes stated by the model, as [2, batch, 64].
std::string text_of(const OnnxTypeSpec& t) {
  std::string out;
  for (size_t i = 0; i < t.dims.size(); ++i) {
    const bool named = i < t.dim_names.size() && !t.dim_names[i].empty();
    out += (i ? ", " : "") + (t.dims[i] >= 0 ? fmt::format("{}", t.dims[i])
                              : named        ? t.dim_names[i]
                                             : std::string("?"));
  }
  return "[" + out + "]";
}

void check_value(const OnnxPort& p, const Tensor& x) {
  const OnnxTypeInfo& want = info_of(p.type.elem);
  TD_CHECK(x.defined() && x.dtype() == want.carrier, DType,
           "OnnxStepper: state '{}' expects {}, got {}", p.name, to_string(want.carrier),
           x.defined() ? to_string(x.dtype()) : "nothing");
  if (!p.type.has_shape) return;
  bool fits = static_cast<size_t>(x.dim()) == p.type.dims.size();
  for (size_t i = 0; fits && i < p.type.dims.size(); ++i)
    fits = p.type.dims[i] < 0 || p.type.dims[i] == x.size(static_cast<int64_t>(i));
  TD_CHECK(fits, Shape, "OnnxStepper: state '{}' is {}, got {}", p.name, text_of(p.type),
           x.shape().to_string());
}

Tensor zeros_of(const OnnxPort& p, const std::map<std::string, int64_t>& dims) {
  TD_CHECK(p.type.has_shape, Value,
           "OnnxStepper: the model does not state the shape of '{}'\nPass its first value.",
           p.name);
  Shape s;
  for (size_t i = 0; i < p.type.dims.size(); ++i) {
    int64_t n = p.type.dims[i];
    if (n < 0) {
      const std::string name = i < p.type.dim_names.size() ? p.type.dim_names[i] : "";
      const auto it = dims.find(name);
      TD_CHECK(it != dims.end(), Value,
               "OnnxStepper: '{}' is {}, and dimension {} ('{}') has no size\nName it in "
               "OnnxStepperOptions::dims or pass the first value.",
               p.name, text_of(p.type), i, name);
      n = it->second;
      TD_CHECK(n >= 0, Value, "OnnxStepper: dimension '{}' has the size {}", name, n);
    }
    s.push_back(n);
  }
  check_onnx_size(s);
  return zeros(s, info_of(p.type.elem).carrier);
}

}  // namespace

struct OnnxStepper::State {
  struct Pair {
    const OnnxPort* input;
    size_t output;  ///< index among the model's
    Tensor first, now;
  };
  explicit State(OnnxModel m) : model(std::move(m)) {}
  OnnxModel model;
  std::vector<Pair> pairs;
  std::vector<OnnxPort> inputs, outputs;
  std::vector<size_t> output_at;  ///< indices of `outputs` among the model's
  /// A step on the inputs followed by the states; returns all outputs.
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> run;

  Pair& pair(const std::string& input) {
    for (Pair& p : pairs)
      if (p.input->name == input) return p;
    TD_FAIL(Value, "OnnxStepper: '{}' is not a state", input);
  }
  Tensor first_of(const OnnxPort& in, const OnnxStepperOptions& options) const {
    if (const auto it = options.first.find(in.name); it != options.first.end()) return it->second;
    for (const auto& [name, value] : model.proto().graph.initializers)
      if (name == in.name) return value.tensor();
    return zeros_of(in, options.dims);
  }
  void add(const OnnxState& s, const OnnxStepperOptions& options) {
    const std::vector<OnnxPort>& all = model.proto().graph.inputs;
    const size_t from = place_of(model.outputs(), s.output, "output");
    const OnnxPort &in = all[place_of(all, s.input, "input")], &out = model.outputs()[from];
    for (const Pair& q : pairs)
      TD_CHECK(q.input != &in && q.output != from, Value,
               "OnnxStepper: '{}' <- '{}' names one of them twice", s.input, s.output);
    for (const OnnxPort* port : {&in, &out})
      TD_CHECK(port->type.kind == OnnxTypeSpec::Kind::tensor && port->type.elem != OnnxType::string,
               Unsupported, "OnnxStepper: '{}' is not a tensor of numbers", port->name);
    TD_CHECK(in.type.elem == out.type.elem, DType, "OnnxStepper: '{}' expects {}, '{}' gives {}",
             in.name, to_string(in.type.elem), out.name, to_string(out.type.elem));
    TD_CHECK(
        !in.type.has_shape || !out.type.has_shape || in.type.dims.size() == out.type.dims.size(),
        Shape, "OnnxStepper: '{}' is {}, '{}' is {}", in.name, text_of(in.type), out.name,
        text_of(out.type));
    const Tensor first = first_of(in, options);
    check_value(in, first);
    pairs.push_back({&in, from, first, first});
  }
  bool goes_around(const std::string& input) const {
    return std::any_of(pairs.begin(), pairs.end(),
                       [&](const Pair& p) { return p.input->name == input; });
  }
};

OnnxStepper::OnnxStepper(OnnxModel model, const OnnxStepperOptions& options)
    : state_(std::make_shared<State>(std::move(model))) {
  State& s = *state_;
  const auto& states = options.states.empty() ? s.model.states() : options.states;
  TD_CHECK(!states.empty(), Value,
           "OnnxStepper: the model does not name its states\nName them in "
           "OnnxStepperOptions::states.");
  for (const OnnxState& one : states) s.add(one, options);
  for (const auto& [name, value] : options.first) s.pair(name);
  std::vector<std::string> names;
  std::vector<bool> plain;
  for (const OnnxPort& p : s.model.inputs()) {
    plain.push_back(!s.goes_around(p.name));
    if (plain.back()) s.inputs.push_back(p);
  }
  for (const auto& p : s.pairs) names.push_back(p.input->name);
  for (size_t i = 0; i < s.model.outputs().size(); ++i)
    if (std::none_of(s.pairs.begin(), s.pairs.end(),
                     [&](const auto& p) { return p.output == i; })) {
      s.outputs.push_back(s.model.outputs()[i]);
      s.output_at.push_back(i);
    }
  auto run = [m = s.model, plain, names](const std::vector<Tensor>& in) {
    std::vector<Tensor> inputs;
    size_t next = 0;
    for (const bool p : plain) inputs.push_back(p ? in[next++] : Tensor());
    std::map<std::string, Tensor> around;
    for (const std::string& name : names) around[name] = in[next++];
    return m(inputs, around);
  };
  if (options.compiled)
    s.run = [f = compile(run, {.same_bits = false})](const std::vector<Tensor>& in) mutable {
      return f(in);
    };
  else
    s.run = run;
}

const std::vector<OnnxPort>& OnnxStepper::inputs() const { return state_->inputs; }
const std::vector<OnnxPort>& OnnxStepper::outputs() const { return state_->outputs; }

std::vector<Tensor> OnnxStepper::operator()(const std::vector<Tensor>& inputs) {
  State& s = *state_;
  TD_CHECK(inputs.size() == s.inputs.size(), Value, "OnnxStepper: a step takes {} inputs, got {}",
           s.inputs.size(), inputs.size());
  std::vector<Tensor> all = inputs;
  for (const auto& p : s.pairs) all.push_back(p.now);
  std::vector<Tensor> made = s.run(all);
  for (const auto& p : s.pairs) check_value(*p.input, made.at(p.output));
  for (auto& p : s.pairs) p.now = std::move(made[p.output]);
  std::vector<Tensor> out;
  for (const size_t i : s.output_at) out.push_back(std::move(made[i]));
  return out;
}

const Tensor& OnnxStepper::state(const std::string& input) const { return state_->pair(input).now; }

void OnnxStepper::set_state(const std::string& input, Tensor value) {
  auto& p = state_->pair(input);
  check_value(*p.input, value);
  p.now = std::move(value);
}

void OnnxStepper::reset() {
  for (auto& p : state_->pairs) p.now = p.first;
}

}  // namespace tandem::onnx
