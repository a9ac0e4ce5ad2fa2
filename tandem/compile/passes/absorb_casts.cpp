// SPDX-License-Identifier: Apache-2.0
// Casts between f32 and 16-bit floats go into the kernels beside them that convert by themselves
// (Kernel::converts): under autocast a norm reads what a matmul wrote and writes what the next one
// reads, and the values in f32 between them are neither stored nor read. Bits stay as they are:
// reading a 16-bit float is exact, and the result is rounded once, as by the cast.
#include "tandem/compile/passes/edits.h"
#include "tandem/compile/passes/emit.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/program/use_def.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/pointwise/pointwise.h"

namespace tandem::compiler {
namespace {

class CastAbsorber {
 public:
  explicit CastAbsorber(Program& p) : p_(p), uses_(p), edits_(p), left_(p.count_uses()) {}

  void run() {
    for (InstrId k : p_.instrs.ids())
      if (converts(p_.instrs[k])) {
        take_operands(p_.instrs[k]);
        take_results(p_.instrs[k]);
      }
    edits_.apply();
  }

 private:
  const Spec& spec(ValueId v) const { return p_.values[v].spec; }

  // Does a kernel run it as it stands, whatever floats it gets?
  bool converts(const Instr& i) const {
    if (!i.op || i.op == &op::cast || i.op->family == Family::control) return false;
    EpilogueKind epilogue;
    const KernelChoice choice = row_major_kernel(p_, i, epilogue);
    return choice.way == KernelChoice::direct && choice.kernel && choice.kernel->converts &&
           !choice.on_host;
  }

  // The cast that makes v from a narrower float, or that alone reads v and narrows it.
  InstrId widening(ValueId v) const {
    const InstrId k = uses_.maker(v);
    const bool is = k != kNone && p_.instrs[k].op == &op::cast && spec(v).dtype == DType::f32 &&
                    operand(p_.instrs[k], 0) != kNone &&
                    is_short_float(spec(operand(p_.instrs[k], 0)).dtype);
    return is ? k : InstrId();
  }
  InstrId narrowing(ValueId v) const {
    if (v == kNone || spec(v).dtype != DType::f32 || !uses_.read_once(v)) return InstrId();
    const InstrId k = uses_.readers(v)[0];
    const Instr& i = p_.instrs[k];
    const bool is = i.op == &op::cast && i.out[0] != kNone && is_short_float(spec(i.out[0]).dtype);
    return is && !edits_.is_removed(k) ? k : InstrId();
  }

  void take_operands(Instr& i) {
    for (size_t o = 0; o < i.in.size(); ++o) {
      const InstrId cast = widening(i.in[o].value);
      if (cast == kNone) continue;
      Instr changed = i;
      changed.in[o].value = p_.instrs[cast].in[0].value;
      if (!converts(changed)) continue;
      if (--left_[i.in[o].value] == 0) edits_.remove(cast);
      ++left_[changed.in[o].value];
      i.in[o] = changed.in[o];
      i.converted = true;
    }
  }

  void take_results(Instr& i) {
    for (size_t o = 0; o < i.out.size(); ++o) {
      const InstrId cast = narrowing(i.out[o]);
      if (cast == kNone) continue;
      Instr changed = i;
      changed.out[o] = p_.instrs[cast].out[0];
      if (!converts(changed)) continue;
      edits_.remove(cast);
      i.out[o] = changed.out[o];
      p_.values[i.out[o]].index = static_cast<int>(o);
      i.converted = true;
    }
  }

  Program& p_;
  UseDef uses_;
  Edits edits_;
  PerValue<int> left_;  ///< readings of a value that are not gone
};

}  // namespace

void absorb_casts(Program& p) {
  if (p.device.kind != DeviceKind::cpu) CastAbsorber(p).run();
}

}  // namespace tandem::compiler
