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
      if (i.op && i.op->family == Family::view && is_short(i.out[0]))
        views_.emplace(i.out[0].index(), i);
      if (widens(i))
        widen(std::move(i));
      else
        p_.instrs.push_back(std::move(i));
    }
  }

 private:
  bool is_short(ValueId v) const { return v != kNone && is_short_float(p_.values[v].spec.dtype); }

  bool widens(const Instr& i) const {
    if (!i.op || i.op->family == Family::control) return false;
    bool any = false;
    for (const Arg& a : i.in) {
      if (!is_short(a.value)) continue;
      if (is_stored(a.value)) return false;
      any = true;
    }
    if (!any) return false;
    EpilogueKind epilogue;
    const KernelChoice choice = row_major_kernel(p_, i, epilogue);
    return choice.way == KernelChoice::direct && choice.kernel && choice.kernel->widens &&
           !choice.on_host;
  }

  // Weights in 16 bits that stay are not kept in f32 beside it.
  bool is_stored(ValueId v) const {
    for (auto view = views_.find(v.index()); view != views_.end(); view = views_.find(v.index()))
      v = view->second.in[0].value;
    const Origin origin = p_.values[v].origin;
    return origin == Origin::constant || origin == Origin::derived ||
           (p_.weights_stay && (origin == Origin::cell || origin == Origin::capture));
  }

  // Of a view it is a view of the whole, whose copy is made where the whole is, unless that is far
  // larger.
  ValueId wide_of(ValueId v) {
    const auto known = wide_.find(v.index());
    if (known != wide_.end()) return known->second;
    ValueId wide;
    const auto view = views_.find(v.index());
    if (view != views_.end() && is_large_part(view->second)) {
      Instr i = view->second;
      i.in[0].value = wide_of(i.in[0].value);
      Spec spec = p_.values[v].spec;
      spec.dtype = DType::f32;
      wide = i.out[0] = p_.add_value(spec, Origin::instr, 0);
      p_.instrs.push_back(std::move(i));
    } else {
      const CastAttrs to{DType::f32};
      wide = e_.emit(op::cast, fields<CastAttrs>(), &to, {v});
    }
    wide_.emplace(v.index(), wide);
    return wide;
  }
  bool is_large_part(const Instr& view) const {
    constexpr int64_t kParts = 4;
    const auto numel = [&](ValueId v) { return p_.values[v].spec.shape.numel().value(); };
    const int64_t part = numel(view.out[0]), whole = numel(view.in[0].value);
    return part <= whole && part * kParts >= whole;
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
  std::unordered_map<size_t, Instr> views_;   ///< by their results
  std::unordered_map<size_t, ValueId> wide_;  ///< a value's f32 copy
};

}  // namespace

void widen_operands(Program& p) {
  if (!is_dry_run_of_any_device()) Widener(p).run();
}

}  // namespace tandem::compiler
