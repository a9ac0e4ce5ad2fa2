// SPDX-License-Identifier: Apache-2.0
// A gradient row g * derivative(x) computes its derivative where the forward row reads the same x,
// if both need the same costly function (gelu: erf) and x is kept for nothing else: the function is
// then computed once, and the backward loop is one multiplication. Bits stay as they are; the
// derivative takes the place of x, at 16 bits twice as much: it is kept in f32, as the gradient row
// would compute it.
#include <algorithm>

#include "tandem/compile/passes/edits.h"
#include "tandem/compile/passes/loop_builder.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/use_def.h"
#include "tandem/graph/backend.h"

namespace tandem::compiler {
namespace {

bool costly(ScalarOp op) {
  return (op >= ScalarOp::exp && op <= ScalarOp::digamma) || op == ScalarOp::pow ||
         op == ScalarOp::atan2;
}

// The last product of a gradient row as (input g) * (registers without g).
struct Product {
  int16_t g = -1, derivative = -1;  ///< registers
  bool g_first = false;
};

// Which inputs a register depends on, as bits.
std::vector<uint64_t> dependences(const ScalarProgram& p) {
  std::vector<uint64_t> on(p.code.size());
  for (size_t k = 0; k < p.code.size(); ++k) {
    const ScalarInstr& c = p.code[k];
    if (c.op == ScalarOp::input) on[k] = uint64_t{1} << c.input;
    for (int16_t r : {c.a, c.b, c.c})
      if (r >= 0) on[k] |= on[r];
  }
  return on;
}

bool find_product(const ScalarProgram& p, const std::vector<uint64_t>& on, Product& found) {
  if (p.out.size() != 1 || p.in.size() > 60) return false;
  const ScalarInstr& last = p.code[p.out[0].reg];
  if (last.op != ScalarOp::mul || last.a < 0 || last.b < 0) return false;
  for (bool first : {true, false}) {
    const int16_t g = first ? last.a : last.b, derivative = first ? last.b : last.a;
    if (p.code[g].op != ScalarOp::input || (on[derivative] & on[g]) || !on[derivative]) continue;
    found = {g, derivative, first};
    return true;
  }
  return false;
}

class StoredDerivatives {
 public:
  explicit StoredDerivatives(Program& p) : p_(p), uses_(p), edits_(p) {}

  void run() {
    for (InstrId k : p_.instrs.ids()) {
      const Instr& i = p_.instrs[k];
      if (i.op && i.op->family == Family::pointwise && LoopBuilder::fusable(i)) move_derivative(k);
    }
    edits_.apply();
  }

 private:
  const Spec& spec(ValueId v) const { return p_.values[v].spec; }

  // What a register is stored as without rounding.
  static DType exact(Reg r) { return r == Reg::f64 ? DType::f64 : DType::f32; }

  void move_derivative(InstrId k) {
    Instr& i = p_.instrs[k];
    const ScalarProgram& own = scalar_program_of(p_, i);
    const std::vector<uint64_t> on = dependences(own);
    Product product;
    if (!find_product(own, on, product)) return;
    const std::vector<char> needed = used_by(own, product.derivative);
    const InstrId home = find_home(k, own, on[product.derivative], needed);
    if (home == kNone) return;

    const Reg type = own.code[product.derivative].result;
    if (type != Reg::f32 && type != Reg::f64) return;
    Instr derivative = part(i, own, needed, product.derivative);
    const ValueId v = p_.add_value(Spec(exact(type), spec(i.out[0]).shape));
    derivative.out.push_back(v);
    derivative.scope = p_.instrs[home].scope;
    derivative.loc = p_.instrs[home].loc;
    derivative.recomputed = p_.instrs[home].recomputed;
    i = scaled(i, own, product, v);
    edits_.put_after(home, std::move(derivative));
  }

  static std::vector<char> used_by(const ScalarProgram& p, int16_t root) {
    std::vector<char> used(p.code.size());
    used[root] = 1;
    for (size_t k = p.code.size(); k-- > 0;)
      if (used[k])
        for (int16_t r : {p.code[k].a, p.code[k].b, p.code[k].c})
          if (r >= 0) used[r] = 1;
    return used;
  }

  // The forward instruction after which the derivative can stand, or kNone.
  InstrId find_home(InstrId k, const ScalarProgram& own, uint64_t inputs,
                    const std::vector<char>& needed) const {
    const Instr& i = p_.instrs[k];
    ValueId x;  // what the derivative is a function of
    for (size_t n = 0; n < i.in.size(); ++n) {
      if (!(inputs >> n & 1)) continue;
      if (i.in[n].value == kNone || (x != kNone && x != i.in[n].value)) return kNone;
      x = i.in[n].value;
    }
    if (x == kNone || uses_.leaves(x) || p_.values[x].origin != Origin::instr ||
        !(spec(x) == spec(i.out[0])))
      return kNone;
    InstrId home;
    for (InstrId r : uses_.readers(x)) {
      if (r == k) continue;
      if (r > k) return kNone;
      const Instr& reader = p_.instrs[r];
      if (home == kNone && LoopBuilder::fusable(reader) && shares(own, needed, reader))
        home = r;
      else if (home != kNone)
        return kNone;  // x lives on anyway
    }
    return home;
  }

  // Does `reader` compute one of the derivative's costly functions?
  bool shares(const ScalarProgram& own, const std::vector<char>& needed,
              const Instr& reader) const {
    if (!reader.op || reader.op->family != Family::pointwise) return false;
    const ScalarProgram& theirs = scalar_program_of(p_, reader);
    for (size_t k = 0; k < own.code.size(); ++k) {
      if (!needed[k] || !costly(own.code[k].op)) continue;
      for (const ScalarInstr& c : theirs.code)
        if (c.op == own.code[k].op) return true;
    }
    return false;
  }

  // The registers `needed` of `own` as a loop of one result.
  static Instr part(const Instr& i, const ScalarProgram& own, const std::vector<char>& needed,
                    int16_t root) {
    Instr loop;
    ScalarProgram p;
    std::vector<int> now(own.code.size(), kNone);
    std::vector<int> input(own.in.size(), kNone);
    for (size_t k = 0; k < own.code.size(); ++k) {
      if (!needed[k]) continue;
      ScalarInstr c = own.code[k];
      if (c.op == ScalarOp::input) {
        int& at = input[c.input];
        if (at == kNone) {
          at = static_cast<int>(p.in.size());
          p.in.push_back(own.in[c.input]);
          loop.in.push_back(i.in[c.input]);
        }
        c.input = static_cast<int16_t>(at);
      }
      for (int16_t* r : {&c.a, &c.b, &c.c})
        if (*r >= 0) *r = static_cast<int16_t>(now[*r]);
      now[k] = static_cast<int>(p.code.size());
      p.code.push_back(c);
    }
    p.out.push_back({static_cast<int16_t>(now[root]), exact(own.code[root].result)});
    loop.fused = std::make_shared<const ScalarProgram>(std::move(p));
    loop.fused_names = std::string(i.op->name) + ".derivative";
    return loop;
  }

  // g * derivative, the operands in the row's order.
  static Instr scaled(const Instr& i, const ScalarProgram& own, const Product& product,
                      ValueId derivative) {
    ScalarProgram p;
    const ScalarInstr& g = own.code[product.g];
    Instr loop;
    Arg s;
    s.value = derivative;
    loop.in.push_back(i.in[g.input]);
    loop.in.push_back(s);
    p.in = {own.in[g.input], exact(own.code[product.derivative].result)};
    ScalarInstr read = g;
    read.input = 0;
    p.code.push_back(read);
    read.input = 1;
    read.type = read.result = own.code[product.derivative].result;
    p.code.push_back(read);
    ScalarInstr last = own.code[own.out[0].reg];
    last.a = product.g_first ? 0 : 1;
    last.b = product.g_first ? 1 : 0;
    p.code.push_back(last);
    p.out.push_back({2, own.out[0].dtype});
    loop.out = i.out;
    loop.scope = i.scope;
    loop.loc = i.loc;
    loop.recomputed = i.recomputed;
    loop.fused = std::make_shared<const ScalarProgram>(std::move(p));
    loop.fused_names = i.op->name;
    return loop;
  }

  Program& p_;
  UseDef uses_;
  Edits edits_;
};

}  // namespace

void store_derivatives(Program& p) {
  if (runs_loops(p.device)) StoredDerivatives(p).run();
}

}  // namespace tandem::compiler
