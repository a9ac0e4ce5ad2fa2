// SPDX-License-Identifier: Apache-2.0
#include "tandem/serve/model/ensemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tandem/base/error.h"
#include "tandem/base/nearest.h"
#include "tandem/serve/model/repository.h"
#include "tandem/serve/model/setting_pair_internal.h"

namespace tandem::serve {
namespace {

constexpr size_t kNobody = static_cast<size_t>(-1);

/// A tensor of the graph while it is put together.
struct GraphTensor {
  std::string name;
  ModelPort port;            ///< of who gives it, else of the first who takes it
  size_t giver = kNobody;    ///< a step
  std::string said_by = "";  ///< whose port it is, for messages
  bool taken = false;
};

/// A step of the settings with its model.
struct GraphStep {
  const EnsembleStep* asked = nullptr;
  std::unique_ptr<Ensemble::Step> step = std::make_unique<Ensemble::Step>();
};

std::string port_text(const ModelPort& p) {
  return fmt::format("{} {}", to_string(p.dtype), recipe::shape_text(Shape(p.shape)));
}

bool fits(const ModelPort& a, const ModelPort& b) {
  if (a.dtype != b.dtype || a.shape.size() != b.shape.size()) return false;
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (a.shape[d] >= 0 && b.shape[d] >= 0 && a.shape[d] != b.shape[d]) return false;
  return true;
}

class GraphBuilder {
 public:
  explicit GraphBuilder(const std::string& name) : name_(name) {}

  size_t tensor(const std::string& name) {
    const auto [at, fresh] = places_.emplace(name, tensors.size());
    if (fresh) tensors.push_back({.name = name, .port = {}});
    return at->second;
  }

  void add(const EnsembleStep& asked, const Ensemble::Finder& find) {
    TD_CHECK(asked.model != name_, Value, "the ensemble '{}' names itself as a step", name_);
    GraphStep next{.asked = &asked};
    next.step->version = find(asked.model, asked.version);
    TD_CHECK(next.step->version, Value,
             "the ensemble '{}' names the model '{}'{}, which is not served", name_, asked.model,
             asked.version > 0 ? fmt::format(" of version {}", asked.version) : "");
    TD_CHECK(!next.step->version->sequences, Unsupported,
             "the ensemble '{}' names the model '{}', which keeps a state between requests", name_,
             asked.model);
    steps.push_back(std::move(next));
  }

  // The outputs of all steps come first: who gives a tensor says what it is.
  void connect() {
    for (size_t i = 0; i < steps.size(); ++i)
      for (const auto& [port, name] : maps(steps[i].asked->output_map, "output_map"))
        give(i, place(steps[i], model(i).outputs(), port, "output"), name);
    for (size_t i = 0; i < steps.size(); ++i) take_inputs(i);
    for (const GraphStep& s : steps)
      TD_CHECK(!s.step->outputs.empty(), Value,
               "of the step '{}' of the ensemble '{}' nothing is taken: its output_map is empty",
               s.asked->model, name_);
  }

  // Steps after those whose tensors they take.
  std::vector<std::unique_ptr<Ensemble::Step>> ordered() {
    std::vector<std::unique_ptr<Ensemble::Step>> out;
    std::vector<bool> done(steps.size());
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t i = 0; i < steps.size(); ++i) {
        if (done[i]) continue;
        const std::vector<size_t>& in = steps[i].step->inputs;
        if (std::any_of(in.begin(), in.end(), [&](size_t t) {
              return tensors[t].giver != kNobody && !done[tensors[t].giver];
            }))
          continue;
        orders.push_back(i);
        done[i] = moves = true;
      }
    }
    std::string waiting;
    for (size_t i = 0; i < steps.size(); ++i)
      if (!done[i]) waiting += (waiting.empty() ? "'" : ", '") + steps[i].asked->model + "'";
    TD_CHECK(waiting.empty(), Value, "the steps {} of the ensemble '{}' wait for one another",
             waiting, name_);
    for (const size_t i : orders) out.push_back(std::move(steps[i].step));
    return out;
  }

  std::vector<GraphTensor> tensors;
  std::vector<GraphStep> steps;
  std::vector<size_t> orders;

 private:
  Servable& model(size_t i) const { return *steps[i].step->version->model; }

  std::vector<std::pair<std::string, std::string>> maps(const std::vector<std::string>& entries,
                                                        const char* setting) const {
    std::vector<std::pair<std::string, std::string>> out;
    const std::string whose = fmt::format("'{}' of the ensemble '{}'", setting, name_);
    for (const std::string& entry : entries) out.push_back(setting_pair(entry, whose, "[x=image]"));
    return out;
  }

  size_t place(const GraphStep& s, const std::vector<ModelPort>& ports, const std::string& name,
               const char* kind) const {
    std::vector<std::string> names;
    for (size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].name == name) return i;
      names.push_back(ports[i].name);
    }
    const std::string near = nearest_word(name, names);
    TD_FAIL(Value, "in the ensemble '{}' the step '{}' has no {} '{}'{}", name_, s.asked->model,
            kind, name, near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
  }

  void give(size_t step, size_t output, const std::string& name) {
    const size_t at = tensor(name);
    GraphTensor& t = tensors[at];
    TD_CHECK(t.giver == kNobody, Value,
             "in the ensemble '{}' both '{}' and '{}' give the tensor '{}'", name_, t.said_by,
             steps[step].asked->model, name);
    t.giver = step;
    t.port = model(step).outputs()[output];
    t.said_by = steps[step].asked->model;
    steps[step].step->outputs.emplace_back(output, at);
  }

  void take_inputs(size_t i) {
    const std::vector<ModelPort>& ports = model(i).inputs();
    std::vector<size_t>& inputs = steps[i].step->inputs;
    inputs.assign(ports.size(), kNobody);
    for (const auto& [port, name] : maps(steps[i].asked->input_map, "input_map")) {
      const size_t at = place(steps[i], ports, port, "input");
      TD_CHECK(inputs[at] == kNobody, Value,
               "in the ensemble '{}' the step '{}' names its input '{}' twice", name_,
               steps[i].asked->model, port);
      inputs[at] = tensor(name);
      take(tensors[inputs[at]], ports[at], steps[i].asked->model);
    }
    for (size_t p = 0; p < ports.size(); ++p)
      TD_CHECK(inputs[p] != kNobody, Value,
               "in the ensemble '{}' the input '{}' of the step '{}' has no tensor", name_,
               ports[p].name, steps[i].asked->model);
  }

  void take(GraphTensor& t, const ModelPort& port, const std::string& model) const {
    t.taken = true;
    if (t.said_by.empty()) {
      t.port = port;
      t.said_by = model;
      return;
    }
    TD_CHECK(fits(t.port, port), Value,
             "in the ensemble '{}' the tensor '{}' is {} for '{}' and {} for '{}'", name_, t.name,
             port_text(t.port), t.said_by, port_text(port), model);
    // An input that several take has the sizes that all of them ask for.
    for (size_t d = 0; t.giver == kNobody && d < port.shape.size(); ++d)
      t.port.shape[d] = std::max(t.port.shape[d], port.shape[d]);
  }

  const std::string& name_;
  std::map<std::string, size_t> places_;
};

}  // namespace

Ensemble::Ensemble(std::string name, const std::vector<EnsembleStep>& steps,
                   const std::vector<std::string>& outputs, const Finder& find)
    : name_(std::move(name)) {
  GraphBuilder graph(name_);
  for (const EnsembleStep& s : steps) graph.add(s, find);
  graph.connect();
  steps_ = graph.ordered();
  const auto named = [&graph](size_t at) {
    ModelPort port = graph.tensors[at].port;
    port.name = graph.tensors[at].name;
    return port;
  };
  std::vector<std::string> names = outputs, given;
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const GraphTensor& t = graph.tensors[i];
    if (t.giver != kNobody) {
      given.push_back(t.name);
      if (outputs.empty() && !t.taken) names.push_back(t.name);
      continue;
    }
    input_places_.push_back(i);
    inputs_.push_back(named(i));
  }
  for (const std::string& output : names) {
    const size_t at = graph.tensor(output);
    const bool there = std::find(given.begin(), given.end(), output) != given.end();
    const std::string near = there ? "" : nearest_word(output, given);
    TD_CHECK(there, Value, "no step of the ensemble '{}' gives its output '{}'{}", name_, output,
             near.empty() ? "" : fmt::format("; did you mean '{}'?", near));
    output_places_.push_back(at);
    outputs_.push_back(named(at));
  }
  TD_CHECK(!inputs_.empty() && !outputs_.empty(), Value, "the ensemble '{}' has no {}", name_,
           inputs_.empty() ? "inputs" : "outputs");
  tensors_ = graph.tensors.size();
  front_ = find_front();
}

const Ensemble::Step* Ensemble::find_front() const {
  const std::set<size_t> whole(input_places_.begin(), input_places_.end());
  const Step* out = nullptr;
  for (const std::unique_ptr<Step>& step : steps_) {
    const std::set<size_t> taken(step->inputs.begin(), step->inputs.end());
    const bool all = taken == whole && step->inputs.size() == whole.size();
    const bool any =
        std::any_of(taken.begin(), taken.end(), [&](size_t t) { return whole.count(t) > 0; });
    if (any && (!all || out)) return nullptr;
    if (all) out = step.get();
  }
  return out;
}

std::vector<Tensor> Ensemble::inputs_of_front(const std::vector<Tensor>& tensors) const {
  const std::vector<size_t>& taken = front()->inputs;
  std::vector<Tensor> out;
  for (const size_t place : input_places_)
    out.push_back(tensors.at(
        static_cast<size_t>(std::find(taken.begin(), taken.end(), place) - taken.begin())));
  return out;
}

std::vector<Tensor> Ensemble::run_step(Step& step, const std::vector<Tensor>& inputs, bool counted,
                                       StepRun& took) const {
  Servable& model = *step.version->model;
  JobCounts& counts = step.version->scheduler->counts();
  const auto begin = Clock::now();
  int64_t rows = 1;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const ModelPort& p = model.inputs()[i]; !p.shape.empty() && p.shape[0] < 0)
      rows = std::max(rows, inputs[i].size(0));
  // A free instance, else the first.
  std::unique_lock<std::mutex> instance;
  int which = 0;
  for (; which < model.instances() && !instance; ++which)
    instance = std::unique_lock(model.lock_of(which), std::try_to_lock);
  which = instance ? which - 1 : 0;
  if (!instance) instance = std::unique_lock(model.lock_of(0));
  took.begin = begin;
  took.queue_seconds = seconds_since(begin);
  if (counted) counts.accepted.fetch_add(1, std::memory_order_relaxed);
  try {
    std::vector<Tensor> out = model.run(which, inputs, rows, &took.steps);
    const double all = took.seconds = seconds_since(begin);
    if (!counted) return out;
    counts.ok.fetch_add(1, std::memory_order_relaxed);
    counts.runs.fetch_add(1, std::memory_order_relaxed);
    counts.rows.fetch_add(static_cast<uint64_t>(rows), std::memory_order_relaxed);
    counts.queue.add(took.queue_seconds);
    counts.compute.add(all - took.queue_seconds);
    counts.total.add(all);
    step.seconds.add(all);
    return out;
  } catch (const Error& e) {
    took.seconds = seconds_since(begin);
    took.failed = true;
    if (counted) {
      counts.failed.fetch_add(1, std::memory_order_relaxed);
      step.failed.fetch_add(1, std::memory_order_relaxed);
    }
    throw Error(e.kind(),
                fmt::format("in ensemble '{}', model '{}': {}{}{}", name_, step.version->name,
                            e.op(), e.op().empty() ? "" : ": ", e.message()));
  }
}

std::vector<Tensor> Ensemble::run(const std::vector<Tensor>& inputs, bool counted,
                                  std::vector<StepRun>* took) {
  std::vector<StepRun> nobody_asks;
  if (!took) took = &nobody_asks;
  std::vector<Tensor> tensors(tensors_);
  for (size_t i = 0; i < inputs.size(); ++i) tensors[input_places_[i]] = inputs[i];
  for (const std::unique_ptr<Step>& step : steps_) {
    std::vector<Tensor> in;
    for (const size_t at : step->inputs) in.push_back(tensors[at]);
    took->push_back({.model = step->version->name, .version = step->version->version});
    const std::vector<Tensor> out = run_step(*step, in, counted, took->back());
    for (const auto& [port, at] : step->outputs) tensors[at] = out.at(port);
  }
  std::vector<Tensor> out;
  for (const size_t at : output_places_) out.push_back(tensors[at]);
  return out;
}

}  // namespace tandem::serve
