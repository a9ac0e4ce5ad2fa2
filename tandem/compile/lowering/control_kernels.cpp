// SPDX-License-Identifier: Apache-2.0
#include "tandem/compile/lowering/control_kernels.h"

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/run/executable.h"
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
  p.device = k.device;  // the body runs where its kernel does, and its results stay there
  p.output_devices.clear();
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
    register_kernel(cpu.kind, *row, {lowering, nullptr, prepare, run_bodies});
}

}  // namespace tandem
