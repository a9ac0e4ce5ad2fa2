// SPDX-License-Identifier: Apache-2.0
// From a model to steps that have a C form: the passes of the compile room that hold without
// kernels, and its plan of the arena.
#include "tandem/edge/program_internal.h"

#include <cstring>

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

bool is_uniform(const Tensor& t) {
  constexpr int64_t kLeast = 4096;  // a bias, which loops read by channels, stays an array
  const auto n = static_cast<int64_t>(t.numel());
  if (n < kLeast || !t.is_contiguous()) return false;
  const auto* bytes = static_cast<const char*>(t.data_ptr());
  const size_t size = size_of(t.dtype());
  return std::memcmp(bytes, bytes + size, size * static_cast<size_t>(n - 1)) == 0;
}

// A constant whose elements are all the same is stored as one of them, which every index reads.
void store_uniform_once(compiler::Lowered& l) {
  std::vector<bool> whole(l.constants.size(), true);  // read as what it is, not as another type
  const auto constant_of = [&](const compiler::Place& p) {
    const compiler::Block& b = l.buffers[static_cast<size_t>(p.buffer)];
    return b.base == compiler::Base::constant ? b.index : kNone;
  };
  for (const compiler::Place& p : l.places)
    if (const int k = constant_of(p); k != kNone)
      whole[static_cast<size_t>(k)] =
          whole[static_cast<size_t>(k)] && p.dtype == l.constants[static_cast<size_t>(k)].dtype();
  for (size_t k = 0; k < l.constants.size(); ++k) {
    Tensor& t = l.constants[k];
    whole[k] = whole[k] && t.defined() && is_uniform(t);
    if (whole[k]) t = t.flatten().narrow(0, 0, 1).contiguous();
  }
  for (compiler::Place& p : l.places) {
    const int k = constant_of(p);
    if (k == kNone || !whole[static_cast<size_t>(k)]) continue;
    p.offset = 0;
    p.contiguous = false;
    for (int d = 0; d < p.shape.rank(); ++d) p.strides[d] = 0;
  }
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
  compiler::fold_constants_for_text(p);
  compiler::number_operands(p);
  compiler::order_pooling(p);
  compiler::remove_dead(p);
  keep_codes(p);
  compiler::fuse_loops(p);
  compiler::remove_dead(p);
  drop_unread_results(p);
  compiler::verify(p, "edge");
  compiler::Lowered l = compiler::lower_program(p, compiler::LowerTo::text);
  store_uniform_once(l);
  constexpr size_t kLargestElement = 8;
  fuse_sum_loops(l, kLargestElement);
  return l;
}

}  // namespace tandem::edge
