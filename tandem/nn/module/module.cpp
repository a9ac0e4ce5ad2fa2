// SPDX-License-Identifier: Apache-2.0
// Module traversal: names, state, modes, copies.
#include "tandem/nn/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_set>

#include "tandem/base/mismatch.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/trace.h"
#include "tandem/nn/module/registration_internal.h"
#include "tandem/ops/control.h"
#include "tandem/ops/view/view.h"

namespace tandem::nn {
namespace {

// Calls `see(path, kind, member)` for every member below `root`, depth first.
template <class See>
class Walker : public MemberVisitor {
 public:
  explicit Walker(See& see) : see_(see) {}
  void param(const std::string& name, Param& p) override { see_.param(join(name), p); }
  void buffer(const std::string& name, Buffer& b) override { see_.buffer(join(name), b); }
  void child(const std::string& name, Module& m) override {
    std::string old = std::exchange(prefix_, join(name));
    see_.module(prefix_, m);
    m.visit_members(*this);
    prefix_ = std::move(old);
  }

 private:
  std::string join(const std::string& name) const {
    return prefix_.empty() ? name : prefix_ + "." + name;
  }
  See& see_;
  std::string prefix_;
};

struct See {
  std::function<void(const std::string&, Param&)> on_param;
  std::function<void(const std::string&, Buffer&)> on_buffer;
  std::function<void(const std::string&, Module&)> on_module;
  void param(const std::string& n, Param& p) {
    if (on_param) on_param(n, p);
  }
  void buffer(const std::string& n, Buffer& b) {
    if (on_buffer) on_buffer(n, b);
  }
  void module(const std::string& n, Module& m) {
    if (on_module) on_module(n, m);
  }
};

// Every walk from a root sets the full paths, which errors and profiles show.
void walk(const Module& root, See see) {
  Module& m = const_cast<Module&>(root);
  See outer;
  outer.on_param = [&](const std::string& n, Param& p) {
    if (p.defined()) {
      if (p.cell()->name != n) p.cell()->name = n;
      see.param(n, p);
    }
  };
  outer.on_buffer = [&](const std::string& n, Buffer& b) {
    if (b.defined()) {
      if (b.cell()->name != n) b.cell()->name = n;
      see.buffer(n, b);
    }
  };
  outer.on_module = [&](const std::string& n, Module& child) {
    child.state().path = intern_scope(n);
    see.module(n, child);
  };
  Walker<See> w(outer);
  see.module("", m);
  m.visit_members(w);
}

// The two ends of a layer for its backward hooks: the gradient of the output is kept until that of
// the input has arrived, and then passes through the hooks.
struct HookEnds : RefCounted {
  std::string path;
  std::vector<std::pair<int, detail::ModuleState::BackwardHook>> hooks;
  Tensor grad_output;
  bool input_asks = false;
  Tensor call(Tensor grad_input) {
    for (auto& [id, hook] : hooks)
      if (Tensor r = hook(path, grad_input, grad_output); r.defined()) grad_input = r;
    return grad_input;
  }
};
struct HookEnd : VjpClosure {
  Ref<HookEnds> ends;
  bool at_input;
  HookEnd(Ref<HookEnds> ends, bool at_input) : ends(std::move(ends)), at_input(at_input) {}
  std::vector<Tensor> backward(std::span<const Tensor>, std::span<const Tensor>,
                               std::span<const Tensor> g) override {
    if (at_input) return {ends->call(g[0])};
    ends->grad_output = g[0];
    if (!ends->input_asks) ends->call(Tensor());
    return {g[0]};
  }
};
Tensor with_end(const Tensor& x, const Ref<HookEnds>& ends, bool at_input) {
  Tensor in[] = {x}, out[] = {x.detach()};
  return with_vjp(in, out, make_ref<HookEnd>(ends, at_input))[0];
}

Tensor call_with_hooks(Module& m, Tensor x) {
  detail::ModuleState& s = m.state();
  for (auto& [id, hook] : std::vector(s.pre_hooks))
    if (Tensor replaced = hook(m, x); replaced.defined()) x = replaced;
  Ref<HookEnds> ends;
  if (!s.backward_hooks.empty() && is_grad_enabled()) {
    ends = make_ref<HookEnds>();
    ends->path = m.path();
    ends->hooks = s.backward_hooks;
    ends->input_asks = x.requires_grad();
    if (ends->input_asks) x = with_end(x, ends, true);
  }
  Tensor y = s.around ? s.around(m, x, s.forward) : s.forward(&m, x);
  for (auto& [id, hook] : std::vector(s.hooks))
    if (Tensor replaced = hook(m, x, y); replaced.defined()) y = replaced;
  if (ends && y.requires_grad()) y = with_end(y, ends, false);
  return y;
}

}  // namespace

namespace detail {

void rethrow_placed(const Error& e, SourceLocation loc) {
  if (e.loc().file && !e.layer().empty()) throw;
  throw with_place(e, nullptr, loc);
}

std::string type_name(const char* pretty) {
  std::string s = pretty;
  size_t at = s.find("T = ");
  if (at == std::string::npos) return s;
  s = s.substr(at + 4);
  s = s.substr(0, s.find_first_of(";]"));
  size_t colon = s.rfind("::");
  return colon == std::string::npos ? s : s.substr(colon + 2);
}

std::vector<std::string> split_names(const char* text) {
  std::vector<std::string> names(1);
  for (const char* c = text; *c; ++c) {
    if (*c == ',')
      names.emplace_back();
    else if (!std::isspace(static_cast<unsigned char>(*c)))
      names.back() += *c;
  }
  for (std::string& n : names)  // a member `weight_` is "weight" in files
    if (n.size() > 1 && n.back() == '_') n.pop_back();
  return names;
}

void clone_cells(Module& root) {
  std::map<const Cell*, Ref<Cell>> copies;
  auto copy = [&](const Ref<Cell>& cell) {
    Ref<Cell>& c = copies[cell.get()];
    if (!c) {
      NoGradGuard no_grad;
      c = make_ref<Cell>(tandem::clone(cell->read()), cell->requires_grad());
      c->name = cell->name;
    }
    return c;
  };
  root.unshare_state();
  See see;
  see.on_param = [&](const std::string&, Param& p) { p = Param(copy(p.cell())); };
  see.on_buffer = [&](const std::string&, Buffer& b) { b = Buffer(copy(b.cell())); };
  see.on_module = [&](const std::string&, Module& m) {
    if (&m != &root) m.unshare_state();
  };
  walk(root, see);
}

}  // namespace detail

Module::Module() : state_(make_ref<detail::ModuleState>()) { detail::enter_module(this); }
Module::Module(const Module& o) : state_(o.state_) { detail::enter_module(this); }
Module::Module(Module&& o) noexcept : state_(o.state_) { detail::enter_module(this); }
Module& Module::operator=(const Module& o) {
  state_ = o.state_;
  return *this;
}
Module& Module::operator=(Module&& o) noexcept {
  state_ = o.state_;
  return *this;
}
Module::~Module() { detail::leave_module(this); }

void Module::add_member(const std::string& name, void* member, detail::VisitFn visit) {
  for (const auto& m : state_->members)
    TD_CHECK(m.name != name, Value, "TD_REGISTER names '{}' twice in {}", name, state_->type);
  state_->members.push_back(
      {name, static_cast<char*>(member) - reinterpret_cast<char*>(this), visit});
}

void Module::check_registered(const void* self, size_t bytes) {
  detail::check_constructed(*this, self, bytes);
}

void Module::visit_members(MemberVisitor& v) {
  for (const auto& m : state_->members)
    m.visit(reinterpret_cast<char*>(this) + m.offset, m.name, v);
}

uint32_t Module::scope_id() const {
  // Before its root is walked, a layer is known by its type.
  if (!state_->path && !state_->type.empty()) return intern_scope(state_->type);
  return state_->path;
}

void Module::unshare_state() {
  TD_CHECK(!state_->around && !state_->entering, Unsupported,
           "a {} that is spread over ranks cannot be cloned\nClone the net before "
           "parallelize_module().",
           state_->type);
  Ref<detail::ModuleState> own = make_ref<detail::ModuleState>();
  own->members = state_->members;
  own->type = state_->type;
  own->bytes = state_->bytes;
  own->self = state_->self;
  own->end = own->begin.count;  // a copy has no constructor's time
  own->training = state_->training;
  own->path = state_->path;
  own->forward = state_->forward;
  own->kind = state_->kind;
  own->hooks = state_->hooks;
  own->pre_hooks = state_->pre_hooks;
  own->backward_hooks = state_->backward_hooks;
  own->next_hook = state_->next_hook;
  state_ = std::move(own);
}

std::vector<std::pair<std::string, Param>> Module::named_parameters() const {
  detail::check_used(const_cast<Module&>(*this));
  std::vector<std::pair<std::string, Param>> out;
  std::unordered_set<const Cell*> seen;
  See see;
  see.on_param = [&](const std::string& n, Param& p) {
    if (seen.insert(p.cell().get()).second) out.emplace_back(n, p);
  };
  walk(*this, see);
  return out;
}

std::vector<Param> Module::parameters() const {
  std::vector<Param> out;
  for (auto& [name, p] : named_parameters()) out.push_back(p);
  return out;
}

std::vector<std::pair<std::string, Buffer>> Module::named_buffers() const {
  std::vector<std::pair<std::string, Buffer>> out;
  See see;
  see.on_buffer = [&](const std::string& n, Buffer& b) { out.emplace_back(n, b); };
  walk(*this, see);
  return out;
}

std::vector<Buffer> Module::buffers() const {
  std::vector<Buffer> out;
  for (auto& [name, b] : named_buffers()) out.push_back(b);
  return out;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> out;
  See see;
  see.on_module = [&](const std::string& n, Module& m) { out.emplace_back(n, &m); };
  walk(*this, see);
  return out;
}

StateDict Module::state_dict() const {
  detail::check_used(const_cast<Module&>(*this));
  StateDict d;
  See see;
  see.on_param = [&](const std::string& n, Param& p) { d[n] = p.value().detach(); };
  see.on_buffer = [&](const std::string& n, Buffer& b) { d[n] = b.value().detach(); };
  walk(*this, see);
  return d;
}

namespace {

const char* load_hint(const Mismatch& m) {
  if (!m.differing.empty())
    return "Make the model with the options it was saved with; tandem/weights loads what fits.";
  for (size_t i = 0; i < m.missing.size() && i < 8; ++i)  // those that the text shows
    if (!m.likely(m.missing[i]).empty())
      return "Rename the entries, or pass strict = false to load what fits; tandem/weights drops "
             "prefixes such as 'module.' by itself.";
  return "Pass strict = false to load what fits.";
}

}  // namespace

LoadReport Module::load_state_dict(const StateDict& values, bool strict) {
  detail::check_used(*this);
  Mismatch found;
  std::vector<std::pair<Ref<Cell>, Tensor>> plan;
  std::unordered_set<std::string> known;
  auto take = [&](const std::string& n, const Ref<Cell>& cell) {
    known.insert(n);
    const Tensor* v = values.find(n);
    if (!v) {
      found.missing.push_back(n);
      return;
    }
    const Spec have = cell->spec();  // its value may be elsewhere
    if (!(v->shape() == have.shape))
      found.differing.push_back(fmt::format("{} is {} in the model, {} in the file", n,
                                            have.shape.to_string(), v->shape().to_string()));
    else
      plan.emplace_back(cell, v->dtype() == have.dtype ? *v : v->to(have.dtype));
  };
  See see;
  see.on_param = [&](const std::string& n, Param& p) { take(n, p.cell()); };
  see.on_buffer = [&](const std::string& n, Buffer& b) { take(n, b.cell()); };
  walk(*this, see);
  for (const auto& [name, t] : values)
    if (!known.count(name)) found.unexpected.push_back(name);
  LoadReport report{found.missing, found.unexpected};
  if (!strict) found.missing = found.unexpected = {};
  if (!found.empty())
    throw Error(found.differing.empty() ? ErrorKind::Value : ErrorKind::Shape,
                fmt::format("load_state_dict: the state does not fit {}: {}\n{}",
                            type().empty() ? "the model" : type(), found.text(), load_hint(found)));
  for (auto& [cell, v] : plan) cell->assign(v, SourceLocation{});
  return report;
}

Module& Module::train(bool on) {
  for (auto& [name, m] : named_modules()) m->state().training = on;
  return *this;
}

bool Module::is_training() const {
  if (Trace* t = cell_trace()) t->guard(*state_, state_->training);
  return state_->training;
}

namespace {

// change(cell, its value) for every parameter and buffer.
template <class Change>
void change_cells(Module& m, Change change) {
  const auto one = [&](const Ref<Cell>& cell) {
    NoGradGuard no_grad;
    change(*cell, cell->read().detach());
  };
  See see;
  see.on_param = [&](const std::string&, Param& p) { one(p.cell()); };
  see.on_buffer = [&](const std::string&, Buffer& b) { one(b.cell()); };
  walk(m, see);
}

}  // namespace

Module& Module::to(DType dtype) {
  change_cells(*this, [&](Cell& cell, const Tensor& v) {
    if (!is_floating(v.dtype()) || v.dtype() == dtype) return;
    cell.zero_grad();
    cell.replace(v.to(dtype));
  });
  return *this;
}

Module& Module::to(Device device) {
  change_cells(*this, [&](Cell& cell, const Tensor& v) {
    if (v.device() == device) return;
    cell.zero_grad();
    cell.replace(v.to(device));
  });
  return *this;
}

Module& Module::requires_grad_(bool on) {
  for (Param& p : parameters()) p.requires_grad_(on);
  return *this;
}

void Module::zero_grad() {
  for (Param& p : parameters()) p.zero_grad();
}

Tensor Module::operator()(Tensor x, SourceLocation loc) {
  TD_CHECK(state_->forward, Unsupported, "{} has no `Tensor forward(Tensor)`\nCall its forward.",
           state_->type.empty() ? "a module without TD_REGISTER" : state_->type);
  // Inference programs over modules in eval mode cache values derived from their weights.
  if (TD_UNLIKELY(is_tracing() && !is_grad_enabled())) is_training();
  // Positions, masks, zeros that forward makes from nothing belong where its input is.
  const bool away = x.defined() && !is_host(x.device());
  const DeviceGuard there(away ? x.device() : context().device);
  return scoped(loc, [&] {
    if (TD_LIKELY(!state_->has_hooks())) return state_->forward(this, std::move(x));
    return call_with_hooks(*this, std::move(x));
  });
}

int Module::register_forward_hook(detail::ModuleState::ForwardHook hook) {
  check_hookable();
  state_->hooks.emplace_back(state_->next_hook, std::move(hook));
  return state_->next_hook++;
}

int Module::register_forward_pre_hook(detail::ModuleState::ForwardPreHook hook) {
  check_hookable();
  state_->pre_hooks.emplace_back(state_->next_hook, std::move(hook));
  return state_->next_hook++;
}

int Module::register_full_backward_hook(detail::ModuleState::BackwardHook hook) {
  check_hookable();
  state_->backward_hooks.emplace_back(state_->next_hook, std::move(hook));
  return state_->next_hook++;
}

void Module::check_hookable() const {
  TD_CHECK(
      state_->forward, Unsupported,
      "{} has no `Tensor forward(Tensor)`, so no hook would be called\nHook a layer inside it.",
      state_->type.empty() ? "a module without TD_REGISTER" : state_->type);
}

void Module::remove_hook(int hook) {
  const auto is_it = [&](const auto& h) { return h.first == hook; };
  std::erase_if(state_->hooks, is_it);
  std::erase_if(state_->pre_hooks, is_it);
  std::erase_if(state_->backward_hooks, is_it);
}

const std::string& Module::path() const { return scope_path(state_->path); }

// By shapes alone: values may be on other ranks, or not made yet.
static int64_t numel_of(const Param& p) { return p.cell()->spec().shape.numel().value(); }

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const Param& p : parameters()) n += numel_of(p);
  return n;
}

std::string Module::summary() const {
  struct Row {
    std::string path, type;
    int64_t params;
  };
  std::vector<Row> rows;
  size_t wide = 5, wide_type = 4;
  for (auto& [name, m] : const_cast<Module*>(this)->named_modules()) {
    struct Own : MemberVisitor {
      int64_t n = 0;
      void param(const std::string&, Param& p) override {
        if (p.defined()) n += numel_of(p);
      }
      void buffer(const std::string&, Buffer&) override {}
      void child(const std::string&, Module&) override {}
    } own;
    m->visit_members(own);
    rows.push_back(
        {name.empty() ? "(all)" : name, m->state().type, name.empty() ? num_parameters() : own.n});
    wide = std::max(wide, rows.back().path.size());
    wide_type = std::max(wide_type, rows.back().type.size());
  }
  std::string s =
      fmt::format("{:<{}}  {:<{}}  {:>12}\n", "layer", wide, "type", wide_type, "parameters");
  for (size_t i = 1; i < rows.size(); ++i)
    s += fmt::format("{:<{}}  {:<{}}  {:>12}\n", rows[i].path, wide, rows[i].type, wide_type,
                     rows[i].params);
  s +=
      fmt::format("{:<{}}  {:<{}}  {:>12}", "total", wide, rows[0].type, wide_type, rows[0].params);
  return s;
}

std::string to_string(const Module& m) { return m.summary(); }

}  // namespace tandem::nn
