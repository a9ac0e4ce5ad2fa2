// SPDX-License-Identifier: Apache-2.0
// The wrappers of a layer are kept by one of its hooks, which does nothing else; the layer's
// forward is replaced by a function that looks for them there.
#include "tandem/nn/wrapper.h"

#include <algorithm>
#include <span>

namespace tandem::nn {
namespace {

struct Wrapped {
  Tensor (*inner)(Module*, Tensor);
  std::vector<std::shared_ptr<Wrapper>> list;
  const detail::ModuleState* owner;
  Tensor operator()(Module&, const Tensor&) const { return {}; }
};

constexpr const char* kWrapped = "(wrappers)";  ///< no member of a class has this name

// A clone has its own state: the first look at it makes copies of the wrappers.
Wrapped* wrapped(Module& m) {
  detail::ModuleState& s = m.state();
  for (auto& [id, hook] : s.pre_hooks) {
    auto* w = hook.target<Wrapped>();
    if (!w) continue;
    if (w->owner != &s) {
      for (std::shared_ptr<Wrapper>& each : w->list) each = each->copy();
      w->owner = &s;
    }
    return w;
  }
  return nullptr;
}

Tensor call_at(Module& m, std::span<const std::shared_ptr<Wrapper>> all, Tensor x,
               const Wrapper::Next& inner) {
  if (all.empty()) return inner(std::move(x));
  return all.back()->forward(m, std::move(x), [&](Tensor y) {
    return call_at(m, all.first(all.size() - 1), std::move(y), inner);
  });
}

Tensor call_wrapped(Module* m, Tensor x) {
  const Wrapped all = *wrapped(*m);
  return call_at(*m, all.list, std::move(x), [&](Tensor y) { return all.inner(m, std::move(y)); });
}

void visit_wrapped(void* self, const std::string&, MemberVisitor& v) {
  if (const Wrapped* all = wrapped(*static_cast<Module*>(self)))
    for (const std::shared_ptr<Wrapper>& w : std::vector(all->list)) w->visit(v);
}

}  // namespace

void wrap(Module& layer, std::shared_ptr<Wrapper> w) {
  if (Wrapped* all = wrapped(layer)) return all->list.push_back(std::move(w));
  detail::ModuleState& s = layer.state();
  layer.register_forward_pre_hook(Wrapped{s.forward, {std::move(w)}, &s});
  s.forward = call_wrapped;
  s.members.push_back({kWrapped, 0, visit_wrapped});
}

Tensor call_in_wrappers(Module& layer, Tensor x, const Wrapper::Next& inner) {
  return call_at(layer, wrappers(layer), std::move(x), inner);
}

void unwrap(Module& layer, const Wrapper& w) {
  Wrapped* all = wrapped(layer);
  if (!all) return;
  std::erase_if(all->list, [&](const auto& each) { return each.get() == &w; });
  if (!all->list.empty()) return;
  detail::ModuleState& s = layer.state();
  s.forward = all->inner;
  std::erase_if(s.members, [](const auto& member) { return member.visit == visit_wrapped; });
  std::erase_if(s.pre_hooks,
                [](auto& h) { return h.second.template target<Wrapped>() != nullptr; });
}

std::vector<std::shared_ptr<Wrapper>> wrappers(Module& layer) {
  const Wrapped* all = wrapped(layer);
  return all ? all->list : std::vector<std::shared_ptr<Wrapper>>();
}

}  // namespace tandem::nn
