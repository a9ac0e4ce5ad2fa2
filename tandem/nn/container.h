// SPDX-License-Identifier: Apache-2.0
// Containers of modules of any type, and lists of parameters. AnyModule holds one module by value:
// like the module itself, a copy shares its parameters, and clone() copies them.
#pragma once

#include <memory>

#include "tandem/nn/module.h"

namespace tandem::nn {

/// A module whose type is not known here, with all that a Module has: it goes wherever a `Module&`
/// does (Trainer, load_into, clone, export_onnx), and copies share the parameters.
class TD_API AnyModule {
 public:
  template <class M>
    requires std::is_base_of_v<Module, M> AnyModule(M module)
        : box_(std::make_unique<Of<M>>(std::move(module))) {}
    AnyModule(const AnyModule& o) : box_(o.box_->copy()) {}
    AnyModule(AnyModule&&) noexcept = default;
    AnyModule& operator=(const AnyModule& o) {
      box_ = o.box_->copy();
      return *this;
    }
    AnyModule& operator=(AnyModule&&) noexcept = default;

    Module& module() const { return box_->module(); }
    operator Module&() const { return module(); }
    /// The module as its own type; throws Value if it is not an M.
    template <class M>
    M& as() const {
      auto* of = dynamic_cast<Of<M>*>(box_.get());
      TD_CHECK(of, Value, "the module is a {}, not a {}", module().type(), detail::type_name<M>());
      return of->held;
    }
    Tensor operator()(Tensor x, SourceLocation loc = SourceLocation::here()) const {
      return module()(std::move(x), loc);
    }

    // ---- the methods of the module inside; their texts are in module.h
    std::vector<Param> parameters() const { return module().parameters(); }
    auto named_parameters() const { return module().named_parameters(); }
    std::vector<Buffer> buffers() const { return module().buffers(); }
    auto named_buffers() const { return module().named_buffers(); }
    auto named_modules() const { return module().named_modules(); }
    StateDict state_dict() const { return module().state_dict(); }
    LoadReport load_state_dict(const StateDict& values, bool strict = true) const {
      return module().load_state_dict(values, strict);
    }
    AnyModule& train(bool on = true) { return module().train(on), *this; }
    AnyModule& eval() { return train(false); }
    bool is_training() const { return module().is_training(); }
    AnyModule& to(DType dtype) { return module().to(dtype), *this; }
    AnyModule& to(Device device) { return module().to(device), *this; }
    AnyModule& requires_grad_(bool on = true) { return module().requires_grad_(on), *this; }
    void zero_grad() const { module().zero_grad(); }
    int register_forward_hook(detail::ModuleState::ForwardHook hook) const {
      return module().register_forward_hook(std::move(hook));
    }
    int register_forward_pre_hook(detail::ModuleState::ForwardPreHook hook) const {
      return module().register_forward_pre_hook(std::move(hook));
    }
    int register_full_backward_hook(detail::ModuleState::BackwardHook hook) const {
      return module().register_full_backward_hook(std::move(hook));
    }
    void remove_hook(int hook) const { module().remove_hook(hook); }
    std::string summary() const { return module().summary(); }
    const std::string& path() const { return module().path(); }
    const std::string& type() const { return module().type(); }
    int64_t num_parameters() const { return module().num_parameters(); }

   private:
    struct Box {
      virtual ~Box() = default;
      virtual std::unique_ptr<Box> copy() const = 0;
      virtual Module& module() = 0;
    };
    template <class M>
    struct Of : Box {
      M held;
      explicit Of(M m) : held(std::move(m)) {}
      std::unique_ptr<Box> copy() const override { return std::make_unique<Of>(held); }
      Module& module() override { return held; }
    };
    std::unique_ptr<Box> box_;
};

namespace detail {
/// Modules by name, in order; base of the containers.
class TD_API ModuleContainer : public Module {
 public:
  size_t size() const { return items.size(); }
  bool empty() const { return items.empty(); }
  std::vector<std::pair<std::string, AnyModule>> items;

 protected:
  ModuleContainer() = default;
  /// Register the items under their own names; call it after the derived class's register_members.
  void register_items();
};
}  // namespace detail

/// n layers (or other values) with parameters of their own, each a call of `make`, which may take
/// the index: `nn::repeat(3, [] { return nn::Linear(4, 4); })`. A vector made of n copies of one
/// layer shares its parameters.
template <class Make>
auto repeat(int64_t n, Make make) {
  const auto one = [&make](int64_t i) {
    if constexpr (std::is_invocable_v<Make&, int64_t>)
      return make(i);
    else
      return (void)i, make();
  };
  TD_CHECK(n >= 0, Value, "nn::repeat expects a number of layers >= 0, got {}", n);
  std::vector<decltype(one(int64_t{}))> all;
  all.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) all.push_back(one(i));
  return all;
}

/// Modules in sequence: `nn::Sequential(nn::Linear(4, 8), nn::ReLU(), nn::Linear(8, 2))`.
/// Each must take and return one tensor; throws Value otherwise. state_dict keys are "0",
/// "1", ...
class TD_API Sequential : public detail::ModuleContainer {
 public:
  Sequential();
  template <class... M>
    requires(sizeof...(M) > 0 && (IsModule<std::remove_cvref_t<M>> && ...) &&
             !(sizeof...(M) == 1 && (std::is_same_v<std::remove_cvref_t<M>, Sequential> && ...)))
  explicit Sequential(M&&... modules) : Sequential() {
    (append(AnyModule(std::forward<M>(modules))), ...);
  }
  /// Modules with names: `{{"conv", nn::Conv2d(...)}, {"relu", nn::ReLU()}}`.
  static Sequential named(std::vector<std::pair<std::string, AnyModule>> modules);
  Sequential& append(AnyModule module);
  Tensor forward(Tensor x);
  AnyModule& operator[](int64_t i);
};

/// Modules by index, called by the owner.
class TD_API ModuleList : public detail::ModuleContainer {
 public:
  ModuleList();
  explicit ModuleList(std::vector<AnyModule> modules);
  ModuleList& append(AnyModule module);
  AnyModule& operator[](int64_t i);
};

/// Modules by name, in order of insertion.
class TD_API ModuleDict : public detail::ModuleContainer {
 public:
  ModuleDict();
  explicit ModuleDict(std::vector<std::pair<std::string, AnyModule>> modules);
  /// Throws Value when the name is taken or cannot be part of a path.
  ModuleDict& insert(const std::string& name, AnyModule module);
  bool contains(const std::string& name) const;
  /// Throws Value when there is no such module.
  AnyModule& operator[](const std::string& name);
};

/// Parameters by index.
class TD_API ParameterList : public Module {
 public:
  explicit ParameterList(std::vector<Param> params = {});
  ParameterList& append(Param p);
  size_t size() const { return params.size(); }
  Param& operator[](int64_t i);
  std::vector<Param> params;
};

/// Parameters by name.
class TD_API ParameterDict : public Module {
 public:
  explicit ParameterDict(std::vector<std::pair<std::string, Param>> params = {});
  ParameterDict& insert(const std::string& name, Param p);
  size_t size() const { return params.size(); }
  Param& operator[](const std::string& name);
  std::vector<std::pair<std::string, Param>> params;
};

}  // namespace tandem::nn
