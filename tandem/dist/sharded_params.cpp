// SPDX-License-Identifier: Apache-2.0
#include "tandem/dist/sharded_params_internal.h"

#include <algorithm>
#include <map>

#include "tandem/base/copy_bytes.h"
#include "tandem/base/error.h"
#include "tandem/dist/collectives_internal.h"
#include "tandem/graph/cells/deferred.h"
#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"
#include "tandem/ops/ops.h"

namespace tandem::distributed {
namespace {

constexpr int64_t kUnitAlignment = 64;  ///< bytes between parameters: what kernels like

size_t bytes_of(int64_t elements, DType t) { return static_cast<size_t>(elements) * size_of(t); }

/// What is read while it lives is no input of the function that is being logged (checkpoint()).
class UnloggedReads {
 public:
  UnloggedReads() : log_(std::exchange(context().cell_log, nullptr)) {}
  ~UnloggedReads() { context().cell_log = log_; }
  UnloggedReads(const UnloggedReads&) = delete;
  UnloggedReads& operator=(const UnloggedReads&) = delete;

 private:
  decltype(Context::cell_log) log_;
};

}  // namespace

ShardedParams::ShardedParams(nn::Module& net, std::vector<NamedParam> params,
                             const DataParallelOptions& options, std::shared_ptr<Engine> engine)
    : sharding_(options.sharding),
      params_(std::move(params)),
      group_(std::move(engine)),
      engine_(*group_),
      device_(params_[0].param.cell()->spec().device),
      home_(options.offload_optimizer ? cpu : device_),
      places_(params_.size()),
      link_(std::make_shared<tandem::detail::SourceLink>()) {
  link_->source = this;
  for (size_t i = 0; i < params_.size(); ++i) index_[params_[i].param.cell().get()] = i;
  constexpr double kUnitMb = 25;
  {
    const DeferredInitGuard as_they_are;  // shapes are all that units need
    make_units(net, static_cast<int64_t>(
                        (options.bucket_cap_mb > 0 ? options.bucket_cap_mb : kUnitMb) * 1e6));
  }
  std::vector<DType> dtypes;
  for (const Unit& u : units_) dtypes.push_back(u.dtype);
  calls_ = std::make_unique<FlatCalls>(group_, device_, home_, dtypes);
  make_shards();
  drop_all();
}

ShardedParams::~ShardedParams() {
  link_->source = nullptr;
  for (const auto& [module, id] : hooks_) module->remove_hook(id);
  set_roles(tandem::detail::ShardRole::none, tandem::detail::ShardRole::none);
  for (Unit& u : units_) u.call.settle();  // nobody may write to memory that is gone
}

// A parameter's unit is the outermost module above it that takes one tensor and is not too large,
// else the module that has it.
void ShardedParams::make_units(nn::Module& net, int64_t cap) {
  std::map<std::string, nn::Module*> modules;
  std::map<std::string, int64_t> bytes;
  for (const auto& [path, m] : net.named_modules()) modules[path] = m;
  const auto above = [&](const std::string& name) {  // outermost first
    std::vector<std::string> all{""};
    for (size_t at = 0; (at = name.find('.', at)) != name.npos; ++at)
      if (modules.count(name.substr(0, at))) all.push_back(name.substr(0, at));
    return all;
  };
  for (const NamedParam& p : params_)
    for (const std::string& path : above(p.name))
      bytes[path] += static_cast<int64_t>(bytes_of(p.param.numel(), p.param.dtype()));
  std::map<std::pair<std::string, DType>, size_t> unit_of;
  for (size_t i = 0; i < params_.size(); ++i) {
    const std::vector<std::string> paths = above(params_[i].name);
    std::string path = paths.back();
    for (const std::string& p : paths)
      if (modules[p]->state().forward && bytes[p] <= cap) {
        path = p;
        break;
      }
    const DType dtype = params_[i].param.dtype();
    const auto [at, fresh] = unit_of.emplace(std::pair(path, dtype), units_.size());
    if (fresh) {
      Unit u;
      u.name = path.empty() ? "net" : path;
      u.dtype = dtype;
      if (modules[path]->state().forward) u.module = modules[path];
      units_.push_back(std::move(u));
      if (units_.back().module && frees()) hook(*units_.back().module, units_.size() - 1);
    }
    Unit& u = units_[at->second];
    Place& p = places_[i];
    p.unit = at->second;
    p.offset = u.elements;
    p.shape = params_[i].param.shape();
    p.numel = params_[i].param.numel();
    const auto each = kUnitAlignment / static_cast<int64_t>(size_of(dtype));
    u.elements += (p.numel + each - 1) / each * each;
    u.params.push_back(i);
  }
  for (Unit& u : units_) {
    u.part = (u.elements + engine_.size() - 1) / engine_.size();
    u.elements = u.part * engine_.size();
  }
}

void ShardedParams::hook(nn::Module& module, size_t unit) {
  const int id = module.register_forward_hook(
      [link = std::weak_ptr(link_), this, unit](nn::Module&, const Tensor&, const Tensor&) {
        if (const auto alive = link.lock(); alive && alive->source) after_forward(unit);
        return Tensor();
      });
  hooks_.emplace_back(&module, id);
}

// Which elements of the parameter lie in that rank's part.
std::pair<int64_t, int64_t> ShardedParams::range(const Place& p, const Unit& u, int rank) const {
  const auto within = [&](int64_t at) { return std::clamp<int64_t>(at - p.offset, 0, p.numel); };
  return {within(u.part * rank), within(u.part * (rank + 1))};
}

// Of rank 0's values; a whole one is here for a moment. One rank's part is the whole parameter,
// which any optimizer may update.
void ShardedParams::make_shards() {
  const NoGradGuard no_grad;
  std::vector<Cell*> cells;
  for (const NamedParam& p : params_) cells.push_back(p.param.cell().get());
  const auto keep = [&](size_t i, const Tensor& whole) {
    Place& p = places_[i];
    std::tie(p.begin, p.end) = range(p, units_[p.unit], engine_.rank());
    const Tensor part = part_of(i, whole);
    p.shard = Param(part.to(home_));
    p.shard.cell()->name = params_[i].name;
    p.gathered = p.shard.cell()->generation();
    tandem::detail::set_absent(*cells[i], link_);
    p.generation = cells[i]->generation();
    p.absent = true;
  };
  if (engine_.size() == 1)
    for (size_t i = 0; i < cells.size(); ++i) keep(i, cells[i]->read().detach());
  else
    share_cells(engine_, cells, "parameters", keep);
  set_roles(tandem::detail::ShardRole::whole, tandem::detail::ShardRole::part);
}

// What optimizers are told about these cells.
void ShardedParams::set_roles(tandem::detail::ShardRole whole,
                              tandem::detail::ShardRole part) const {
  for (size_t i = 0; i < params_.size(); ++i) {
    tandem::detail::set_shard_role(*params_[i].param.cell(), whole, link_);
    if (places_[i].shard.defined() && engine_.size() > 1)
      tandem::detail::set_shard_role(*places_[i].shard.cell(), part);
  }
}

std::vector<Param> ShardedParams::shards() const {
  std::vector<Param> all;
  for (const Place& p : places_) all.push_back(p.shard);
  return all;
}

Param ShardedParams::shard_of(const Param& p) const {
  const auto at = index_.find(p.cell().get());
  return at == index_.end() ? p : places_[at->second].shard;
}

Tensor ShardedParams::part_of(size_t i, const Tensor& whole) const {
  if (engine_.size() == 1) return whole.contiguous().clone();
  const Place& p = places_[i];
  return narrow(whole.contiguous().reshape({-1}), 0, p.begin, p.end - p.begin).clone();
}

Tensor ShardedParams::whole_of(size_t i, const Tensor& part) {
  if (engine_.size() == 1) return part;
  const Place& p = places_[i];
  const Unit& u = units_[p.unit];
  int64_t most = 0;
  for (int r = 0; r < engine_.size(); ++r) {
    const auto [begin, end] = range(p, u, r);
    most = std::max(most, end - begin);
  }
  const Tensor in = zeros_flat(most, part.dtype(), cpu),
               out = empty_flat(most * engine_.size(), part.dtype(), cpu),
               whole = empty_flat(p.numel, part.dtype(), cpu);
  copy_into(in, 0, part.contiguous());
  engine_
      .all_gather({in.impl()->data, most, in.dtype()}, {out.impl()->data, out.numel(), out.dtype()},
                  {"state of " + params_[i].name})
      .wait();
  for (int r = 0; r < engine_.size(); ++r) {
    const auto [begin, end] = range(p, u, r);
    copy_bytes(byte_at(whole, begin), byte_at(out, most * r), bytes_of(end - begin, out.dtype()));
  }
  const Tensor shaped = whole.reshape(p.shape);
  return is_host(part.device()) ? shaped : shaped.to(part.device());
}

// ---- values that somebody else wrote

void ShardedParams::take_written(Unit& u) {
  bool any = false;
  for (const size_t i : u.params)
    any |= params_[i].param.cell()->generation() != places_[i].generation;
  if (!any) return;
  const NoGradGuard no_grad;
  u.resolving = true;
  for (const size_t i : u.params) {
    const Cell& cell = *params_[i].param.cell();
    Place& p = places_[i];
    if (cell.generation() == p.generation) continue;
    const Tensor v = cell.read();
    p.generation = cell.generation();
    if (tandem::detail::is_absent(v)) continue;
    p.absent = false;
    p.shard.cell()->assign(part_of(i, v.detach()), SourceLocation::here());
  }
  u.resolving = false;
}

bool ShardedParams::stale(const Unit& u) const {
  return std::any_of(u.params.begin(), u.params.end(), [&](size_t i) {
    return places_[i].shard.cell()->generation() != places_[i].gathered;
  });
}

void ShardedParams::sync() {
  for (Unit& u : units_) {
    take_written(u);
    const bool written =
        std::any_of(u.params.begin(), u.params.end(), [&](size_t i) { return !places_[i].absent; });
    // Values that somebody wrote into an absent unit are whole ones, too.
    if (u.state != Unit::State::absent ? stale(u) : written) drop(u, false);
  }
}

// ---- gathering

void ShardedParams::launch(size_t unit) {
  Unit& u = units_[unit];
  if (u.state != Unit::State::absent) return;
  if (!u.flat.defined()) u.flat = new_flat(u);
  const UnloggedReads parts;
  take_written(u);
  const Tensor own = zeros_flat(u.part, u.dtype, home_);
  for (const size_t i : u.params) {
    Place& p = places_[i];
    const Tensor v = p.shard.cell()->read().contiguous();
    if (p.begin < p.end) copy_into(own, p.offset + p.begin - first(u), v);
    p.gathered = p.shard.cell()->generation();
  }
  u.call = calls_->gather(own, u.flat, fmt::format("parameters of {}", u.name));
  u.state = Unit::State::coming;
}

// What a tape saves of it comes and goes with zero3.
Tensor ShardedParams::new_flat(Unit& u) const {
  const Context& c = context();
  const bool taped = is_grad_enabled() || c.cell_log != nullptr || !is_host(device_);
  if (!frees() || !taped || is_tracing()) return empty_flat(u.elements, u.dtype, device_);
  Tensor flat = tandem::detail::make_region(u.elements, u.dtype, link_, device_);
  if (!is_host(device_)) u.regions.push_back(tandem::detail::region_number(flat));
  return flat;
}

void ShardedParams::finish(Unit& u) {
  if (u.state != Unit::State::coming) return;
  u.call.wait();
  if (tandem::detail::is_region(u.flat)) tandem::detail::mark_filled(u.flat);
  u.state = Unit::State::here;
  const NoGradGuard no_grad;
  for (const size_t i : u.params) {
    Place& p = places_[i];
    const Ref<Cell>& cell = params_[i].param.cell();
    cell->replace(narrow(u.flat, 0, p.offset, p.numel).reshape(p.shape));
    p.generation = cell->generation();
    p.absent = false;
  }
}

// Have the unit here.
void ShardedParams::fetch(size_t unit) {
  launch(unit);
  finish(units_[unit]);
}

// Have the one that was read after this unit in the last step on its way.
void ShardedParams::fetch_ahead(size_t unit) {
  now_.push_back(unit);
  const auto at =
      std::find(order_.begin() + static_cast<ptrdiff_t>(std::min(cursor_, order_.size())),
                order_.end(), unit);
  if (at == order_.end()) return;
  cursor_ = static_cast<size_t>(at - order_.begin()) + 1;
  for (size_t k = cursor_; k < order_.size(); ++k) {
    launch(order_[k]);
    if (frees()) break;
  }
}

void ShardedParams::bring(const Cell& cell) {
  const size_t unit = places_[index_.at(&cell)].unit;
  if (units_[unit].resolving) return;
  TD_CHECK(!is_tracing(), Unsupported,
           "'{}', of which ranks hold parts, is read first inside vmap, a loop body or a function "
           "that is compiled with Control::eager\nCompile without Control::eager, or read it "
           "before: model.unshard() has all parameters here.",
           cell.name);
  fetch(unit);
  if (is_grad_enabled()) fetch_ahead(unit);
}

// A walk needs what it has saved; the unit that was read before this one comes next.
Tensor ShardedParams::refill(const Tensor& region) {
  const uint64_t number = tandem::detail::region_number(region);
  const auto holds = [&](const Unit& u) {
    if (u.flat.defined() && u.flat.impl()->storage == region.impl()->storage) return true;
    return std::find(u.regions.begin(), u.regions.end(), number) != u.regions.end();
  };
  const auto at = std::find_if(units_.begin(), units_.end(), holds);
  TD_CHECK(at != units_.end(), Value,
           "backward() reads parameters of a step that is over\nKeep no graph over a step of a net "
           "with sharded parameters.");
  const auto unit = static_cast<size_t>(at - units_.begin());
  TD_CHECK(!stale(*at), Value,
           "backward() reads the parameters of {}, which have changed since its forward pass",
           at->name);
  fetch(unit);
  Tensor here = at->flat;
  const auto last = std::find(now_.rbegin(), now_.rend(), unit);
  if (last == now_.rend() || last + 1 == now_.rend()) return here;
  const Unit& before = units_[*(last + 1)];
  if (before.state == Unit::State::absent && was_read(before) && !stale(before))
    launch(*(last + 1));
  return here;
}

// May a tape have saved values of it?
bool ShardedParams::was_read(const Unit& u) const {
  return is_host(device_) ? u.flat.defined() : !u.regions.empty();
}

// ---- in a trace that becomes a program: units are gathered by rows

Tensor ShardedParams::bring_by_rows(const Cell& cell, Trace& trace) {
  // A program runs on one device: it finds parameters whose parts are elsewhere in their cells.
  if (offloads()) return {};
  trace.guard(*held_, held_->comes_and_goes);
  if (held()) return {};
  const Place& p = places_[index_.at(&cell)];
  Tensor& flat = trace.kept[&units_[p.unit]];
  if (!flat.defined()) flat = gathered_in(units_[p.unit]);
  return narrow(flat, 0, p.offset, p.numel).reshape(p.shape);
}

Tensor ShardedParams::gathered_in(const Unit& u) const {
  detail::FlatParts own{.part = u.part};
  for (const size_t i : u.params) {
    const Place& p = places_[i];
    if (p.begin == p.end && (!own.parts.empty() || i != u.params.back())) continue;
    own.parts.push_back(p.shard.value());
    own.places.push_back(p.begin == p.end ? 0 : p.offset + p.begin - first(u));
  }
  return detail::gather_flat(own, group_, fmt::format("parameters of {}", u.name));
}

// Its module has run. The backward pass gathers again what it needs.
void ShardedParams::drop_in(Trace& trace, const Unit& u) const {
  if (const auto at = trace.kept.find(&u); at != trace.kept.end())
    trace.graph->drops.push_back({at->second, trace.graph->nodes.size()});
  forget_in(trace, u);
}

void ShardedParams::forget_in(Trace& trace, const Unit& u) const {
  trace.kept.erase(&u);
  for (const size_t i : u.params) trace.forget_brought(*params_[i].param.cell());
}

void ShardedParams::end_step_in(Trace& trace) const {
  for (const Unit& u : units_) forget_in(trace, u);
}

// The program gathers by itself: what eager steps have left here is not needed.
void ShardedParams::before_run() {
  sync();
  for (Unit& u : units_) {
    drop(u, false);
    u.flat = Tensor();
  }
}

// ---- dropping. `for_now`: a tape may hold views of the unit, which are filled again.

void ShardedParams::drop(Unit& u, bool for_now) {
  if (u.state == Unit::State::coming) finish(u);
  take_written(u);
  if (u.state == Unit::State::absent && for_now) return;
  for (const size_t i : u.params) {
    Place& p = places_[i];
    if (p.absent) continue;
    Cell& cell = *params_[i].param.cell();
    tandem::detail::set_absent(cell, link_);
    p.generation = cell.generation();
    p.absent = true;
  }
  u.state = Unit::State::absent;
  if (!for_now) u.regions.clear();
  if (!u.flat.defined()) return;
  const bool held = !u.flat.impl()->storage->refs.unique();
  const bool region = tandem::detail::is_region(u.flat);
  const bool emptied = region && for_now && held;
  if (emptied) tandem::detail::empty_region(u.flat);
  if (emptied ? !is_host(device_) : held || frees()) u.flat = Tensor();
}

void ShardedParams::after_forward(size_t unit) {
  if (held() || (context().slow & kRecompute)) return;
  if (!is_tracing()) return drop(units_[unit], true);
  if (Trace* t = cell_trace(); t && t == context().trace && !t->lazy) drop_in(*t, units_[unit]);
}

void ShardedParams::used_in_backward(size_t unit) {
  if (frees()) drop(units_[unit], true);
}

void ShardedParams::end_step() {
  held_->comes_and_goes = true;
  for (Unit& u : units_) drop(u, false);
  order_ = std::move(now_);
  now_.clear();
  cursor_ = 0;
}

void ShardedParams::gather_all() {
  sync();
  const NoGradGuard no_grad;
  for (size_t k = 0; k < units_.size(); ++k) launch(k);
  for (Unit& u : units_) finish(u);
  held_->comes_and_goes = false;
}

void ShardedParams::drop_all() {
  held_->comes_and_goes = true;
  for (Unit& u : units_) drop(u, false);
}

void ShardedParams::each_unit(const std::function<void(const Unit&)>& see) {
  sync();
  const NoGradGuard no_grad;
  for (size_t k = 0; k < units_.size(); ++k) {
    const bool here = units_[k].state != Unit::State::absent;
    fetch(k);
    see(units_[k]);
    if (!here) drop(units_[k], false);
  }
}

// Unit by unit: no rank holds two copies of the net.
void ShardedParams::restore() {
  sync();
  const NoGradGuard no_grad;
  for (size_t k = 0; k < units_.size(); ++k) {
    fetch(k);
    for (const size_t i : units_[k].params) {
      const Ref<Cell>& cell = params_[i].param.cell();
      cell->replace(cell->read().detach().clone());
      places_[i].generation = cell->generation();
    }
    units_[k].flat = Tensor();
  }
  held_->comes_and_goes = false;
  set_roles(tandem::detail::ShardRole::none, tandem::detail::ShardRole::none);
}

}  // namespace tandem::distributed
