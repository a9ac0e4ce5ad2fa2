// SPDX-License-Identifier: Apache-2.0
// An object's own bytes show what it holds: a Param is the address of its cell, a layer lies in the
// object, a vector's first word is the address of its first element. What else was made in the
// constructor and still exists is known by the moment when it was made.
#include "tandem/nn/module/registration_internal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "tandem/base/log.h"

namespace tandem::nn::detail {
namespace {

using Cells = std::set<const Cell*>;
using LostCells = std::map<const Cell*, std::string>;  ///< with their specs

struct Loose {
  std::mutex lock;
  std::map<uintptr_t, tandem::detail::Moment> modules;
};
Loose& loose() {
  static Loose* all = new Loose;  // outlives every static module
  return *all;
}

uintptr_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }
Module& module_at(uintptr_t at) { return *reinterpret_cast<Module*>(at); }

// Calls for every member; nested ones too if `deep`.
struct Visit : MemberVisitor {
  bool deep;
  std::function<void(const Param&)> on_param;
  std::function<void(const std::string&, Module&)> on_module;
  explicit Visit(bool deep) : deep(deep) {}
  void param(const std::string&, Param& p) override {
    if (on_param && p.defined()) on_param(p);
  }
  void hidden(Param& p) override { param("", p); }
  void hidden(Module& m) override {
    if (on_module) on_module("", m);
  }
  void buffer(const std::string&, Buffer&) override {}
  void child(const std::string& name, Module& m) override {
    if (on_module) on_module(name, m);
    if (deep) m.visit_members(*this);
  }
};

// The cells of all Params that are registered in `m` or below.
Cells cells_of(Module& m) {
  Cells cells;
  Visit v(true);
  v.on_param = [&](const Param& p) { cells.insert(p.cell().get()); };
  m.visit_members(v);
  return cells;
}

std::string list_of(const LostCells& cells) {
  constexpr size_t kShown = 4;
  std::string s;
  size_t n = 0;
  for (const auto& [cell, spec] : cells)
    if (n++ < kShown) s += (s.empty() ? "" : ", ") + spec;
  return s + (n > kShown ? ", ..." : "");
}

// Modules that nobody has registered, at addresses of [begin, end).
std::vector<uintptr_t> loose_between(uintptr_t begin, uintptr_t end) {
  std::vector<uintptr_t> inside;
  const std::lock_guard hold(loose().lock);
  const auto& all = loose().modules;
  for (auto at = all.lower_bound(begin); at != all.end() && at->first < end; ++at)
    inside.push_back(at->first);
  return inside;
}

const char* shown_type(const ModuleState& s) { return s.type.empty() ? "Module" : s.type.c_str(); }

/// One object whose members are compared with those that it registers.
class Object {
 public:
  /// `known`: the cells that somebody registers.
  Object(Module& m, const Cells& known)
      : module_(m),
        state_(m.state()),
        self_(address(&m) + static_cast<uintptr_t>(state_.self)),
        known_(known) {
    tandem::detail::for_cells_made(state_.begin, state_.end, [&](const Cell& c) {
      if (lost(c)) made_.emplace(&c, c.spec().to_string());
    });
  }

  /// Throws for what the object's bytes show; gives the other lost cells of its constructor.
  LostCells check(bool constructing) {
    check_layers(constructing);
    if (state_.bytes < sizeof(void*)) return made_;
    words_.resize(state_.bytes / sizeof(void*));
    std::memcpy(words_.data(), reinterpret_cast<const void*>(self_), words_.size() * sizeof(void*));
    for (size_t i = 0; i < words_.size(); ++i) {
      if (!constructing) check_param(i);  // until then a local of the constructor may hold it
      check_vector(i);
    }
    return made_;
  }

  /// What the words show that might be addresses of cells; of check()'s bytes.
  std::vector<std::pair<size_t, uintptr_t>> possible_cells() const {
    std::vector<std::pair<size_t, uintptr_t>> all;
    for (size_t i = 0; i < words_.size(); ++i)
      if (words_[i] != 0 && words_[i] % alignof(Cell) == 0) all.emplace_back(i, words_[i]);
    return all;
  }

 private:
  bool lost(const Cell& c) const { return c.requires_grad() && !known_.count(&c); }
  bool trains_something(Module& m) const {
    bool found = false;
    for (const Cell* c : cells_of(m)) found |= lost(*c);
    return found;
  }

  // A layer without parameters has a mode, which its parent sets: `strict` asks for those, too.
  void check_layers(bool strict) const {
    for (uintptr_t at : loose_between(self_, self_ + state_.bytes))
      if (at != address(&module_) && (strict || trains_something(module_at(at))))
        TD_FAIL(Value, "{} holds a layer of type {}{} that TD_REGISTER does not name\n{}",
                state_.type, shown_type(module_at(at).state()), place(at - self_), kRemedy);
  }

  void check_param(size_t i) const {
    const void* p = reinterpret_cast<const void*>(words_[i]);
    if (!tandem::detail::is_cell(p)) return;
    const Cell& c = *static_cast<const Cell*>(p);
    if (!lost(c) || held_elsewhere(c)) return;
    constexpr const char* kText = "{} holds a Param {}{} that TD_REGISTER does not name\n{}";
    const std::string spec = c.spec().to_string(), at = place(i * sizeof(void*));
    if (made_.count(&c)) TD_FAIL(Value, kText, state_.type, spec, at, kRemedy);
    // Bytes that nobody has written may show an old address, where another cell lies by now: of a
    // cell from elsewhere nothing is known, one made after TD_REGISTER, held once and written here
    // since then is probably this member.
    if (!written_since_registered(i)) return;
    bool later = false;
    tandem::detail::for_cells_made({state_.begin.thread, state_.end}, UINT64_MAX,
                                   [&](const Cell& made) { later |= &made == &c; });
    if (later && c.unique()) log_warning(kText, state_.type, spec, at, kRemedy);
  }

  // Of an object that was copied or moved nothing is known.
  bool written_since_registered(size_t i) const {
    const auto& words = state_.words;
    return state_.place == self_ &&
           std::find(words.begin(), words.end(), std::pair(i, words_[i])) == words.end();
  }

  // Is it a Param of a layer that the constructor has made outside of the object?
  bool held_elsewhere(const Cell& c) const {
    const uint32_t here = tandem::detail::next_moment().thread;
    std::vector<uintptr_t> outside;
    {
      const std::lock_guard hold(loose().lock);
      for (const auto& [at, made] : loose().modules)
        if ((at < self_ || at >= self_ + state_.bytes) && made.thread == here && in_scope(made))
          outside.push_back(at);
    }
    for (uintptr_t at : outside)
      if (cells_of(module_at(at)).count(&c)) return true;
    return false;
  }

  bool in_scope(const tandem::detail::Moment& made) const {
    return made > state_.begin && made < tandem::detail::Moment{state_.begin.thread, state_.end};
  }

  // A vector is three addresses: of its first element, of its end, of the end of its storage.
  void check_vector(size_t i) const {
    if (i + 2 >= words_.size()) return;
    const uintptr_t begin = words_[i], end = words_[i + 1];
    if (begin >= end || end > words_[i + 2]) return;
    size_t stride = 0;
    {
      const std::lock_guard hold(loose().lock);
      const auto& all = loose().modules;
      const auto first = all.find(begin);
      if (first == all.end()) return;
      stride = module_at(begin).state().bytes;
      if (stride == 0 || module_at(begin).state().self != 0 || (end - begin) % stride != 0) return;
      for (uintptr_t at = begin; at < end; at += stride)
        if (!all.count(at)) return;
      // Bytes that nobody has written may show three old addresses where layers of another object
      // lie by now.
      if (!in_scope(first->second) && !written_since_registered(i)) return;
    }
    for (uintptr_t at = begin; at < end; at += stride)
      if (trains_something(module_at(at)))
        TD_FAIL(Value, "{} holds a vector of {} {}{} that TD_REGISTER does not name\n{}",
                state_.type, (end - begin) / stride, shown_type(module_at(begin).state()),
                place(i * sizeof(void*)), kRemedy);
  }

  // ", between fc1 and fc2," of the byte at `offset` in the object.
  std::string place(size_t offset) const {
    const auto at = static_cast<ptrdiff_t>(offset) + state_.self;
    const ModuleState::Member *before = nullptr, *after = nullptr;
    for (const ModuleState::Member& m : state_.members) {
      if (m.offset <= at && (!before || m.offset > before->offset)) before = &m;
      if (m.offset > at && (!after || m.offset < after->offset)) after = &m;
    }
    if (before && after) return fmt::format(", between {} and {},", before->name, after->name);
    if (before) return fmt::format(", after {},", before->name);
    if (after) return fmt::format(", before {},", after->name);
    return "";
  }

  static constexpr const char* kRemedy =
      "Add it, or its parameters are neither trained nor saved. What is not to be trained is a "
      "Buffer, or frozen with requires_grad_(false).";

  Module& module_;
  const ModuleState& state_;
  const uintptr_t self_;
  const Cells& known_;
  LostCells made_;  ///< of the constructor
  std::vector<uintptr_t> words_;
};

// Lists whose elements all are copies of one module.
void warn_of_copies(Module& m) {
  struct List {
    const ModuleState* state = nullptr;
    int64_t n = 0, parameters = 0;
    bool copies = true;
  };
  std::map<std::string, List> lists;
  Visit v(false);
  v.on_module = [&](const std::string& name, Module& child) {
    const size_t dot = name.rfind('.'), number = dot == std::string::npos ? 0 : dot + 1;
    if (name.empty() || name.find_first_not_of("0123456789", number) != std::string::npos)
      return;  // no element of a list
    List& list = lists[dot == std::string::npos ? "" : name.substr(0, dot)];
    if (list.n == 0) list.state = &child.state(), list.parameters = child.num_parameters();
    list.copies = list.copies && list.state == &child.state();
    ++list.n;
  };
  m.visit_members(v);
  for (const auto& [name, list] : lists) {
    if (!list.copies || list.n < 2 || list.parameters == 0) continue;
    log_warning(
        "{}{} holds {} copies of one {}: they share its {} parameters, as copies of a module do.\n"
        "For layers with parameters of their own write nn::repeat({}, [] {{ return nn::{}(...); "
        "}}); "
        "one that is to run {} times is one member.",
        m.state().type, name.empty() ? "" : " (" + name + ")", list.n, shown_type(*list.state),
        list.parameters, list.n, shown_type(*list.state), list.n);
  }
}

void check_used(Module& m, Cells& known) {
  warn_of_copies(m);
  const LostCells lost = Object(m, known).check(false);
  if (lost.empty()) return;
  for (const auto& [cell, spec] : lost) known.insert(cell);
  log_warning(
      "{} made {} Param(s) in its constructor that none of its registered members holds ({}): they "
      "are neither trained nor saved.\nHold layers in members, std::vector, std::array, "
      "std::optional or nn::ModuleDict and name them in TD_REGISTER; freeze what is not to be "
      "trained with requires_grad_(false).",
      m.state().type, lost.size(), list_of(lost));
}

}  // namespace

void enter_module(Module* m) {
  const std::lock_guard hold(loose().lock);
  loose().modules[address(m)] = tandem::detail::next_moment();
}
void leave_module(Module* m) noexcept {
  const std::lock_guard hold(loose().lock);
  loose().modules.erase(address(m));
}

void check_constructed(Module& m, const void* self, size_t bytes) {
  ModuleState& s = m.state();
  s.bytes = bytes;
  s.self = static_cast<ptrdiff_t>(address(self) - address(&m));
  s.end = tandem::detail::next_moment().count;
  Visit v(true);
  v.on_module = [](const std::string&, Module& child) { leave_module(&child); };
  m.visit_members(v);
  const Cells known = cells_of(m);
  Object object(m, known);
  object.check(true);
  s.place = address(self);
  s.words = object.possible_cells();
}

void check_used(Module& root) {
  std::vector<Module*> fresh;
  const auto see = [&](Module& m) {
    if (m.state().checked || m.state().end == 0) return;
    m.state().checked = true;
    fresh.push_back(&m);
  };
  see(root);
  Visit v(true);
  v.on_module = [&](const std::string&, Module& m) { see(m); };
  root.visit_members(v);
  if (fresh.empty()) return;
  Cells known = cells_of(root);
  try {
    for (size_t i = fresh.size(); i-- > 0;) check_used(*fresh[i], known);  // inner ones first
  } catch (...) {
    for (Module* m : fresh) m->state().checked = false;
    throw;
  }
  for (Module* m : fresh) m->state().words = {};
}

}  // namespace tandem::nn::detail
