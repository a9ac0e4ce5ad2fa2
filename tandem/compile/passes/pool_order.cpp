// SPDX-License-Identifier: Apache-2.0
// Max pooling commutes with a clamp from below or above (relu, relu6): the larger image is then not
// clamped at all, forward and backward. max(clamp(x)) is clamp(max(x)) bit for bit; where the clamp
// is flat its derivative is 0, so it does not matter which of equal elements a window has chosen.
#include "tandem/compile/passes/edits.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/use_def.h"
#include "tandem/graph/expression/derivative.h"
#include "tandem/graph/expression/scalar_expr.h"
#include "tandem/ops/conv/pool.h"

namespace tandem::compiler {
namespace {

// Is the node x, or x cut off at constants?
bool is_clamp(const ScalarGraph& g, int id) {
  const ScalarNode& n = g.nodes[id];
  const auto constant = [&](int k) { return g.nodes[k].op == ScalarOp::constant; };
  switch (n.op) {
    case ScalarOp::input:
      return true;
    case ScalarOp::max:
    case ScalarOp::min:
      return (constant(n.b) && is_clamp(g, n.a)) || (constant(n.a) && is_clamp(g, n.b));
    case ScalarOp::select: {  // x < c ? c : x
      const ScalarNode& test = g.nodes[n.a];
      return test.op == ScalarOp::lt && constant(test.b) && n.b == test.b && n.c == test.a &&
             is_clamp(g, n.c);
    }
    default:
      return false;
  }
}

// A row without numbers that clamps its one input and whose derivative reads the result alone.
bool clamps(const OpDef* op) {
  if (!op || op->family != Family::pointwise || op->n_in != 1 || op->n_out != 1 || op->attrs ||
      !op->expr_fn)
    return false;
  const ScalarGraph& g = expr_of(*op);
  return g.outputs.size() == 1 && is_clamp(g, g.outputs[0]) &&
         g.nodes[g.outputs[0]].op != ScalarOp::input;
}

class PoolOrder {
 public:
  explicit PoolOrder(Program& p) : p_(p), uses_(p), edits_(p) {}

  void run() {
    for (InstrId k : p_.instrs.ids())
      if (p_.instrs[k].op == &op::max_pool) swap(k);
    edits_.apply();
  }

 private:
  void swap(InstrId k) {
    Instr& pool = p_.instrs[k];
    const ValueId h = pool.in[0].value, y = pool.out[0];
    const InstrId clamp = uses_.maker(h);
    if (clamp == kNone || !clamps(p_.instrs[clamp].op) || edits_.is_removed(clamp)) return;
    // Who else reads the clamped image? Only the clamp's own derivative may.
    InstrId grad, scatter;
    for (InstrId r : uses_.readers(h)) {
      if (r == k) continue;
      if (grad != kNone) return;
      grad = r;
    }
    if (uses_.leaves(h)) return;
    if (grad != kNone && !backward_fits(p_.instrs[clamp].op, pool, grad, scatter)) return;
    Instr late = p_.instrs[clamp];
    const ValueId x = late.in[0].value;
    const ValueId pooled = p_.add_value(p_.values[y].spec, Origin::instr, 0);
    late.in[0].value = pooled;
    late.out[0] = y;
    edits_.remove(clamp);
    pool.in[0].value = x;
    pool.out[0] = pooled;
    edits_.put_after(k, std::move(late));
    if (grad != kNone) swap_backward(grad, scatter, y);
  }
  // The derivative of the clamp comes before that of the pooling.
  void swap_backward(InstrId grad, InstrId scatter, ValueId y) {
    Instr mask = p_.instrs[grad];
    Instr& back = p_.instrs[scatter];
    const ValueId masked = p_.add_value(p_.values[y].spec, Origin::instr, 0), gx = mask.out[0];
    mask.in[0].value = back.in[0].value;
    mask.in[1].value = y;
    mask.out[0] = masked;
    back.in[0].value = masked;
    back.out[0] = gx;
    uses_.set_maker(gx, scatter);
    edits_.remove(grad);
    edits_.put_before(scatter, std::move(mask));
  }

  bool backward_fits(const OpDef* clamp, const Instr& pool, InstrId grad, InstrId& scatter) {
    const DerivedRow& d = derived_row(*clamp, 0);
    const Instr& mask = p_.instrs[grad];
    if (d.kind != DerivedRow::Kind::row || d.uses_in != 0 || d.uses_out != 1 || mask.op != d.row)
      return false;
    const ValueId gh = mask.in[0].value;
    if (gh == kNone || mask.in[1].value != pool.in[0].value || uses_.uses(gh) != 1) return false;
    scatter = uses_.maker(gh);
    if (scatter == kNone || p_.instrs[scatter].op != &op::max_pool_backward) return false;
    const Instr& back = p_.instrs[scatter];
    const Spec &g = p_.values[back.in[0].value].spec, &y = p_.values[pool.out[0]].spec;
    return pool.out.size() > 1 && back.in[1].value == pool.out[1] && uses_.uses(pool.out[1]) == 1 &&
           g == y && p_.values[gh].spec == p_.values[mask.out[0]].spec;
  }

  Program& p_;
  UseDef uses_;
  Edits edits_;
};

}  // namespace

void order_pooling(Program& p) { PoolOrder(p).run(); }

}  // namespace tandem::compiler
