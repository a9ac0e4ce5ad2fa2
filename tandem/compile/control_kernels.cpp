// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/control_kernels.h"

#include "tandem/compile/executable.h"
#include "tandem/compile/passes.h"
#include "tandem/grad/control_flow.h"

namespace tandem {
namespace {

struct Bodies : Plan {
  Ref<Executable> body, other;
};

Ref<Executable> compiled(const Ref<RefCounted>& graph, const KernelCall& k, bool other) {
  if (!graph) return {};
  const auto& g = *static_cast<const Graph*>(graph.get());
  compiler::Program p = compiler::make_program(g, detail::control_symbols(k, other), false);
  compiler::run_passes(p);
  return make_ref<Executable>(std::move(p));
}

// Only a program that is being lowered has no error word yet: an eager call walks the graph, which
// is often made for that one call.
bool lowering(const KernelCall& k) { return k.error == nullptr; }

std::shared_ptr<const Plan> prepare(const KernelCall& k) {
  const auto& a = k.get_attrs<ControlAttrs>();
  auto plan = std::make_shared<Bodies>();
  plan->body = compiled(a.body, k, false);
  plan->other = compiled(a.other, k, true);
  return plan;
}

void run_bodies(const KernelCall& k) {
  const auto& plan = *static_cast<const Bodies*>(k.plan);
  const auto runner = [](const Ref<Executable>& e) {
    return [e](std::span<const Tensor> x) { return e->run(x, {}); };
  };
  detail::run_control(k, runner(plan.body), runner(plan.other));
}

}  // namespace

void register_control_kernels() {
  for (const OpDef* row : control_flow_rows())
    register_kernel(DeviceKind::cpu, *row, {lowering, nullptr, prepare, run_bodies});
}

}  // namespace tandem
