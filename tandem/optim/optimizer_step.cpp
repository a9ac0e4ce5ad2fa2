// SPDX-License-Identifier: Apache-2.0
// One step: numbers and moments are read, every parameter's update is collected (eager: run in one
// parallel region; in a trace: recorded), kept numbers are stored.
#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/graph/cells/absent.h"
#include "tandem/ops/view/create.h"
#include "tandem/ops/view/view.h"
#include "tandem/optim/optimizer.h"

#include "tandem/optim/optimizer_internal.h"

namespace tandem::optim {

struct Optimizer::Running {
  bool traced = is_tracing();
  std::vector<std::vector<double>> numbers, kept;    // eager: by group, by number
  std::vector<Tensor> number_tensors, kept_tensors;  // in a trace
  std::vector<std::map<size_t, Tensor>> kept_new;    // in a trace: by number, by parameter
  std::vector<char> kept_changed;
  std::map<std::pair<size_t, std::string>, Tensor> corrections;  // in a trace, for all parameters
  std::map<std::pair<size_t, std::string>, Tensor> selected;
  struct {
    double beta = -1, step = -1, value = 0;
  } last;
  std::vector<CellUpdate> batch;
};

// Read groups' and kept numbers; count the step of every parameter that has a gradient.
void Optimizer::begin_step(Running& run, const std::vector<char>& live) const {
  for (const Group& g : groups_) {
    Tensor v = g.numbers.value();
    if (run.traced)
      run.number_tensors.push_back(v);
    else
      run.numbers.push_back(v.to_vector<double>());
  }
  for (const Kept& k : kept_) {
    Tensor v = k.values.value();
    if (run.traced)
      run.kept_tensors.push_back(v);
    else
      run.kept.push_back(v.to_vector<double>());
  }
  run.kept_changed.assign(kept_.size(), 0);
  run.kept_changed[0] = 1;
  run.kept_new.resize(kept_.size());
  if (!run.traced) {
    for (size_t i = 0; i < live.size(); ++i) run.kept[0][i] += live[i];
    run.batch.reserve(params_.size());
    return;
  }
  bool all = std::all_of(live.begin(), live.end(), [](char c) { return c; });
  Tensor made =
      all ? full({}, 1.0, DType::f64) : numbers_of(std::vector<double>(live.begin(), live.end()));
  run.kept_tensors[0] = run.kept_tensors[0] + made;
}

void Optimizer::store_kept(Running& run, SourceLocation loc) {
  for (size_t k = 0; k < kept_.size(); ++k) {
    if (!run.kept_changed[k]) continue;
    if (!run.traced) {
      kept_[k].values.assign_(numbers_of(run.kept[k]), loc);
      continue;
    }
    Tensor v = run.kept_tensors[k];
    if (!run.kept_new[k].empty()) {
      std::vector<Tensor> parts;
      for (size_t i = 0; i < params_.size(); ++i) {
        auto at = run.kept_new[k].find(i);
        parts.push_back(at != run.kept_new[k].end() ? at->second
                                                    : v.select(0, static_cast<int64_t>(i)));
      }
      v = stack(parts, 0);
    }
    kept_[k].values.assign_(v, loc);
  }
}

void Optimizer::step_all(SourceLocation loc) {
  const DeviceGuard numbers_on_host(cpu);
  Running run;
  std::vector<char> live(params_.size());
  for (size_t i = 0; i < params_.size(); ++i)
    live[i] = params_[i].requires_grad() && params_[i].grad().defined();
  begin_step(run, live);
  running_ = &run;
  for (size_t i = 0; i < params_.size(); ++i) {
    if (!live[i]) continue;
    Update u(*this);
    u.index = i;
    u.group_ = group_of_[i];
    u.loc = loc;
    u.grad = params_[i].grad();
    if (has_option("maximize") && u.flag("maximize")) u.grad = neg(u.grad, loc);
    update(u);
  }
  update_many_(run.batch, loc);
  store_kept(run, loc);
  if (Trace* t = cell_trace())
    for (size_t i = 0; i < params_.size(); ++i)
      if (live[i]) t->consume_grad(*params_[i].cell()->slot());
}

void Optimizer::step(SourceLocation loc) {
  NoGradGuard no_grad;
  struct Finally {
    Running*& running;
    ~Finally() { running = nullptr; }
  } finally{running_};
  try {
    for (const Param& p : params_)
      TD_CHECK(tandem::detail::shard_role(*p.cell()) != tandem::detail::ShardRole::whole,
               Unsupported,
               "'{}' is sharded over ranks, and this optimizer has it as a whole: its gradient is "
               "elsewhere\nGive the optimizer DataParallel::parameters(), or call "
               "shard_optimizer().",
               p.name());
    step_all(loc);
  } catch (const Error& e) {
    throw with_place(e, type_, loc);
  }
}

Tensor Optimizer::step(const std::function<Tensor()>& closure, SourceLocation loc) {
  Tensor loss;
  {
    EnableGradGuard grad;
    loss = closure();
  }
  step(loc);
  return loss;
}

void Optimizer::zero_grad() {
  for (const Param& p : params_) p.zero_grad();
}

const Param& Optimizer::Update::param() const { return o_.params_[index]; }

Number Optimizer::Update::number(const char* name) const {
  Running& run = *o_.running_;
  size_t k = o_.option_index(name);
  if (!run.traced) return run.numbers[group_][k];
  Tensor& t = run.selected[{group_, name}];
  if (!t.defined()) t = run.number_tensors[group_].select(0, static_cast<int64_t>(k));
  return Number(t);
}

bool Optimizer::Update::flag(const char* name) const {
  return Options(o_.groups_[group_].options, o_.type_)[name] != 0;
}

Number Optimizer::Update::kept(const char* name) const {
  Running& run = *o_.running_;
  size_t k = static_cast<size_t>(&o_.kept_of(name) - o_.kept_.data());
  if (!run.traced) return run.kept[k][index];
  return Number(run.kept_tensors[k].select(0, static_cast<int64_t>(index)));
}

void Optimizer::Update::keep(const char* name, const Number& v) const {
  Running& run = *o_.running_;
  size_t k = static_cast<size_t>(&o_.kept_of(name) - o_.kept_.data());
  run.kept_changed[k] = 1;
  if (!run.traced)
    run.kept[k][index] = v.value();
  else
    run.kept_new[k][index] = v.is_tensor() ? v.tensor() : full({}, v.value(), DType::f64);
}

Number Optimizer::Update::step() const { return kept("step"); }

Number Optimizer::Update::bias_correction(const char* beta) const {
  Running& run = *o_.running_;
  if (!run.traced) {
    double b = number(beta).value(), t = run.kept[0][index];
    if (run.last.beta == b && run.last.step == t) return run.last.value;
    run.last = {b, t, 1.0 - tdm_pow(b, t)};
    return run.last.value;
  }
  // Of all parameters at once: one pow and a select for each.
  Tensor& all = run.corrections[{group_, beta}];
  if (!all.defined()) all = 1.0 - tandem::pow(number(beta).operand(), run.kept_tensors[0]);
  return Number(all.select(0, static_cast<int64_t>(index)));
}

Tensor Optimizer::Update::state(const char* name) const {
  Buffer* b = o_.state_of(index, name);
  return b ? b->value() : Tensor();
}

bool Optimizer::Update::has_state(const char* name) const {
  return o_.state_of(index, name) != nullptr;
}

void Optimizer::Update::set_state(const char* name, const Tensor& v) const {
  Buffer* b = o_.state_of(index, name);
  TD_ASSERT(b);
  b->cell()->assign(v, loc);
}

void Optimizer::Update::run(const OpDef& row, std::initializer_list<const char*> states,
                            std::initializer_list<Number> numbers, const Tensor& g) const {
  SmallVec<Cell*, 5> cells;
  cells.push_back(param().cell().get());
  for (const char* s : states) {
    Buffer* b = o_.state_of(index, s);
    TD_ASSERT(b);
    cells.push_back(b->cell().get());
  }
  run_cells(row, std::move(cells), g, numbers);
}

void Optimizer::Update::run_states(const OpDef& row, std::initializer_list<const char*> states,
                                   std::initializer_list<Number> numbers) const {
  SmallVec<Cell*, 5> cells;
  for (const char* s : states) cells.push_back(o_.state_of(index, s)->cell().get());
  run_cells(row, std::move(cells), grad, numbers);
}

void Optimizer::Update::run_cells(const OpDef& row, SmallVec<Cell*, 5> cells, const Tensor& g,
                                  std::initializer_list<Number> numbers) const {
  if (!o_.running_->traced) {
    CellUpdate& u = o_.running_->batch.emplace_back();
    u.row = &row;
    u.cells = std::move(cells);
    u.other = g;
    for (const Number& n : numbers) u.numbers.push_back(n.value());
    return;
  }
  std::vector<Operand> others;
  others.reserve(numbers.size() + 1);
  others.emplace_back(g, loc);
  for (const Number& n : numbers) others.push_back(n.operand());
  update_(row, nullptr, {cells.data(), cells.size()}, others, loc);
}

}  // namespace tandem::optim
