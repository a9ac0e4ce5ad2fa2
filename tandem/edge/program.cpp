// SPDX-License-Identifier: Apache-2.0
// From a model to steps that have a C form: the passes of the compile room that hold without
// kernels, and its plan of the arena.
#include "tandem/edge/program_internal.h"

#include "tandem/compile/passes/passes.h"
#include "tandem/compile/run/executable.h"
#include "tandem/edge/rows_internal.h"
#include "tandem/graph/context.h"
#include "tandem/graph/trace.h"

namespace tandem::edge {
namespace {

using compiler::Instr;
using compiler::kNone;
using compiler::Program;
using compiler::ValueId;

// Parameters and statistics are constants from now on.
void freeze_cells(Program& p) {
  for (Program::CellUse& u : p.cells) {
    TD_CHECK(u.exit == kNone, Unsupported,
             "the model changes its own '{}' when it runs, C code keeps no such state\nPut it into "
             "evaluation mode, or return the value as an output.",
             u.cell->name);
    if (u.entry == kNone) continue;
    p.values[u.entry].origin = compiler::Origin::constant;
    p.values[u.entry].index = static_cast<int>(p.constants.size());
    p.constants.push_back(Executable::look(*u.cell).first);
  }
  p.cells.clear();
}

// Results that nobody reads, of ops with several, need no memory.
void drop_unread_results(Program& p) {
  const compiler::PerValue<int> uses = p.count_uses();
  for (Instr& i : p.instrs)
    if (i.op && i.out.size() > 1)
      for (ValueId& v : i.out)
        if (v != kNone && uses[v] == 0) v = kNone;
}

}  // namespace

compiler::Lowered lower_for_text(EdgeForward forward, std::span<const EdgePort> inputs) {
  NoGradGuard no_grad;
  const DeviceGuard constants_on_host(cpu);
  std::vector<Spec> specs;
  for (const EdgePort& p : inputs) specs.push_back(p.spec);
  const Ref<Graph> graph = trace(forward, specs, Captures::refuse);
  Program p = compiler::make_program(*graph, {}, false);
  TD_CHECK(p.captures.empty() && p.grads.empty(), Unsupported,
           "the model reads tensors or gradients from outside: C code has its inputs alone");
  p.same_bits = false;
  compiler::remove_dead(p);
  freeze_cells(p);
  compiler::canonicalize(p);
  compiler::merge_common(p);
  p.inference = p.weights_stay = true;  // norms may go into weights of any size
  compute_on_codes(p);
  compiler::fold_norms(p);
  compiler::expand_composites(p, [](const Instr& i) { return has_emitter_of_its_own(*i.op); });
  compiler::canonicalize(p);
  compiler::merge_common(p);
  p.inference = false;  // every constant is computed now
  compiler::fold_constants(p);
  compiler::number_operands(p);
  compiler::order_pooling(p);
  compiler::remove_dead(p);
  keep_codes(p);
  compiler::fuse_loops(p);
  compiler::remove_dead(p);
  drop_unread_results(p);
  compiler::verify(p, "edge");
  compiler::Lowered l = compiler::lower_program(p, compiler::LowerTo::text);
  constexpr size_t kLargestElement = 8;
  fuse_sum_loops(l, kLargestElement);
  return l;
}

}  // namespace tandem::edge
