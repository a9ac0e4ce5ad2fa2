// SPDX-License-Identifier: Apache-2.0
// Bias, residual, numbers and activation after a matmul or convolution with a packed weight go
// into it: they are done on a tile that was just computed. The instruction then stands where the
// last one that it took in stood. What has no place there becomes an epilogue as for other matmuls.
//
// A number that multiplies does not go into the weight: its rounding would be the same for all
// pixels, so that it adds up in the layers that follow, where that of results does not.
//
// A bias is where the sum starts, and activations but clamps are approximated on the tile by
// polynomials of their own: where Program::same_bits, those stay after the matmul.
#include <cmath>
#include <unordered_map>

#include "tandem/compile/passes/emit.h"
#include "tandem/compile/passes/passes.h"
#include "tandem/compile/passes/rewriter.h"
#include "tandem/ops/matmul/packed.h"
#include "tandem/ops/pointwise/pointwise.h"

namespace tandem::compiler {
namespace {

const PackedAttrs& attrs(const Instr& i) { return *static_cast<const PackedAttrs*>(i.attrs.get()); }
bool has_operand(const Instr& i, size_t k) { return k < i.in.size() && i.in[k].present(); }

Pattern packed(int readings) {
  return with_flag(kPackedMatmul | kPackedConv).read(readings).as("y");
}

bool is_packed(const Instr& i) { return i.op && packed(0).takes(*i.op); }

class PackedEpilogues {
 public:
  explicit PackedEpilogues(const Program& p)
      : same_bits_(p.same_bits), stable_(stable_values(p, p.weights_stay)) {
    for (InstrId k : p.instrs.ids())
      if (is_packed(p.instrs[k])) start_[p.instrs[k].out[0]] = k;
  }
  std::vector<Rule> rules();

 private:
  std::vector<Rule> exact_rules();
  std::vector<Rule> activations();
  using Bound = std::optional<double>;

  // The packed instruction `i` makes what the root makes, with what the root does as its epilogue.
  void finish(Rewrite& r, Instr i, PackedAttrs a, PackedEpilogue epilogue) {
    a.epilogue = static_cast<int64_t>(epilogue);
    take(r, std::move(i), a);
  }
  void take(Rewrite& r, Instr i, const PackedAttrs& a) {
    i.attrs = AttrsHolder(fields<PackedAttrs>(), &a);
    start_[r.root().out[0]] = start_.at(i.out[0]);
    r.become(std::move(i));
  }
  static bool same_spec(const Rewrite& r) {
    return r.spec(r.value("y")) == r.spec(r.root().out[0]);
  }

  static bool scaled_before(const PackedAttrs& a) { return a.scale != 1 || a.shift != 0; }
  static bool scaled_after(const PackedAttrs& a) {
    return a.scale_after != 1 || a.shift_after != 0;
  }

  void activate(Rewrite& r, PackedEpilogue epilogue) {
    const Instr& i = r.instr("y");
    if (attrs(i).epilogue == 0 && !scaled_after(attrs(i)) && same_spec(r))
      finish(r, i, attrs(i), epilogue);
  }

  // The root multiplies by a number, or adds it: before the residual and the activation if there
  // are none yet, or after them.
  void scale_or_shift(Rewrite& r) {
    const Instr& i = r.instr("y");
    const double n = static_cast<float>(r.number("n"));
    if (!same_spec(r) || r.spec(i.out[0]).dtype != DType::f32 || !std::isfinite(n) || n == 0)
      return;
    PackedAttrs a = attrs(i);
    const bool scales = r.root().op == &op::mul;
    const auto put = [&](double& scale, double& shift) {
      if ((scales && scale != 1) || shift != 0) return false;
      (scales ? scale : shift) = n;
      return true;
    };
    const bool before = a.epilogue == 0 && !has_operand(i, 3) && !scaled_after(a);
    if ((before && put(a.scale, a.shift)) || put(a.scale_after, a.shift_after)) take(r, i, a);
  }

  // Maximum with `low`, then minimum with `high`.
  void clamp(Rewrite& r, Bound low, Bound high) {
    const Instr& i = r.instr("y");
    PackedAttrs a = attrs(i);
    if (!same_spec(r) || scaled_after(a) ||
        (a.epilogue != 0 && a.epilogue != static_cast<int64_t>(PackedEpilogue::clamp)))
      return;
    if (a.epilogue == 0) {
      a.low = -INFINITY;
      a.high = INFINITY;
    }
    if (low) {
      a.low = std::max(a.low, *low);
      a.high = std::max(a.high, *low);
    }
    if (high) {
      a.low = std::min(a.low, *high);
      a.high = std::min(a.high, *high);
    }
    finish(r, i, a, PackedEpilogue::clamp);
  }
  void at_least(Rewrite& r) {
    if (const double n = r.number("low"); !std::isnan(n)) clamp(r, n, {});
  }
  void at_most(Rewrite& r) {
    if (const double n = r.number("high"); !std::isnan(n)) clamp(r, {}, n);
  }
  void between(Rewrite& r) {
    const double low = r.number("low"), high = r.number("high");
    if (low <= high) clamp(r, low, high);
  }

  // A bias has one element per column, a residual the shape of the result. Of one row either could
  // be meant: what is computed is a residual, so that a row has the bits that it has among others.
  bool is_bias(const Rewrite& r, const Instr& i, ValueId v) const {
    const Shape &s = r.spec(v).shape, &y = r.spec(i.out[0]).shape;
    const int64_t columns = y[y.rank() - 1].value();
    return !same_bits_ && !has_operand(i, 2) && !scaled_before(attrs(i)) && s.rank() > 0 &&
           s.numel().value() == columns && s[s.rank() - 1].value() == columns &&
           (!(s == y) || (v.index() < stable_.size() && stable_[v]));
  }
  bool may_add(const Rewrite& r, const Instr& i, ValueId v) const {
    return attrs(i).epilogue == 0 && !scaled_after(attrs(i)) && !has_operand(i, 3) &&
           r.spec(i.out[0]) == r.spec(r.root().out[0]) &&
           r.spec(v).dtype == r.spec(i.out[0]).dtype &&
           (is_bias(r, i, v) || r.spec(v).shape == r.spec(i.out[0]).shape);
  }
  void add(Rewrite& r) {
    const ValueId y = r.value("y"), v = r.value("other");
    Instr i = r.instr("y");
    if (!may_add(r, i, v)) return;
    // Of two that could take in the other's result the one that came first in the program does.
    const auto other = start_.find(v);
    if (other != start_.end() && other->second < start_.at(y) && r.uses(v) == 1 &&
        may_add(r, *r.maker(v), y))
      return;
    const size_t at = is_bias(r, i, v) ? 2 : 3;
    while (i.in.size() <= at) i.in.push_back({});
    i.in[at].value = v;
    const PackedAttrs a = attrs(i);
    take(r, std::move(i), a);
  }

  static bool about(double n, double want) { return std::abs(n - want) < 1e-6 * want; }
  void erf_gelu(Rewrite& r) {
    if (about(r.number("half"), 0.5) && about(r.number("one"), 1.0) &&
        (about(r.number("root"), std::sqrt(r.instr("scaled").op == &op::div ? 2.0 : 0.5))))
      activate(r, PackedEpilogue::gelu);
  }

  void hardswish(Rewrite& r) {
    if (r.number("three") == 3 && r.number("zero") == 0 && r.number("six") == 6 &&
        r.number("all") == 6)
      activate(r, PackedEpilogue::hardswish);
  }

  bool same_bits_;
  PerValue<char> stable_;  ///< the same in every call
  /// Where each packed instruction stood before anything was taken in, by its result.
  std::unordered_map<ValueId, InstrId> start_;
};

std::vector<Rule> PackedEpilogues::rules() {
  std::vector<Rule> all = exact_rules();
  if (!same_bits_)
    for (Rule& r : activations()) all.push_back(std::move(r));
  return all;
}

std::vector<Rule> PackedEpilogues::exact_rules() {
  const auto bounds = [this](Bound low, Bound high) {
    return [this, low, high](Rewrite& r) { clamp(r, low, high); };
  };
  const auto by = [this](void (PackedEpilogues::*apply)(Rewrite&)) {
    return [this, apply](Rewrite& r) { (this->*apply)(r); };
  };
  return {
      {row(op::mul, {packed(1), number("n")}).any_order(), by(&PackedEpilogues::scale_or_shift)},
      {row(op::add, {packed(1), number("n")}).any_order(), by(&PackedEpilogues::scale_or_shift)},
      {row(op::add, {packed(1), any("other")}).any_order(), by(&PackedEpilogues::add)},
      {row(op::relu, {packed(1)}), bounds(0.0, {})},
      {row(op::relu6, {packed(1)}), bounds(0.0, 6.0)},
      {row(op::maximum, {packed(1), number("low")}).any_order(), by(&PackedEpilogues::at_least)},
      {row(op::minimum, {packed(1), number("high")}).any_order(), by(&PackedEpilogues::at_most)},
      {row(op::clamp_min, {packed(1), number("low")}), by(&PackedEpilogues::at_least)},
      {row(op::clamp_max, {packed(1), number("high")}), by(&PackedEpilogues::at_most)},
      {row(op::clamp, {packed(1), number("low"), number("high")}), by(&PackedEpilogues::between)},
  };
}

std::vector<Rule> PackedEpilogues::activations() {
  const auto become = [this](PackedEpilogue e) {
    return [this, e](Rewrite& r) { activate(r, e); };
  };
  const auto by = [this](void (PackedEpilogues::*apply)(Rewrite&)) {
    return [this, apply](Rewrite& r) { (this->*apply)(r); };
  };
  // ((erf(y / sqrt 2) + 1) * y) * 0.5, as exporters write gelu.
  const auto erf_form = [](Pattern scaled) {
    Pattern sum =
        row(op::add, {row(op::erf, {std::move(scaled).once().as("scaled")}).once(), number("one")})
            .any_order()
            .once();
    Pattern whole = row(op::mul, {std::move(sum), any("y")}).any_order().once();
    return row(op::mul, {std::move(whole), number("half")}).any_order();
  };
  // y * clamp(y + 3, 0, 6) / 6.
  const Pattern shifted = row(op::add, {packed(2), number("three")}).any_order().once();
  const auto hardswish_form = [](Pattern bounded) {
    Pattern whole = row(op::mul, {any("y"), std::move(bounded).once()}).any_order().once();
    return row(op::div, {std::move(whole), number("all")});
  };
  return {
      {row(op::sigmoid, {packed(1)}), become(PackedEpilogue::sigmoid)},
      {row(op::silu, {packed(1)}), become(PackedEpilogue::silu)},
      {row(op::gelu, {packed(1)}), become(PackedEpilogue::gelu)},
      {row(op::hardswish, {packed(1)}), become(PackedEpilogue::hardswish)},
      {hardswish_form(
           row(op::minimum, {row(op::maximum, {shifted, number("zero")}).once(), number("six")})),
       by(&PackedEpilogues::hardswish)},
      {hardswish_form(row(op::clamp, {shifted, number("zero"), number("six")})),
       by(&PackedEpilogues::hardswish)},
      {row(op::mul, {packed(2), row(op::sigmoid, {any("y")}).once()}).any_order(),
       become(PackedEpilogue::silu)},
      {erf_form(row(op::div, {packed(2), number("root")})), by(&PackedEpilogues::erf_gelu)},
      {erf_form(row(op::mul, {packed(2), number("root")}).any_order()),
       by(&PackedEpilogues::erf_gelu)},
  };
}

}  // namespace

void take_epilogues(Program& p) {
  if (!p.inference) return;
  PackedEpilogues epilogues(p);
  Rewriter(p).run(epilogues.rules());
}

}  // namespace tandem::compiler
