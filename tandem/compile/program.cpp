// SPDX-License-Identifier: Apache-2.0
// From Graph to Program, the printer and the verifier.
#include "tandem/compile/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "tandem/grad/control_flow.h"
#include "tandem/graph/infer.h"
#include "tandem/ops/packed.h"
#include "tandem/ops/stored.h"

namespace tandem::compiler {
namespace {

// Translates nodes of one graph into instructions of a program.
class Translator {
 public:
  Translator(Program& p, const Graph& g, const Symbols& symbols)
      : p_(p), symbols_(symbols), values_(g.nodes.size()) {}

  void set(const Tensor& placeholder, int value) {
    values_[node_of(placeholder)->index].push_back(value);
  }
  int get(const Tensor& t) const { return at(node_of(t), t.impl()->out_index); }
  bool known(const Node& n) const { return !values_[n.index].empty(); }

  void add(const Node& n, uint32_t scope, Where where) {
    Instr i;
    i.op = n.op;
    i.attrs = symbols_.empty() ? n.attrs : put_numbers(n.attrs, symbols_);
    i.rng = n.rng.offset;
    i.scope = scope ? scope : n.scope;
    i.where = where.file ? where : n.where;
    if (n.op == &op::constant) {
      const auto* a = static_cast<const ConstantAttrs*>(n.attrs.get());
      const auto* box = static_cast<const TensorBox*>(a->value.get());
      const auto* stored = dynamic_cast<const StoredBox*>(box);
      p_.constants.push_back(stored ? stored->bytes : box->value);
      const int v = p_.add_value(spec_of(p_.constants.back()), Origin::constant,
                                 static_cast<int>(p_.constants.size()) - 1);
      values_[n.index].push_back(stored ? read_bytes(i, v, stored->spec) : v);
      return;
    }
    for (const NodeInput& in : n.in) {
      Arg a;
      if (in.is_scalar) {
        a.is_number = true;
        a.number = in.scalar;
      } else if (in.present) {
        a.value = at(in.from.get(), in.from_index);
      }
      i.in.push_back(a);
    }
    for (size_t o = 0; o < n.out.size(); ++o) {
      int v = p_.add_value(Spec(n.out[o].dtype, numbers(n.out[o].shape)), Origin::instr,
                           static_cast<int>(o));
      i.out.push_back(v);
      values_[n.index].push_back(v);
    }
    p_.instrs.push_back(std::move(i));
  }

  // The value of that Spec that lies in the bytes v.
  int read_bytes(Instr& i, int v, const Spec& spec) {
    ReadBytesAttrs a;
    a.dtype = spec.dtype;
    for (const Dim d : spec.shape) a.shape.push_back(d);
    i.op = &op::read_bytes;
    i.attrs = AttrsHolder(fields<ReadBytesAttrs>(), &a);
    Arg arg;
    arg.value = v;
    i.in.push_back(arg);
    const int out = p_.add_value(spec, Origin::instr, 0);
    i.out.push_back(out);
    p_.instrs.push_back(std::move(i));
    return out;
  }

  Shape numbers(const Shape& s) const {
    Shape out = s;
    for (Dim& d : out)
      if (d.is_symbolic()) d = d.evaluate(symbols_);
    return out;
  }

 private:
  int at(const Node* n, uint32_t index) const { return values_[n->index][index]; }

  Program& p_;
  const Symbols& symbols_;
  std::vector<SmallVec<int, 2>> values_;
};

}  // namespace

int Program::add_value(const Spec& spec, Origin origin, int index) {
  values.push_back({spec, origin, index});
  return static_cast<int>(values.size()) - 1;
}

void Program::replace_uses(const std::vector<int>& replacement) {
  const auto fix = [&](int& v) {
    while (v != kNone && replacement[static_cast<size_t>(v)] != v)
      v = replacement[static_cast<size_t>(v)];
  };
  for (Instr& i : instrs)
    for (Arg& a : i.in) fix(a.value);
  for (int& v : outputs) fix(v);
  for (CellUse& u : cells) fix(u.exit);
  for (GradUse& u : grads) fix(u.exit);
}

void Program::rename(const std::vector<std::pair<int, int>>& renamed) {
  if (renamed.empty()) return;
  std::vector<int> now(values.size());
  std::iota(now.begin(), now.end(), 0);
  for (auto [from, to] : renamed) now[static_cast<size_t>(from)] = to;
  replace_uses(now);
}

void Program::drop_unread_constants() {
  const std::vector<int> uses = count_uses();
  std::vector<char> read(constants.size());
  for (size_t v = 0; v < values.size(); ++v)
    if (values[v].origin == Origin::constant && uses[v])
      read[static_cast<size_t>(values[v].index)] = 1;
  for (size_t k = 0; k < read.size(); ++k)
    if (!read[k]) constants[k] = Tensor();
}

namespace {
bool has_effect(const OpDef& op, const void* attrs) {
  if (op.has(kEffect)) return true;
  const auto rows = control_flow_rows();
  if (std::find(rows.begin(), rows.end(), &op) == rows.end()) return false;
  const auto& a = *static_cast<const ControlAttrs*>(attrs);
  for (const Ref<RefCounted>& body : {a.body, a.other})
    if (const auto* g = static_cast<const Graph*>(body.get()))
      for (const Ref<Node>& n : g->nodes)
        if (has_effect(*n->op, n->attrs.get())) return true;
  return false;
}
}  // namespace

bool has_effect(const Instr& i) { return i.op && has_effect(*i.op, i.attrs.get()); }

std::vector<int> Program::results() const {
  std::vector<int> r = outputs;
  for (const CellUse& u : cells)
    if (u.exit != kNone) r.push_back(u.exit);
  for (const GradUse& u : grads)
    if (u.exit != kNone) r.push_back(u.exit);
  return r;
}

std::vector<int> Program::count_uses() const {
  std::vector<int> n(values.size());
  for (const Instr& i : instrs)
    for (const Arg& a : i.in)
      if (a.value != kNone) ++n[static_cast<size_t>(a.value)];
  for (int v : results()) ++n[static_cast<size_t>(v)];
  return n;
}

Program make_program(const Graph& g, const Symbols& symbols, bool keep_grads) {
  Program p;
  p.rng_draws = g.rng_draws;
  Translator t(p, g, symbols);
  const auto placeholder = [&](const Tensor& x, Origin origin, size_t index) {
    int v = p.add_value(Spec(x.dtype(), t.numbers(x.shape()), x.device()), origin,
                        static_cast<int>(index));
    t.set(x, v);
    return v;
  };
  for (size_t i = 0; i < g.inputs.size(); ++i)
    p.inputs.push_back(placeholder(g.inputs[i], Origin::input, i));
  for (size_t i = 0; i < g.captures.size(); ++i)
    p.captures.push_back(placeholder(g.captures[i].inner, Origin::capture, i));
  for (size_t i = 0; i < g.cells.size(); ++i) {
    p.cells.push_back({g.cells[i].cell});
    if (g.cells[i].entry.defined())
      p.cells.back().entry = placeholder(g.cells[i].entry, Origin::cell, i);
  }
  for (size_t i = 0; i < g.grads.size(); ++i) {
    const Graph::GradUse& u = g.grads[i];
    p.grads.push_back({u.slot, kNone, kNone, u.stored, u.consumed});
    if (u.entry.defined()) p.grads.back().entry = placeholder(u.entry, Origin::grad, i);
  }
  for (const Ref<Node>& n : g.nodes)
    if (!t.known(*n)) t.add(*n, 0, {});
  for (const Tensor& y : g.outputs) p.outputs.push_back(t.get(y));
  for (size_t i = 0; i < g.cells.size(); ++i)
    if (g.cells[i].exit.defined()) p.cells[i].exit = t.get(g.cells[i].exit);
  for (size_t i = 0; i < g.grads.size(); ++i) {
    Program::GradUse& u = p.grads[i];
    if (u.consumed && (keep_grads || !u.stored)) u.consumed = false;
    if (u.stored && !u.consumed && g.grads[i].exit.defined()) u.exit = t.get(g.grads[i].exit);
  }
  return p;
}

std::vector<int> inline_graph(Program& to, const Graph& g, const std::vector<int>& args,
                              uint32_t scope, Where where) {
  static const Symbols none;
  Translator t(to, g, none);
  for (size_t i = 0; i < g.inputs.size(); ++i) t.set(g.inputs[i], args[i]);
  TD_ASSERT(g.captures.empty() && g.cells.empty() && g.grads.empty());
  for (const Ref<Node>& n : g.nodes)
    if (!t.known(*n)) t.add(*n, scope, where);
  std::vector<int> out;
  for (const Tensor& y : g.outputs) out.push_back(t.get(y));
  return out;
}

std::string Program::to_string() const {
  std::string s;
  const auto name = [](int v) { return v == kNone ? std::string("-") : fmt::format("%{}", v); };
  const auto list = [&](const char* what, const std::vector<int>& vs) {
    for (int v : vs) s += fmt::format("%{} = {} : {}\n", v, what, values[v].spec.to_string());
  };
  list("input", inputs);
  list("capture", captures);
  for (const CellUse& u : cells)
    if (u.entry != kNone)
      s += fmt::format("%{} = cell {} : {}\n", u.entry, u.cell->name,
                       values[u.entry].spec.to_string());
  for (const Instr& i : instrs) {
    std::string outs;
    for (int v : i.out) outs += (outs.empty() ? "" : ", ") + name(v);
    s += fmt::format("{} = {}{}(", outs, i.name(),
                     i.fused_names.empty() ? "" : "[" + i.fused_names + "]");
    for (size_t k = 0; k < i.in.size(); ++k) {
      const Arg& a = i.in[k];
      s += k ? ", " : "";
      if (a.is_number)
        s += a.number.kind == 2 ? fmt::format("{}", a.number.f) : fmt::format("{}", a.number.i);
      else
        s += name(a.value);
    }
    s += i.again ? ") again" : ")";
    if (i.attrs.get()) s += fmt::format(" {{{}}}", print_attrs(i.attrs.type(), i.attrs.get()));
    const char* sep = " : ";
    for (int v : i.out) {
      if (v == kNone) continue;
      s += sep + values[v].spec.to_string();
      sep = ", ";
    }
    s += "\n";
  }
  for (const CellUse& u : cells)
    if (u.exit != kNone) s += fmt::format("cell {} <- %{}\n", u.cell->name, u.exit);
  for (const GradUse& u : grads)
    if (u.exit != kNone) s += fmt::format("grad <- %{}\n", u.exit);
  s += "return";
  for (int v : outputs) s += " " + name(v);
  return s + "\n";
}

namespace {
void verify_specs(const Program& p, const Instr& i, const char* after) {
  if (!i.op || i.op->family == Family::control) return;
  InferCall c(*i.op, i.attrs.get());
  for (const Arg& a : i.in) {
    c.in.push_back(a.value == kNone ? Spec() : p.values[a.value].spec);
    c.present.push_back(a.is_number ? 2 : a.value == kNone ? 0 : 1);
    c.scalars.push_back(a.number);
  }
  if (i.op->infer_fn)
    i.op->infer_fn(c);
  else if (i.op->family == Family::pointwise)
    infer_pointwise(c);
  else
    return;
  for (size_t o = 0; o < i.out.size(); ++o) {
    if (i.out[o] == kNone || i.op->has(kDataSized)) continue;
    const Spec& have = p.values[i.out[o]].spec;
    TD_CHECK(have == c.out[o], Internal,
             "after the pass '{}' output {} of {} is {}, its row gives {}", after, o, i.name(),
             have.to_string(), c.out[o].to_string());
  }
}
}  // namespace

void verify(const Program& p, const char* after) {
  std::vector<char> made(p.values.size());
  for (size_t v = 0; v < p.values.size(); ++v) made[v] = p.values[v].origin != Origin::instr;
  for (const Instr& i : p.instrs) {
    for (const Arg& a : i.in)
      TD_CHECK(a.value == kNone || made[static_cast<size_t>(a.value)], Internal,
               "after the pass '{}' {} reads %{} before it is made", after, i.name(), a.value);
    for (int v : i.out) {
      if (v == kNone) continue;
      TD_CHECK(!made[static_cast<size_t>(v)], Internal, "after the pass '{}' %{} is made twice",
               after, v);
      made[static_cast<size_t>(v)] = 1;
    }
    verify_specs(p, i, after);
  }
  for (int v : p.results())
    TD_CHECK(made[static_cast<size_t>(v)], Internal, "after the pass '{}' result %{} is not made",
             after, v);
}

}  // namespace tandem::compiler
