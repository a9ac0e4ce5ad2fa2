// SPDX-License-Identifier: Apache-2.0
// Building scalar expressions: hash-consing, constant folding in f64, and the identities that hold
// for every value of every type (including NaN, infinities and wrap-around).
#include "tandem/graph/expression/scalar_expr.h"

#include <mutex>

#include "tandem/base/hash/hash.h"
#include "tandem/graph/expression/scalar_eval.h"

namespace tandem {

// ---- handles

#define TD_E_0(name)
#define TD_E_1(name) \
  E name(const E& x) { return E::combine(ScalarOp::name, x, E(), E()); }
#define TD_E_2(name) \
  E name(const E& a, const E& b) { return E::combine(ScalarOp::name, a, b, E()); }
#define TD_E_3(name) \
  E name(const E& a, const E& b, const E& c) { return E::combine(ScalarOp::name, a, b, c); }
#define X(name, arity) TD_E_##arity(name)
TD_FOR_EACH_SCALAR_OP(X)
#undef X

E E::combine(ScalarOp op, const E& a, const E& b, const E& c) {
  ScalarGraph* g = a.graph_ ? a.graph_ : b.graph_ ? b.graph_ : c.graph_;
  if (g) return g->make(op, a, b, c);
  ScalarGraph numbers(0);
  const E r = numbers.make(op, a, b, c);
  TD_ASSERT(r.is_number());
  return E(r.number());
}

bool E::is_number() const {
  return id_ == kNumber || (graph_ && graph_->nodes[id_].op == ScalarOp::constant);
}

Scalar E::number() const {
  TD_ASSERT(is_number());
  return id_ == kNumber ? number_ : graph_->nodes[id_].imm;
}

int arity_of(ScalarOp op) {
  static constexpr int8_t kArity[] = {
#define X(name, arity) arity,
      TD_FOR_EACH_SCALAR_OP(X)
#undef X
  };
  return kArity[static_cast<int>(op)];
}

const char* to_string(ScalarOp op) {
  static constexpr const char* kNames[] = {
#define X(name, arity) #name,
      TD_FOR_EACH_SCALAR_OP(X)
#undef X
  };
  return kNames[static_cast<int>(op)];
}

// ---- the graph

namespace {

bool commutes(ScalarOp op) {
  switch (op) {
    case ScalarOp::add:
    case ScalarOp::mul:
    case ScalarOp::eq:
    case ScalarOp::ne:
    case ScalarOp::logical_and:
    case ScalarOp::logical_or:
    case ScalarOp::logical_xor:
    case ScalarOp::bit_and:
    case ScalarOp::bit_or:
    case ScalarOp::bit_xor:
      return true;
    default:
      return false;
  }
}

bool is_integer_only(ScalarOp op) {
  switch (op) {
    case ScalarOp::bit_not:
    case ScalarOp::bit_and:
    case ScalarOp::bit_or:
    case ScalarOp::bit_xor:
    case ScalarOp::shl:
    case ScalarOp::shr:
      return true;
    default:
      return false;
  }
}

bool divides(ScalarOp op) {
  return op == ScalarOp::floor_div || op == ScalarOp::trunc_div || op == ScalarOp::remainder ||
         op == ScalarOp::fmod;
}

bool gives_truth(ScalarOp op) {
  switch (op) {
    case ScalarOp::isnan:
    case ScalarOp::isinf:
    case ScalarOp::isfinite:
    case ScalarOp::logical_not:
    case ScalarOp::eq:
    case ScalarOp::ne:
    case ScalarOp::lt:
    case ScalarOp::le:
    case ScalarOp::gt:
    case ScalarOp::ge:
    case ScalarOp::logical_and:
    case ScalarOp::logical_or:
    case ScalarOp::logical_xor:
      return true;
    default:
      return false;
  }
}

bool truth(const Scalar& s) { return s.kind == 2 ? s.f != 0 : s.i != 0; }

// Applies op to numbers: integers stay integers if the op keeps them, all else is f64.
bool fold(ScalarOp op, const Scalar* v, Scalar& out) {
  const int n = arity_of(op);
  if (op == ScalarOp::select) {
    out = truth(v[0]) ? v[1] : v[2];
    return true;
  }
  bool whole = true;
  for (int i = 0; i < n; ++i) whole = whole && v[i].kind < 2;
  if (is_integer_only(op) && !whole) return false;
  Value x[3];
  ScalarInstr instr;
  instr.op = op;
  switch (op) {
    case ScalarOp::logical_not:
    case ScalarOp::logical_and:
    case ScalarOp::logical_or:
    case ScalarOp::logical_xor:
      instr.type = Reg::b8;
      for (int i = 0; i < n; ++i) x[i].b8 = truth(v[i]);
      break;
    default:
      instr.type = whole && has_integer_form(op) ? Reg::i64 : Reg::f64;
      if (instr.type == Reg::i64 && divides(op) && v[1].to_int() == 0) return false;
      for (int i = 0; i < n; ++i)
        if (instr.type == Reg::i64)
          x[i].i64 = v[i].to_int();
        else
          x[i].f64 = v[i].to_double();
  }
  instr.result = gives_truth(op) ? Reg::b8 : instr.type;
  const Value r = evaluate_one(instr, x[0], x[1], x[2], nullptr);
  out = instr.result == Reg::b8    ? Scalar(r.b8)
        : instr.result == Reg::i64 ? Scalar(r.i64)
                                   : Scalar(r.f64);
  return true;
}

}  // namespace

size_t ScalarGraph::Hash::operator()(const ScalarNode& n) const {
  return static_cast<size_t>(hash_all(static_cast<int>(n.op), n.input, n.a, n.b, n.c,
                                      static_cast<int>(n.imm.kind), n.imm.i));
}

ScalarGraph::ScalarGraph(int n) : n_in(n) {
  for (int i = 0; i < n; ++i) {
    ScalarNode node;
    node.op = ScalarOp::input;
    node.input = static_cast<int16_t>(i);
    intern(node);
  }
}

E ScalarGraph::input(int i) {
  TD_ASSERT(i >= 0 && i < n_in);
  return E(this, i);
}

E ScalarGraph::constant(Scalar v) {
  ScalarNode node;
  node.imm = v;
  return E(this, intern(node));
}

int ScalarGraph::intern(const ScalarNode& n) {
  auto [at, fresh] = index_.try_emplace(n, static_cast<int>(nodes.size()));
  if (fresh) nodes.push_back(n);
  return at->second;
}

int ScalarGraph::id_of(const E& e) {
  if (!e.defined()) return -1;
  if (e.id_ == E::kNumber) return constant(e.number_).id_;
  TD_ASSERT(e.graph_ == this);
  return e.id_;
}

bool ScalarGraph::is_number(int id, double v) const {
  const ScalarNode& n = nodes[id];
  return n.op == ScalarOp::constant && n.imm.to_double() == v;
}

E ScalarGraph::make(ScalarOp op, const E& a, const E& b, const E& c) {
  TD_ASSERT(op != ScalarOp::convert && op != ScalarOp::wrap);  // inserted by lowering
  int x[3] = {id_of(a), id_of(b), id_of(c)};
  const int n = arity_of(op);
  bool numbers = n > 0;
  Scalar v[3];
  for (int i = 0; i < n; ++i) {
    TD_ASSERT(x[i] >= 0);
    numbers = numbers && nodes[x[i]].op == ScalarOp::constant;
    v[i] = nodes[x[i]].imm;
  }
  Scalar folded;
  if (numbers && fold(op, v, folded)) return constant(folded);
  if (E s = simplify(op, x[0], x[1], x[2]); s.defined()) return s;
  if (commutes(op) && x[0] > x[1]) std::swap(x[0], x[1]);
  ScalarNode node;
  node.op = op;
  node.a = x[0];
  node.b = x[1];
  node.c = x[2];
  return E(this, intern(node));
}

// Undefined: nothing to simplify. x * 0 stays (NaN), x + 0 goes (only a zero's sign differs).
E ScalarGraph::simplify(ScalarOp op, int a, int b, int c) {
  auto neg_of = [&](int id) { return is_op(id, ScalarOp::neg) ? at(nodes[id].a) : E(); };
  switch (op) {
    case ScalarOp::neg:
      return neg_of(a);
    case ScalarOp::add:
      if (is_number(b, 0)) return at(a);
      if (is_number(a, 0)) return at(b);
      if (E x = neg_of(b); x.defined()) return at(a) - x;
      if (E x = neg_of(a); x.defined()) return at(b) - x;
      if (a == b) return at(a) * 2;
      return E();
    case ScalarOp::sub:
      if (is_number(b, 0)) return at(a);
      if (E x = neg_of(b); x.defined()) return at(a) + x;
      return E();
    case ScalarOp::mul:
      if (is_number(b, 1)) return at(a);
      if (is_number(a, 1)) return at(b);
      if (is_number(b, -1)) return -at(a);
      if (is_number(a, -1)) return -at(b);
      if (E x = neg_of(b); x.defined()) return -(at(a) * x);
      if (E x = neg_of(a); x.defined()) return -(x * at(b));
      return E();
    case ScalarOp::div:
      if (is_number(b, 1)) return at(a);
      if (E x = neg_of(a); x.defined()) return -(x / at(b));
      return E();
    case ScalarOp::pow:
      if (is_number(b, 1)) return at(a);
      return E();
    case ScalarOp::select:
      if (nodes[a].op == ScalarOp::constant) return at(truth(nodes[a].imm) ? b : c);
      if (b == c) return at(b);
      if (is_op(a, ScalarOp::logical_not)) return select(at(nodes[a].a), at(c), at(b));
      return E();
    case ScalarOp::logical_not:
      if (is_op(a, ScalarOp::logical_not) && gives_truth(nodes[nodes[a].a].op))
        return at(nodes[a].a);
      return E();
    default:
      return E();
  }
}

void ScalarGraph::add_output(const E& e) {
  TD_ASSERT(e.defined());
  outputs.push_back(id_of(e));
}

E ScalarGraph::import(const ScalarGraph& from, int id, std::vector<E>& replacement) {
  replacement.resize(from.nodes.size());
  // Operands precede users, so one pass over the needed nodes suffices.
  std::vector<char> needed(from.nodes.size(), 0);
  needed[id] = 1;
  for (int k = id; k >= 0; --k) {
    if (!needed[k] || replacement[k].defined()) continue;
    const ScalarNode& n = from.nodes[k];
    for (int o : {n.a, n.b, n.c})
      if (o >= 0) needed[o] = 1;
  }
  for (int k = 0; k <= id; ++k) {
    if (!needed[k] || replacement[k].defined()) continue;
    const ScalarNode& n = from.nodes[k];
    TD_ASSERT(n.op != ScalarOp::input);
    auto operand = [&](int o) { return o < 0 ? E() : replacement[o]; };
    replacement[k] = n.op == ScalarOp::constant
                         ? constant(n.imm)
                         : make(n.op, operand(n.a), operand(n.b), operand(n.c));
  }
  return replacement[id];
}

// ---- rows

namespace detail {
void derived_expr_mark(const E*, E*) { TD_FAIL(Internal, "a derived row is read with expr_of()"); }
}  // namespace detail

const ScalarGraph& expr_of(const OpDef& op) {
  if (op.expr_fn == detail::derived_expr_mark)
    return static_cast<const detail::DerivedOp&>(op).graph;
  OpRuntime& r = runtime_of(op);
  if (const ScalarGraph* g = r.expr.load(std::memory_order_acquire)) return *g;
  TD_CHECK(op.expr_fn, Internal, "op '{}' has no expression", op.name);
  auto* g = new ScalarGraph(op.n_in);
  E in[kMaxOpIns], out[kMaxOpOuts];
  for (int i = 0; i < op.n_in; ++i) in[i] = g->input(i);
  op.expr_fn(in, out);
  for (int i = 0; i < op.n_out; ++i) g->add_output(out[i]);
  const ScalarGraph* first = nullptr;
  if (r.expr.compare_exchange_strong(first, g, std::memory_order_acq_rel)) return *g;
  delete g;
  return *first;
}

std::string to_string(const ScalarGraph& g) {
  std::string text;
  for (size_t k = 0; k < g.nodes.size(); ++k) {
    const ScalarNode& n = g.nodes[k];
    text += fmt::format("%{} = ", k);
    if (n.op == ScalarOp::input) {
      text += fmt::format("input {}\n", n.input);
    } else if (n.op == ScalarOp::constant) {
      text += n.imm.kind == 2   ? fmt::format("{}\n", n.imm.f)
              : n.imm.kind == 1 ? fmt::format("{}\n", n.imm.i)
                                : fmt::format("{}\n", n.imm.i != 0);
    } else {
      text += fmt::format("{}(", to_string(n.op));
      const int32_t operands[] = {n.a, n.b, n.c};
      for (int i = 0; i < arity_of(n.op); ++i)
        text += fmt::format("{}%{}", i ? ", " : "", operands[i]);
      text += ")\n";
    }
  }
  text += "return";
  for (int o : g.outputs) text += fmt::format(" %{}", o);
  return text;
}

}  // namespace tandem
