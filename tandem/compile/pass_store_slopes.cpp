// SPDX-License-Identifier: Apache-2.0
// A gradient row g * slope(x) computes its slope where the forward row reads the same x, if both
// need the same costly function (gelu: erf) and x is kept for nothing else: the function is then
// computed once, and the backward loop is one product. Bits stay as they are; the slope takes the
// place of x, at 16 bits twice as much: it is kept in f32, as the gradient row would compute it.
#include <algorithm>

#include "tandem/compile/loop_builder.h"
#include "tandem/compile/passes.h"

namespace tandem::compiler {
namespace {

size_t idx(int k) { return static_cast<size_t>(k); }

bool costly(ScalarOp op) {
  return (op >= ScalarOp::exp && op <= ScalarOp::digamma) || op == ScalarOp::pow ||
         op == ScalarOp::atan2;
}

// The last product of a gradient row as (input g) * (registers without g).
struct Product {
  int16_t g = -1, slope = -1;  ///< registers
  bool g_first = false;
};

// Which inputs a register depends on, as bits.
std::vector<uint64_t> dependences(const ScalarProgram& p) {
  std::vector<uint64_t> on(p.code.size());
  for (size_t k = 0; k < p.code.size(); ++k) {
    const ScalarInstr& c = p.code[k];
    if (c.op == ScalarOp::input) on[k] = uint64_t{1} << c.input;
    for (int16_t r : {c.a, c.b, c.c})
      if (r >= 0) on[k] |= on[idx(r)];
  }
  return on;
}

bool find_product(const ScalarProgram& p, const std::vector<uint64_t>& on, Product& found) {
  if (p.out.size() != 1 || p.in.size() > 60) return false;
  const ScalarInstr& last = p.code[idx(p.out[0].reg)];
  if (last.op != ScalarOp::mul || last.a < 0 || last.b < 0) return false;
  for (bool first : {true, false}) {
    const int16_t g = first ? last.a : last.b, slope = first ? last.b : last.a;
    if (p.code[idx(g)].op != ScalarOp::input || (on[idx(slope)] & on[idx(g)]) || !on[idx(slope)])
      continue;
    found = {g, slope, first};
    return true;
  }
  return false;
}

class Slopes {
 public:
  explicit Slopes(Program& p) : p_(p), readers_(p.values.size()), leaves_(p.values.size()) {
    for (size_t k = 0; k < p.instrs.size(); ++k)
      for (const Arg& a : p.instrs[k].in)
        if (a.value != kNone) readers_[idx(a.value)].push_back(static_cast<int>(k));
    for (int v : p.results()) leaves_[idx(v)] = 1;
  }

  void run() {
    std::vector<std::vector<Instr>> after(p_.instrs.size());
    for (size_t k = 0; k < p_.instrs.size(); ++k) {
      if (!p_.instrs[k].op || !LoopBuilder::fusable(p_.instrs[k])) continue;
      if (p_.instrs[k].op->family != Family::pointwise) continue;
      move_slope(static_cast<int>(k), after);
    }
    std::vector<Instr> out;
    for (size_t k = 0; k < p_.instrs.size(); ++k) {
      out.push_back(std::move(p_.instrs[k]));
      for (Instr& i : after[k]) out.push_back(std::move(i));
    }
    p_.instrs = std::move(out);
  }

 private:
  const Spec& spec(int v) const { return p_.values[idx(v)].spec; }

  // What a register is stored as without rounding.
  static DType exact(Reg r) { return r == Reg::f64 ? DType::f64 : DType::f32; }

  void move_slope(int k, std::vector<std::vector<Instr>>& after) {
    Instr& i = p_.instrs[idx(k)];
    const ScalarProgram& own = scalar_program_of(p_, i);
    const std::vector<uint64_t> on = dependences(own);
    Product product;
    if (!find_product(own, on, product)) return;
    const std::vector<char> needed = used_by(own, product.slope);
    const int home = find_home(k, own, on[idx(product.slope)], needed);
    if (home == kNone) return;

    const Reg type = own.code[idx(product.slope)].result;
    if (type != Reg::f32 && type != Reg::f64) return;
    Instr slope = part(i, own, needed, product.slope);
    const int v = p_.add_value(Spec(exact(type), spec(i.out[0]).shape));
    slope.out.push_back(v);
    slope.scope = p_.instrs[idx(home)].scope;
    slope.where = p_.instrs[idx(home)].where;
    slope.again = p_.instrs[idx(home)].again;
    i = scaled(i, own, product, v);
    after[idx(home)].push_back(std::move(slope));
  }

  static std::vector<char> used_by(const ScalarProgram& p, int16_t root) {
    std::vector<char> used(p.code.size());
    used[idx(root)] = 1;
    for (size_t k = p.code.size(); k-- > 0;)
      if (used[k])
        for (int16_t r : {p.code[k].a, p.code[k].b, p.code[k].c})
          if (r >= 0) used[idx(r)] = 1;
    return used;
  }

  // The forward instruction after which the slope can stand, or kNone.
  int find_home(int k, const ScalarProgram& own, uint64_t inputs,
                const std::vector<char>& needed) const {
    const Instr& i = p_.instrs[idx(k)];
    int x = kNone;  // what the slope is a function of
    for (size_t n = 0; n < i.in.size(); ++n) {
      if (!(inputs >> n & 1)) continue;
      if (i.in[n].value == kNone || (x != kNone && x != i.in[n].value)) return kNone;
      x = i.in[n].value;
    }
    if (x == kNone || leaves_[idx(x)] || p_.values[idx(x)].origin != Origin::instr ||
        !(spec(x) == spec(i.out[0])))
      return kNone;
    int home = kNone;
    for (int r : readers_[idx(x)]) {
      if (r == k) continue;
      if (r > k) return kNone;
      const Instr& reader = p_.instrs[idx(r)];
      if (home == kNone && LoopBuilder::fusable(reader) && shares(own, needed, reader))
        home = r;
      else if (home != kNone)
        return kNone;  // x lives on anyway
    }
    return home;
  }

  // Does `reader` compute one of the slope's costly functions?
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
        int& at = input[idx(c.input)];
        if (at == kNone) {
          at = static_cast<int>(p.in.size());
          p.in.push_back(own.in[idx(c.input)]);
          loop.in.push_back(i.in[idx(c.input)]);
        }
        c.input = static_cast<int16_t>(at);
      }
      for (int16_t* r : {&c.a, &c.b, &c.c})
        if (*r >= 0) *r = static_cast<int16_t>(now[idx(*r)]);
      now[k] = static_cast<int>(p.code.size());
      p.code.push_back(c);
    }
    p.out.push_back({static_cast<int16_t>(now[idx(root)]), exact(own.code[idx(root)].result)});
    loop.fused = std::make_shared<const ScalarProgram>(std::move(p));
    loop.fused_names = std::string(i.op->name) + ".slope";
    return loop;
  }

  // g * slope, the operands in the row's order.
  static Instr scaled(const Instr& i, const ScalarProgram& own, const Product& product, int slope) {
    ScalarProgram p;
    const ScalarInstr& g = own.code[idx(product.g)];
    Instr loop;
    Arg s;
    s.value = slope;
    loop.in.push_back(i.in[idx(g.input)]);
    loop.in.push_back(s);
    p.in = {own.in[idx(g.input)], exact(own.code[idx(product.slope)].result)};
    ScalarInstr read = g;
    read.input = 0;
    p.code.push_back(read);
    read.input = 1;
    read.type = read.result = own.code[idx(product.slope)].result;
    p.code.push_back(read);
    ScalarInstr last = own.code[idx(own.out[0].reg)];
    last.a = product.g_first ? 0 : 1;
    last.b = product.g_first ? 1 : 0;
    p.code.push_back(last);
    p.out.push_back({2, own.out[0].dtype});
    loop.out = i.out;
    loop.scope = i.scope;
    loop.where = i.where;
    loop.again = i.again;
    loop.fused = std::make_shared<const ScalarProgram>(std::move(p));
    loop.fused_names = i.op->name;
    return loop;
  }

  Program& p_;
  std::vector<std::vector<int>> readers_;
  std::vector<char> leaves_;
};

}  // namespace

void store_slopes(Program& p) { Slopes(p).run(); }

}  // namespace tandem::compiler
