// SPDX-License-Identifier: Apache-2.0
// Typing of the untyped graphs of init, step, combine and finish: inputs are typed, a number takes
// the type of what it meets, two types meet in the wider one (truth, integer, f32, f64).
#include "tandem/codegen/reduce_program.h"

#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include "tandem/base/per_thread.h"
#include "tandem/codegen/tile_plan.h"
#include "tandem/graph/expression/scalar_expr.h"

namespace tandem::codegen {
namespace {

int rank_of(Reg r) { return r == Reg::b8 ? 0 : r == Reg::i64 ? 1 : r == Reg::f32 ? 2 : 3; }
Reg wider(Reg a, Reg b) { return rank_of(a) >= rank_of(b) ? a : b; }

enum class Rule : uint8_t { compare, logical, select, real, keep, number };

Rule rule_of(ScalarOp op) {
  switch (op) {
    case ScalarOp::eq:
    case ScalarOp::ne:
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::gt:
    case ScalarOp::ge:
    case ScalarOp::isnan:
    case ScalarOp::isinf:
    case ScalarOp::isfinite:
      return Rule::compare;
    case ScalarOp::logical_not:
    case ScalarOp::logical_and:
    case ScalarOp::logical_or:
    case ScalarOp::logical_xor:
      return Rule::logical;
    case ScalarOp::select:
      return Rule::select;
    case ScalarOp::div:
    case ScalarOp::atan2:
    case ScalarOp::zeta:
    case ScalarOp::gammainc:
    case ScalarOp::gammaincc:
      return Rule::real;
    case ScalarOp::max:
    case ScalarOp::min:
    case ScalarOp::fmax:
    case ScalarOp::fmin:
    case ScalarOp::bit_and:
    case ScalarOp::bit_or:
    case ScalarOp::bit_xor:
    case ScalarOp::bit_not:
      return Rule::keep;
    default:
      return op >= ScalarOp::sqrt && op <= ScalarOp::digamma ? Rule::real : Rule::number;
  }
}

class Typer {
 public:
  Typer(const ScalarGraph& g, Reg real) : g_(g), real_(real), reg_(g.nodes.size(), -1) {}

  /// Input `k` of the graph is read as `stored` and used as `as`.
  void input(DType stored, Reg as) {
    ScalarInstr i;
    i.op = ScalarOp::input;
    i.type = i.result = reg_of(stored);
    i.input = static_cast<int16_t>(p_.in.size());
    p_.in.push_back(stored);
    inputs_.push_back(convert(push(i), as));
  }

  void output(int node, DType dtype) {
    p_.out.push_back({convert(visit(node, reg_of(dtype)), reg_of(dtype)), dtype});
  }

  ScalarProgram take() { return std::move(p_); }

 private:
  int16_t push(const ScalarInstr& i) {
    p_.code.push_back(i);
    return static_cast<int16_t>(p_.code.size() - 1);
  }
  Reg type(int16_t r) const { return p_.code[r].result; }

  int16_t convert(int16_t r, Reg to) {
    if (type(r) == to) return r;
    for (size_t k = r; k < p_.code.size(); ++k) {
      const ScalarInstr& i = p_.code[k];
      if (i.op == ScalarOp::convert && i.a == r && i.result == to) return static_cast<int16_t>(k);
    }
    ScalarInstr i;
    i.op = ScalarOp::convert;
    i.type = type(r);
    i.result = to;
    i.a = r;
    return push(i);
  }

  bool is_number(int node) const { return g_.nodes[node].op == ScalarOp::constant; }

  // The type that operands agree on; numbers adapt unless they are fractions among integers.
  Reg common(const int32_t* nodes, int n, Reg wanted) {
    bool typed = false;
    Reg r = Reg::b8;
    for (int k = 0; k < n; ++k) {
      if (is_number(nodes[k])) continue;
      r = wider(r, type(visit(nodes[k], wanted)));
      typed = true;
    }
    if (!typed) return wanted;
    for (int k = 0; k < n; ++k) {
      if (!is_number(nodes[k])) continue;
      const Scalar& v = g_.nodes[nodes[k]].imm;
      const bool infinite = v.kind == 2 && std::isinf(v.f);
      if (v.kind == 2 && rank_of(r) < 2 && !infinite) r = real_;
      if (v.kind == 1 && r == Reg::b8) r = Reg::i64;
    }
    return r;
  }

  int16_t number(const Scalar& v, Reg as) {
    ScalarInstr i;
    i.op = ScalarOp::constant;
    i.type = i.result = as;
    i.imm = v;
    if (as == Reg::i64 && v.kind == 2 && std::isinf(v.f)) {
      i.imm = Scalar(v.f > 0 ? INT64_MAX : INT64_MIN);
    }
    if (as == Reg::b8 && v.kind == 2) i.imm = Scalar(v.f > 0);
    return push(i);
  }

  int16_t visit_as(int node, Reg as) {
    if (is_number(node)) return number(g_.nodes[node].imm, as);
    return convert(visit(node, as), as);
  }

  int16_t visit(int node, Reg wanted) {
    const ScalarNode& n = g_.nodes[node];
    if (n.op == ScalarOp::input) return inputs_[n.input];
    if (n.op == ScalarOp::constant) return number(n.imm, wanted);
    if (reg_[node] >= 0) return reg_[node];
    const int32_t operands[3] = {n.a, n.b, n.c};
    const int arity = tandem::arity_of(n.op);
    const Rule rule = rule_of(n.op);
    ScalarInstr i;
    i.op = n.op;
    int16_t regs[3] = {-1, -1, -1};
    if (rule == Rule::select) {
      i.type = i.result = common(operands + 1, 2, wanted);
      regs[0] = visit_as(n.a, Reg::b8);
      regs[1] = visit_as(n.b, i.type);
      regs[2] = visit_as(n.c, i.type);
    } else {
      Reg t = rule == Rule::logical ? Reg::b8 : common(operands, arity, wanted);
      if (rule == Rule::real && rank_of(t) < 2) t = real_;
      if (rule == Rule::number && t == Reg::b8) t = Reg::i64;
      i.type = t;
      i.result = rule == Rule::compare || rule == Rule::logical ? Reg::b8 : t;
      for (int k = 0; k < arity; ++k) regs[k] = visit_as(operands[k], t);
    }
    i.a = regs[0];
    i.b = regs[1];
    i.c = regs[2];
    return reg_[node] = push(i);
  }

  const ScalarGraph& g_;
  const Reg real_;
  std::vector<int16_t> reg_;     // of each node, -1: not made yet
  std::vector<int16_t> inputs_;  // register of each graph input
  ScalarProgram p_;
};

// An infinity is the end of the range of integers and of truth values.
int64_t initial_bits(const Scalar& v, Reg r) {
  return r == Reg::b8 && v.kind == 2 ? v.f > 0 : register_bits(v, r);
}

bool fold_of(const ScalarInstr& i, Fold& fold) {
  switch (i.op) {
    case ScalarOp::add:
      fold = Fold::add;
      return i.type != Reg::b8;
    case ScalarOp::mul:
      fold = Fold::mul;
      return i.type != Reg::b8;
    case ScalarOp::max:
      fold = Fold::max;
      return true;
    case ScalarOp::min:
      fold = Fold::min;
      return true;
    case ScalarOp::logical_or:
    case ScalarOp::bit_or:
      fold = Fold::max;
      return i.type == Reg::b8;
    case ScalarOp::logical_and:
    case ScalarOp::bit_and:
      fold = Fold::min;
      return i.type == Reg::b8;
    default:
      return false;
  }
}

// Is `p.step` state = op(state, f(x)) with a combine that is the same op?
void find_fold(ReduceProgram& p) {
  if (p.n_states != 1) return;
  const auto& code = p.step.code;
  const int16_t last = p.step.out[0].reg;
  const ScalarInstr& top = code[last];
  if (!fold_of(top, p.fold)) return;
  const auto is_state = [&](int16_t r) {
    return code[r].op == ScalarOp::input && code[r].input == 0;
  };
  const bool swapped = is_state(top.b);
  const int16_t x = swapped ? top.a : top.b;
  if (!is_state(swapped ? top.b : top.a) || is_state(x)) return;
  // What f needs, renumbered: input 1 (x) becomes 0, input 2 (index) becomes 1.
  std::vector<int16_t> at(code.size(), -1);
  for (size_t k = 0; k < code.size(); ++k) {
    if (static_cast<int16_t>(k) == last || is_state(static_cast<int16_t>(k))) continue;
    ScalarInstr i = code[k];
    if (i.op == ScalarOp::input) --i.input;
    for (int16_t* r : {&i.a, &i.b, &i.c}) {
      if (*r < 0) continue;
      if (at[*r] < 0) return;  // reads the state
      *r = at[*r];
    }
    at[k] = static_cast<int16_t>(p.map.code.size());
    p.map.code.push_back(i);
  }
  Fold other;
  const ScalarInstr& both = p.combine.code[p.combine.out[0].reg];
  if (p.combine.code.size() != 3 || !fold_of(both, other) || other != p.fold) return;
  p.map.in = {p.step.in[1], p.step.in[2]};
  p.map.out.push_back({at[x], dtype_of_reg(p.state[0])});
  p.map_is_x = code[x].op == ScalarOp::input && code[x].input == 1 && stored_as_reg(p.step.in[1]);
  p.is_fold = true;
}

// Is `p.map` x as f64 and `p.finish` the state as f32?
bool only_widens(const ReduceProgram& p) {
  const auto converts = [](const ScalarProgram& q, DType from, DType to) {
    const ScalarInstr& last = q.code[q.out[0].reg];
    if (last.op != ScalarOp::convert || q.out.size() != 1 || q.out[0].dtype != to) return false;
    const ScalarInstr& x = q.code[last.a];
    return x.op == ScalarOp::input && x.input == 0 && q.in[0] == from;
  };
  return p.is_fold && converts(p.map, DType::f32, DType::f64) &&
         converts(p.finish, DType::f64, DType::f32);
}

Reg state_reg(char code, Reg compute) {
  if (code == 'W') return compute == Reg::f32 ? Reg::f64 : compute;
  return code == 'I' ? Reg::i64 : code == 'D' ? Reg::f64 : compute;
}

std::unique_ptr<ReduceProgram> build(const OpDef& op, DType x, const DType* outs, int n_outs,
                                     int n_scalars) {
  const ReduceExpr& r = *op.reduce_expr;
  auto p = std::make_unique<ReduceProgram>();
  const Reg compute = compute_reg(op, x);
  const Reg real = compute == Reg::f64 ? Reg::f64 : Reg::f32;
  for (const char* s = r.states; *s; ++s) p->state[p->n_states++] = state_reg(*s, compute);
  const int n = p->n_states;
  TD_ASSERT(n <= kMaxStates);
  E out[kMaxStates + kMaxOpOuts];

  r.init(out);
  for (int k = 0; k < n; ++k) p->init[k] = initial_bits(out[k].number(), p->state[k]);

  const auto state_inputs = [&](Typer& t) {
    for (int k = 0; k < n; ++k) t.input(dtype_of_reg(p->state[k]), p->state[k]);
  };
  const auto outputs = [&](ScalarGraph& g, int count) {
    for (int k = 0; k < count; ++k) g.add_output(out[k]);
  };
  const auto state_dtype = [&](int k) { return dtype_of_reg(p->state[k]); };
  {
    ScalarGraph g(n + 2);
    E in[kMaxStates];
    for (int k = 0; k < n; ++k) in[k] = g.input(k);
    r.step(in, g.input(n), g.input(n + 1), out);
    outputs(g, n);
    for (const ScalarNode& node : g.nodes) {
      for (int o : {node.a, node.b, node.c}) p->uses_index |= o == n + 1;
    }
    Typer t(g, real);
    state_inputs(t);
    t.input(x, compute);
    t.input(DType::i64, Reg::i64);
    for (int k = 0; k < n; ++k) t.output(g.outputs[k], state_dtype(k));
    p->step = t.take();
  }
  {
    ScalarGraph g(2 * n);
    E in[2 * kMaxStates];
    for (int k = 0; k < 2 * n; ++k) in[k] = g.input(k);
    r.combine(in, in + n, out);
    outputs(g, n);
    Typer t(g, real);
    state_inputs(t);
    state_inputs(t);
    for (int k = 0; k < n; ++k) t.output(g.outputs[k], state_dtype(k));
    p->combine = t.take();
  }
  {
    ScalarGraph g(n + 1 + n_scalars);
    E in[kMaxStates], scalars[kMaxOpIns];
    for (int k = 0; k < n; ++k) in[k] = g.input(k);
    for (int k = 0; k < n_scalars; ++k) scalars[k] = g.input(n + 1 + k);
    r.finish(in, g.input(n), scalars, out);
    outputs(g, n_outs);
    Typer t(g, real);
    state_inputs(t);
    t.input(DType::i64, Reg::i64);
    for (int k = 0; k < n_scalars; ++k) t.input(DType::f64, wider(real, p->state[0]));
    for (int k = 0; k < n_outs; ++k) t.output(g.outputs[k], outs[k]);
    p->finish = t.take();
    const ScalarInstr& last = p->finish.code[p->finish.out[0].reg];
    p->finish_is_state =
        n_outs == 1 && last.op == ScalarOp::input && last.input == 0 && stored_as_reg(outs[0]);
  }
  find_fold(*p);
  p->widens = only_widens(*p);
  return p;
}

}  // namespace

Reg compute_reg(const OpDef& op, DType x) {
  if (is_floating(x)) return op.types == Types::logical ? Reg::b8 : reg_of(x);
  switch (op.types) {
    case Types::logical:
      return Reg::b8;
    case Types::floating:
      return Reg::f32;
    case Types::same:
      return reg_of(x);
    default:
      return Reg::i64;
  }
}

const ReduceProgram& reduce_program_of(const OpDef& op, DType x, const DType* outs, int n_outs,
                                       int n_scalars) {
  struct Key {
    const OpDef* op;
    uint64_t types;
    bool operator==(const Key&) const = default;
    bool operator<(const Key& o) const { return std::tie(op, types) < std::tie(o.op, o.types); }
  };
  struct Slot {
    Key key{};
    const ReduceProgram* program = nullptr;
  };
  Key key{&op, static_cast<uint64_t>(x) << 8 | static_cast<uint64_t>(n_scalars)};
  for (int k = 0; k < n_outs; ++k) key.types = key.types << 5 | static_cast<uint64_t>(outs[k]) | 16;
  struct Table {
    Slot slots[16];
  };
  Slot(&recent)[16] = detail::PerThread<Table>::get().slots;
  Slot& slot = recent[(reinterpret_cast<uintptr_t>(&op) >> 6 ^ key.types) % 16];
  if (slot.program && slot.key == key) return *slot.program;
  static std::mutex* lock = new std::mutex;
  static auto* programs = new std::map<Key, std::unique_ptr<ReduceProgram>>;
  std::lock_guard hold(*lock);
  std::unique_ptr<ReduceProgram>& p = (*programs)[key];
  if (!p) p = build(op, x, outs, n_outs, n_scalars);
  slot = {key, p.get()};
  return *p;
}

}  // namespace tandem::codegen
