// SPDX-License-Identifier: Apache-2.0
// The modules of a context and their kernels, which every driver keeps alike: Handle is what it
// launches, Owner what it unloads.
#pragma once

#include <fmt/format.h>

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "tandem/backend/gpu/driver.h"

namespace tandem::gpu {

template <class Handle, class Owner>
class Modules {
 public:
  struct Kernel {
    KernelSource source;
    Handle handle{};
  };
  struct Module {
    Owner owner{};
    std::map<std::string, std::shared_ptr<const Kernel>> kernels;  // by name
  };

  ModuleRef add(std::unique_ptr<Module> module) {
    const auto ref = reinterpret_cast<ModuleRef>(module.get());
    for (const auto& [name, kernel] : module->kernels) loaded_[kernel.get()] = kernel;
    modules_[ref] = std::move(module);
    return ref;
  }
  /// Taken out; bad_argument where there is none.
  Status remove(ModuleRef ref, std::unique_ptr<Module>& module) {
    const auto it = modules_.find(ref);
    if (it == modules_.end()) return {Code::bad_argument, "unload: no such module"};
    module = std::move(it->second);
    modules_.erase(it);
    for (const auto& [name, kernel] : module->kernels) loaded_.erase(kernel.get());
    return {};
  }
  Status find(ModuleRef ref, const std::string& name, KernelRef& kernel) const {
    const auto it = modules_.find(ref);
    if (it == modules_.end()) return {Code::bad_argument, "find: no such module"};
    const auto k = it->second->kernels.find(name);
    if (k == it->second->kernels.end()) {
      return {Code::bad_argument, fmt::format("find: the module has no kernel {}", name)};
    }
    kernel = reinterpret_cast<KernelRef>(const_cast<Kernel*>(k->second.get()));
    return {};
  }
  /// What find() gave, of a module that is still there.
  static const Kernel* of(KernelRef ref) { return reinterpret_cast<const Kernel*>(ref); }
  /// The same, for as long as somebody keeps it; nullptr where its module is gone.
  std::shared_ptr<const Kernel> keep(KernelRef ref) const {
    const auto it = loaded_.find(of(ref));
    return it == loaded_.end() ? nullptr : it->second;
  }

  size_t size() const { return modules_.size(); }
  auto begin() { return modules_.begin(); }
  auto end() { return modules_.end(); }

 private:
  std::map<ModuleRef, std::unique_ptr<Module>> modules_;
  std::unordered_map<const Kernel*, std::shared_ptr<const Kernel>> loaded_;
};

}  // namespace tandem::gpu
