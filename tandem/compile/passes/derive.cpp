// SPDX-License-Identifier: Apache-2.0
// What follows from weights alone leaves the program: packed weights, scaled filters, shifted
// biases. Of constants it becomes a constant, of cells a value that is recomputed only when one of
// them was written (derived.h). Results much larger than what they are made of stay.
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/compile/run/derived.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/index/index.h"
#include "tandem/ops/matmul/packed.h"

namespace tandem::compiler {
namespace {

constexpr size_t kDerivedKept = 1 << 20;  ///< bytes that may always be kept
constexpr size_t kDerivedGrowth = 6;      ///< a result may be so much larger than its sources

// Rows that are looked up in a table which lies in a file are looked up in its bytes: the table is
// not copied for the few rows that a call reads.
void look_up_bytes(Rewrite& r) {
  const Instr& i = r.root();
  Emitter& e = r.emit();
  const Spec table = r.spec(r.value("table")), out = r.spec(i.out[0]);
  if (i.in.size() != 2 || static_cast<const IndexAttrs*>(i.attrs.get())->dim != 0) return;
  const int64_t rows = table.shape[0].value();
  if (rows == 0 || out.shape.numel().value() >= table.shape.numel().value() / 2) return;
  const ValueId bytes = r.value("bytes");
  const int64_t row = e.size(bytes, 0) / rows;
  const ValueId found = e.emit(op::index, i.attrs.type(), i.attrs.get(),
                               {e.view(bytes, Shape(rows, row)), r.value("at")});
  ReadBytesAttrs b;
  b.dtype = out.dtype;
  for (const Dim d : out.shape) b.shape.push_back(d);
  const int64_t n = e.shape(found).numel().value();
  r.replace(e.emit(op::read_bytes, fields<ReadBytesAttrs>(), &b, {e.view(found, Shape(n))}));
}

void look_up_rows_in_bytes(Program& p) {
  static const std::vector<Rule> kRules = {
      {row(op::index, {row(op::read_bytes, {any("bytes")}).once().as("table"), any("at")}),
       look_up_bytes},
  };
  if (Rewriter(p).run(kRules)) remove_dead(p);
}

class Deriving {
 public:
  explicit Deriving(Program& p)
      : p_(p), stable_(stable_values(p, p.weights_stay)), uses_(p), wanted_(p.values.size()) {}

  void run() {
    for (ValueId v : p_.results()) wanted_[v] = 1;
    // From the end: what an instruction that stays reads is wanted.
    for (InstrId k : p_.instrs.backwards()) {
      const Instr& i = p_.instrs[k];
      if (is_stable(i)) {
        if (i.out[0] == kNone || !wanted_[i.out[0]]) continue;  // goes with its reader
        if (i.op->family != Family::view && derive(i.out[0])) continue;
      }
      for (const Arg& a : i.in)
        if (a.value != kNone) wanted_[a.value] = 1;
    }
    if (renamed_.empty()) return;
    p_.rename(renamed_);
    remove_dead(p_);
    p_.drop_unread_constants();
  }

 private:
  bool is_stable(const Instr& i) const {
    return i.op && i.out.size() == 1 && i.out[0] != kNone && stable_[i.out[0]];
  }

  bool derive(ValueId v) {
    const Spec spec = p_.values[v].spec;
    std::shared_ptr<Derived> d = Derived::of(p_, uses_, v);
    if (!d) return false;
    const size_t bytes = bytes_of(spec);
    if (bytes > kDerivedKept && bytes > kDerivedGrowth * d->source_bytes()) return false;
    if (!d->is_constant()) {
      p_.derived.push_back(std::move(d));
      renamed_.emplace_back(
          v, p_.add_value(spec, Origin::derived, static_cast<int>(p_.derived.size()) - 1));
      return true;
    }
    Tensor value;
    try {
      value = d->value();
    } catch (const Error&) {
      return false;  // the run reports it, should it come to that
    }
    if (!(spec_of(value) == spec)) return false;
    p_.shared.push_back(std::move(d));
    renamed_.emplace_back(v, p_.add_constant(std::move(value)));
    return true;
  }

  Program& p_;
  PerValue<char> stable_;
  UseDef uses_;
  PerValue<char> wanted_;
  std::vector<std::pair<ValueId, ValueId>> renamed_;
};

}  // namespace

void derive_values(Program& p) {
  if (!p.inference) return;
  look_up_rows_in_bytes(p);
  Deriving(p).run();
}

}  // namespace tandem::compiler
