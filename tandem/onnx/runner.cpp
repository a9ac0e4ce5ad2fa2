// SPDX-License-Identifier: Apache-2.0
#include "tandem/onnx/runner.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "tandem/base/clock.h"
#include "tandem/compile/compile.h"
#include "tandem/compile/run/segments.h"
#include "tandem/graph/dry_run.h"
#include "tandem/onnx/import/packed_values_internal.h"
#include "tandem/onnx/import/reads_internal.h"
#include "tandem/ops/ops.h"
#include "tandem/tensor/strided.h"

namespace tandem::onnx {
namespace {

// Programs for different values of inputs that are taken as known.
constexpr size_t kMostKnown = 8;
constexpr size_t kSegments = 256;

using Result = std::pair<std::vector<Tensor>, std::string>;
using Function = std::function<Result(const std::vector<Tensor>&)>;

void put_bytes(const Tensor& t, std::string& key) {
  key += static_cast<char>(t.dtype());
  key += t.shape().to_string();
  const size_t from = key.size();
  key.resize(from + static_cast<size_t>(t.numel()) * size_of(t.dtype()));
  if (key.size() > from)
    tandem::detail::copy_row_major(*t.cpu().impl(), key.data() + from, t.dtype());
}

bool has_strings(const OnnxValue& v) {
  if (v.is_strings()) return true;
  if (v.is_sequence())
    for (const OnnxValue& i : v.items())
      if (has_strings(i)) return true;
  return false;
}

// In other traces, transforms and dry runs a model is what its nodes are.
bool runs_as_it_is() {
  const Context& c = context();
  return (c.slow & ~(uint32_t{kAutocast} | kProfile)) || c.redirect || c.cell_log ||
         !c.assign_if.empty();
}

/// "NonZero 'found' reads values that depend on the inputs", on one line.
std::string describe(const Error& e) {
  std::string text = e.message();
  text = text.substr(0, text.find('\n'));
  if (text.find("inside a trace cannot be read") != std::string::npos)
    text = "reads values that depend on the inputs";
  else if (!e.op().empty())
    text = e.op() + ": " + text;
  return e.layer().empty() ? text : e.layer() + " " + text;
}

}  // namespace

const char* to_string(OnnxWay way) {
  return way == OnnxWay::whole ? "whole" : way == OnnxWay::parts ? "parts" : "eager";
}

struct OnnxRunner::State {
  /// The model compiled for inputs of one structure, some of which are known.
  struct Program {
    std::vector<size_t> variable;  ///< places of its arguments among the inputs
    std::set<size_t> wanted;       ///< inputs that its last trace wanted to know
    std::unique_ptr<Compiled<Function>> compiled;
  };

  /// How inputs of one structure run.
  struct Plan {
    OnnxWay way = OnnxWay::whole;
    std::string reason;
    bool may_know = true;    ///< inputs may be taken as known
    std::set<size_t> known;  ///< those that are
    std::map<std::string, std::shared_ptr<Program>>
        programs;  ///< by the values of the known inputs
  };

  explicit State(OnnxModel m) : model(std::move(m)) {}

  OnnxModel model;
  mutable std::mutex lock;  ///< of what follows; not held while a program runs
  std::map<std::string, Plan> plans;
  compiler::SegmentCache segments{kSegments};
  OnnxWay way = OnnxWay::whole;
  std::string reason;
  Ref<Executable> last;

  std::shared_ptr<Program> program(Plan& plan, const PackedValues& in);
  std::shared_ptr<Program> make_program(const Plan& plan, const PackedValues& in);
  std::optional<std::vector<OnnxValue>> whole(Plan& plan, const PackedValues& in,
                                              std::optional<Error>& error);
  std::vector<OnnxValue> in_parts(std::span<const OnnxValue> inputs);
  std::vector<OnnxValue> done(Plan& plan, OnnxWay how, const std::string& why,
                              std::vector<OnnxValue> out);
};

std::shared_ptr<OnnxRunner::State::Program> OnnxRunner::State::make_program(
    const Plan& plan, const PackedValues& in) {
  auto program = std::make_shared<Program>();
  std::vector<Tensor> known = in.tensors;
  for (size_t i = 0; i < known.size(); ++i)
    if (!plan.known.count(i)) {
      known[i] = Tensor();
      program->variable.push_back(i);
    }
  Function f = [this, known, structure = in.structure, may_know = plan.may_know,
                self = program.get()](const std::vector<Tensor>& given) {
    std::vector<Tensor> all = known;
    for (size_t k = 0; k < given.size(); ++k) all[self->variable[k]] = given[k];
    std::set<size_t> wanted;
    std::optional<ReadProbe> probe;
    if (may_know) probe.emplace(given, wanted);
    try {
      PackedValues out(model.run(unpack_values(structure, all)));
      for (Tensor& t : out.tensors) t = constant(t);
      return Result(std::move(out.tensors), std::move(out.structure));
    } catch (...) {
      for (const size_t k : wanted) self->wanted.insert(self->variable[k]);
      throw;
    }
  };
  program->compiled = std::make_unique<Compiled<Function>>(
      compile(std::move(f), {.name = model.name(), .same_bits = false}));
  return program;
}

// The program for the values of the known inputs. With too many of them no input is taken as known.
std::shared_ptr<OnnxRunner::State::Program> OnnxRunner::State::program(Plan& plan,
                                                                       const PackedValues& in) {
  const std::lock_guard hold(lock);
  std::string key;
  for (const size_t i : plan.known) put_bytes(in.tensors[i], key);
  if (!plan.programs.count(key) && plan.programs.size() >= kMostKnown) {
    plan.programs.clear();
    plan.known.clear();
    plan.may_know = false;
    key.clear();
  }
  std::shared_ptr<Program>& p = plan.programs[key];
  if (!p) p = make_program(plan, in);
  return p;
}

// The call as one program; nothing and the error where that fails.
std::optional<std::vector<OnnxValue>> OnnxRunner::State::whole(Plan& plan, const PackedValues& in,
                                                               std::optional<Error>& error) {
  for (;;) {
    const std::shared_ptr<Program> p = program(plan, in);
    std::vector<Tensor> given;
    for (const size_t i : p->variable) given.push_back(in.tensors[i]);
    try {
      const Result r = (*p->compiled)(given);
      const std::lock_guard hold(lock);
      last = p->compiled->executable();
      return unpack_values(r.second, r.first);
    } catch (const Error& e) {
      error = e;
    }
    const std::lock_guard hold(lock);
    const size_t before = plan.known.size();
    if (plan.may_know) plan.known.insert(p->wanted.begin(), p->wanted.end());
    if (plan.known.size() == before) return std::nullopt;
    plan.programs.clear();
  }
}

std::vector<OnnxValue> OnnxRunner::State::in_parts(std::span<const OnnxValue> inputs) {
  const GeneratorState entry = generator_state();
  const auto begin = Clock::now();
  const int64_t cold = segments.cold();
  compiler::SegmentedRun run(segments);
  std::vector<OnnxValue> out;
  try {
    out = model.run(inputs);
    run.commit();
  } catch (...) {
    set_generator_state(entry);
    throw;
  }
  segments.took(seconds_since(begin), run.op_by_op(), cold == segments.cold());
  return out;
}

std::vector<OnnxValue> OnnxRunner::State::done(Plan& plan, OnnxWay how, const std::string& why,
                                               std::vector<OnnxValue> out) {
  const std::lock_guard hold(lock);
  // No part computes tensors: nothing was compiled.
  if (how == OnnxWay::parts && segments.run() == 0) how = OnnxWay::eager;
  if (how != plan.way) {
    plan.way = how;
    plan.reason = why;
    plan.programs.clear();
  }
  if (how != OnnxWay::whole) last = how == OnnxWay::parts ? segments.last() : Ref<Executable>();
  way = how;
  reason = plan.reason;
  return out;
}

OnnxRunner::OnnxRunner(OnnxModel model) : state_(std::make_shared<State>(std::move(model))) {}

const OnnxModel& OnnxRunner::model() const { return state_->model; }

std::vector<OnnxValue> OnnxRunner::run(std::span<const OnnxValue> inputs) {
  State& s = *state_;
  if (runs_as_it_is()) return s.model.run(inputs);
  const Budget budget = s.model.open_budget(inputs);
  const PackedValues in(inputs);
  State::Plan* plan;
  OnnxWay how;
  std::string why;
  {
    const std::lock_guard hold(s.lock);
    plan = &s.plans[in.structure];
    how = plan->way;
    why = plan->reason;
  }
  if (how == OnnxWay::whole && std::any_of(inputs.begin(), inputs.end(), has_strings)) {
    how = OnnxWay::parts;
    why = "its inputs hold strings";
  }
  std::optional<Error> error;
  if (how == OnnxWay::whole) {
    if (auto out = s.whole(*plan, in, error))
      return s.done(*plan, OnnxWay::whole, "", std::move(*out));
    why = describe(*error);
  }
  if (how != OnnxWay::eager) {
    try {
      return s.done(*plan, OnnxWay::parts, why, s.in_parts(inputs));
    } catch (const Error& e) {
      error = e;
    }
  }
  // An error of the call itself comes again, and the plan stays.
  std::vector<OnnxValue> out = s.model.run(inputs);
  return s.done(*plan, OnnxWay::eager, how == OnnxWay::eager ? why : describe(*error),
                std::move(out));
}

std::vector<Tensor> OnnxRunner::operator()(const std::vector<Tensor>& inputs) {
  if (runs_as_it_is()) return state_->model(inputs);
  std::vector<Tensor> out;
  for (const OnnxValue& v : run(state_->model.values_of(inputs))) out.push_back(v.tensor());
  return out;
}

OnnxWay OnnxRunner::way() const {
  const std::lock_guard hold(state_->lock);
  return state_->way;
}
std::string OnnxRunner::reason() const {
  const std::lock_guard hold(state_->lock);
  return state_->reason;
}
Ref<Executable> OnnxRunner::executable() const {
  const std::lock_guard hold(state_->lock);
  return state_->last;
}

std::string OnnxRunner::note() const {
  const OnnxWay how = way();
  if (how == OnnxWay::whole) return "";
  return fmt::format("{} runs {}: {} ({})", state_->model.name(),
                     how == OnnxWay::parts ? "in compiled parts" : "op by op", reason(),
                     how == OnnxWay::parts
                         ? "its nodes are walked through at every call, and no loop is fused "
                           "across a part's end"
                         : "no loops are fused and no memory is planned");
}

}  // namespace tandem::onnx
