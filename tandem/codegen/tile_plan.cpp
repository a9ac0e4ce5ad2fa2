// SPDX-License-Identifier: Apache-2.0
// From a ScalarProgram to steps: classes of registers, fusion of two frequent pairs, then one pass
// that gives every register a slot and takes it back after its last use.
#include "tandem/codegen/tile_plan.h"

#include <algorithm>
#include <cstring>

#include "tandem/base/error.h"
#include "tandem/graph/expression/scalar_eval.h"
#include "tandem/graph/expression/scalar_expr.h"

namespace tandem::codegen {
namespace {

double cost_of(const ScalarInstr& i) {
  switch (i.op) {
    case ScalarOp::input:
    case ScalarOp::constant:
      return 0;
    case ScalarOp::div:
    case ScalarOp::sqrt:
    case ScalarOp::rsqrt:
      return 3;
    case ScalarOp::floor_div:
    case ScalarOp::trunc_div:
    case ScalarOp::remainder:
    case ScalarOp::fmod:
    case ScalarOp::lgamma:
    case ScalarOp::digamma:
    case ScalarOp::erfinv:
    case ScalarOp::erfcx:
    case ScalarOp::ndtri:
    case ScalarOp::i0e:
    case ScalarOp::i1e:
      return 40;
    case ScalarOp::zeta:
    case ScalarOp::gammainc:
    case ScalarOp::gammaincc:
      return 400;
    case ScalarOp::pow:
    case ScalarOp::atan2:
      return 20;
    default:
      break;
  }
  const bool math = i.op >= ScalarOp::exp && i.op <= ScalarOp::sigmoid;
  return (math ? 10 : 1) * (i.type == Reg::f32 ? 1 : 2);
}

bool is_integer_division(const ScalarInstr& i) {
  return i.type == Reg::i64 && (i.op == ScalarOp::floor_div || i.op == ScalarOp::trunc_div ||
                                i.op == ScalarOp::remainder || i.op == ScalarOp::fmod);
}

bool compare_of(ScalarOp op, bool swapped, Compare& out) {
  switch (op) {
    case ScalarOp::lt:
      out = swapped ? Compare::gt : Compare::lt;
      return true;
    case ScalarOp::le:
      out = swapped ? Compare::ge : Compare::le;
      return true;
    case ScalarOp::gt:
      out = swapped ? Compare::lt : Compare::gt;
      return true;
    case ScalarOp::ge:
      out = swapped ? Compare::le : Compare::ge;
      return true;
    default:
      return false;
  }
}

// What one register becomes.
struct Cell {
  Access level = Access::value;  // value, row or dense (= per element)
  int uses = 0;
  bool absorbed = false;  // computed inside its only user
  int16_t slot = -1;
  bool owns_tile = false;
  bool in_output = false;
};

// The fused form of an instruction, if any.
struct Fused {
  enum Kind : uint8_t { none, select_compare, mul_add } kind = none;
  Compare compare = Compare::lt;
  int16_t a = -1, b = -1, c = -1, d = -1;
};

class Builder {
 public:
  Builder(const ScalarProgram& p, const Access* access, const TileOptions& o, const TileTable& t)
      : p_(p), access_(access), o_(o), t_(t), cells_(p.code.size()), fused_(p.code.size()) {}

  TilePlan build() {
    plan_.n_in = static_cast<int>(p_.in.size());
    plan_.n_out = static_cast<int>(p_.out.size());
    TD_ASSERT(plan_.n_in <= kMaxPlanIns && plan_.n_out <= kMaxPlanOuts);
    for (int k = 0; k < plan_.n_out; ++k) plan_.out_type[k] = p_.out[k].dtype;
    classify();
    fuse();
    last_reads();
    choose_direct_outputs();
    plan_.cost = 0;
    for (size_t k = 0; k < p_.code.size(); ++k) {
      if (is_tile(k)) plan_.cost += cost_of(p_.code[k]);
      if (!cells_[k].absorbed) emit(static_cast<int>(k));
    }
    store_outputs();
    plan_.cost = std::max(plan_.cost, 1.0);
    resolve();
    return std::move(plan_);
  }

 private:
  // Until all counts are known, tiles and values are numbered from these bases.
  static constexpr int kTileBase = 1000, kValueBase = 4000;

  bool is_tile(size_t k) const { return cells_[k].level == Access::dense; }

  void classify() {
    for (size_t k = 0; k < p_.code.size(); ++k) {
      const ScalarInstr& i = p_.code[k];
      Access level = Access::value;
      if (i.op == ScalarOp::input) level = std::min(access_[i.input], Access::dense);
      for (int16_t r : {i.a, i.b, i.c}) {
        if (r < 0) continue;
        level = std::max(level, cells_[r].level);
        ++cells_[r].uses;
      }
      cells_[k].level = level;
    }
    for (const ScalarProgram::Out& out : p_.out) {
      ++cells_[out.reg].uses;
      cells_[out.reg].in_output = true;
    }
  }

  bool is_real(Reg r) const { return r == Reg::f32 || r == Reg::f64; }
  // A register that its user may compute in passing.
  bool inner(int16_t r) const { return is_tile(r) && cells_[r].uses == 1; }

  void fuse() {
    for (size_t k = 0; k < p_.code.size(); ++k) {
      const ScalarInstr& i = p_.code[k];
      if (!is_tile(k) || !is_real(i.type)) continue;
      if (i.op == ScalarOp::select) fuse_select(i, fused_[k]);
      if (i.op == ScalarOp::add) fuse_add(i, fused_[k]);
    }
  }

  void fuse_select(const ScalarInstr& i, Fused& f) {
    const ScalarInstr& test = p_.code[i.a];
    if (!inner(i.a) || test.type != i.type) return;
    const bool swapped = !is_tile(test.a);
    const int16_t x = swapped ? test.b : test.a, limit = swapped ? test.a : test.b;
    if (!compare_of(test.op, swapped, f.compare) || is_tile(limit)) return;
    f.kind = Fused::select_compare;
    f.a = x;
    f.b = limit;
    f.c = i.b;
    f.d = i.c;
    cells_[i.a].absorbed = true;
  }

  void fuse_add(const ScalarInstr& i, Fused& f) {
    for (int side = 0; side < 2; ++side) {
      const int16_t r = side ? i.b : i.a, rest = side ? i.a : i.b;
      if (p_.code[r].op != ScalarOp::mul || !inner(r) || fused_[r].kind != Fused::none) continue;
      const ScalarInstr& m = p_.code[r];
      const bool swapped = !is_tile(m.a);
      f.kind = Fused::mul_add;
      f.a = swapped ? m.b : m.a;
      f.b = swapped ? m.a : m.b;
      f.c = rest;
      cells_[r].absorbed = true;
      return;
    }
  }

  int operands(int k, int16_t (&regs)[4]) const {
    const Fused& f = fused_[k];
    const ScalarInstr& i = p_.code[k];
    if (f.kind != Fused::none) {
      const int16_t all[4] = {f.a, f.b, f.c, f.d};
      std::copy(all, all + 4, regs);
      return f.kind == Fused::select_compare ? 4 : 3;
    }
    const int16_t all[4] = {i.a, i.b, i.c, -1};
    std::copy(all, all + 4, regs);
    return arity_of(i.op);
  }

  void last_reads() {
    last_.assign(p_.code.size(), -1);
    last_input_read_.assign(p_.in.size(), -1);
    for (size_t k = 0; k < p_.code.size(); ++k) {
      if (cells_[k].absorbed) continue;
      const auto step = static_cast<int>(k);
      int16_t regs[4];
      const int n = operands(step, regs);
      for (int j = 0; j < n; ++j) {
        last_[regs[j]] = step;
        if (reads_input(regs[j])) last_input_read_[p_.code[regs[j]].input] = step;
      }
      if (reads_input(static_cast<int16_t>(k))) {
        int& last = last_input_read_[p_.code[k].input];
        last = std::max(last, step);
      }
    }
  }
  bool reads_input(int16_t r) const { return p_.code[r].op == ScalarOp::input && is_tile(r); }

  // The step that makes an output writes it straight to memory, unless it must be converted or a
  // later step still reads an input that may be the same memory.
  void choose_direct_outputs() {
    for (size_t k = 0; k < p_.out.size(); ++k) {
      const int16_t r = p_.out[k].reg;
      if (!is_tile(r) || p_.code[r].op == ScalarOp::input) continue;
      if (!stored_as_reg(p_.out[k].dtype) || cells_[r].slot >= 0) continue;
      bool read_later = false;
      for (size_t i = 0; i < p_.in.size(); ++i) {
        read_later |= (o_.alias[k] >> i & 1) && last_input_read_[i] > r;
      }
      if (!read_later) cells_[r].slot = static_cast<int16_t>(plan_.n_in + k);
    }
  }

  int16_t new_tile() {
    if (!free_.empty()) {
      const int16_t t = free_.back();
      free_.pop_back();
      return t;
    }
    return static_cast<int16_t>(kTileBase + plan_.n_tiles++);
  }
  int16_t new_value() { return static_cast<int16_t>(kValueBase + plan_.n_values++); }

  void release(int16_t r, int k) {
    Cell& c = cells_[r];
    if (!c.owns_tile || c.in_output || last_[r] != k) return;
    free_.push_back(c.slot);
    c.owns_tile = false;
  }

  // The slot for the result of k; a dying operand of the same size gives its tile.
  int16_t result_slot(int k, const int16_t* regs, int n) {
    Cell& c = cells_[k];
    if (c.slot >= 0) return c.slot;
    if (!is_tile(k)) return c.slot = new_value();
    const int size = reg_size(p_.code[k].result);
    plan_.tile_width = std::max(plan_.tile_width, size);
    for (int j = 0; j < n; ++j) {
      Cell& x = cells_[regs[j]];
      if (!x.owns_tile || x.in_output || last_[regs[j]] != k) continue;
      if (reg_size(p_.code[regs[j]].result) != size) continue;
      x.owns_tile = false;
      c.owns_tile = true;
      return c.slot = x.slot;
    }
    c.owns_tile = true;
    return c.slot = new_tile();
  }

  std::vector<TileStep>& list_of(size_t k) {
    return is_tile(k)                       ? plan_.steps
           : cells_[k].level == Access::row ? plan_.row_steps
                                            : plan_.value_steps;
  }

  void emit(int k) {
    const ScalarInstr& i = p_.code[k];
    if (i.op == ScalarOp::input) return emit_input(k);
    if (i.op == ScalarOp::constant) {
      cells_[k].slot = new_value();
      plan_.constants.emplace_back(cells_[k].slot, register_bits(i.imm, i.result));
      return;
    }
    int16_t regs[4];
    const int n = operands(k, regs);
    TileStep s;
    s.fn = kernel_of(k, regs, n);
    TD_CHECK(s.fn, Internal, "no tile kernel for scalar op {} of register type {}",
             static_cast<int>(i.op), static_cast<int>(i.type));
    int16_t* at[4] = {&s.a, &s.b, &s.c, &s.d};
    for (int j = 0; j < 4; ++j) *at[j] = cells_[regs[j < n ? j : 0]].slot;
    if (is_integer_division(i)) {
      s.divides = true;
      s.divisor_is_value = !is_tile(regs[1]);
    }
    s.out = result_slot(k, regs, n);
    for (int j = 0; j < n; ++j) release(regs[j], k);
    list_of(k).push_back(s);
    auto& meanings = is_tile(k)                       ? plan_.meanings
                     : cells_[k].level == Access::row ? plan_.row_meanings
                                                      : plan_.value_meanings;
    meanings.push_back(meaning_of(k, regs, n));
  }

  StepMeaning meaning_of(int k, const int16_t* regs, int n) const {
    const ScalarInstr& i = p_.code[k];
    StepMeaning m;
    m.kind = fused_[k].kind == Fused::select_compare ? StepMeaning::select_compare
             : fused_[k].kind == Fused::mul_add      ? StepMeaning::mul_add
             : i.op == ScalarOp::convert             ? StepMeaning::convert
             : i.op == ScalarOp::wrap                ? StepMeaning::wrap
                                                     : StepMeaning::op;
    m.scalar = i.op;
    m.type = i.type;
    m.result = i.result;
    m.dtype = i.narrow;
    m.compare = fused_[k].compare;
    for (int j = 0; j < n; ++j) m.values |= static_cast<uint8_t>(!is_tile(regs[j]) << j);
    return m;
  }

  void emit_input(int k) {
    const ScalarInstr& i = p_.code[k];
    Cell& c = cells_[k];
    c.slot = i.input;
    if (!is_tile(k)) return;
    const DType stored = p_.in[i.input];
    // An output that is an input as it came: another output may be written over it first.
    bool must_keep = false;
    for (size_t o = 0; o < p_.out.size(); ++o) {
      must_keep |= c.in_output && p_.out[o].reg != k && (o_.alias[o] >> i.input & 1);
    }
    if (stored_as_reg(stored) && !must_keep) return;
    c.slot = -1;
    TileStep s;
    s.fn = t_.load[static_cast<int>(stored)];
    s.a = s.b = s.c = s.d = i.input;
    s.out = result_slot(k, nullptr, 0);
    plan_.steps.push_back(s);
    plan_.meanings.push_back(
        {.kind = StepMeaning::load, .type = i.result, .result = i.result, .dtype = stored});
    plan_.cost += 1;
  }

  TileFn kernel_of(int k, const int16_t* regs, int n) const {
    const ScalarInstr& i = p_.code[k];
    const Fused& f = fused_[k];
    const bool wide = i.type == Reg::f64;
    if (f.kind == Fused::select_compare) {
      return t_
          .select_compare[static_cast<int>(f.compare)][wide][!is_tile(f.c) + 2 * !is_tile(f.d)];
    }
    if (f.kind == Fused::mul_add) return t_.mul_add[wide][!is_tile(f.b) + 2 * !is_tile(f.c)];
    if (i.op == ScalarOp::convert) {
      return t_.convert[static_cast<int>(i.type)][static_cast<int>(i.result)];
    }
    if (i.op == ScalarOp::wrap) return t_.wrap[static_cast<int>(i.narrow)];
    int form = 0;
    for (int j = 0; j < n; ++j) form |= (is_tile(k) && !is_tile(regs[j])) << j;
    return t_.op[static_cast<int>(i.op)][static_cast<int>(i.type)][form];
  }

  void store_outputs() {
    for (size_t k = 0; k < p_.out.size(); ++k) {
      const ScalarProgram::Out& out = p_.out[k];
      const auto slot = static_cast<int16_t>(plan_.n_in + k);
      if (cells_[out.reg].slot == slot) continue;
      TileStep s;
      s.out = slot;
      s.a = s.b = s.c = s.d = cells_[out.reg].slot;
      const auto reg = static_cast<int>(p_.code[out.reg].result);
      TD_ASSERT(reg_of(out.dtype) == p_.code[out.reg].result);
      s.fn = t_.store[static_cast<int>(out.dtype)];
      StepMeaning m;
      m.kind = StepMeaning::store;
      m.type = m.result = p_.code[out.reg].result;
      m.dtype = out.dtype;
      if (!is_tile(out.reg)) {
        const StepMeaning one{
            .kind = StepMeaning::fill, .type = m.type, .result = m.type, .values = 1};
        if (stored_as_reg(out.dtype)) {
          s.fn = t_.fill[reg];
          m = one;
        } else {
          TileStep fill = s;
          fill.fn = t_.fill[reg];
          fill.out = s.a = s.b = s.c = s.d = new_tile();
          plan_.tile_width = std::max(plan_.tile_width, reg_size(p_.code[out.reg].result));
          plan_.steps.push_back(fill);
          plan_.meanings.push_back(one);
        }
      }
      plan_.steps.push_back(s);
      plan_.meanings.push_back(m);
      plan_.cost += 1;
    }
  }

  // Final slot numbers.
  void resolve() {
    const int tiles = plan_.first_tile(), values = plan_.first_value();
    const auto fix = [&](int16_t& s) {
      s = static_cast<int16_t>(s >= kValueBase  ? values + s - kValueBase
                               : s >= kTileBase ? tiles + s - kTileBase
                                                : s);
    };
    for (auto* list : {&plan_.value_steps, &plan_.row_steps, &plan_.steps}) {
      for (TileStep& s : *list) {
        for (int16_t* slot : {&s.out, &s.a, &s.b, &s.c, &s.d}) fix(*slot);
      }
    }
    for (auto& c : plan_.constants) fix(c.first);
  }

  const ScalarProgram& p_;
  const Access* access_;
  const TileOptions o_;
  const TileTable& t_;
  std::vector<Cell> cells_;
  std::vector<Fused> fused_;
  std::vector<int> last_;
  std::vector<int> last_input_read_;
  std::vector<int16_t> free_;
  TilePlan plan_;
};

bool has_zero(const int64_t* p, int64_t n) {
  bool zero = false;
  for (int64_t i = 0; i < n; ++i) zero |= p[i] == 0;
  return zero;
}

}  // namespace

TilePlan make_tile_plan(const ScalarProgram& program, const Access* access,
                        const TileOptions& options, const TileTable& table) {
  return Builder(program, access, options, table).build();
}

void run_steps(const std::vector<TileStep>& steps, void* const* slots, int64_t n,
               ErrorWord* error) {
  for (const TileStep& s : steps) {
    if (TD_UNLIKELY(s.divides) && error) {
      if (has_zero(static_cast<const int64_t*>(slots[s.b]), s.divisor_is_value ? 1 : n)) {
        error->report(kDivisionByZero, 0);
      }
    }
    s.fn(slots[s.out], slots[s.a], slots[s.b], slots[s.c], slots[s.d], n);
  }
}

int64_t register_bits(const Scalar& s, Reg r) {
  const Value v = to_value(s, r);
  int64_t bits = 0;
  std::memcpy(&bits, &v, static_cast<size_t>(reg_size(r)));
  return bits;
}

}  // namespace tandem::codegen
