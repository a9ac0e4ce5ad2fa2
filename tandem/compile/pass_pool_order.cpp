// SPDX-License-Identifier: Apache-2.0
// Max pooling commutes with a clamp from below or above (relu, relu6): the larger image is then not
// clamped at all, forward and backward. max(clamp(x)) is clamp(max(x)) bit for bit; where the clamp
// is flat its derivative is 0, so it does not matter which of equal elements a window has chosen.
#include "tandem/compile/passes.h"
#include "tandem/graph/derivative.h"
#include "tandem/graph/scalar_expr.h"
#include "tandem/ops/pool.h"

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

// Is the node x, or x cut off at constants?
bool is_clamp(const ScalarGraph& g, int id) {
  const ScalarNode& n = g.nodes[idx(id)];
  const auto constant = [&](int k) { return g.nodes[idx(k)].op == ScalarOp::constant; };
  switch (n.op) {
    case ScalarOp::input:
      return true;
    case ScalarOp::max:
    case ScalarOp::min:
      return (constant(n.b) && is_clamp(g, n.a)) || (constant(n.a) && is_clamp(g, n.b));
    case ScalarOp::select: {  // x < c ? c : x
      const ScalarNode& test = g.nodes[idx(n.a)];
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
         g.nodes[idx(g.outputs[0])].op != ScalarOp::input;
}

class PoolOrder {
 public:
  explicit PoolOrder(Program& p) : p_(p), maker_(p.values.size(), kNone), uses_(p.count_uses()) {
    readers_.resize(p.values.size());
    for (size_t k = 0; k < p.instrs.size(); ++k) {
      for (int v : p.instrs[k].out)
        if (v != kNone) maker_[idx(v)] = static_cast<int>(k);
      for (const Arg& a : p.instrs[k].in)
        if (a.value != kNone) readers_[idx(a.value)].push_back(static_cast<int>(k));
    }
    before_.resize(p.instrs.size());
    after_.resize(p.instrs.size());
    gone_.resize(p.instrs.size());
  }

  void run() {
    for (size_t k = 0; k < p_.instrs.size(); ++k)
      if (p_.instrs[k].op == &op::max_pool) swap(static_cast<int>(k));
    std::vector<Instr> out;
    for (size_t k = 0; k < p_.instrs.size(); ++k) {
      for (Instr& i : before_[k]) out.push_back(std::move(i));
      if (!gone_[k]) out.push_back(std::move(p_.instrs[k]));
      for (Instr& i : after_[k]) out.push_back(std::move(i));
    }
    p_.instrs = std::move(out);
  }

 private:
  Instr* made_by(int v) {
    return maker_[idx(v)] == kNone ? nullptr : &p_.instrs[idx(maker_[idx(v)])];
  }

  void swap(int k) {
    Instr& pool = p_.instrs[idx(k)];
    const int h = pool.in[0].value, y = pool.out[0];
    Instr* clamp = made_by(h);
    if (!clamp || !clamps(clamp->op) || gone_[idx(maker_[idx(h)])]) return;
    // Who else reads the clamped image? Only the clamp's own derivative may.
    int grad = kNone, scatter = kNone;
    for (int r : readers_[idx(h)]) {
      if (r == k) continue;
      if (grad != kNone) return;
      grad = r;
    }
    if (uses_[idx(h)] != static_cast<int>(readers_[idx(h)].size())) return;  // it leaves
    if (grad != kNone && !backward_fits(clamp->op, pool, grad, scatter)) return;
    const int x = clamp->in[0].value;
    Instr late = *clamp;
    const int pooled = p_.add_value(p_.values[idx(y)].spec, Origin::instr, 0);
    late.in[0].value = pooled;
    late.out[0] = y;
    gone_[idx(maker_[idx(h)])] = 1;
    pool.in[0].value = x;
    pool.out[0] = pooled;
    after_[idx(k)].push_back(std::move(late));
    if (grad == kNone) return;
    Instr mask = p_.instrs[idx(grad)];
    Instr& back = p_.instrs[idx(scatter)];
    const int masked = p_.add_value(p_.values[idx(y)].spec, Origin::instr, 0);
    const int gx = mask.out[0];
    mask.in[0].value = back.in[0].value;
    mask.in[1].value = y;
    mask.out[0] = masked;
    back.in[0].value = masked;
    back.out[0] = gx;
    maker_[idx(gx)] = scatter;
    gone_[idx(grad)] = 1;
    before_[idx(scatter)].push_back(std::move(mask));
  }

  bool backward_fits(const OpDef* clamp, const Instr& pool, int grad, int& scatter) {
    const DerivedRow& d = derived_row(*clamp, 0);
    const Instr& mask = p_.instrs[idx(grad)];
    if (d.kind != DerivedRow::Kind::row || d.uses_in != 0 || d.uses_out != 1 || mask.op != d.row)
      return false;
    const int gh = mask.in[0].value;
    if (gh == kNone || mask.in[1].value != pool.in[0].value || uses_[idx(gh)] != 1) return false;
    scatter = maker_[idx(gh)];
    if (scatter == kNone || p_.instrs[idx(scatter)].op != &op::max_pool_backward) return false;
    const Instr& back = p_.instrs[idx(scatter)];
    const Spec &g = p_.values[idx(back.in[0].value)].spec, &y = p_.values[idx(pool.out[0])].spec;
    return pool.out.size() > 1 && back.in[1].value == pool.out[1] && uses_[idx(pool.out[1])] == 1 &&
           g == y && p_.values[idx(gh)].spec == p_.values[idx(mask.out[0])].spec;
  }

  Program& p_;
  std::vector<int> maker_, uses_;
  std::vector<std::vector<int>> readers_;
  std::vector<std::vector<Instr>> before_, after_;
  std::vector<char> gone_;
};

}  // namespace

void order_pooling(Program& p) { PoolOrder(p).run(); }

}  // namespace tandem::compiler
