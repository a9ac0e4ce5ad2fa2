// SPDX-License-Identifier: Apache-2.0
// From Graph to Program, the printer and the verifier.
#include "tandem/compile/program/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tandem/compile/program/made_again.h"
#include "tandem/grad/control_flow.h"
#include "tandem/graph/infer.h"
#include "tandem/ops/matmul/packed.h"
#include "tandem/ops/stored.h"
#include "tandem/tensor/device_memory.h"

namespace tandem::compiler {
namespace {

// Translates nodes of one graph into instructions of a program.
class Translator {
 public:
  Translator(Program& p, const Graph& g, const Symbols& symbols)
      : p_(p), symbols_(symbols), values_(g.nodes.size()) {}

  void set(const Tensor& placeholder, ValueId value) {
    values_[node_of(placeholder)->index].push_back(value);
  }
  ValueId get(const Tensor& t) const { return at(node_of(t), t.impl()->out_index); }
  bool known(const Node& n) const { return !values_[n.index].empty(); }

  void add(const Node& n, uint32_t scope, SourceLocation loc) {
    Instr i;
    i.op = n.op;
    i.attrs = symbols_.empty() ? n.attrs : put_numbers(n.attrs, symbols_);
    i.rng = n.rng.offset;
    i.scope = scope ? scope : n.scope;
    i.loc = loc.file ? loc : n.loc;
    if (n.op == &op::constant) {
      const auto* a = static_cast<const ConstantAttrs*>(n.attrs.get());
      const auto* box = static_cast<const TensorBox*>(a->value.get());
      const auto* stored = dynamic_cast<const StoredBox*>(box);
      const ValueId v = p_.add_constant(detail::host_value(stored ? stored->bytes : box->value));
      if (!stored && !is_host(box->value.device())) p_.device = box->value.device();
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
      const ValueId v = p_.add_value(Spec(n.out[o].dtype, numbers(n.out[o].shape), n.out[o].device),
                                     Origin::instr, static_cast<int>(o));
      i.out.push_back(v);
      values_[n.index].push_back(v);
    }
    p_.instrs.push_back(std::move(i));
  }

  // The value of that Spec that lies in the bytes v.
  ValueId read_bytes(Instr& i, ValueId v, const Spec& spec) {
    ReadBytesAttrs a;
    a.dtype = spec.dtype;
    for (const Dim d : spec.shape) a.shape.push_back(d);
    i.op = &op::read_bytes;
    i.attrs = AttrsHolder(fields<ReadBytesAttrs>(), &a);
    Arg arg;
    arg.value = v;
    i.in.push_back(arg);
    const ValueId out = p_.add_value(spec, Origin::instr, 0);
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
  ValueId at(const Node* n, uint32_t index) const { return values_[n->index][index]; }

  Program& p_;
  const Symbols& symbols_;
  std::vector<SmallVec<ValueId, 2>> values_;
};

}  // namespace

ValueId Program::add_value(const Spec& spec, Origin origin, int index) {
  const ValueId v = values.push_back({spec, origin, index});
  if (Spec& s = values[v].spec; !is_host(s.device)) {
    TD_CHECK(is_host(device) || device == s.device, Unsupported,
             "a compiled function works on one device, this one on {} and {}\nCompile the part of "
             "each device by itself.",
             tandem::to_string(device), tandem::to_string(s.device));
    device = std::exchange(s.device, Device{});
  }
  return v;
}

ValueId Program::add_constant(Tensor t) {
  const Spec spec = spec_of(t);
  constants.push_back(std::move(t));
  return add_value(spec, Origin::constant, static_cast<int>(constants.size()) - 1);
}

void Program::replace_uses(const PerValue<ValueId>& now) {
  const auto fix = [&](ValueId& v) {
    while (v != kNone && now[v] != kNone) v = now[v];
  };
  for (Instr& i : instrs)
    for (Arg& a : i.in) fix(a.value);
  for (ValueId& v : outputs) fix(v);
  for (CellUse& u : cells) fix(u.exit);
  for (GradUse& u : grads) fix(u.exit);
}

void Program::rename(const std::vector<std::pair<ValueId, ValueId>>& renamed) {
  if (renamed.empty()) return;
  PerValue<ValueId> now(values.size());
  for (auto [from, to] : renamed) now[from] = to;
  replace_uses(now);
}

void Program::drop_unread_constants() {
  const PerValue<int> uses = count_uses();
  std::vector<char> read(constants.size());
  for (ValueId v : values.ids())
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

std::vector<ValueId> Program::results() const {
  std::vector<ValueId> r = outputs;
  for (const CellUse& u : cells)
    if (u.exit != kNone) r.push_back(u.exit);
  for (const GradUse& u : grads)
    if (u.exit != kNone) r.push_back(u.exit);
  return r;
}

PerValue<int> Program::count_uses() const {
  PerValue<int> n(values.size());
  for (const Instr& i : instrs)
    for (const Arg& a : i.in)
      if (a.value != kNone) ++n[a.value];
  for (ValueId v : results()) ++n[v];
  return n;
}

Program make_program(const Graph& g, const Symbols& symbols, bool keep_grads) {
  Program p;
  p.rng_draws = g.rng_draws;
  Translator t(p, g, symbols);
  const auto placeholder = [&](const Tensor& x, Origin origin, size_t index) {
    const ValueId v = p.add_value(Spec(x.dtype(), t.numbers(x.shape()), x.device()), origin,
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
    if (u.exit.defined()) p.grads.back().device = u.exit.device();
    if (u.entry.defined()) p.grads.back().entry = placeholder(u.entry, Origin::grad, i);
  }
  std::vector<Drop> drops;
  for (const Ref<Node>& n : g.nodes) {
    for (; drops.size() < g.drops.size() && g.drops[drops.size()].at == n->index;)
      drops.push_back({t.get(g.drops[drops.size()].value), p.instrs.size()});
    if (!t.known(*n)) t.add(*n, 0, {});
  }
  for (const Tensor& y : g.outputs) p.outputs.push_back(t.get(y));
  if (!is_host(p.device))
    for (const Tensor& y : g.outputs) p.output_devices.push_back(y.device());
  for (size_t i = 0; i < g.cells.size(); ++i)
    if (g.cells[i].exit.defined()) p.cells[i].exit = t.get(g.cells[i].exit);
  for (size_t i = 0; i < g.grads.size(); ++i) {
    Program::GradUse& u = p.grads[i];
    if (u.consumed && (keep_grads || !u.stored)) u.consumed = false;
    if (u.stored && !u.consumed && g.grads[i].exit.defined()) u.exit = t.get(g.grads[i].exit);
  }
  make_again(p, drops);
  return p;
}

std::vector<ValueId> inline_graph(Program& to, const Graph& g, const std::vector<ValueId>& args,
                                  uint32_t scope, SourceLocation loc) {
  static const Symbols none;
  Translator t(to, g, none);
  for (size_t i = 0; i < g.inputs.size(); ++i) t.set(g.inputs[i], args[i]);
  TD_ASSERT(g.captures.empty() && g.cells.empty() && g.grads.empty());
  for (const Ref<Node>& n : g.nodes)
    if (!t.known(*n)) t.add(*n, scope, loc);
  std::vector<ValueId> out;
  for (const Tensor& y : g.outputs) out.push_back(t.get(y));
  return out;
}

namespace {
std::string number_text(const Scalar& n) {
  return n.kind == 2 ? fmt::format("{}", n.f) : fmt::format("{}", n.i);
}

std::string text(const Program& p, const Instr& i) {
  std::string outs, ins, specs;
  for (ValueId v : i.out) {
    outs += (outs.empty() ? "" : ", ") + to_string(v);
    if (v != kNone) specs += (specs.empty() ? " : " : ", ") + p.values[v].spec.to_string();
  }
  for (const Arg& a : i.in)
    ins += (ins.empty() ? "" : ", ") + (a.is_number ? number_text(a.number) : to_string(a.value));
  const std::string what = i.fused_names.empty() ? "" : "[" + i.fused_names + "]";
  const std::string attrs =
      i.attrs.get() ? fmt::format(" {{{}}}", print_attrs(i.attrs.type(), i.attrs.get())) : "";
  return fmt::format("{} = {}{}({}){}{}{}\n", outs, i.name(), what, ins,
                     i.recomputed ? " recomputed" : "", attrs, specs);
}
}  // namespace

std::string Program::to_string() const {
  std::string s;
  const auto show = [&](ValueId v, const std::string& what) {
    s += fmt::format("{} = {} : {}\n", compiler::to_string(v), what, values[v].spec.to_string());
  };
  for (ValueId v : inputs) show(v, "input");
  for (ValueId v : captures) show(v, "capture");
  for (const CellUse& u : cells)
    if (u.entry != kNone) show(u.entry, fmt::format("cell {}", u.cell->name));
  for (const Instr& i : instrs) s += text(*this, i);
  for (const CellUse& u : cells)
    if (u.exit != kNone)
      s += fmt::format("cell {} <- {}\n", u.cell->name, compiler::to_string(u.exit));
  for (const GradUse& u : grads)
    if (u.exit != kNone) s += fmt::format("grad <- {}\n", compiler::to_string(u.exit));
  s += "return";
  for (ValueId v : outputs) s += " " + compiler::to_string(v);
  return s + "\n";
}

namespace {
void verify_specs(const Program& p, const Instr& i, const char* after) {
  if (!i.op || i.op->family == Family::control) return;
  InferCall c(*i.op, i.attrs.get());
  for (const Arg& a : i.in) {
    c.in.push_back(a.value == kNone ? Spec() : p.values[a.value].spec);
    if (i.converted && is_floating(c.in.back().dtype)) c.in.back().dtype = DType::f32;
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
    c.out[o].device = have.device;
    if (i.converted && is_floating(have.dtype) && is_floating(c.out[o].dtype))
      c.out[o].dtype = have.dtype;
    TD_CHECK(have == c.out[o], Internal,
             "after the pass '{}' output {} of {} is {}, its row gives {}", after, o, i.name(),
             have.to_string(), c.out[o].to_string());
  }
}
}  // namespace

void verify(const Program& p, const char* after) {
  PerValue<char> made(p.values.size());
  for (ValueId v : p.values.ids()) made[v] = p.values[v].origin != Origin::instr;
  for (const Instr& i : p.instrs) {
    for (const Arg& a : i.in)
      TD_CHECK(a.value == kNone || made[a.value], Internal,
               "after the pass '{}' {} reads {} before it is made", after, i.name(),
               to_string(a.value));
    for (ValueId v : i.out) {
      if (v == kNone) continue;
      TD_CHECK(!made[v], Internal, "after the pass '{}' {} is made twice", after, to_string(v));
      made[v] = 1;
    }
    verify_specs(p, i, after);
  }
  for (ValueId v : p.results())
    TD_CHECK(made[v], Internal, "after the pass '{}' result {} is not made", after, to_string(v));
}

size_t bytes_of(const Spec& s) {
  constexpr uint64_t kMost = uint64_t{1} << 47;  // what a process has
  const int64_t n = s.shape.numel().value();
  uint64_t bytes = 0;
  TD_CHECK(
      !__builtin_mul_overflow(static_cast<uint64_t>(n), size_of(s.dtype), &bytes) && bytes <= kMost,
      Memory, "a value of {} {} elements is more than this machine can address", n,
      to_string(s.dtype));
  return bytes;
}

}  // namespace tandem::compiler
