// SPDX-License-Identifier: Apache-2.0
// Rows that compute on f32 copies of their 16-bit operands (Kernel::widens), as all large ones do
// on processors without instructions for bf16, become rows of f32 between casts. Casts merge with
// each other and with the loops beside them, and all that f32 has applies: layouts, packed weights,
// epilogues. Bits stay as they are: a copy is exact, and results are rounded once, as by the cast.
#include <unordered_map>
#include <utility>

#include "tandem/compile/passes/emit.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/graph/apply.h"
#include "tandem/graph/dry_run.h"

namespace tandem::compiler {
namespace {

class Widener {
 public:
  explicit Widener(Program& p) : p_(p), e_(p) {}

  void run() {
    PerInstr<Instr> old = std::exchange(p_.instrs, {});
    for (Instr& i : old) {
      if (widens(i))
        widen(std::move(i));
      else
        p_.instrs.push_back(std::move(i));
    }
  }

 private:
  bool is_short(ValueId v) const {
    if (v == kNone) return false;
    const DType t = p_.values[v].spec.dtype;
    return t == DType::bf16 || t == DType::f16;
  }

  bool widens(const Instr& i) const {
    if (!i.op || i.op->family == Family::control) return false;
    bool any = false;
    for (const Arg& a : i.in) any |= is_short(a.value);
    if (!any) return false;
    EpilogueKind epilogue;
    const KernelChoice choice = row_major_kernel(p_, i, epilogue);
    return choice.way == KernelChoice::direct && choice.kernel && choice.kernel->widens &&
           !choice.on_host;
  }

  ValueId wide_of(ValueId v) {
    ValueId& wide = wide_[v.index()];
    if (wide == kNone) {
      const CastAttrs to{DType::f32};
      wide = e_.emit(op::cast, fields<CastAttrs>(), &to, {v});
    }
    return wide;
  }

  void widen(Instr i) {
    e_.at(i);
    for (Arg& a : i.in)
      if (is_short(a.value)) a.value = wide_of(a.value);
    SmallVec<Instr, 2> casts;
    for (size_t o = 0; o < i.out.size(); ++o) {
      const ValueId y = i.out[o];
      if (!is_short(y)) continue;
      Spec spec = p_.values[y].spec;
      const CastAttrs to{spec.dtype};
      spec.dtype = DType::f32;
      i.out[o] = p_.add_value(spec, Origin::instr, static_cast<int>(o));
      p_.values[y].index = 0;
      Instr cast;
      cast.op = &op::cast;
      cast.attrs = AttrsHolder(fields<CastAttrs>(), &to);
      cast.in.push_back({.value = i.out[o]});
      cast.out.push_back(y);
      cast.scope = i.scope;
      cast.loc = i.loc;
      casts.push_back(std::move(cast));
    }
    p_.widened.push_back({i.op->name, i.scope});
    p_.instrs.push_back(std::move(i));
    for (Instr& cast : casts) p_.instrs.push_back(std::move(cast));
  }

  Program& p_;
  Emitter e_;
  std::unordered_map<size_t, ValueId> wide_;  ///< a value's f32 copy
};

}  // namespace

void widen_operands(Program& p) {
  if (!is_dry_run_of_any_device()) Widener(p).run();
}

}  // namespace tandem::compiler
