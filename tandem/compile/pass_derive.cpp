// SPDX-License-Identifier: Apache-2.0
// What follows from weights alone leaves the program: packed weights, scaled filters, shifted
// biases. Of constants it becomes a constant, of cells a value that is computed again only when
// one of them was written (derived.h). Results much larger than what they are made of stay.
#include <unordered_map>

#include "tandem/compile/derived.h"
#include "tandem/compile/emit.h"
#include "tandem/compile/passes.h"
#include "tandem/graph/apply.h"
#include "tandem/ops/index.h"
#include "tandem/ops/packed.h"

namespace tandem::compiler {
namespace {

constexpr size_t kSmall = 1 << 20;  ///< bytes that may always be kept
constexpr size_t kGrowth = 6;       ///< a result may be so much larger than its sources

size_t idx(int k) { return static_cast<size_t>(k); }

// Rows that are looked up in a table which lies in a file are looked up in its bytes: the table is
// not copied for the few rows that a call reads.
class RowsOfBytes {
 public:
  explicit RowsOfBytes(Program& p) : p_(p), e_(p), uses_(p.count_uses()) {
    for (const Instr& i : p.instrs)
      if (i.op == &op::read_bytes) made_[i.out[0]] = i.in[0].value;
  }

  void run() {
    if (made_.empty()) return;
    if (e_.rewrite([this](const Instr& i) { return looked_up(i); })) remove_dead(p_);
  }

 private:
  int looked_up(const Instr& i) {
    if (i.op != &op::index || i.in.size() != 2 || i.in[0].value == kNone) return kNone;
    const auto& a = *static_cast<const IndexAttrs*>(i.attrs.get());
    const auto table = made_.find(i.in[0].value);
    if (table == made_.end() || a.dim != 0 || uses_[idx(i.in[0].value)] != 1) return kNone;
    const Spec spec = p_.values[idx(i.in[0].value)].spec, out = p_.values[idx(i.out[0])].spec;
    const int64_t rows = spec.shape[0].value();
    if (rows == 0 || out.shape.numel().value() >= spec.shape.numel().value() / 2) return kNone;
    const int64_t row = e_.size(table->second, 0) / rows;
    const int bytes = e_.emit(op::index, i.attrs.type(), i.attrs.get(),
                              {e_.view(table->second, Shape(rows, row)), i.in[1].value});
    ReadBytesAttrs b;
    b.dtype = out.dtype;
    for (const Dim d : out.shape) b.shape.push_back(d);
    const int64_t n = e_.shape(bytes).numel().value();
    return e_.emit(op::read_bytes, fields<ReadBytesAttrs>(), &b, {e_.view(bytes, Shape(n))});
  }

  Program& p_;
  Emitter e_;
  std::vector<int> uses_;
  std::unordered_map<int, int> made_;  ///< by read_bytes: the bytes
};

class Deriving {
 public:
  explicit Deriving(Program& p)
      : p_(p),
        stable_(stable_values(p, p.weights_stay)),
        maker_(p.values.size(), kNone),
        wanted_(p.values.size()) {
    for (size_t k = 0; k < p.instrs.size(); ++k)
      for (int v : p.instrs[k].out)
        if (v != kNone) maker_[idx(v)] = static_cast<int>(k);
  }

  void run() {
    for (int v : p_.results()) wanted_[idx(v)] = 1;
    // From the end: what an instruction that stays reads is wanted.
    for (size_t k = p_.instrs.size(); k-- > 0;) {
      const Instr& i = p_.instrs[k];
      if (is_stable(i)) {
        if (i.out[0] == kNone || !wanted_[idx(i.out[0])]) continue;  // goes with its reader
        if (i.op->family != Family::view && derive(i.out[0])) continue;
      }
      for (const Arg& a : i.in)
        if (a.value != kNone) wanted_[idx(a.value)] = 1;
    }
    if (renamed_.empty()) return;
    p_.rename(renamed_);
    remove_dead(p_);
    p_.drop_unread_constants();
  }

 private:
  bool is_stable(const Instr& i) const {
    return i.op && i.out.size() == 1 && i.out[0] != kNone && stable_[idx(i.out[0])];
  }

  bool derive(int v) {
    const Spec& spec = p_.values[idx(v)].spec;
    std::shared_ptr<Derived> d = Derived::of(p_, maker_, v);
    if (!d) return false;
    const size_t bytes = static_cast<size_t>(spec.shape.numel().value()) * size_of(spec.dtype);
    if (bytes > kSmall && bytes > kGrowth * d->source_bytes()) return false;
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
    p_.constants.push_back(std::move(value));
    p_.shared.push_back(std::move(d));
    renamed_.emplace_back(
        v, p_.add_value(spec, Origin::constant, static_cast<int>(p_.constants.size()) - 1));
    return true;
  }

  Program& p_;
  std::vector<char> stable_;
  std::vector<int> maker_;
  std::vector<char> wanted_;
  std::vector<std::pair<int, int>> renamed_;
};

}  // namespace

void derive_values(Program& p) {
  if (!p.inference) return;
  RowsOfBytes(p).run();
  Deriving(p).run();
}

}  // namespace tandem::compiler
