// SPDX-License-Identifier: Apache-2.0
// The inputs and outputs of a model that belong to its sequences.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/ops/ops.h"
#include "tandem/serve/http/message.h"
#include "tandem/serve/model/sequences.h"
#include "tandem/serve/model/servable.h"
#include "tandem/serve/model/setting_pair_internal.h"
#include "tandem/serve/refusal_internal.h"

namespace tandem::serve {
namespace {

size_t port_of(const std::vector<ModelPort>& ports, const std::string& name, const char* setting,
               const char* kind) {
  std::vector<std::string> names;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return i;
    names.push_back(ports[i].name);
  }
  const std::string near = nearest_word(name, names);
  TD_FAIL(Value, "'{}' names '{}', and the model has no such {}{}", setting, name, kind,
          near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
}

std::string said_of(const Tensor& t) {
  return fmt::format("{} {}", to_string(t.dtype()), t.shape().to_string());
}

}  // namespace

// With the outputs of a first run on the rows of the warm-up.
void Servable::find_states(const std::vector<Tensor>& outputs) {
  std::vector<bool> in(inputs_.size()), out(outputs_.size());
  for (const std::string& entry : options_.state) {
    const auto [from, to] = setting_pair(entry, "'state'", "[h_in=h_out]");
    StatePort s{
        port_of(inputs_, from, "state", "input"), port_of(outputs_, to, "state", "output"), {}};
    TD_CHECK(!in[s.in] && !out[s.out], Value, "'state' names '{}' twice", entry);
    in[s.in] = out[s.out] = true;
    const Tensor& before = samples_[0][s.in];
    const Tensor& after = outputs[s.out];
    TD_CHECK(before.dtype() == after.dtype() && before.shape() == after.shape(), Value,
             "the state '{}' is {} before a step and {} after it", entry, said_of(before),
             said_of(after));
    s.first = zeros(before.shape(), before.dtype());
    states_.push_back(std::move(s));
  }
  for (const std::string& entry : options_.controls) {
    const auto [kind, name] = setting_pair(entry, "'controls'", "[start=START]");
    constexpr std::array<std::string_view, 4> kKinds = {"start", "end", "ready", "id"};
    TD_CHECK(std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end(), Value,
             "'controls' has the kind '{}'; there are start, end, ready and id", kind);
    const size_t at = port_of(inputs_, name, "controls", "input");
    TD_CHECK(!in[at], Value, "'controls' and 'state' name '{}' twice", name);
    TD_CHECK(samples_[0][at].numel() == 1, Value, "the control '{}' is {}, not one number", name,
             said_of(samples_[0][at]));
    in[at] = true;
    controls_.push_back({kind, at});
  }
  for (size_t i = 0; i < in.size(); ++i)
    if (!in[i]) shown_inputs_.push_back(inputs_[i]);
  for (size_t i = 0; i < out.size(); ++i)
    if (!out[i]) shown_outputs_.push_back(outputs_[i]);
  TD_CHECK(!shown_outputs_.empty(), Value, "all outputs of the model are states");
}

std::vector<Tensor> Servable::with_states(const std::vector<Tensor>& inputs,
                                          const std::vector<Tensor>& states,
                                          const SequenceAsk& ask) const {
  std::vector<Tensor> out(inputs_.size());
  for (size_t i = 0; i < states_.size(); ++i)
    out[states_[i].in] = states.empty() ? states_[i].first : states[i];
  for (const ControlPort& c : controls_) {
    const Tensor& form = samples_[0][c.in];
    double value =
        c.kind == "ready" || (c.kind == "start" && ask.start) || (c.kind == "end" && ask.end) ? 1
                                                                                              : 0;
    if (c.kind == "id") {
      const auto number = parse_digits(ask.id, uint64_t{1} << 53);
      if (ask.is_text || !number) refuse(400, "the model takes numbers as sequence_id");
      value = static_cast<double>(*number);
    }
    out[c.in] = full(form.shape(), value, form.dtype());
  }
  size_t next = 0;
  for (Tensor& t : out)
    if (!t.defined()) t = inputs[next++];
  return out;
}

std::vector<Tensor> Servable::take_states(std::vector<Tensor>& outputs) const {
  std::vector<Tensor> states, rest;
  std::vector<bool> taken(outputs.size());
  for (const StatePort& s : states_) {
    // A view of a batch would keep all of it.
    states.push_back(outputs[s.out].clone());
    taken[s.out] = true;
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!taken[i]) rest.push_back(outputs[i]);
  outputs = std::move(rest);
  return states;
}

}  // namespace tandem::serve
