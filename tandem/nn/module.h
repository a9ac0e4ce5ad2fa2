// SPDX-License-Identifier: Apache-2.0
// Module: the base of layers and models. A module is a value-like handle: copying one shares its
// parameters, clone() copies them. TD_REGISTER names the members; it stores their offsets within
// the object, so copies, moves and reassigned layers keep working.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tandem/graph/cell.h"
#include "tandem/graph/context.h"
#include "tandem/tensor/state_dict.h"

namespace tandem::nn {

class Module;

/// Visits the members of a module in the order of registration. `name` of a list element is its
/// index.
class TD_API MemberVisitor {
 public:
  virtual ~MemberVisitor() = default;
  virtual void param(const std::string& name, Param& p) = 0;
  virtual void buffer(const std::string& name, Buffer& b) = 0;
  virtual void child(const std::string& name, Module& m) = 0;
  /// A layer that the module holds and whose members it names as its own, and a Param of it that
  /// other values replace.
  virtual void hidden(Module&) {}
  virtual void hidden(Param&) {}
};

/// What load_state_dict found. Both lists are empty when everything matched.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the model, but not in the file
  std::vector<std::string> unexpected;  ///< in the file, but not in the model
  bool ok() const { return missing.empty() && unexpected.empty(); }
};

namespace detail {

using VisitFn = void (*)(void* member, const std::string& name, MemberVisitor& v);

/// State shared by copies of a module: members, mode, name, hooks.
struct TD_API ModuleState : RefCounted {
  struct Member {
    std::string name;
    ptrdiff_t offset;
    VisitFn visit;
  };
  using ForwardHook = std::function<Tensor(Module&, const Tensor& in, const Tensor& out)>;
  using ForwardPreHook = std::function<Tensor(Module&, const Tensor& in)>;
  using BackwardHook = std::function<Tensor(const std::string& path, const Tensor& grad_input,
                                            const Tensor& grad_output)>;
  std::vector<Member> members;
  std::string type;  ///< "Conv2d"; from TD_REGISTER
  // For finding members that were not registered (registration_internal.h): the object's size and
  // its distance from its Module, the time of its constructor, where it lay and which of its words
  // might have been addresses when TD_REGISTER ran, whether it was checked after that.
  size_t bytes = 0;
  ptrdiff_t self = 0;
  tandem::detail::Moment begin = tandem::detail::next_moment();
  uint64_t end = 0;
  uintptr_t place = 0;
  std::vector<std::pair<size_t, uintptr_t>> words;
  bool checked = false;
  bool training = true;
  uint32_t path = 0;  ///< interned; set when a root is walked
  Tensor (*forward)(Module*, Tensor) = nullptr;
  const void* kind = nullptr;  ///< lets the library recognise its own layers (batch norms)
  std::vector<std::pair<int, ForwardHook>> hooks;
  std::vector<std::pair<int, ForwardPreHook>> pre_hooks;
  std::vector<std::pair<int, BackwardHook>> backward_hooks;
  int next_hook = 0;
  /// For layers that several processes share (dist/tensor_parallel.h): called in place of forward,
  /// which it calls; and what each tensor goes through that enters a layer of several inputs.
  using Forward = Tensor (*)(Module*, Tensor);
  std::function<Tensor(Module&, Tensor in, Forward)> around;
  std::function<Tensor(const Tensor& in)> entering;
  bool has_hooks() const {
    return around || !hooks.empty() || !pre_hooks.empty() || !backward_hooks.empty();
  }
};

template <class T>
void visit_member(T& m, const std::string& name, MemberVisitor& v) {
  if constexpr (std::is_same_v<T, Param>)
    v.param(name, m);
  else if constexpr (std::is_same_v<T, Buffer>)
    v.buffer(name, m);
  else if constexpr (requires { m.module(); })  // AnyModule
    v.child(name, m.module());
  else
    v.child(name, m);
}
template <class T>
void visit_member(std::optional<T>& m, const std::string& name, MemberVisitor& v) {
  if (m) visit_member(*m, name, v);
}
template <class T>
void visit_member(std::vector<T>& m, const std::string& name, MemberVisitor& v) {
  for (size_t i = 0; i < m.size(); ++i) visit_member(m[i], name + "." + std::to_string(i), v);
}
template <class T, size_t N>
void visit_member(std::array<T, N>& m, const std::string& name, MemberVisitor& v) {
  for (size_t i = 0; i < N; ++i) visit_member(m[i], name + "." + std::to_string(i), v);
}

template <class M>
concept HasForward = requires(M& m, Tensor x) {
  { m.forward(x) } -> std::convertible_to<Tensor>;
};

/// Inside a catch in a layer's scope: rethrows the error, adding layer and line if it has none (a
/// layer's own check).
[[noreturn]] TD_API TD_COLD void rethrow_placed(const Error& e, SourceLocation loc);
/// "Net" from __PRETTY_FUNCTION__ of a function template.
TD_API std::string type_name(const char* pretty);
template <class T>
std::string type_name() {
  return type_name(__PRETTY_FUNCTION__);
}
/// The names in TD_REGISTER's text "a, b, c".
TD_API std::vector<std::string> split_names(const char* text);

}  // namespace detail

class TD_API Module {
 public:
  // ---- values
  // Every parameter once (tied ones too), in order of registration, with full paths as names.
  // Throws Value when a module below holds a layer or Param that it does not register.
  std::vector<Param> parameters() const;
  std::vector<std::pair<std::string, Param>> named_parameters() const;
  std::vector<Buffer> buffers() const;
  std::vector<std::pair<std::string, Buffer>> named_buffers() const;
  /// Every module with its path, this one first under "".
  std::vector<std::pair<std::string, Module*>> named_modules();
  /// All parameters and buffers by full path; tied ones under every name. The values are a
  /// snapshot.
  StateDict state_dict() const;
  /// Copy values in (cast to each cell's dtype). With `strict`, missing or unexpected names throw
  /// Value with the full report; a wrong shape always throws Shape. Nothing is changed on a throw.
  LoadReport load_state_dict(const StateDict& values, bool strict = true);

  // ---- modes
  // Training mode on or off, here and in all submodules. Returns *this.
  Module& train(bool on = true);
  Module& eval() { return train(false); }
  bool is_training() const;
  /// Cast floating parameters and buffers.
  Module& to(DType dtype);
  /// Move parameters and buffers to a device. Gradients are dropped; make the optimizer afterwards.
  Module& to(Device device);
  Module& requires_grad_(bool on = true);
  void zero_grad();

  // ---- calling
  /// forward(x) inside this layer's scope (errors and profiles name it), with its hooks. What it
  /// makes from nothing (positions, masks) lies on x's device, unless x is on the CPU.
  Tensor operator()(Tensor x, SourceLocation loc = SourceLocation::here());
  /// Called with every result of operator(); its return value, if defined, replaces the result.
  /// Returns an id for remove_hook. Throws Unsupported for a layer whose forward does not take one
  /// tensor (LSTM, attention).
  int register_forward_hook(detail::ModuleState::ForwardHook hook);
  /// The same before the call, with the input.
  int register_forward_pre_hook(detail::ModuleState::ForwardPreHook hook);
  /// Called in the backward pass with this layer's path and the gradients by its input (undefined
  /// if it needs none) and its output; its return value, if defined, replaces the former.
  int register_full_backward_hook(detail::ModuleState::BackwardHook hook);
  void remove_hook(int hook);

  // ---- inspection
  // A table of layers: path, type, parameters.
  std::string summary() const;
  const std::string& path() const;
  const std::string& type() const { return state_->type; }
  int64_t num_parameters() const;

  /// For TD_REGISTER: registers the members. Throws Value when a layer, a Param or a vector of
  /// layers inside is not named.
  template <class Self, class... M>
  void register_members(Self* self, const char* names, M&... members) {
    std::vector<std::string> list = detail::split_names(names);
    state_->type = detail::type_name<Self>();
    if constexpr (detail::HasForward<Self>)
      state_->forward = [](Module* m, Tensor x) -> Tensor {
        return static_cast<Self*>(m)->forward(std::move(x));
      };
    size_t i = 0;
    (add_member(list[i++], &members,
                [](void* p, const std::string& name, MemberVisitor& v) {
                  detail::visit_member(*static_cast<M*>(p), name, v);
                }),
     ...);
    check_registered(self, sizeof(Self));
  }
  void visit_members(MemberVisitor& v);
  detail::ModuleState& state() const { return *state_; }
  /// Give this object its own mode, name and hooks (members stay shared); for clone().
  void unshare_state();

 protected:
  Module();
  Module(const Module& o);
  Module(Module&& o) noexcept;
  Module& operator=(const Module& o);
  Module& operator=(Module&& o) noexcept;
  ~Module();
  /// Run f inside this layer's scope.
  template <class F>
  auto scoped(SourceLocation loc, F&& f) {
    ScopeGuard scope(scope_id(), loc);
    try {
      return f();
    } catch (const Error& e) {
      detail::rethrow_placed(e, loc);
    }
  }

 private:
  void add_member(const std::string& name, void* member, detail::VisitFn visit);
  void check_registered(const void* self, size_t bytes);
  uint32_t scope_id() const;
  void check_hookable() const;

  Ref<detail::ModuleState> state_;
};

/// Register the members of a module (layers, Param, Buffer, modules, std::optional, vector or array
/// of these) in its constructor: `Net() { TD_REGISTER(conv1, fc); }`. Their names are the keys of
/// the state_dict. A member that is left out throws Value, here or when the parameters are asked
/// for; one that is only held through a pointer or map, with parameters made in the constructor,
/// is warned of.
#define TD_REGISTER(...) this->register_members(this, #__VA_ARGS__, __VA_ARGS__)

/// A type that goes where a `Module&` does: a module, or AnyModule (container.h).
template <class M>
concept IsModule = std::is_convertible_v<M&, Module&>;

namespace detail {
/// Replace every cell in `m` (a copy) by its own copy; tied ones stay tied.
TD_API void clone_cells(Module& m);
}  // namespace detail

/// A deep copy: its own parameters, buffers, mode and hooks. `Net b = a` shares instead.
template <IsModule M>
M clone(const M& m) {
  M copy = m;
  detail::clone_cells(copy);
  return copy;
}

/// One line per layer, as summary().
TD_API std::string to_string(const Module& m);

}  // namespace tandem::nn

namespace tandem {
using nn::clone;
}
